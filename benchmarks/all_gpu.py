"""All of the GPU's benchmarks, each in a process of its own, and one page of figures.

What is finished stays on the page, so that the same command continues where it was stopped.

    python benchmarks/all_gpu.py [--model models/smollm2] [--out build/bench-gpu] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def commands(model: Path | None) -> dict[str, list[str]]:
    """Return the command of every benchmark by name, the shortest first."""
    step = ["train_step.py", "--weights", "bfloat16", "--recompute", "0"]
    found = {
        "sampler against trainer": ["gpu_check.py"],
        "paged kernels": ["paged_kernel.py"],
        "gradients": ["train_check.py", "--no-compile"],
        "update, 7B, six chunks": [*step, "--rows", "4", "--varlen"],
        "update, 7B, 30 turns with tools": [*step, "--turns", "30", "--rows", "4"],
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
    return found


def main() -> int:
    """Run what is left to run; write the page after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder with SmolLM2's weights, for rollouts")
    parser.add_argument("--out", type=Path, default=Path("build/bench-gpu"))
    parser.add_argument("--only", nargs="+", help="parts of names")
    parser.add_argument("--minutes", type=float, default=10.0, help="the most that one may take")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, words in commands(options.model).items():
        log = _log(options.out, name)
        if log.exists() or (options.only and not any(part in name for part in options.only)):
            continue
        print(f"== {name}: {' '.join(words)}", flush=True)
        started = time.monotonic()
        try:
            ended = subprocess.run(
                [sys.executable, str(HERE / words[0]), *words[1:]],
                capture_output=True, text=True, timeout=60 * options.minutes,
            )  # fmt: skip
            status = ended.returncode
            text = ended.stdout + (ended.stderr[-2000:] if status else "")
        except subprocess.TimeoutExpired:
            text, status = f"not finished in {options.minutes:g} minutes", 1
        print(text, f"{time.monotonic() - started:.0f} s", flush=True)
        failed += status != 0
        if status == 0:
            log.write_text(f"python benchmarks/{' '.join(words)}\n\n{text.strip()}\n")
        _write_page(options.out, options.model)
    return 1 if failed else 0


def _log(out: Path, name: str) -> Path:
    return out / f"{name.replace(' ', '-').replace(',', '')}.txt"


def _write_page(out: Path, model: Path | None) -> None:
    parts = ["# What one GPU measured"]
    for name in commands(model):
        log = _log(out, name)
        if log.exists():
            parts += [f"## {name}", f"```\n{log.read_text().strip()}\n```"]
    (out / "figures.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    sys.exit(main())
