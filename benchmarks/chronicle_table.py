"""The tables of benchmarks/chronicle.py: accuracy, hazard, comparisons, the control, and causes.

Made from scores.jsonl alone: one line an answer. Knows nothing of how episodes were run.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chronicle_films import (
    FILMS,
    Film,
    film,
    has_memory,
    names_one,
    reason,
    watch,
)
from recollect.evaluation.folder import read_episodes
from recollect.evaluation.records import Record
from recollect.evaluation.scoring import score_record
from recollect.metrics import cluster_scores, mean_interval, paired_p_value, share_interval
from recollect.metrics.pairs import holm
from recollect.tasks.lengths import parse_length
from recollect.view.causes import CAUSES
from recollect.view.evaluations import EvaluationSource
from recollect.view.films import trace
from recollect.view.stored import Stored

WARMED = " before reward"
"""Behind the name of an agent that was warmed up and not trained ..."""
WARMED_FOLDER = "_warmed"
"""... and behind that of its folder, before the seed."""
PERFECT = ", perfect"
"""Behind the name of an agent whose reader was benchmarks/chronicle_perfect.py."""
MEMORIES = ("gated", "fold")
BASELINES = ("full_context", "rag", "rag_window", "rag_hybrid")
HEADLINE = ("8x", "16x", "32x")
KEPT = ("1x", "32x")
"""What is kept is what is left at the second of the first."""
NAMED = ("shuffled", "longest")
"""Evaluations that are not called by their length."""
SCORES = "scores.jsonl"
FILMED = ("agent", "kind", "length")
"""Of the answers that agree in these and in their reason, the one to the first task is filmed."""
Row = Mapping[str, Any]
Cells = Mapping[tuple[str, str, str], list[Row]]
"""Answers by agent, kind and length."""


def write_scores(folder: Path, tokens: int) -> None:
    """Score a finished evaluation, say why answers are wrong, and keep a film of every kind of
    success and failure; `tokens` is the length 1x."""
    source = EvaluationSource(folder.name, folder)
    source.refresh()
    places = {source.record(n)["id"]: n for n in {row["n"] for row in source.rows}}
    found: list[dict[str, Any]] = []
    films: dict[tuple[Any, ...], Film] = {}
    for record in sorted(read_episodes(folder), key=lambda own: (own["seed"], own["index"])):
        if record["failure"] and record["failure"]["fault"] == "environment":
            sys.exit(f"{folder}: {record['failure']['message']}\nRun the same command again.")
        for q, row in enumerate(scored(record, tokens, folder.name)):
            found.append(row)
            key = tuple(row[name] for name in FILMED)
            # Following an answer through 4,000 pages takes seconds: only where it is looked at.
            asked = record["questions"][q]["text"]
            filmed = (*key, "") in films or not names_one(asked)
            if has_memory(record) and not (row["score"] and filmed):
                explain(row, source.stored(places[record["id"]]), q, films)
    _write(folder / FILMS, list(films.values()))
    _write(folder / SCORES, found)  # last: a part that has scores is done


def scored(record: Record, tokens: int, part: str) -> Iterator[dict[str, Any]]:
    """Yield the answers of an episode."""
    times = parse_length(record["task"].rpartition("@")[2].partition("#")[0]) // tokens
    for a in score_record(record, ("boxed_exact_match",)):
        yield {
            "kind": record["questions"][a.question]["category"], "agent": a.agent, "item": a.unit,
            "task": a.item, "score": a.scores[0], "failed": a.failed, "pages": record["chunks"],
            "length": part if part in NAMED else f"{times}x", "cause": "", "reason": "",
        }  # fmt: skip


def explain(row: dict[str, Any], own: Stored, q: int, films: dict[tuple[Any, ...], Film]) -> None:
    """Say why an answer is wrong, as the viewer does and by rules; film the first of its kind."""
    question = own.questions[q].text
    if not row["score"]:
        # The viewer scores less strictly: what it takes as right may be outside of the box.
        row["cause"] = trace(own).lives[q].cause or "malformed"
    if own.chunks is None or not names_one(question):
        return
    frames = watch(own, q)
    if not row["score"]:
        formal = row["cause"] in ("malformed", "failed")
        row["reason"] = row["cause"] if formal else reason(frames, question)
    key = (*(row[name] for name in FILMED), row["reason"])
    if key not in films:
        named = {name: row[name] for name in (*FILMED, "reason")}
        films[key] = named | film(own, q, frames)


def _write(path: Path, found: Sequence[Row]) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text("".join(json.dumps(row) + "\n" for row in found))
    temporary.rename(path)


def rows(out: Path) -> Iterator[dict[str, Any]]:
    """Read all answers, each once; a trained agent is named by its folder, every seed too."""
    seen = set()
    for path in sorted(out.glob(f"*/*/{SCORES}")):
        agent, seed = measured(path.parts[-3])
        for line in path.read_text().splitlines():
            row = json.loads(line)
            known = agent.removesuffix(WARMED) in (*MEMORIES, *BASELINES)
            own = agent if known else f"{row['agent']}, {agent}"
            key = (own, seed, row["length"], row["item"])
            if key in seen:  # an evaluation that was divided into other parts before
                continue
            seen.add(key)
            yield row | {"agent": own, "seed": seed}


def measured(folder: str) -> tuple[str, int]:
    """Return the agent of a folder's name, and the seed."""
    name, _, seed = folder.rpartition("-")
    trained = name.removesuffix(WARMED_FOLDER)
    return (name if name == trained else trained + WARMED), int(seed)


