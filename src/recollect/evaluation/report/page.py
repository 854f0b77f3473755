"""A report as one HTML file: styles and drawings inside, no script, nothing fetched.

Everything that comes from data or models is escaped here, and a policy in the page's head forbids
scripts and requests besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recollect.display.numbers import interval, share
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
from recollect.evaluation.report.style import STYLE
from recollect.foreign import for_page

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_page(document: Document) -> str:
    """Write a whole report; it is also well-formed XML."""
    marks = {agent: mark(style) for style, agent in enumerate(document.agents)}
    writer = _Writer(marks)
    links = "".join(
        f'<li><a href="#{_anchor(i)}">{for_page(section.title)}</a></li>'
        for i, section in enumerate(document.sections)
    )
    facts = "".join(
        f"<div><dt>{for_page(name)}</dt><dd>{for_page(value)}</dd></div>"
        for name, value in document.facts
    )
    body = "\n".join(writer.section(i, section) for i, section in enumerate(document.sections))
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{for_page(_POLICY)}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<meta name="color-scheme" content="light dark"/>'
        f"<title>{for_page(document.title)}</title><style>{STYLE}</style></head>\n<body>"
        f"<header><h1>{for_page(document.title)}</h1><p>{for_page(document.subtitle)}</p>"
        f'<dl class="tiles">{facts}</dl></header>'
        f'<nav aria-label="Contents"><ol>{links}</ol></nav>\n'
        f"<main>\n{body}\n</main></body></html>\n"
    )


def _anchor(number: int) -> str:
    return f"section-{number + 1}"


class _Writer:
    """Writes blocks; knows the agents' marks."""

    def __init__(self, marks: dict[str, str]) -> None:
        self.marks = marks

    def section(self, number: int, section: Section) -> str:
        """Write a section with its heading."""
        return (
            f'<section id="{_anchor(number)}"><h2>{for_page(section.title)}</h2>\n'
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
            return f"<p>{for_page(block.text)}</p>"
        if isinstance(block, Notice):
            return f'<p class="notice" role="note">{for_page(block.text)}</p>'
        if isinstance(block, Code):
            return f'<pre class="code"><code>{for_page(block.text)}</code></pre>'
        if isinstance(block, Facts):
            pairs = (
                f"<dt>{for_page(name)}</dt><dd>{for_page(value)}</dd>"
                for name, value in block.pairs
            )
            return f'<dl class="facts">{"".join(pairs)}</dl>'
        if isinstance(block, Charts):
            figures = "".join(f"<figure>{svg}</figure>" for svg in block.svgs)
            return f'{self.legend(block.legend)}<div class="charts">{figures}</div>'
        if isinstance(block, Quote):
            return self.quote(block)
        shown = ' open="open"' if block.open else ""
        return (
            f"<details{shown}><summary>{for_page(block.title)}</summary>"
            f'<div class="folded">{self.blocks(block.blocks)}</div></details>'
        )

    def legend(self, agents: Sequence[str]) -> str:
        """Write which mark is whose."""
        items = "".join(f"<li>{self.value(AgentName(agent))}</li>" for agent in agents)
        return f'<ul class="legend">{items}</ul>' if items else ""

    def quote(self, quote: Quote) -> str:
        """Write an answer with its question; nothing in it can leave its box."""
        fields = "".join(
            f'<dt>{for_page(name)}</dt><dd><pre dir="auto">{for_page(text) or "(empty)"}</pre></dd>'
            for name, text in quote.fields
        )
        return f'<article class="quote"><h4>{for_page(quote.title)}</h4><dl>{fields}</dl></article>'

    def table(self, table: Table) -> str:
        """Write a table that scrolls by itself where the page is narrow."""
        caption = f"<caption>{for_page(table.caption)}</caption>" if table.caption else ""
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
        return self.value(AgentName(text)) if text in self.marks else for_page(text)

    def value(self, value: Value) -> str:
        """Write a table's cell."""
        if isinstance(value, Best):
            return f"<strong>{self.value(value.value)}</strong>"
        if isinstance(value, AgentName):
            drawn = self.marks.get(value.name, "")
            picture = f'<svg class="key" viewBox="-6 -6 12 12" aria-hidden="true">{drawn}</svg>'
            return f'<span class="agent">{picture if drawn else ""}{for_page(value.name)}</span>'
        if isinstance(value, Bar):
            found = value.score
            failed = f", {found.n_failed} failed" if found.n_failed else ""
            between = interval(found.low, found.high)
            text = f"{share(found.mean)} <small>{between}{failed}</small>"
            if not value.drawn:
                return text
            drawn = bar(found.low, found.mean, found.high)
            return f'<span class="score"><span>{text}</span>{drawn}</span>'
        if isinstance(value, Subtitled):
            return f"{for_page(value.text)} <small>{for_page(value.note)}</small>"
        return for_page(value)
