"""All of the GPU's benchmarks, each in a process of its own, and one table of their figures.

What is finished stays on the page, so that the same command continues where it was stopped; what
was not is there as far as it came, and runs again. A line of a benchmark that begins with
"figure |" is a row of the table; below it is all that was printed.

    python benchmarks/all_gpu.py [--model models/smollm2] [--out build/bench-gpu] [--only NAME ...]

The races need vLLM (`pip install vllm==0.24.0`); without it their other columns are measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
RACE = ("--peer", "vllm", "--chunks", "1", "--tool-tasks", "8", "--sequences", "1024",
        "--batch-tokens", "32768", "--logprobs", "1", "0", "--graphs", "1024", "--seeds", "0",
        "--modes", "recollect", "offline", "engine", "--limit", "180")  # fmt: skip
HEAD = "| benchmark | what | figure | beside |\n|---|---|---|---|"


def commands(model: Path | None, made: Path) -> dict[str, list[str]]:
    """Return the command of every benchmark by name; `made` holds models of random weights."""
    step = ["train_step.py", "--weights", "bfloat16", "--recompute", "0"]
    found = {
        "sampler against trainer": ["gpu_check.py"],
        "paged kernels": ["paged_kernel.py"],
        "gradients": ["train_check.py", "--no-compile"],
        "FP8": ["fp8.py"],
        "update, 7B, six chunks": [*step, "--rows", "4", "--varlen"],
        "update, 7B, 30 turns with tools": [
            *step, "--turns", "30", "--rows", "4", "--layers", "4", "--no-compile"
        ],
        "update, 7B, published order": [
            *step, "--order", "memory_first", "--layers", "4", "--chunks", "2", "--rows", "8",
            "--no-compile",
        ],
        "update, 1.5B": [*step, "--shape", "1.5b", "--rows", "8"],
        "update against chunks and rollouts": [
            "train_step.py", "--mode", "scaling", "--layers", "2", "--no-compile"
        ],
    }  # fmt: skip
    if model:
        found["rollout, SmolLM2"] = ["rollout.py", "--model", str(model)]
        found["race, SmolLM2"] = ["rollout.py", "--model", str(model), *RACE, "--cache-gib", "16"]
    for size, gib in (("1.5B", "16"), ("7B", "24")):
        folder = str(made / size)
        make = ["../scripts/make_random_model.py", "--shape", f"Qwen2.5-{size}", "--out", folder]
        found[f"random weights, {size}"] = make
        found[f"race, {size}"] = ["rollout.py", "--model", folder, *RACE, "--cache-gib", gib]
    loop = ["whole_loop.py", "--model", str(made / "7B"), "--ways", "chunk_first"]
    found["whole loop, 7B"] = [*loop, "--out", str(made / "loop")]
    found["whole loop, 7B, every way, two prompts"] = [
        *loop, "memory_first", "ahead", "--tasks", "2", "--chunks", "3",
        "--out", str(made / "loops"),
    ]  # fmt: skip
    if find_spec("verl"):
        found["cluster engine"] = ["cluster_gpu.py", "--out", str(made / "cluster")]
    return found


def main() -> int:
    """Run what is left to run; write the page after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder with SmolLM2's weights, for rollouts")
    parser.add_argument("--out", type=Path, default=Path("build/bench-gpu"))
    parser.add_argument("--only", nargs="+", help="parts of names")
    parser.add_argument("--minutes", type=float, default=20.0, help="the most that one may take")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, words in commands(options.model, options.out).items():
        log = _log(options.out, name)
        if log.exists() or (options.only and not any(part in name for part in options.only)):
            continue
        print(f"== {name}: {' '.join(words)}", flush=True)
        started = time.monotonic()
        text, status = said_by(words, 60 * options.minutes)
        print(text, f"{time.monotonic() - started:.0f} s", flush=True)
        failed += status != 0
        unfinished = log.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        kept = unfinished if status else log
        kept.write_text(f"python benchmarks/{' '.join(words)}\n\n{text.strip()}\n")
        _write_page(options.out, options.model)
    return 1 if failed else 0


def said_by(words: list[str], seconds: float) -> tuple[str, int]:
    """Run a benchmark; return what it has printed, also if it has to be ended, and its status."""
    env = os.environ | {"PYTHONPATH": _paths(), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, str(HERE / words[0]), *words[1:]]
        process = subprocess.Popen(command, env=env, stdout=out, stderr=errors)
        late = ""
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            late, status = f"not finished in {seconds / 60:g} minutes", 1
        finally:
            for pid in family(process.pid) if process.poll() is None else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # whatever is left would hold the GPU
            process.wait()
        out.seek(0)
        errors.seek(0)
        return out.read() + (errors.read()[-2000:] if status else "") + late, status


def family(pid: int) -> list[int]:
    """Return a process and all that it and those have started, whatever their groups."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended just now
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parts[2]))
    found = [pid]
    for own in found:
        found += children.get(own, [])
    return found


def _paths() -> str:
    """Let benchmarks import each other."""
    return os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])


def _log(out: Path, name: str) -> Path:
    return out / f"{name.replace(' ', '-').replace(',', '')}.txt"


def _write_page(out: Path, model: Path | None) -> None:
    said = {}
    for name in commands(model, out):
        log = _log(out, name)
        for path, title in ((log, name), (log.with_suffix(".unfinished"), f"{name} (unfinished)")):
            if path.exists():
                said[title] = path.read_text().strip()
    parts = ["# What one GPU measured", table(said)]
    for name, text in said.items():
        parts += [f"## {name}", f"```\n{text}\n```"]
    (out / "figures.md").write_text("\n\n".join(parts) + "\n")


def table(said: dict[str, str]) -> str:
    """Lay out the figures of all benchmarks, by their names, in one table."""
    rows = [HEAD]
    for name, text in said.items():
        for line in text.splitlines():
            mark, *cells = (cell.strip() for cell in line.split("|"))
            if mark == "figure" and len(cells) == 3:
                rows.append(f"| {' | '.join((name, *cells))} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
