"""The embedded engine's samplers: `dense` for a CPU, `paged` for a GPU; `choice` picks one.

`vllm_policy` has vLLM draw instead, in a process of its own.
"""
