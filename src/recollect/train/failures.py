"""What failed in a batch: said in one line, and what ends a run because nothing can be learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from recollect.errors import UserError
from recollect.foreign import LONGEST, one_line
from recollect.rollout import Group
from recollect.train import metrics as report
from recollect.types import Failure, Fault

BLAMED: dict[Fault, str] = {
    "agent": "by the agent itself",
    "environment": "by what it depends on",
    "measurement": "could not be measured",
}


def failures(groups: list[Group]) -> str:
    """Say how many episodes failed, by whose fault, and why the first did; nothing if none did."""
    failed = [e.failure for group in groups for e in group if e.failure]
    if not failed:
        return ""
    first, total = failed[0], sum(len(group) for group in groups)
    faults = Counter(failure.fault for failure in failed)
    whose = ", ".join(f"{count} {BLAMED[fault]}" for fault, count in faults.items())
    return f"{len(failed)} of {total} episodes failed ({whose}); the first one at {_cause(first)}"


def _cause(failure: Failure) -> str:
    """Say where an episode failed and why, with the line of a user's own code."""
    place = f" ({failure.place})" if failure.place else ""
    said = one_line(failure.message, LONGEST)
    return f"{failure.boundary}: {failure.kind}: {said}{place}"


def refuse_dead(groups: list[Group], when: str) -> None:
    """End a run in which every episode of a batch failed: later ones would fare no better."""
    failed = [e.failure for group in groups for e in group if e.failure]
    if len(failed) == sum(len(group) for group in groups):
        raise UserError(
            f"all {len(failed)} episodes of {when} failed; the first one at {_cause(failed[0])}",
            "fix that, then run the same command again: the run continues from its last checkpoint",
        )


def refuse_unmeasured(groups: list[Group], when: str) -> None:
    """End a run whose validation says nothing: every episode failed at a server, or has no result.

    Others may fail as a whole: that is what the agent is worth.
    """
    if all(
        e.failure and (report.at_server(e.failure) or not e.measured)
        for group in groups
        for e in group
    ):
        refuse_dead(groups, when)


def refuse_silent(groups: list[Group], learning: Sequence[str], when: str) -> None:
    """End a run in which the model that learns says nothing: no step could train it."""
    contexts = [c for group in groups for e in group if e.counts for c in e.contexts]
    if any(context.trainable and context.turns for context in contexts):
        return
    spoke = sorted({context.role for context in contexts if context.turns})
    others = f"only {' and '.join(spoke)} spoke" if spoke else "nobody spoke"
    if not set(spoke).isdisjoint(learning):
        raise UserError(
            f"nothing can be trained: in {when} all that the model that learns"
            f" ({' and '.join(learning)}) said is marked as not to be trained",
            "let neither your reward nor your agent set context.trainable",
        )
    raise UserError(
        f"nothing can be trained: in {when} the model that learns ({' and '.join(learning)}) said"
        f" nothing; {others}",
        "make a role trainable in which the agent speaks (--models.memory, --models.answer), or"
        " choose another agent",
    )
