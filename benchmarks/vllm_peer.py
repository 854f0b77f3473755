"""Recollect's sampler beside vLLM: the same prompts, lengths and machine, and one table.

Three shapes: a fold (siblings share a chunk), long lone prompts, and tool use (contexts that grow
over 30 short turns). vLLM runs offline (`LLM.generate`, a turn in one call), as an engine (what
`--rollout.sampler vllm` starts) and as its own server over HTTP, with every number of sequences and
batch tokens that is asked for, with and without log-probabilities. Each setting has a process of
its own, and one turn of a shape warms it up. `--at-once N` lets N of these processes start at the
same time; they measure one after the other. `python -m benchmarks.rollout --peer vllm` calls this.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Prompts = list[list[int]]
Turn = Callable[[Prompts, int], Awaitable[Prompts]]
"""Continues prompts by exactly that many tokens each; returns the new tokens."""
MODES = ("recollect", "offline", "engine", "server")


@dataclass(frozen=True)
class Shape:
    """What is sampled: `turns` times `contexts` prompts, and `new` tokens for each."""

    name: str
    tasks: int
    group: int
    turns: int
    shared: int
    """Tokens at the beginning of a prompt that the siblings of a group share."""
    own: int
    """Tokens after these that nobody shares; where contexts grow, of a turn."""
    new: int
    grows: bool = False

    async def run(self, turn: Turn, vocabulary: int, seed: int) -> tuple[int, float]:
        """Sample all turns; return new tokens and seconds."""
        rng = random.Random(seed)
        ids = lambda n: [rng.randrange(5, vocabulary) for _ in range(n)]  # noqa: E731
        prompts: Prompts = []
        said: Prompts = []
        seconds = 0.0
        for at in range(self.turns):
            if at and self.grows:
                prompts = [[*p, *n, *ids(self.own)] for p, n in zip(prompts, said, strict=True)]
            else:
                chunks = [ids(self.shared) for _ in range(self.tasks)]
                prompts = [[*chunk, *ids(self.own)] for chunk in chunks for _ in range(self.group)]
            started = time.perf_counter()
            said = await turn(prompts, self.new)
            seconds += time.perf_counter() - started
            assert all(len(new) == self.new for new in said), "a reply has another length"
        return self.turns * self.tasks * self.group * self.new, seconds


@dataclass(frozen=True)
class Cell:
    """One setting, measured in one process."""

    mode: str
    model: str
    sequences: int
    batch_tokens: int
    logprobs: bool
    cache_gib: float
    device: str
    shapes: tuple[Shape, ...]
    window: int
    lock: str = ""
    """A file that is locked while this cell measures."""
    profile: bool = False


def shapes(options: argparse.Namespace) -> list[Shape]:
    """Return the shapes that are asked for."""
    tasks, group, new = options.tasks, options.group, options.new_tokens
    every = [
        Shape("fold", tasks, group, options.chunks + 1, options.words, 103, new),
        Shape("lone", options.lone, 1, 2, options.lone_tokens, 0, new),
        Shape("tools", options.tool_tasks or tasks, group, options.tool_turns,
              600 * options.words // 900, 40, 30, True),
    ]  # fmt: skip
    return [shape for shape in every if shape.name in options.shapes]


def race(options: argparse.Namespace) -> int:
    """Measure every cell and print one table; return 1 if a cell failed."""
    wanted = tuple(shapes(options))
    window = max(s.shared + (s.turns if s.grows else 1) * (s.own + s.new) for s in wanted) + 16
    rows: list[dict[str, Any]] = []
    with tempfile.NamedTemporaryFile() as lock, ThreadPoolExecutor(options.at_once) as starting:
        cells = [Cell(mode, options.model, sequences, tokens, logprobs, options.cache_gib,
                      options.device, wanted, window, lock.name, options.profile)
                 for mode in options.modes
                 for sequences in options.sequences
                 for tokens in (options.batch_tokens if mode != "recollect" else [0])
                 for logprobs in options.logprobs
                 if logprobs or mode in ("offline", "server")]  # fmt: skip
        found = list(starting.map(measure, cells))
    for cell, measured in zip(cells, found, strict=True):
        settings = {name: getattr(cell, name) for name in COLUMNS}
        rows += [row | settings for row in measured or [{"shape": s.name} for s in wanted]]
    print(table(rows))
    return int(None in found)


def measure(cell: Cell) -> list[dict[str, Any]] | None:
    """Run a cell in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.vllm_peer", json.dumps(asdict(cell))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"{cell.mode}, {cell.sequences} sequences: failed", file=sys.stderr, flush=True)
        return None
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    for row in found:
        print(
            f"{cell.mode} {cell.sequences} {cell.batch_tokens} {row}", file=sys.stderr, flush=True
        )
    return found


