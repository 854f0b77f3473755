"""README's table of what a memory keeps, made of the two pages that hold its results.

    python -m benchmarks.chronicle_headline

A test compares it with what README shows.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from benchmarks.chronicle_beside import published

KINDS = ("overwrite", "count", "two-hop")
LENGTHS = {"1x": "4k tokens", "8x": "32k", "16x": "64k", "32x": "128k"}
MEMORY = "**the memory**, 672 tokens in view at a time"
TRAINED = {
    "rag": "BM25 RAG with as many tokens, trained by the same reward for as many steps",
    "rag_window": "RAG that fills a window of 8k, trained likewise",
    "full_context": "full context, both ends of the text in that window, trained likewise",
}
PERFECT = {
    "the best of six searches with as many tokens, if its reader made no mistake": (
        "rag_32", "rag_64", "rag_128", "rag_page", "rag_sentences", "672",
    ),
    "the best of five ways to fill the window, if its reader made no mistake": (
        "full_context", "rag_64_filled", "rag_page_filled", "rag_sentences_filled", "7,800",
    ),
}  # fmt: skip
"""Agents of the tables with a reader by rules; hybrid searches go by their tokens there."""


def headline(results: Path) -> str:
    """Return the table."""
    memory = (results / "chronicle.md").read_text()
    baselines = (results / "chronicle-baselines.md").read_text()
    trained = published(memory)
    others = published(baselines)
    perfect = published(memory, "### With a reader that makes no mistake")
    perfect |= published(memory, "**A search by meaning too shows more.**")

    def row(name: str, cells: dict[str, str]) -> str:
        return f"| {name} | {' | '.join(cells.values())} |"

    def best(found: dict[tuple[str, str, str], tuple[float, ...]], *agents: str) -> dict[str, str]:
        return {
            length: ", ".join(
                _rounded(max(found[agent, kind, length][0] for agent in agents)) for kind in KINDS
            )
            for length in LENGTHS
        }

    ours = best(trained, "gated")
    ours["32x"] = f"**{ours['32x']}**"
    lines = [row("places, counts, two hops", LENGTHS), "|---" * (1 + len(LENGTHS)) + "|"]
    lines += [row(MEMORY, ours)]
    lines += [row(name, best(others, agent)) for agent, name in TRAINED.items()]
    lines += [row(name, best(perfect, *agents)) for name, agents in PERFECT.items()]
    return "\n".join(lines)


def _rounded(share: float) -> str:
    return str(Decimal(str(share)).quantize(Decimal("0.01"), ROUND_HALF_UP))


if __name__ == "__main__":
    print(headline(Path(__file__).parents[1] / "docs" / "results"))
