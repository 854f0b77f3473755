"""A package named vllm that answers by a script: what our side of the pipe does without vLLM.

A request is continued by the token 7, with log-probability -0.5. `seed` 13 is refused, `seed` 666
ends the engine, as any does where SCRIPTED_DEATH is set, and a model whose path has "broken" in it
cannot be started.
"""

from __future__ import annotations

from pathlib import Path

ASYNC_LLM = """
import json
import os
from types import SimpleNamespace as Of

class EngineDeadError(Exception):
    pass

class AsyncLLM:
    errored = False

    @classmethod
    def from_engine_args(cls, settings):
        if "broken" in settings["model"]:
            raise ValueError("no kernel \\x1b[31mfor this model")
        with open(settings["model"] + "/settings.json", "w") as file:
            json.dump(settings, file)
        return cls()

    async def generate(self, prompt, params, name):
        if params["seed"] == 13:
            raise ValueError("a prompt too long")
        if params["seed"] == 666 or os.environ.get("SCRIPTED_DEATH"):
            self.errored = True
            raise EngineDeadError("EngineCore encountered an issue")
        drawn = [7] * params["max_tokens"]
        flat = Of(logprobs=[-0.5] * len(drawn), start_indices=range(len(drawn)))
        yield Of(outputs=[Of(token_ids=drawn, logprobs=flat, finish_reason="length")])

    async def reset_prefix_cache(self):
        return True

    async def collective_rpc(self, name, args):
        pass

    def shutdown(self):
        pass
"""
FILES = {
    "__init__.py": "def SamplingParams(**given):\n    return given\n",
    "sampling_params.py": "class RequestOutputKind:\n    FINAL_ONLY = 2\n",
    "engine/__init__.py": "",
    "engine/arg_utils.py": "def AsyncEngineArgs(**given):\n    return given\n",
    "v1/__init__.py": "",
    "v1/engine/__init__.py": "",
    "v1/engine/async_llm.py": ASYNC_LLM,
}


def write_vllm(folder: Path, **files: str) -> Path:
    """Write the package; return the folder that a search path needs."""
    for name, text in (FILES | files).items():
        path = folder / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
