"""Recollect's agents on upstream verl, unmodified: Ray, FSDP or Megatron, vLLM or SGLang."""