COLUMNS = ("mode", "sequences", "batch_tokens", "logprobs")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Lay the cells out, the fastest of each shape marked."""
    best = {row["shape"]: max(r.get("rate", 0.0) for r in rows if r["shape"] == row["shape"])
            for row in rows}  # fmt: skip
    lines = [
        "| shape | sampler | sequences | batch tokens | logprobs | new tokens | s | tokens/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row["shape"]):
        rate = row.get("rate")
        shown = "failed" if rate is None else f"{rate:,.0f}"
        shown = f"**{shown}**" if rate and rate == best[row["shape"]] else shown
        lines.append(
            f"| {row['shape']} | {row['mode']} | {row['sequences']} | {row['batch_tokens'] or '-'}"
            f" | {'yes' if row['logprobs'] else 'no'} | {row.get('tokens', 0):,}"
            f" | {row.get('seconds', 0.0):.2f} | {shown} |"
        )
    return "\n".join(lines)


# In the process of a cell


def run_cell(cell: Cell) -> list[dict[str, Any]]:
    """Measure all shapes with one sampler."""
    with OPENED[cell.mode](cell) as (turn, vocabulary), _alone(cell.lock):
        return asyncio.run(_shapes(cell, turn, vocabulary))


@contextmanager
def _alone(lock: str) -> Iterator[None]:
    """Measure while nobody else does."""
    if not lock:
        yield
        return
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def _shapes(cell: Cell, turn: Turn, vocabulary: int) -> list[dict[str, Any]]:
    rows = []
    for shape in cell.shapes:
        warm = Shape(**{**asdict(shape), "turns": 1})
        await warm.run(turn, vocabulary, seed=1)
        tokens, seconds = await shape.run(turn, vocabulary, seed=2)
        rows.append({"shape": shape.name, "tokens": tokens, "seconds": round(seconds, 3),
                     "rate": tokens / seconds})  # fmt: skip
    return rows


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

    model = _loaded(cell)
    options = VllmOptions(cell.cache_gib, cell.sequences, cell.batch_tokens)
    policy = VllmPolicy(model, cell.model, options)
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
    return {
        "model": cell.model, "dtype": _dtype(cell), "max_model_len": cell.window,
        "max_num_seqs": cell.sequences, "kv_cache_memory_bytes": int(cell.cache_gib * 2**30),
        **({"max_num_batched_tokens": cell.batch_tokens} if cell.batch_tokens else {}),
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
            SamplingParams(max_tokens=new, ignore_eos=True, seed=i, detokenize=False,
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
        flags += [flag] if value is True else [] if value is False else [flag, str(value)]
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
            {"model": "model", "prompt": prompt, "max_tokens": new, "ignore_eos": True, "seed": i,
             "return_token_ids": True, **({"logprobs": 0} if cell.logprobs else {})}
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


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    given["shapes"] = tuple(Shape(**shape) for shape in given["shapes"])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints; the result has the last line for itself
    print(json.dumps(run_cell(Cell(**given))), file=out, flush=True)
    os._exit(0)  # vLLM's threads may outlive it
