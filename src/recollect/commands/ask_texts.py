"""What `recollect ask` does first: read the texts and say so, before anything large is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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

    @property
    def read_before(self) -> list[dict[str, Any]]:
        """The texts that the saved memory has read."""
        sources = (self.stored or {}).get("sources") or ()
        return [source for source in sources if isinstance(source, dict)]

    @cached_property  # it takes the checksum of every text
    def unread(self) -> list[Document]:
        """The texts that the saved memory has not read: those are what is read."""
        known = {source.get("sha256") for source in self.read_before}
        return [document for document in self.documents if document.item.id not in known]


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
    texts = Texts(options, found.documents, questions, stored)
    if not options.json:
        _say(texts, found)
    return texts


def _say(texts: Texts, found: Sources) -> None:
    documents, unread = texts.documents, texts.unread
    lines = []
    if len(unread) < len(documents) or not documents:
        named = [document.name for document in documents if document not in unread]
        before = [str(source.get("name", "")) for source in texts.read_before]
        lines.append(f"{_named(named or before)}: read before")
    if unread:
        words = sum(len(document.text.split()) for document in unread)
        lines.append(f"{_named([document.name for document in unread])}: {count(words)} words")
    if found.left_out:
        lines.append(f"left out, as it is no text in UTF-8: {_named(found.left_out)}")
    if found.empty:
        lines.append(f"left out, as no text could be found in it: {_named(found.empty)}")
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
