"""Look for keys and passwords in the files that git tracks; `make check` runs it.

    python scripts/secret_scan.py [FILE ...]

Prints file, line and kind of everything that looks like a secret (never the secret itself) and ends
with 1 if there is any. A line that only looks like one ends with the comment in `ALLOWED`.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ALLOWED = "not a secret"
KINDS = {
    "private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "OpenAI key": re.compile(r"\bsk-(?:proj-|ant-)?[A-Za-z0-9_-]{20,}"),
    "Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30,}"),
    "GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{40,})"),
    "AWS key": re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    "Google key": re.compile(r"\bAIza[A-Za-z0-9_-]{35}"),
    "Slack token": re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    "JSON web token": re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    "login in an address": re.compile(r"\w://[^\s/:@'\"{}<>]+:[^\s/:@'\"{}<>]{6,}@[\w.-]+"),
}
ASSIGNED = re.compile(
    r"(?:api_?key|token|secret|passw(?:or)?d)\w*[\"']?\s*[:=]\s*[\"']([A-Za-z0-9+/_=-]{24,})[\"']",
    re.IGNORECASE,
)
RANDOM = 3.7
"""Bits a character of a random text: words of any language have fewer."""


def main(paths: list[str]) -> int:
    """Look through files; without names, through all that git tracks."""
    tracked = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=not paths)
    names = paths or [name for name in tracked.stdout.decode().split("\0") if name]
    found = [line for name in names for line in scan(Path(name))]
    for line in found:
        print(line)
    print(f"{len(names)} files, {len(found)} secrets", file=sys.stderr)
    return 1 if found else 0


def scan(path: Path) -> Iterator[str]:
    """Yield where a file holds something that looks like a secret."""
    if not path.is_file() or b"\0" in (data := path.read_bytes())[:8192]:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if ALLOWED in line:
            continue
        for kind, pattern in KINDS.items():
            if pattern.search(line):
                yield f"{path}:{number}: {kind}"
        if any(bits(value) > RANDOM for value in ASSIGNED.findall(line)):
            yield f"{path}:{number}: a random text that is called a key"


def bits(text: str) -> float:
    """Return how many bits a character of a text carries on average."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
