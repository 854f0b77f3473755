"""Rollouts side by side: the best, the median and the worst episode of one task, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recollect.display.figures import plain_table
from recollect.display.numbers import share
from recollect.foreign import one_line
from recollect.runs.episodes import memory_states
from recollect.types import Episode, Task

STATES = 8
"""Memory states shown; of more, the first and the last half."""
QUESTIONS = 3
"""Questions shown."""


def rollout_table(
    groups: Sequence[Sequence[Episode]], title: str = "Rollouts", cell: int = 160
) -> RenderableType:
    """Show the task whose rewards differ most: how its best, median and worst episodes remembered.

    Episodes of one task read the same text, so what differs is what they kept. A failed episode has
    no reward and is only counted.
    """
    finished = [[e for e in group if e.ok and e.reward is not None] for group in groups]
    ranked = [sorted(group, key=_reward, reverse=True) for group in finished if group]
    if not ranked:
        return Text.assemble((title, "bold"), "   no episode was finished", *_failures(groups))
    group = max(ranked, key=lambda group: _reward(group[0]) - _reward(group[-1]))
    picks = {"best": group[0], "median": group[len(group) // 2], "worst": group[-1]}
    task = group[0].task
    heading = Text.assemble(
        (title, "bold"), (f"   {len(group)} of task ", "bright_black"), one_line(task.id, 60)
    )
    return Group(heading, *_questions(task, cell), "", _table(picks, cell), *_failures(groups))


def _table(picks: Mapping[str, Episode], cell: int) -> Table:
    table = plain_table()
    table.add_column("", style="bright_black", no_wrap=True)
    for name in picks:
        table.add_column(name, overflow="fold")
    table.add_row("reward", *(Text(share(_reward(e)), "bold") for e in picks.values()))
    states = [_states(episode, cell) for episode in picks.values()]
    labels = list(dict.fromkeys(label for own in states for label in own))
    half = STATES // 2
    if len(labels) > STATES:
        labels = [*labels[:half], "…", *labels[-half:]]
    for label in labels:
        blank = "…" if label == "…" else ""
        table.add_row(label, *(own.get(label, Text(blank, "bright_black")) for own in states))
    several = len(next(iter(picks.values())).task.questions) > 1
    for i in range(min(QUESTIONS, max(len(e.answers) for e in picks.values()))):
        answers = [e.answers[i] if i < len(e.answers) else "" for e in picks.values()]
        label = f"answer {i + 1}" if several else "answer"
        table.add_row(label, *(Text(one_line(answer, cell), "cyan") for answer in answers))
    return table


def _states(episode: Episode, cell: int) -> dict[str, Text]:
    """Map each label to what the memory became, or to what was done to it."""
    states = memory_states(episode, lambda value: one_line(value, 40)).items()
    return {one_line(label, 20): _or_empty(one_line(text, cell)) for label, text in states}


def _or_empty(text: str) -> Text:
    return Text(text) if text else Text("(empty)", "bright_black")


def _questions(task: Task, cell: int) -> list[Text]:
    lines = []
    for question in task.questions[:QUESTIONS]:
        expected = one_line(question.answers[0], 60) if question.answers else ""
        asked = one_line(question.text, cell)
        lines.append(Text.assemble(asked, ("   expected ", "bright_black"), (expected, "green")))
    if len(task.questions) > QUESTIONS:
        more = len(task.questions) - QUESTIONS
        lines.append(Text(f"and {more} more questions", "bright_black"))
    return lines


def _failures(groups: Sequence[Sequence[Episode]]) -> list[Text]:
    failures = [e.failure for group in groups for e in group if e.failure]
    if not failures:
        return []
    first = failures[0]
    cause = one_line(f"{first.boundary}: {first.kind}: {first.message}", 120)
    return [Text(f"\n{len(failures)} failed; the first at {cause}", "yellow")]


def _reward(episode: Episode) -> float:
    return episode.reward if episode.reward is not None else 0.0
