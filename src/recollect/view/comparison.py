"""Two evaluations, two agents or two checkpoints, paired by task: who won where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import UserError
from recollect.evaluation.assessment import CLOSED_BOOK
from recollect.metrics import cluster_scores, mean_interval, paired_p_value
from recollect.view.causes import RIGHT
from recollect.view.rows import Row
from recollect.view.sources import Source

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Side:
    """One of the two: a folder, and which of its answers."""

    source: Source
    choice: str = ""
    """The step of a run, or the agent of an evaluation; empty takes the last step, or all."""

    @property
    def name(self) -> str:
        """What people call it."""
        chosen = self.chosen
        if self.source.kind == "run":
            return f"{self.source.name} at step {chosen}"
        return f"{self.source.name}, {chosen}" if chosen else self.source.name

    @property
    def choices(self) -> list[str]:
        """What can be chosen."""
        rows = self.source.rows
        if self.source.kind == "run":
            return [str(s) for s in sorted({r["step"] for r in rows if r["split"] == "val"})]
        return sorted({row["split"] for row in rows})

    @property
    def chosen(self) -> str:
        """What is chosen, or the default."""
        known = self.choices
        if self.choice and self.choice not in known:
            what = "held-out episodes of step" if self.source.kind == "run" else "agent"
            raise UserError(
                f"{self.source.name} has no {what} {self.choice}",
                f"choose from {', '.join(known) or 'nothing: the list is empty'}",
            )
        if self.choice or self.source.kind != "run":
            return self.choice
        if not known:
            raise UserError(f"{self.source.name} has no held-out episodes yet", "wait for some")
        return known[-1]

    def rows(self) -> list[Row]:
        """Return the answers that were scored."""
        chosen = self.chosen
        if self.source.kind == "run":
            rows = [row for row in self.source.rows if row["score"] is not None]
            return [r for r in rows if r["split"] == "val" and str(r["step"]) == chosen]
        return [row for row in self.source.rows if not chosen or row["split"] == chosen]


def compare(first: Side, second: Side) -> dict[str, Any]:
    """Pair answers to the same question of the same task; first minus second."""
    first, second = _chosen(first, second)
    sides = [first, second]
    by_agent = all(s.source.kind == "evaluation" and not s.chosen for s in sides)
    answers = [_keyed(side.rows(), by_agent) for side in sides]
    shared = [key for key in answers[0] if key in answers[1]]
    if not shared:
        raise UserError(
            f"{first.name} and {second.name} have no task in common",
            "compare folders whose episodes are of the same tasks, with the same texts, questions"
            " and accepted answers",
        )
    pairs = [(answers[0][key], answers[1][key]) for key in shared]
    named = ((a["cluster"], f"{a['task']}#{a['q']}", a["score"] - b["score"]) for a, b in pairs)
    clusters = cluster_scores(named)
    mean = mean_interval(clusters, limit=1.0)
    count = [sum(pair[i]["score"] >= RIGHT for pair in pairs) for i in (0, 1)]
    won = [(a["score"] >= RIGHT, b["score"] >= RIGHT) for a, b in pairs]
    return {
        "names": [first.name, second.name],
        "chosen": [side.chosen for side in sides],
        "n": len(pairs),
        "clusters": mean.clusters,
        "right": count,
        "difference": mean.mean,
        "low": mean.low,
        "high": mean.high,
        "p": paired_p_value(clusters),
        "both": won.count((True, True)),
        "first": won.count((True, False)),
        "second": won.count((False, True)),
        "neither": won.count((False, False)),
        "unpaired": [len(own) - len(shared) for own in answers],
        "rows": [_pair(a, b) for a, b in pairs if (a["score"] >= RIGHT) != (b["score"] >= RIGHT)],
    }


def _chosen(first: Side, second: Side) -> tuple[Side, Side]:
    """Choose for a side that leaves it open: the other's agent, or the only one it has.

    Two evaluations of the same agents stay as they are: each agent is compared with itself.
    """
    sides = (first, second)
    if any(side.source.kind != "evaluation" for side in sides) or (first.choice and second.choice):
        return sides
    own = [[n for n in side.choices if n != CLOSED_BOOK] or side.choices for side in sides]
    if not (first.choice or second.choice) and not set(own[0]).isdisjoint(own[1]):
        return sides
    left, right = (
        side if side.choice else replace(side, choice=_agent(side, names, other.chosen))
        for side, names, other in zip(sides, own, reversed(sides), strict=True)
    )
    return left, right


def _agent(side: Side, names: Sequence[str], same: str) -> str:
    if same in side.choices:
        return same
    if len(names) < 2:
        return "".join(names)
    raise UserError(
        f"{side.source.name} has several agents, and the other side has none of them",
        f"name one, as in {side.source.name}@{names[0]}: {', '.join(names)}",
    )


def _keyed(rows: Sequence[Row], by_agent: bool) -> Mapping[Key, Row]:
    """Name answers so that equal names can be compared; several of one task stay apart.

    What is asked is part of the name: data that has changed since keeps the names of its tasks.
    """
    asked = ("set", "task", "q", "rollout", "question", "gold", "hash")
    return {(*(r[name] for name in asked), r["split"] if by_agent else ""): r for r in rows}


def _pair(a: Row, b: Row) -> dict[str, Any]:
    return {
        "task": a["task"],
        "question": a["question"],
        "gold": a["gold"],
        "answers": [a["answer"] or a["failure"], b["answer"] or b["failure"]],
        "scores": [a["score"], b["score"]],
        "n": [a["n"], b["n"]],
        "q": a["q"],
    }
