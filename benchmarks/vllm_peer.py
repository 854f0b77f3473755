"""One setting of the race in a process of its own: Recollect's sampler, or vLLM in three ways.

vLLM runs offline (`LLM.generate`, a turn in one call), as an engine (what `--rollout.sampler vllm`
starts) and as its own server over HTTP. Prints a line of JSON when it has started, and one for
every shape. `benchmarks/race.py` starts it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.race import Cell, Prompts, Shape, Turn


def run_cell(cell: Cell, say: Callable[[dict[str, Any]], None]) -> None:
    """Start one sampler, then measure all shapes; say each thing when it is done."""
    with OPENED[cell.mode](cell) as (turn, vocabulary):
        say({"started": True})
        with _alone(cell.lock):
            asyncio.run(_shapes(cell, turn, vocabulary, say))


@contextmanager
def _alone(lock: str) -> Iterator[None]:
    """Measure while nobody else does."""
    if not lock:
        yield
        return
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def _shapes(cell: Cell, turn: Turn, vocabulary: int, say: Callable[..., None]) -> None:
    for shape in cell.shapes:
        warm = Shape(**{**asdict(shape), "turns": 1})
        _, warmed = await warm.run(turn, vocabulary, seed=1)
        tokens, seconds = await shape.run(turn, vocabulary, seed=2)
        say({"shape": shape.name, "tokens": tokens, "seconds": round(seconds, 3),
             "warm": round(warmed, 3), "rate": tokens / seconds})  # fmt: skip


def _loaded(cell: Cell) -> Any:
    """Load the model; no token ends a reply, so that all have the same length."""
    from recollect.config.engine import ModelConfig
    from recollect.models.model import load_model

    fused = cell.device == "cuda"
    model = load_model(ModelConfig(cell.model, cell.device, weights=_dtype(cell), compile=fused))
    model.tokenizer.end_ids = ()
    return model


def _dtype(cell: Cell) -> Any:
    return "float32" if cell.device == "cpu" else "bfloat16"


@contextmanager
def recollect(cell: Cell) -> Iterator[tuple[Turn, int]]:
    """Sample as the embedded engine does."""
    from recollect.sampler.choice import open_sampler

    model = _loaded(cell)
    policy = open_sampler(model, cell.cache_gib, cell.sequences)
    if cell.profile:
        from benchmarks.rollout_profile import profiled_turns

        yield profiled_turns(policy, _sampled(policy)), model.tokenizer.vocab_size
    else:
        yield _sampled(policy), model.tokenizer.vocab_size


@contextmanager
def engine(cell: Cell) -> Iterator[tuple[Turn, int]]:
    """Sample as `--rollout.sampler vllm` does."""
    from recollect.sampler.vllm_policy import VllmOptions, VllmPolicy
    from recollect.sampler.vllm_process import VllmProcess

    process = VllmProcess()
    options = VllmOptions(cell.cache_gib, cell.sequences, cell.batch_tokens)
    model = _loaded(cell)
    policy = VllmPolicy(model, cell.model, options, process)
    print(f"vLLM's own part of the start, s: {policy.start_seconds}", file=sys.stderr, flush=True)
    try:
        yield _sampled(policy), model.tokenizer.vocab_size
    finally:
        policy.close()


def _sampled(policy: Any) -> Turn:
    from recollect.types import Sampling

    async def turn(prompts: Prompts, new: int) -> Prompts:
        asked = [policy.sample(p, Sampling(new, seed=i)) for i, p in enumerate(prompts)]
        return [list(said.token_ids) for said in await asyncio.gather(*asked)]

    return turn


def _settings(cell: Cell) -> dict[str, Any]:
    """Return vLLM's settings, by the names of its Python interface."""
    from recollect.sampler.vllm_graphs import graph_sizes

    return {
        "model": cell.model, "dtype": _dtype(cell), "max_model_len": cell.window,
        "max_num_seqs": cell.sequences, "kv_cache_memory_bytes": int(cell.cache_gib * 2**30),
        **({"max_num_batched_tokens": cell.batch_tokens} if cell.batch_tokens else {}),
        **({"cudagraph_capture_sizes": graph_sizes(cell.graphs)} if cell.graphs else {}),
        "enforce_eager": cell.device == "cpu", "logprobs_mode": "processed_logprobs",
        "gpu_memory_utilization": 0.05, "generation_config": "vllm", "disable_log_stats": True,
    }  # fmt: skip


def _vocabulary(cell: Cell) -> int:
    settings = json.loads(Path(cell.model, "config.json").read_text())
    return int(settings["vocab_size"])


@contextmanager
def offline(cell: Cell) -> Iterator[tuple[Turn, int]]:
    """Hand vLLM all prompts of a turn at once."""
    from vllm import LLM, SamplingParams

    model = LLM(**_settings(cell))

    async def turn(prompts: Prompts, new: int) -> Prompts:
        params = [
            SamplingParams(max_tokens=new, ignore_eos=True, seed=i if cell.seeds else None,
                           detokenize=False,
                           logprobs=0 if cell.logprobs else None)
            for i in range(len(prompts))
        ]  # fmt: skip
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        done = model.generate(given, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in done]

    yield turn, _vocabulary(cell)


@contextmanager
def server(cell: Cell) -> Iterator[tuple[Turn, int]]:
    """Ask vLLM's own server, a request for each prompt."""
    from recollect.policies.client import Client, Endpoint

    port = _free_port()
    flags: list[str] = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "model"]
    for name, value in _settings(cell).items():
        flag = f"--{name.replace('_', '-')}"
        words = map(str, value if isinstance(value, list) else [value])
        flags += [flag] if value is True else [] if value is False else [flag, *words]
    reading, writing = os.pipe()  # see runs.child: it ends with this process
    command = [sys.executable, "-m", "recollect.runs.child", str(reading)]
    process = subprocess.Popen(
        [*command, "vllm.entrypoints.openai.api_server", *flags],
        stdout=sys.stderr, pass_fds=(reading,), process_group=0,
    )  # fmt: skip
    client = Client(Endpoint(f"http://127.0.0.1:{port}/v1", concurrency=4096, timeout=3600))

    async def turn(prompts: Prompts, new: int) -> Prompts:
        def read(answer: dict[str, Any]) -> list[int]:
            return list(answer["choices"][0]["token_ids"])

        bodies = [
            {"model": "model", "prompt": prompt, "max_tokens": new, "ignore_eos": True,
             "return_token_ids": True, **({"logprobs": 0} if cell.logprobs else {}),
             **({"seed": i} if cell.seeds else {})}
            for i, prompt in enumerate(prompts)
        ]  # fmt: skip
        posts = [client.post("/completions", b, read, i, 1 << 28) for i, b in enumerate(bodies)]
        return list(await asyncio.gather(*posts))

    try:
        _wait(port, process)
        yield turn, _vocabulary(cell)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(writing)


def _free_port() -> int:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    import urllib.request

    while True:
        assert process.poll() is None, "vLLM's server ended"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)


OPENED = {"recollect": recollect, "offline": offline, "engine": engine, "server": server}


def main() -> None:
    """Measure the cell that the command line holds."""
    given = json.loads(sys.argv[1])
    given["shapes"] = tuple(Shape(**shape) for shape in given["shapes"])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints; the results have the other for themselves
    run_cell(Cell(**given), lambda said: print(json.dumps(said), file=out, flush=True))
    os._exit(0)  # vLLM's threads may outlive it


if __name__ == "__main__":
    main()
