"""The results of docs/results/chronicle.md, made from a run folder: tables, curves and films.

    python -m benchmarks.chronicle_page runs/chronicle docs

writes docs/images/chronicle-*.svg, and into docs/results/chronicle.md between its two marks; a page
that is not there yet is made. Needs scores.jsonl, films.jsonl and metrics.jsonl alone, or the carry
folder of another machine in a folder of its own: runs/there/carry/part-000, ... With a third word,
the name of another page, what was measured is compared with the memory of chronicle.md.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import chronicle_table as table
from benchmarks.chronicle_beside import beside
from benchmarks.chronicle_carry import unpack
from benchmarks.chronicle_films import FILMS, REASONS, Film
from recollect.evaluation.report.charts import Point, Series, chart, standalone
from recollect.evaluation.report.markdown import fenced
from recollect.foreign import for_markdown, one_line
from recollect.runs.run import read_records

BEGIN, END = "<!-- made by benchmarks.chronicle_page -->", "<!-- until here -->"
FIRST = "chronicle"
"""The page with the plan and the memory."""
TRAINED = (*table.MEMORIES, *table.BASELINES)
SHORT = ("1x", "8x", "16x", "32x", "longest")
KINDS = ("overwrite", "two-hop", "count")
WANTED = (("",), ("overwritten", "never written", "written wrong"), ("kept but misread",))
"""What the three films show; of several reasons, the first that has a film."""
MOST = 14
"""Pages of a film that are shown."""
REPLY = 400
"""Characters of a reply or a page that are shown."""


def write(out: Path, docs: Path, name: str = FIRST) -> Path:
    """Write pictures and page; return where the page is."""
    images, page = docs / "images", docs / "results" / f"{name}.md"
    for folder in (images, page.parent):
        folder.mkdir(parents=True, exist_ok=True)
    drawn = {f"{name}-learning.svg": learning(out), f"{name}-lengths.svg": lengths(out)}
    for file, svg in drawn.items():
        if svg:
            (images / file).write_text(svg)
    pictures = [file for file in drawn if drawn[file]]
    first = "" if name == FIRST else page.with_name(f"{FIRST}.md").read_text()
    made = "\n".join([BEGIN, "", *sections(out, pictures, first), "", END])
    old = page.read_text() if page.exists() else f"{BEGIN}\n{END}\n"
    before, begun, rest = old.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise SystemExit(f"{page} has no place for results: add {BEGIN} and {END}")
    page.write_text(before + made + after)
    return page


def sections(out: Path, pictures: Sequence[str], first: str) -> Iterator[str]:
    """Yield everything that is known, section by section; `first` has the memory, if not this."""
    cells = table.cells_of(list(table.rows(out)))
    memory = any(agent.removesuffix(table.WARMED) in table.MEMORIES for agent, _, _ in cells)
    yield from ("### In short", "", short(out), "")
    yield re.sub(r"^## ", "### ", table.markdown(out), flags=re.M)
    if first:
        yield from ("", "### Beside the trained memory", "", *beside(cells, first))
    if memory:
        yield from ("", "### Where memories go wrong", "", WHERE, "", losses(out))
    yield from ("", "### Curves", "")
    for name in pictures:
        told = "over the steps of training" if "learning" in name else "over the length"
        yield from (f"![Accuracy {told}](../images/{name})", "")
    yield from (held_out(out), "", rewards(out), "") if training(out) else ()
    if not memory:
        return
    yield from ("### By seed", "", by_seed(out), "")
    yield from ("### Films", "", RULE, "")
    for found in chosen(out):
        yield from (*shown_film(found), "")


def short(out: Path) -> str:
    """Return the README's table: the memory and the best baseline, trained and before that."""
    cells = table.cells_of(list(table.rows(out)))
    lines = [f"| kind | | {' | '.join(SHORT)} |", "|---|---|" + "---|" * len(SHORT)]
    for kind in KINDS:
        for label, names in (("memory", table.MEMORIES), ("best baseline", table.BASELINES)):
            for when, suffix in (("trained", ""), ("before reward", table.WARMED)):
                asked = [name + suffix for name in names]
                own = [_best(cells, asked, kind, length) for length in SHORT]
                if any(own):
                    lines.append(f"| {kind} | {label}, {when} | {' | '.join(own)} |")
        ideal = sorted({agent for agent, _, _ in cells if agent.endswith(table.PERFECT)})
        ideal = [agent for agent in ideal if not agent.startswith(table.MEMORIES)]
        own = [_best(cells, ideal, kind, length) for length in SHORT]
        if any(own):
            lines.append(f"| {kind} | best baseline, perfect reader | {' | '.join(own)} |")
    return "\n".join(lines)


