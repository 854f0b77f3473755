"""A report as one HTML file: styles and drawings inside, no script, nothing fetched.

Everything that comes from data or models is escaped here, and a policy in the page's head forbids
scripts and requests besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from recollect.evaluation.report.charts import bar, mark
from recollect.evaluation.report.document import (
    AgentName,
    Bar,
    Best,
    Block,
    Charts,
    Code,
    Document,
    Facts,
    Notice,
    Prose,
    Quote,
    Section,
    Subtitled,
    Table,
    Value,
)
from recollect.evaluation.report.numbers import interval, percent
from recollect.evaluation.report.style import STYLE

# What XML cannot hold, and what turns the direction of the text around it.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_page(document: Document) -> str:
    """Write a whole report; it is also well-formed XML."""
    marks = {agent: mark(style) for style, agent in enumerate(document.agents)}
    writer = _Writer(marks)
    links = "".join(
        f'<li><a href="#{_anchor(i)}">{safe(section.title)}</a></li>'
        for i, section in enumerate(document.sections)
    )
    facts = "".join(
        f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in document.facts
    )
    body = "\n".join(writer.section(i, section) for i, section in enumerate(document.sections))
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<meta name="color-scheme" content="light dark"/>'
        f"<title>{safe(document.title)}</title><style>{STYLE}</style></head>\n<body>"
        f"<header><h1>{safe(document.title)}</h1><p>{safe(document.subtitle)}</p>"
        f'<dl class="tiles">{facts}</dl></header>'
        f'<nav aria-label="Contents"><ol>{links}</ol></nav>\n'
        f"<main>\n{body}\n</main></body></html>\n"
    )


def safe(text: str) -> str:
    """Return text that is text and nothing else, wherever it is put."""
    return escape(_UNSAFE.sub("\ufffd", text))


def _anchor(number: int) -> str:
    return f"section-{number + 1}"


class _Writer:
    """Writes blocks; knows the agents' marks."""

    def __init__(self, marks: dict[str, str]) -> None:
        self.marks = marks

    def section(self, number: int, section: Section) -> str:
        """Write a section with its heading."""
        return (
            f'<section id="{_anchor(number)}"><h2>{safe(section.title)}</h2>\n'
            f"{self.blocks(section.blocks)}</section>"
        )

    def blocks(self, blocks: Iterable[Block]) -> str:
        """Write blocks one after the other."""
        return "\n".join(map(self.block, blocks))

    def block(self, block: Block) -> str:
        """Write one block."""
        if isinstance(block, Table):
            return self.table(block)
        if isinstance(block, Prose):
            return f"<p>{safe(block.text)}</p>"
        if isinstance(block, Notice):
            return f'<p class="notice" role="note">{safe(block.text)}</p>'
        if isinstance(block, Code):
            return f'<pre class="code"><code>{safe(block.text)}</code></pre>'
        if isinstance(block, Facts):
            pairs = (f"<dt>{safe(name)}</dt><dd>{safe(value)}</dd>" for name, value in block.pairs)
            return f'<dl class="facts">{"".join(pairs)}</dl>'
        if isinstance(block, Charts):
            figures = "".join(f"<figure>{svg}</figure>" for svg in block.svgs)
            return f'{self.legend(block.legend)}<div class="charts">{figures}</div>'
        if isinstance(block, Quote):
            return self.quote(block)
        shown = ' open="open"' if block.open else ""
        return (
            f"<details{shown}><summary>{safe(block.title)}</summary>"
            f'<div class="folded">{self.blocks(block.blocks)}</div></details>'
        )

    def legend(self, agents: Sequence[str]) -> str:
        """Write which mark is whose."""
        items = "".join(f"<li>{self.value(AgentName(agent))}</li>" for agent in agents)
        return f'<ul class="legend">{items}</ul>' if items else ""

    def quote(self, quote: Quote) -> str:
        """Write an answer with its question; nothing in it can leave its box."""
        fields = "".join(
            f'<dt>{safe(name)}</dt><dd><pre dir="auto">{safe(text) or "(empty)"}</pre></dd>'
            for name, text in quote.fields
        )
        return f'<article class="quote"><h4>{safe(quote.title)}</h4><dl>{fields}</dl></article>'

    def table(self, table: Table) -> str:
        """Write a table that scrolls by itself where the page is narrow."""
        caption = f"<caption>{safe(table.caption)}</caption>" if table.caption else ""
        kinds = ["word" if i < table.names else "number" for i in range(len(table.head))]
        head = "".join(
            f'<th scope="col" class="{kind}">{self.name(name)}</th>'
            for name, kind in zip(table.head, kinds, strict=True)
        )
        rows = "".join(
            "<tr>"
            + "".join(
                f'<th scope="row" class="{kind}">{self.value(value)}</th>'
                if i == 0
                else f'<td class="{kind}">{self.value(value)}</td>'
                for i, (value, kind) in enumerate(zip(row, kinds, strict=True))
            )
            + "</tr>\n"
            for row in table.rows
        )
        return (
            f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead>'
            f"<tbody>\n{rows}</tbody></table></div>"
        )

    def name(self, text: str) -> str:
        """Write a column's name, with a mark where it is an agent's."""
        return self.value(AgentName(text)) if text in self.marks else safe(text)

    def value(self, value: Value) -> str:
        """Write a table's cell."""
        if isinstance(value, Best):
            return f"<strong>{self.value(value.value)}</strong>"
        if isinstance(value, AgentName):
            drawn = self.marks.get(value.name, "")
            picture = f'<svg class="key" viewBox="-6 -6 12 12" aria-hidden="true">{drawn}</svg>'
            return f'<span class="agent">{picture if drawn else ""}{safe(value.name)}</span>'
        if isinstance(value, Bar):
            score = value.score
            failed = f", {score.n_failed} failed" if score.n_failed else ""
            text = f"{percent(score.mean)} <small>{interval(score)}{failed}</small>"
            if not value.drawn:
                return text
            drawn = bar(score.low, score.mean, score.high)
            return f'<span class="score"><span>{text}</span>{drawn}</span>'
        if isinstance(value, Subtitled):
            return f"{safe(value.text)} <small>{safe(value.note)}</small>"
        return safe(value)
