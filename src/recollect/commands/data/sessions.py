"""`recollect data longmemeval` and `beam`: the official files of chats, as tasks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from recollect.commands.data.output import tell_manifest
from recollect.errors import UserError
from recollect.tasks.conversations import beam, longmemeval
from recollect.tasks.files.builders import build_tasks
from recollect.tasks.files.findings import Findings
from recollect.tasks.files.records import refuse_folder


@dataclass(frozen=True)
class LongMemEvalOptions:
    """Turn a LongMemEval file into tasks: sessions by date, and one question each."""

    input: Path
    """longmemeval_oracle.json, longmemeval_s_cleaned.json or longmemeval_m_cleaned.json; may be
    gzipped. It is read item by item: M is larger than memory."""
    output: Path = Path("data/longmemeval")
    """The folder to write; it can hold all three variants."""
    variant: str = ""
    """oracle, s or m; empty reads it from the file's name."""


def run_longmemeval(options: LongMemEvalOptions, console: Console) -> int:
    """Turn a LongMemEval file into tasks."""
    refuse_folder(options.input, longmemeval.LongMemEval.fix)
    variant = options.variant or _variant(options.input)
    if variant not in longmemeval.VARIANTS:
        raise UserError(
            f"{options.input.name} does not say which variant it is",
            f"name it with --variant {', '.join(longmemeval.VARIANTS)}",
        )
    findings = Findings()
    tasks = longmemeval.read_longmemeval(options.input, findings)
    manifest = build_tasks("longmemeval", variant, [options.input], tasks, findings, options.output)
    tell_manifest(manifest, options.output, console)
    return 0


def _variant(path: Path) -> str:
    found = re.search(r"_(oracle|s|m)(?=[_.])", path.name)
    return found[1] if found else ""


@dataclass(frozen=True)
class BeamOptions:
    """Turn BEAM's conversations into tasks: one each, with twenty questions."""

    input: Path
    """The folder chats/100K as published, or a file with one conversation per line."""
    output: Path = Path("data/beam")
    """The folder to write; it can hold all variants."""
    variant: str = "100k"
    """100k, 500k, 1m or 10m."""


def run_beam(options: BeamOptions, console: Console) -> int:
    """Turn BEAM's conversations into tasks."""
    if options.variant not in beam.VARIANTS:
        raise UserError(
            f"beam has no variant {options.variant!r}", f"choose from {', '.join(beam.VARIANTS)}"
        )
    findings = Findings()
    tasks = beam.read_beam(options.input, findings)
    inputs = beam.input_files(options.input)
    manifest = build_tasks("beam", options.variant, inputs, tasks, findings, options.output)
    tell_manifest(manifest, options.output, console)
    return 0
