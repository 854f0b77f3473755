"""`recollect data locomo`, `ledger` and `embed`: conversations, memories and their vectors."""

from __future__ import annotations

from rich.console import Console

from recollect.commands.data.output import say
from recollect.memory.embeddings.memories import EmbedOptions, embed_memories
from recollect.tasks.conversations.locomo_files import LocomoOptions, build_locomo
from recollect.tasks.made.ledger_files import LedgerOptions, build_ledger

SHOWN = 20
"""Problems that are printed; all of them are in the folder's report.json."""


def run_locomo(options: LocomoOptions, console: Console) -> int:
    """Turn a LoCoMo file into tasks and memories."""
    report = build_locomo(options)
    for part, tasks in report.tasks.items():
        names = ", ".join(report.conversations[part]) or "no conversation"
        say(console, f"{part + '.parquet':<17} {tasks:>6,} tasks of {names}")
    memories = ", ".join(f"{id} {count:,}" for id, count in report.memories.items())
    say(console, f"{'memories.parquet':<17} {sum(report.memories.values()):>6,}: {memories}")
    categories = ", ".join(f"{count:,} {name}" for name, count in report.categories.items())
    say(console, f"questions: {categories}")
    if report.adversarial_dropped:
        say(console, f"left out: {report.adversarial_dropped:,} adversarial questions")
    for problem in report.problems[:SHOWN]:
        say(console, f"  {problem}")
    if (more := len(report.problems) - SHOWN) > 0:
        say(console, f"  and {more} more: see {options.output / 'report.json'}")
    say(console, f"written to {options.output}")
    return 0


def run_ledger(options: LedgerOptions, console: Console) -> int:
    """Write sets of ledgers in the published forms."""
    for name, (ledgers, questions) in build_ledger(options).sets.items():
        say(console, f"{name:<12} {ledgers:>4,} ledgers, {questions:>6,} questions")
    say(console, f"written to {options.output}, each as .json and as .parquet")
    return 0


def run_embed(options: EmbedOptions, console: Console) -> int:
    """Compute the vectors of memories into a cache."""
    report = embed_memories(options, console)
    known = report.texts - report.computed
    say(console, f"{report.texts:,} texts: {report.computed:,} embedded, {known:,} known before")
    say(console, f"{report.model}, {report.dtype}, in {report.folder}")
    return 0
