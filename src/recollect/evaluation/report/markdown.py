"""A report as Markdown. Model text is inside fences that it cannot end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from recollect.evaluation.report.document import (
    AgentName,
    Bar,
    Best,
    Block,
    Charts,
    Code,
    Document,
    Facts,
    Folded,
    Notice,
    Prose,
    Quote,
    Subtitled,
    Table,
    Value,
    scored,
)
from recollect.foreign import for_markdown, shown


def write_markdown(document: Document) -> str:
    """Write a whole report."""
    lines = [f"# {for_markdown(document.title)}", "", for_markdown(document.subtitle), ""]
    lines += [*_block(Facts(document.facts), 2), ""]
    for section in document.sections:
        lines += [f"## {for_markdown(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block, 3), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _block(block: Block, level: int) -> Iterator[str]:
    if isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Prose):
        yield for_markdown(block.text)
    elif isinstance(block, Notice):
        yield f"> **{for_markdown(block.text)}**"
    elif isinstance(block, Code):
        yield from fenced(block.text)
    elif isinstance(block, Facts):
        yield from (f"- {for_markdown(name)}: {for_markdown(value)}" for name, value in block.pairs)
    elif isinstance(block, Charts):
        yield from _table(block.table)
    elif isinstance(block, Quote):
        yield f"**{for_markdown(block.title)}**"
        for name, text in block.fields:
            yield from ("", f"{for_markdown(name)}:", "", *fenced(text))
    elif isinstance(block, Folded):
        yield f"{'#' * level} {for_markdown(block.title)}"
        for inner in block.blocks:
            yield from ("", *_block(inner, level + 1))


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield from (f"*{for_markdown(table.caption)}*", "")
    yield _row([for_markdown(name) for name in table.head])
    yield _row(["---" if i < table.names else "---:" for i in range(len(table.head))])
    for row in table.rows:
        yield _row([_value(value) for value in row])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _value(value: Value) -> str:
    if isinstance(value, Best):
        return f"**{_value(value.value)}**"
    if isinstance(value, AgentName):
        return for_markdown(value.name)
    if isinstance(value, Subtitled):
        return f"{for_markdown(value.text)} ({for_markdown(value.note)})"
    return scored(value.score) if isinstance(value, Bar) else for_markdown(value)


def fenced(text: str) -> list[str]:
    """Put text inside a fence that it cannot end."""
    text = shown(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, text, fence]
