"""What `recollect ask` does first: read the texts and say so, before anything large is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recollect.commands.ask_options import AskOptions
from recollect.display import open_console
from recollect.display.numbers import count
from recollect.errors import UserError
from recollect.files import read_json
from recollect.foreign import one_line
from recollect.keeping.sources import Document, Sources, is_source, read_sources

FORMAT = 1
"""The format of a saved memory."""


@dataclass(frozen=True)
class Texts:
    """What is there to read, what to ask, and what a saved memory holds."""

    options: AskOptions
    """With the model and the agent of a saved memory, where none is named."""
    documents: Sequence[Document]
    questions: Sequence[str]
    stored: dict[str, Any] | None


def read_texts(options: AskOptions) -> Texts:
    """Read everything that is named, and print how much it is."""
    sources = [word for word in options.words if is_source(word)]
    questions = [word for word in options.words if not is_source(word)]
    stored = _stored(options.memory)
    options = _as_before(options, stored)
    if not (sources or stored):
        raise UserError(
            "there is nothing to read", "name a file, a folder, or - for standard input"
        )
    if not options.model:
        raise UserError("there is no model to ask", "name a run, a folder or a server with --model")
    found = read_sources(sources)
    if not options.json:
        _say(found, stored)
    return Texts(options, found.documents, questions, stored)


def _say(found: Sources, stored: dict[str, Any] | None) -> None:
    documents = found.documents
    names = [document.name for document in documents]
    said = ""
    if documents:
        words = sum(len(document.text.split()) for document in documents)
        said = f": {count(words)} words"
    elif stored:
        known = [source for source in stored.get("sources") or () if isinstance(source, dict)]
        names = [str(source.get("name", "")) for source in known]
        said = ": read before"
    lines = [f"{_named(names)}{said}"]
    if found.left_out:
        lines.append(f"left out, as it is no text in UTF-8: {_named(found.left_out)}")
    if spoilt := [document.name for document in documents if not document.whole]:
        lines.append(f"read with gaps, as not all of it is in UTF-8: {_named(spoilt)}")
    for line in lines:
        open_console().print(line, style="dim", highlight=False, markup=False)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(one_line(name, 60) for name in names[:3]) + more


def _stored(path: Path | None) -> dict[str, Any] | None:
    """Return what a memory file holds; None if it is to be written yet."""
    if path is None or not path.exists():
        return None
    fix = "restore it from a copy, or name another file"
    record = read_json(path, fix)
    kinds = {"memory": dict, "model": str, "agent": str, "set": list, "sources": list}
    sound = all(isinstance(record.get(name, kind()), kind) for name, kind in kinds.items())
    if record.get("format") != FORMAT or not sound or "memory" not in record:
        raise UserError(f"{path} is not a memory that recollect ask has saved", fix)
    return record


def _as_before(options: AskOptions, stored: dict[str, Any] | None) -> AskOptions:
    """Take the model and the agent from a stored memory where none is named."""
    if not stored:
        return options
    return replace(
        options,
        model=options.model or str(stored.get("model", "")),
        agent=options.agent or str(stored.get("agent", "")),
        set=options.set or tuple(map(str, stored.get("set") or ())),
    )