def _best(cells: table.Cells, names: Sequence[str], kind: str, length: str) -> str:
    known = {name: cells[name, kind, length] for name in names if (name, kind, length) in cells}
    if not known:
        return ""
    scores = {name: table.accuracy(own)[0] for name, own in known.items()}
    best = max(scores, key=lambda name: scores[name])
    named = best.removesuffix(table.WARMED).removesuffix(table.PERFECT)
    return f"{scores[best]:.3f} ({named}, n={len(known[best])})"


def losses(out: Path) -> str:
    """Count the reasons of wrong answers, as a reader by rules finds them, for every memory."""
    cells = table.cells_of(list(table.rows(out)))
    reasons = (*REASONS, "malformed", "failed")
    lines = [f"| kind | agent | length | n | right | {' | '.join(reasons)} |"]
    lines += ["|---|---|---|---|---|" + "---|" * len(reasons)]
    for (agent, kind, length), own in sorted(
        cells.items(), key=lambda cell: (cell[0][1], cell[0][0], table.length_order(cell[0][2]))
    ):
        counts = Counter(row.get("reason", "") for row in own)
        if agent.removesuffix(table.WARMED) in table.MEMORIES and kind in KINDS:
            right = sum(row["score"] for row in own) / len(own)
            shares = " | ".join(f"{counts[name] / len(own):.3f}" for name in reasons)
            lines.append(f"| {kind} | {agent} | {length} | {len(own)} | {right:.3f} | {shares} |")
    return "\n".join(lines)


def training(out: Path) -> dict[str, list[tuple[str, list[dict[str, Any]]]]]:
    """Read the metrics of all runs, by agent; each with its name, which ends in the seed."""
    found = defaultdict(list)
    for path in sorted(out.glob("*-*/chronicle/metrics.jsonl")):
        found[path.parts[-3].rpartition("-")[0]].append(
            (path.parts[-3], list(read_records(path.parent)))
        )
    order = [*TRAINED, *sorted(found)]
    return dict(sorted(found.items(), key=lambda own: order.index(own[0])))


def learning(out: Path) -> str:
    """Draw held-out accuracy and reward over the steps, a line for every agent and seed."""
    runs, panels = training(out), []
    for title, name in (("Held-out accuracy", "val/accuracy"), ("Reward", "reward/mean")):
        series = []
        for style, agent in enumerate(runs):
            for run, rows in runs[agent]:
                points = [_step(run, row, name) for row in rows if row.get(name) is not None]
                series += [Series(agent, style, points)] if points else []
        if series:
            panels.append(chart(title, "step", series, lambda x: f"{x:.0f}", log=False))
    return standalone(panels, list(runs)) if panels else ""


