"""A document of a million tokens through `recollect serve --agent fold`, with a window of 8K.

    python -m benchmarks.endpoint_million [--tokens 1000000] [--window 8192]

A scripted server on loopback stands for the model, so the time is that of the endpoint: counting,
cutting, storing 200 states, and passing on. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from openai import OpenAI

from tests.support.endpoint import started
from tests.support.upstream import upstream


def peak_mib(pid: int) -> float:
    """Return the most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def document(tokens: int) -> str:
    """Return a text of this many tokens, estimated at three bytes each, with facts spread in it."""
    words = [f"w{i % 10000:04d}" for i in range(tokens // 2)]  # six bytes with the space
    for i in range(100):
        words[i * len(words) // 100] = f"fact{i:02d}"
    return " ".join(words)


def measure(tokens: int, window: int) -> dict[str, object]:
    """Send the document twice, the second time with one more message."""
    text = document(tokens)
    with (
        upstream(window) as server,
        tempfile.TemporaryDirectory() as folder,
        started(Path(folder), "--upstream", server.url) as running,
    ):
        idle = peak_mib(running.process.pid)
        talk = [{"role": "user", "content": text}, {"role": "user", "content": "Which facts?"}]
        with OpenAI(base_url=running.url, api_key="none", timeout=600) as client:
            begun = time.monotonic()
            first = client.chat.completions.create(model="scripted", messages=talk, user="reader")
            read = time.monotonic() - begun
            talk += [
                {"role": "assistant", "content": "All."},
                {"role": "user", "content": "Again?"},
            ]
            begun = time.monotonic()
            second = client.chat.completions.create(model="scripted", messages=talk, user="reader")
            grown = time.monotonic() - begun
        most = max(len(prompt) for prompt in server.readings)
        said = first.choices[0].message.content or ""
        return {
            "tokens": first.recollect["tokens_read"],
            "window": window,
            "calls": first.recollect["reading"]["calls"],
            "longest_prompt_tokens": most // 3,
            "facts_answered": sum(f"fact{i:02d}" in said for i in range(100)),
            "seconds": round(read, 2),
            "seconds_when_grown": round(grown, 2),
            "calls_when_grown": second.recollect["reading"]["calls"],
            "server_mib_idle": round(idle),
            "server_mib_peak": round(peak_mib(running.process.pid)),
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--window", type=int, default=8192)
    given = parser.parse_args()
    print(json.dumps(measure(given.tokens, given.window), indent=1))
