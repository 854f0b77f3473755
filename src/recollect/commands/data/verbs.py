"""What `recollect data` can make: a table from names to settings and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from rich.console import Console

from recollect.commands.arguments import read_options
from recollect.errors import UserError

Verb = tuple[type, Callable[[Any, Console], int]]
"""The settings, a dataclass that becomes options, and the function that takes them."""


def run_data(args: list[str], console: Console) -> int:
    """Do what the first word says with the settings that follow."""
    if args[:1] in (["--help"], ["-h"]):
        _print_help(console)
        return 0
    if not args or args[0] not in VERBS:
        what = f"there is no data {args[0]!r}" if args else "data needs to know what to make"
        raise UserError(what, f"choose from {', '.join(VERBS)}; --help lists the settings of each")
    settings, run = VERBS[args[0]]()
    return run(read_options(settings, args[1:], f"data {args[0]}"), console)


def _print_help(console: Console) -> None:
    """Say in a line what every name makes."""
    lines = ["usage: recollect data NAME [-h] [OPTIONS]", ""]
    for name, verb in VERBS.items():
        first = (verb()[0].__doc__ or "").partition("\n")[0]
        lines.append(f"  {name:<16} {first}")
    lines += ["", "recollect data NAME --help lists the settings of each."]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _locomo() -> Verb:
    from recollect.commands.data.conversations import run_locomo
    from recollect.tasks.conversations.locomo_files import LocomoOptions

    return LocomoOptions, run_locomo


def _ledger() -> Verb:
    from recollect.commands.data.conversations import run_ledger
    from recollect.tasks.made.ledger_files import LedgerOptions

    return LedgerOptions, run_ledger


def _embed() -> Verb:
    from recollect.commands.data.conversations import run_embed
    from recollect.memory.embeddings.memories import EmbedOptions

    return EmbedOptions, run_embed


def _documents(name: str) -> Callable[[], Verb]:
    def verb() -> Verb:
        from recollect.commands.data.documents import DocumentOptions, run_documents

        return DocumentOptions, lambda options, console: run_documents(name, options, console)

    return verb


def _memagent() -> Verb:
    from recollect.commands.data.documents import MemAgentOptions, run_memagent

    return MemAgentOptions, run_memagent


def _ruler() -> Verb:
    from recollect.commands.data.haystacks import RulerOptions, run_ruler

    return RulerOptions, run_ruler


def _babilong() -> Verb:
    from recollect.commands.data.haystacks import BabiLongOptions, run_babilong

    return BabiLongOptions, run_babilong


def _longmemeval() -> Verb:
    from recollect.commands.data.sessions import LongMemEvalOptions, run_longmemeval

    return LongMemEvalOptions, run_longmemeval


def _beam() -> Verb:
    from recollect.commands.data.sessions import BeamOptions, run_beam

    return BeamOptions, run_beam


def _jsonl() -> Verb:
    from recollect.commands.data.own import JsonlOptions, run_jsonl

    return JsonlOptions, run_jsonl


def _closed_book() -> Verb:
    from recollect.commands.data.closed_book import ClosedBookOptions, run_closed_book

    return ClosedBookOptions, run_closed_book


def _validate() -> Verb:
    from recollect.commands.data.validate import ValidateOptions, run_validate

    return ValidateOptions, run_validate


def _audit() -> Verb:
    from recollect.commands.data.audit import AuditOptions, run_audit

    return AuditOptions, run_audit


VERBS: Mapping[str, Callable[[], Verb]] = MappingProxyType(
    {
        "hotpotqa": _documents("hotpotqa"),
        "2wikimultihopqa": _documents("2wikimultihopqa"),
        "musique": _documents("musique"),
        "squad": _documents("squad"),
        "memagent": _memagent,
        "ruler": _ruler,
        "babilong": _babilong,
        "longmemeval": _longmemeval,
        "beam": _beam,
        "jsonl": _jsonl,
        "locomo": _locomo,
        "ledger": _ledger,
        "embed": _embed,
        "closed-book": _closed_book,
        "validate": _validate,
        "audit": _audit,
    }
)
"""Each is opened only when it is asked for, because some bring Parquet or an embedder."""