def cells_of(found: Sequence[Row]) -> Cells:
    """Gather answers by agent, kind and length."""
    cells: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in found:
        cells[row["agent"], row["kind"], row["length"]].append(row)
    return cells


def accuracy(own: Sequence[Row]) -> tuple[float, float, float]:
    """Return the mean over seeds and tasks, with an interval over tasks."""
    found = share_interval(cluster_scores((r["task"], r["item"], r["score"]) for r in own))
    return found.mean, found.low, found.high


def hazard(near: Sequence[Row], far: Sequence[Row]) -> float:
    """Return the share of what is known that a page more costs."""
    low, high = accuracy(far)[0], accuracy(near)[0]
    pages = far[0]["pages"] - near[0]["pages"]
    return 1 - (low / high) ** (1 / pages) if high and pages > 0 else float("nan")


def compare(ours: Sequence[Row], theirs: Sequence[Row]) -> tuple[float, float, float, float]:
    """Return the difference with its interval and p-value, paired by seed and question."""
    other = {(r["seed"], r["item"]): r["score"] for r in theirs}
    pairs = [
        (r["task"], f"{r['item']} {r['seed']}", r["score"] - other[r["seed"], r["item"]])
        for r in ours
        if (r["seed"], r["item"]) in other
    ]
    if not pairs:
        return (float("nan"),) * 4
    clusters = cluster_scores(pairs)
    mean = mean_interval(clusters, limit=1.0)
    return mean.mean, mean.low, mean.high, paired_p_value(clusters)


Comparison = tuple[str, str, str, str, tuple[float, ...]]
"""A kind, a length, two agents; the difference with its interval and p-value."""


def comparisons(cells: Cells) -> list[Comparison]:
    """Compare every memory with every baseline of the headline; p-values are Holm's."""
    pairs = [(ours, theirs) for ours in MEMORIES for theirs in BASELINES]
    return compared(cells, pairs, HEADLINE)


def unrewarded(cells: Cells) -> list[Comparison]:
    """Compare memories before reward with trained baselines, where no trained memory is there."""
    if any(agent in MEMORIES for agent, _, _ in cells):
        return []
    pairs = [(ours + WARMED, theirs) for ours in MEMORIES for theirs in BASELINES]
    return compared(cells, pairs, HEADLINE)


def rewarded(cells: Cells) -> list[Comparison]:
    """Compare every trained agent with itself before, on the same tasks; p-values are Holm's."""
    pairs = [(agent, agent + WARMED) for agent in (*MEMORIES, *BASELINES)]
    lengths = sorted({length for _, _, length in cells}, key=length_order)
    return compared(cells, pairs, [name for name in lengths if name != "shuffled"])


def together(cells: Cells) -> Cells:
    """Put the kinds together that trained memories are asked, where all of them were measured."""
    kinds = {kind for agent, kind, _ in cells if agent in MEMORIES}
    return {
        (agent, "all kinds", length): [r for k in kinds for r in cells[agent, k, length]]
        for agent, _, length in cells
        if all((agent, kind, length) in cells for kind in kinds)
    }


def compared(
    cells: Cells, pairs: Sequence[tuple[str, str]], lengths: Sequence[str]
) -> list[Comparison]:
    """Compare agents where both were measured, and correct for the number of comparisons."""
    found = [
        (kind, length, *pair, compare(*(cells[agent, kind, length] for agent in pair)))
        for kind in dict.fromkeys(kind for _, kind, _ in cells)
        for length in lengths
        for pair in pairs
        if all((agent, kind, length) in cells for agent in pair)
    ]
    adjusted = holm([row[-1][3] for row in found])
    return [(*row[:4], (*row[4][:3], p)) for row, p in zip(found, adjusted, strict=True)]


