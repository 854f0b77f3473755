"""Task families by name, as they are written on a command line: `hotpotqa@7k,28k`.

NAME[:VARIANT,...][@LENGTH,...][#POSITION,...], where a length is a number of tokens (8k, 1m) or,
for families made of documents, a number of those (50docs), and a position says where the evidence
is. Every combination is one task family. FILE.jsonl is short for jsonl:FILE.jsonl. A plain table;
knows nothing of agents or models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from recollect.errors import UserError
from recollect.tasks.base import TaskFamily
from recollect.tasks.lengths import estimate_tokens, parse_length, show_length

if TYPE_CHECKING:
    from recollect.tasks.documents.documents import DocumentTasks

_SPEC = re.compile(
    r"(?P<name>[^:@#]+)(?::(?P<variant>[^@#]*))?(?:@(?P<length>[^#]*))?(?:#(?P<position>.*))?"
)
_DOCUMENTS = re.compile(r"(\d+)docs")


@dataclass(frozen=True)
class TaskSpec:
    """One task family of a certain kind and length."""

    name: str
    variant: str = ""
    """One of several kinds that a family has, such as niah_multikey_1 of ruler."""
    length: int | None = None
    """Tokens, estimated; None takes the family's own length."""
    documents: int | None = None
    """The length as a number of documents instead."""
    position: str = ""
    """The position of the evidence; empty leaves it to chance, or to the data."""

    def __str__(self) -> str:
        length = "" if self.length is None else f"@{show_length(self.length)}"
        if self.documents is not None:
            length = f"@{self.documents}docs"
        variant, position = (
            self.variant and f":{self.variant}",
            self.position and f"#{self.position}",
        )
        return f"{self.name}{variant}{length}{position}"


def parse_specs(text: str) -> list[TaskSpec]:
    """Read NAME[:VARIANT,...][@LENGTH,...][#POSITION,...], and several of them between spaces."""
    return [spec for word in text.split() for spec in _parse_word(word)]


def _parse_word(word: str) -> list[TaskSpec]:
    found = _SPEC.fullmatch(f"jsonl:{word}" if is_file_name(word) else word)
    if not found:
        raise _unreadable(word)
    variants, lengths, positions = (
        _listed(word, found[part]) for part in ("variant", "length", "position")
    )
    return [
        _with_length(TaskSpec(found["name"], variant, position=position), length)
        for variant, length, position in product(variants, lengths, positions)
    ]


def is_file_name(word: str) -> bool:
    """Tell whether a word is the name of a file of JSON lines, and no family's."""
    return re.split("[:@#]", word)[0].endswith(".jsonl")


def _listed(word: str, text: str | None) -> list[str]:
    if text is None:
        return [""]
    parts = text.split(",")
    if not all(parts):
        raise _unreadable(word)
    return parts


def _with_length(spec: TaskSpec, length: str) -> TaskSpec:
    if not length:
        return spec
    documents = _DOCUMENTS.fullmatch(length)
    if documents:
        return replace(spec, documents=int(documents[1]))
    return replace(spec, length=parse_length(length))


def _unreadable(word: str) -> UserError:
    return UserError(
        f"{word!r} names no task",
        "write NAME, NAME:VARIANT, NAME@LENGTH or both, such as ruler:niah_multikey_1@8k,64k",
    )


# Opening

Opener = Callable[[TaskSpec, Path], TaskFamily]
"""Make a family from what was written and the folder in which its data lie, if it has any."""


TABLE = "write its rows into a file of JSON lines or a Parquet file, and name that"


def open_family(spec: TaskSpec, data: Path | None = None) -> TaskFamily:
    """Make the family that a spec names; its data lie in `data`/NAME, or in data/NAME."""
    if spec.name not in OPENERS:
        tables = {".parquet": f"write parquet:{spec.name}", ".csv": TABLE, ".json": TABLE}
        fix = tables.get(Path(spec.name).suffix, f"choose from {', '.join(sorted(OPENERS))}")
        raise UserError(f"there is no task {spec.name!r}", fix)
    return OPENERS[spec.name](spec, (data or Path("data")) / spec.name)


def refuse(spec: TaskSpec, *parts: str) -> None:
    """Refuse the parts of a spec that a family has no use for: variant, length, and so on."""
    for part in parts:
        if getattr(spec, part):
            raise UserError(
                f"{spec.name} has no {part}, but {str(spec)!r} sets it to {getattr(spec, part)}",
                f"leave it out: {replace(spec, **{part: getattr(TaskSpec(spec.name), part)})}",
            )


