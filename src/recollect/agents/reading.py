"""Reading: through a task window by window, asking each question at its position."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from recollect.agents.windows import Span, Window, is_due
from recollect.types import Question, Task

Read = Callable[[list[int], Span, str], Awaitable[bool | None]]
"""Read tokens of some chunks under a label; True says that this is enough."""
Ask = Callable[[dict[int, Question]], Awaitable[dict[int, str]]]
"""Answer questions, by their number in the task."""


async def read_and_ask(
    task: Task, steps: Iterable[tuple[Window, Span]], read: Read, ask: Ask
) -> list[str]:
    """Read window after window, and ask what is due in between; return all answers in order.

    Questions that are left when reading ends, or is enough, are asked then.
    """
    pending = dict(enumerate(task.questions))
    answers: dict[int, str] = {}
    number = 0
    for (chunk, seen), span in steps:
        if chunk:  # an empty window only marks where to ask
            number += 1
            if await read(chunk, span, f"chunk {number}"):
                break
        due = {i: q for i, q in pending.items() if is_due(q, seen)}
        answers |= await ask(due)
        pending = {i: q for i, q in pending.items() if i not in due}
    answers |= await ask(pending)
    return [answers[i] for i in range(len(task.questions))]