def successes(cells: Cells) -> list[str]:
    """Say of every kind whether a memory is ahead by 0.15 at 8x to 32x, and keeps 0.8 at 32x."""
    tested = comparisons(cells)
    lines = []
    for kind in dict.fromkeys(kind for _, kind, _ in cells):
        for ours in MEMORIES:
            own = [row for row in tested if row[0] == kind and row[2] == ours]
            if len({row[1] for row in own}) < len(HEADLINE) or (ours, kind, "1x") not in cells:
                continue
            ahead = all(row[4][0] >= 0.15 and row[4][3] < 0.05 for row in own)
            near, far = (accuracy(cells[ours, kind, length])[0] for length in KEPT)
            kept = far / near if near else 0.0
            lines.append(
                f"- {kind}, {ours}: {'ahead' if ahead else 'not ahead'} of every trained baseline"
                f" ({', '.join(dict.fromkeys(row[3] for row in own))}) by 0.15 at 8x to 32x;"
                f" keeps {kept:.2f} of its 1x accuracy at 32x"
            )
    return lines or ["- nothing to say yet: the headline's cells are not measured"]


def markdown(out: Path) -> str:
    """Write all tables that the scores allow."""
    cells = cells_of(list(rows(out)))
    if not cells:
        return "no scores yet"
    order = sorted({length for _, _, length in cells}, key=length_order)
    lines = ["## Accuracy", "", f"| kind | agent | {' | '.join(order)} | hazard |"]
    lines += ["|---|---|" + "---|" * (len(order) + 1)]
    for agent, kind in dict.fromkeys((a, k) for a, k, _ in sorted(cells, key=lambda c: c[1])):
        if not agent.endswith(PERFECT):
            shown = [_cell(cells.get((agent, kind, length))) for length in order]
            near, far = (cells.get((agent, kind, length)) for length in KEPT)
            lost = f"{hazard(near, far):.4f}" if near and far else ""
            lines.append(f"| {kind} | {agent} | {' | '.join(shown)} | {lost} |")
    lines += perfect(cells)
    for title, tested in (
        ("Comparisons, corrected", comparisons(cells)),
        ("Memories before reward beside trained baselines, corrected", unrewarded(cells)),
        ("What reward added, corrected", rewarded(cells)),
        ("What reward added, kinds together, corrected", rewarded(together(cells))),
    ):
        if not tested:
            continue
        lines += ["", f"## {title}", "", "| kind | length | | difference | p |"]
        lines += ["|---|---|---|---|---|"]
        for kind, length, ours, theirs, (mean, low, high, p) in tested:
            figures = f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] | {p:.4f}"
            lines.append(f"| {kind} | {length} | {ours} - {theirs} | {figures} |")
    if any(agent in MEMORIES for agent, _, _ in cells):
        lines += ["", "## Success", "", *successes(cells)]
    known = {key: own for key, own in cells.items() if key[0] in MEMORIES and key[2] in KEPT}
    if known:
        lines += ["", "## Why answers are wrong", ""]
        lines += ["As the viewer counts them, which looks for the words of the right answer in"
                  " every memory and knows no rules; for trained memories:", ""]  # fmt: skip
        lines += [f"| kind | agent | length | {' | '.join(CAUSES)} |", "|---|---|---|" + "---|" * 5]
    for (agent, kind, length), own in sorted(known.items(), key=lambda c: (c[0][1], c[0][0])):
        counts = Counter(r["cause"] for r in own)
        shares = " | ".join(f"{counts[cause] / len(own):.3f}" for cause in CAUSES)
        lines.append(f"| {kind} | {agent} | {length} | {shares} |")
    return "\n".join(lines)


def perfect(cells: Cells) -> list[str]:
    """Write what agents answer whose reader makes no mistake, if that was measured."""
    own = {key: found for key, found in cells.items() if key[0].endswith(PERFECT)}
    if not own:
        return []
    order = sorted({length for _, _, length in own}, key=length_order)
    lines = ["", "## With a reader that makes no mistake", ""]
    lines += [f"| kind | agent | {' | '.join(order)} |", "|---|---|" + "---|" * len(order)]
    for kind, agent in sorted({(kind, agent) for agent, kind, _ in own}):
        shown = " | ".join(_cell(own.get((agent, kind, length))) for length in order)
        lines.append(f"| {kind} | {agent.removesuffix(PERFECT)} | {shown} |")
    return lines


def _cell(own: Sequence[Row] | None) -> str:
    if not own:
        return ""
    mean, low, high = accuracy(own)
    failed = sum(r["failed"] for r in own)
    return f"{mean:.3f} [{low:.3f}, {high:.3f}] n={len(own)}" + (f" f={failed}" if failed else "")


def length_order(name: str) -> tuple[int, str]:
    """Sort lengths by number, and names behind them."""
    return (int(name[:-1]), "") if name[:-1].isdigit() else (1 << 30, name)


if __name__ == "__main__":
    write_scores(Path(sys.argv[1]), int(sys.argv[2]))