def _recall(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.made.recall import DIARY, Recall

    refuse(spec, "documents", "position")
    if spec.variant not in ("", "diary"):
        raise UserError(f"recall has no variant {spec.variant!r}", "write recall or recall:diary")
    if spec.variant and not spec.length:
        return DIARY
    family = DIARY if spec.variant else Recall()
    return replace(family, chunks=_chunks(replace(family, chunks=32), spec.length or 1024))


def _ledger(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.made.ledger import Ledger

    refuse(spec, "documents", "position")
    if not spec.variant:
        return replace(Ledger(), sessions=_chunks(Ledger(sessions=32), spec.length or 4096))
    sessions = re.fullmatch(r"ss(\d+)", spec.variant)
    if not sessions or spec.length:
        raise UserError(
            f"{str(spec)!r} is not a ledger", "write ledger@LENGTH, or ledger:ss10 for ten sessions"
        )
    return Ledger(int(sessions[1]), questions=36, fewer=True)  # the published sets


def _ledger_file(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.made.ledger_folder import LedgerFiles

    refuse(spec, "length", "documents", "position")
    return LedgerFiles(folder, spec.variant or "ss10")


def _world(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.made.world import World

    refuse(spec, "variant", "length", "documents", "position")
    return World()


def _chronicle(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.made.chronicle import KINDS, Chronicle

    refuse(spec, "documents")
    if spec.position not in ("", "shuffled"):
        raise UserError(f"chronicle has no position {spec.position!r}", "write #shuffled, or none")
    if spec.variant not in ("", *KINDS):
        fix = f"choose from {', '.join(KINDS)}, or leave it out for all of them"
        raise UserError(f"chronicle has no variant {spec.variant!r}", fix)
    family = Chronicle(shuffled=bool(spec.position))
    kinds = tuple(kind for kind in KINDS if spec.variant in ("", kind))
    return replace(family, kinds=kinds, tokens=spec.length or family.tokens)


def _ruler(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.haystacks.ruler import Ruler

    refuse(spec, "documents")
    family = Ruler(folder=folder)
    return replace(
        family,
        variant=spec.variant or family.variant,
        tokens=spec.length or family.tokens,
        **_place(spec),
    )


def _babilong(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.haystacks.babilong import BabiLong

    refuse(spec, "documents")
    family = BabiLong(folder=folder)
    return replace(
        family,
        variant=spec.variant or family.variant,
        tokens=spec.length or family.tokens,
        **_place(spec),
    )


def _longmemeval(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.conversations.longmemeval import LongMemEval

    refuse(spec, "length", "documents", "position")
    return LongMemEval(spec.variant or "s", folder)


def _locomo(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.conversations.locomo_qa import LocomoQA

    refuse(spec, "length", "documents", "position")
    family = LocomoQA(folder=folder)
    return replace(family, variant=spec.variant) if spec.variant else family


def _beam(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.conversations.beam import Beam

    refuse(spec, "length", "documents", "position")
    return Beam(spec.variant or "100k", folder)


def _place(spec: TaskSpec) -> dict[str, Any]:
    """Read a position: first, middle, last, or a depth from 0 to 1 for families that have one."""
    if not spec.position:
        return {}
    number = re.fullmatch(r"[01]?\.?\d+", spec.position)
    return {"depth": float(spec.position)} if number else {"position": spec.position}


def _hotpotqa(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.documents.hotpotqa import HotpotQA

    return _among_documents(HotpotQA(folder), spec)


def _twowiki(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.documents.twowiki import TwoWiki

    return _among_documents(TwoWiki(folder), spec)


def _musique(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.documents.musique import Musique

    return _among_documents(Musique(folder), spec)


def _squad(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.documents.squad import Squad

    return _among_documents(Squad(folder), spec)


def _among_documents(family: DocumentTasks, spec: TaskSpec) -> TaskFamily:
    refuse(spec, "variant")
    family = replace(family, placement=spec.position or family.placement)
    if spec.documents is not None:
        return replace(family, documents=spec.documents)
    return family if spec.length is None else family.of_length(spec.length)


def _memagent(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.documents.memagent import MemAgentRows

    refuse(spec, "variant", "length", "documents", "position")
    return MemAgentRows(folder)


def _jsonl(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.files.jsonl import Jsonl

    refuse(spec, "length", "documents", "position")
    return Jsonl(Path(spec.variant) if spec.variant else folder / "tasks.jsonl")


def _rows(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.files.columns import Rows

    refuse(spec, "length", "documents", "position")
    if not spec.variant:
        raise UserError(f"{spec.name} names no source", f"write {spec.name}:PATH")
    return Rows(spec.variant)


def _verifiers(spec: TaskSpec, folder: Path) -> TaskFamily:
    from recollect.tasks.verifiers import VerifiersTasks

    refuse(spec, "length", "documents", "position")
    return VerifiersTasks(spec.variant)


def _chunks(example: TaskFamily, tokens: int) -> int:
    """Return how many chunks have about this many tokens, judging by some tasks of the family."""
    texts = [text for i in range(4) for text in example.task(i, 0, "test").chunks]
    return max(1, round(tokens / (sum(map(estimate_tokens, texts)) / len(texts))))


OPENERS: Mapping[str, Opener] = MappingProxyType(
    {
        "recall": _recall,
        "ledger": _ledger,
        "ledger_file": _ledger_file,
        "world": _world,
        "chronicle": _chronicle,
        "ruler": _ruler,
        "babilong": _babilong,
        "longmemeval": _longmemeval,
        "locomo": _locomo,
        "beam": _beam,
        "hotpotqa": _hotpotqa,
        "2wikimultihopqa": _twowiki,
        "musique": _musique,
        "squad": _squad,
        "memagent": _memagent,
        "jsonl": _jsonl,
        "parquet": _rows,
        "dataset": _rows,
        "verifiers": _verifiers,
    }
)
"""Every family there is; a new one is a line here."""