def held_out(out: Path) -> str:
    """Write held-out accuracy by step, a row for every run."""
    runs = [(run, rows) for own in training(out).values() for run, rows in own]
    known = {run: {r["step"]: r["val/accuracy"] for r in rows if r.get("val/accuracy") is not None}
             for run, rows in runs}  # fmt: skip
    steps = sorted({step for own in known.values() for step in own})
    lines = [f"| held-out accuracy at step | {' | '.join(map(str, steps))} |"]
    lines += ["|---|" + "---|" * len(steps)]
    for run, own in known.items():
        cells = (f"{own[step]:.3f}" if step in own else "" for step in steps)
        lines.append(f"| {run} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rewards(out: Path) -> str:
    """Write rewards as means of five steps, and how many groups differed, a row for every run."""
    lines = ["| | reward, means of five steps | groups whose rewards differ, first and last |"]
    lines += ["|---|---|---|"]
    for run, rows in (own for runs in training(out).values() for own in runs):
        steps = [row for row in rows if "reward/mean" in row]
        fives = [steps[i : i + 5] for i in range(0, len(steps), 5)]
        said = " ".join(f"{_mean(five, 'reward/mean'):.3f}" for five in fives)
        mixed = [f"{_mean(five, 'groups/mixed'):.2f}" for five in (fives[0], fives[-1])]
        lines.append(f"| {run} | {said} | {', '.join(mixed)} |")
    return "\n".join(lines)


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(row.get(name, 0.0) for row in rows) / len(rows)


def by_seed(out: Path) -> str:
    """Write the accuracy of every trained memory, a row for every kind and seed."""
    found = [row for row in table.rows(out) if row["agent"] in table.MEMORIES]
    seeds = sorted({row["seed"] for row in found})
    order = sorted({row["length"] for row in found}, key=table.length_order)
    lines = [f"| kind | agent | {' | '.join(order)} |", "|---|---|" + "---|" * len(order)]
    for kind in KINDS:
        for seed in seeds:
            cells = table.cells_of([row for row in found if row["seed"] == seed])
            for agent in dict.fromkeys(agent for agent, _, _ in cells):
                own = (cells.get((agent, kind, length)) for length in order)
                shown = " | ".join(f"{table.accuracy(c)[0]:.3f}" if c else "" for c in own)
                lines.append(f"| {kind} | {agent}-{seed} | {shown} |")
    return "\n".join(lines)


def _step(run: str, row: Mapping[str, Any], name: str) -> Point:
    value = min(1.0, max(0.0, row[name]))
    low, high = (row["val/low"], row["val/high"]) if name == "val/accuracy" else (value, value)
    return Point(row["step"], value, low, high, f"{run}, step {row['step']}: {value:.3f}")


def lengths(out: Path) -> str:
    """Draw accuracy over pages for every kind, a line for every agent, trained or only warmed."""
    cells = table.cells_of([r for r in table.rows(out) if r["length"] != "shuffled"])
    named = (*TRAINED, *(name + table.WARMED for name in TRAINED))
    agents = [name for name in named if any(agent == name for agent, _, _ in cells)]
    panels = []
    for kind in KINDS:
        series = []
        for style, agent in enumerate(agents):
            own = [found for key, found in cells.items() if key[:2] == (agent, kind)]
            if own:
                series.append(Series(agent, style, [_pages(agent, rows) for rows in own]))
        if series:
            panels.append(chart(kind, "pages of 256 tokens", series, lambda x: f"{x:,.0f}"))
    return standalone(panels, agents) if panels else ""


def _pages(agent: str, own: Sequence[table.Row]) -> Point:
    mean, low, high = table.accuracy(own)
    note = f"{agent}, {own[0]['length']}: {mean:.3f} [{low:.3f}, {high:.3f}], n = {len(own)}"
    return Point(sum(r["pages"] for r in own) / len(own), mean, low, high, note)


WHERE = (
    "A reader by rules reads the same pages beside the agent, which gives the page that made a"
    " memory wrong for good. If that page said something new, the memory stayed as it was"
    " (never written) or was written wrong; if it said nothing new, the memory was overwritten."
    " Where the last memory is right, it was misread. Shares of all answers."
)
RULE = (
    "Chosen by a rule: trained memories alone, or those after the warm-up where none is trained;"
    " the longest text that has such an answer, the first"
    f" kind in the order {', '.join(KINDS)}, `gated` before any other agent, the lowest seed, the"
    " task with the lowest number. A page is shown where the memory changes or becomes wrong;"
    " `should` is what the teacher's memory holds where the agent's is wrong."
)


def chosen(out: Path) -> Iterator[Film]:
    """Choose a film of a right answer, one of a lost one and one of a misread one."""
    found = []
    for path in sorted(out.glob(f"*-*/*/{FILMS}")):
        agent, seed = table.measured(path.parts[-3])
        for line in path.read_text().splitlines():
            film = json.loads(line)
            found.append(film | {"agent": agent, "seed": seed})
    found = [f for f in found if f["kind"] in KINDS and f["length"][:-1].isdigit()]
    found = [f for f in found if f["agent"].removesuffix(table.WARMED) in table.MEMORIES]
    found = [f for f in found if f["agent"] in table.MEMORIES] or found
    for reasons in WANTED:
        for reason in reasons:
            own = [film for film in found if film["reason"] == reason]
            if own:
                yield min(own, key=_order)
                break


def _order(film: Film) -> tuple[int, int, bool, int]:
    kind, gated = KINDS.index(film["kind"]), film["agent"].startswith("gated")
    return -int(film["length"][:-1]), kind, not gated, film["seed"]


def shown_film(film: Film) -> list[str]:
    """Write a film: a title, and inside of a fence all that a model or a text said."""
    what = film["reason"] or "right"
    named = f"{film['kind']} at {film['length']} ({film['pages']} pages), {film['agent']}"
    lines = [f"question  {_line(film['question'])}"]
    last = 0
    for frame in _cut(film["frames"]):
        lines += _gap(film, last, frame["page"])
        lines += _frame(frame)
        last = frame["page"]
    lines += _gap(film, last, film["pages"] + 1)
    lines.append(f"answer    {_line(film['answer'])}  (right: {_line(film['answers'][0])})")
    title = f"**{what.capitalize()}: {named}, seed {film['seed']}**, {for_markdown(film['task'])}"
    return [title, "", *fenced("\n".join(lines))]


def _cut(frames: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Keep where a memory changes or becomes wrong; of many such pages, the ends and the turn."""
    wrong = [bool(frame["should"]) for frame in frames]
    turns = [i for i, now in enumerate(wrong) if now and not (i and wrong[i - 1])]
    kept = [i for i, frame in enumerate(frames) if frame["changed"] or i in turns]
    if len(kept) > MOST:
        ends = {*kept[: MOST // 3], *kept[-MOST // 2 :]}
        kept = [i for i in kept if i in ends or i in turns[-1:]]
    return [frames[i] for i in kept]


def _gap(film: Film, last: int, page: int) -> list[str]:
    """Say what is left out between two pages."""
    if page - last < 2:
        return []
    left = [frame for frame in film["frames"] if last < frame["page"] < page]
    changes = sum(frame["changed"] for frame in left)
    pages = f"pages {last + 1} to {page - 1}" if page - last > 2 else f"page {last + 1}"
    counted = f"{changes} change{'s' if changes > 1 else ''}, left out" if changes else "no change"
    return [f"{pages}: {counted}"]


def _frame(frame: Mapping[str, Any]) -> list[str]:
    lines = [f"page {frame['page']}"]
    told, said = frame["told"], frame["said"]
    if told and said.startswith(told):
        said = f"(quotes this) {said.removeprefix(told)}"
    named = {"says": told, "reply": said, "memory": frame["memory"]}
    for name, text in (named | {"should": frame["should"]}).items():
        if text or name == "memory":
            lines.append(f"  {name:<7} {_line(text) or '(empty)'}")
    return lines


def _line(text: str) -> str:
    return one_line(" / ".join(text.splitlines()), REPLY)


if __name__ == "__main__":
    run, *to = map(Path, sys.argv[1:3])
    unpack(run)
    written = write(run, *(to or [run / "page"]), *sys.argv[3:4])
    print(f"{short(run)}\n\n{losses(run)}\n\n{written}")
