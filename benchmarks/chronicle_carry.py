"""What of benchmarks/chronicle.py goes to another machine, in files of a few megabytes."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

PART = 15_000_000
"""Bytes of one file of what is carried to another machine."""
KEPT = ("scores.jsonl", "films.jsonl", "metrics.jsonl", "config.json", "done")
LESSONS = "*-*.npz"


def pack(out: Path, adapters: bool) -> list[Path]:
    """Write what another machine needs to continue: lessons, scores, and checkpoints under way
    where these are adapters; whole models are too large to carry."""
    carry = out / "carry"
    shutil.rmtree(carry, ignore_errors=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(out.rglob("*")):
            inside = path.relative_to(out)
            wanted = path.name in KEPT or path.match(LESSONS)
            wanted |= adapters and "checkpoints" in inside.parts
            if path.is_file() and wanted and not str(inside.parent).startswith("warm"):
                archive.add(path, str(inside))
    data = buffer.getvalue()
    carry.mkdir(parents=True)
    parts = [carry / f"part-{i:03d}" for i in range(-(-len(data) // PART))]
    for i, part in enumerate(parts):
        part.write_bytes(data[i * PART : (i + 1) * PART])
    return parts


def unpack(out: Path) -> None:
    """Take what was carried here, unless the work is here already."""
    parts = sorted((out / "carry").glob("part-*"))
    if parts and not any(out.glob(LESSONS)):
        data = io.BytesIO(b"".join(part.read_bytes() for part in parts))
        with tarfile.open(fileobj=data, mode="r:gz") as archive:
            archive.extractall(out, filter="data")
