"""A session: programs that follow one another over the same text, with the variables they keep.

A program that asks the model something is run again from its start once the answers have come. It
takes the same way as before, so all that it asked for before it needed an answer is asked at once.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from recollect.programs.budget import Budget, Limits, ProgramError
from recollect.programs.calls import Answered
from recollect.programs.host import Asked, Host
from recollect.programs.interpreter import Interpreter
from recollect.programs.showing import answered
from recollect.programs.source import parsed
from recollect.programs.values import Value, Waiting, copied, size

Ask = Callable[[Sequence[Asked]], Awaitable[list[str]]]
"""Answer questions about parts of the text, all at once."""
RUNS = 8
"""All runs of one program together take at most this many times the steps of one."""


@dataclass(frozen=True)
class Result:
    """What a program said, and how it ended."""

    output: str = ""
    answer: str | None = None
    error: str = ""
    """In a line, with the number of the program's line."""
    malformed: bool = False
    """Whether it could not be read at all."""
    asks: int = 0
    steps: int = 0
    notes: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    """Variables too large to be kept."""

    @property
    def text(self) -> str:
        """What the model is shown."""
        lines = [self.output] if self.output else []
        lines += [f"error: {self.error}"] if self.error else []
        if self.dropped:
            lines.append(f"({', '.join(self.dropped)}: too large to be kept)")
        return "\n".join(lines) or "(no output: print what you want to see)"


@dataclass
class Session:
    """The state between the programs of one chat."""

    given: Mapping[str, Value]
    """What every program finds, such as the text; a program may hide it by a variable."""
    limits: Limits = Limits()
    host: Callable[[], Host] = Host
    """Make what a program reaches out to: its search, its notes and how often it may ask."""
    variables: dict[str, Value] = field(default_factory=dict)

    async def run(self, source: str, ask: Ask) -> Result:
        """Run a program to its end; nothing that it does raises."""
        try:
            tree = parsed(source, self.limits.max_source)
        except ProgramError as error:
            return Result(error=str(error), malformed=True)
        answers: list[str] = []
        steps = 0
        while True:
            host = self.host()
            host.answers = answers
            budget = Budget(self.limits)
            memo: dict[int, Value] = {}
            kept = {name: copied(value, memo) for name, value in self.variables.items()}
            attempt = Interpreter({**self.given, **kept}, budget, host)
            found = self._attempted(attempt, tree, host)
            steps += budget.steps
            if found is not None:
                return self._kept(attempt, host, found, steps)
            if steps > RUNS * self.limits.max_steps:
                most = RUNS * self.limits.max_steps
                wrong = f"the program takes more than {most} steps in all its runs"
                return self._kept(attempt, host, Result(error=wrong), steps)
            answers = [*answers, *await ask(host.asked[len(answers) :])]
            await asyncio.sleep(0)

    def _attempted(self, attempt: Interpreter, tree: ast.Module, host: Host) -> Result | None:
        """Run a program once; None if it waits for answers."""
        error, final = "", None
        try:
            attempt.run(tree)
        except Waiting:
            return None
        except Answered as ended:
            try:
                final = answered(ended.value, attempt.budget)
            except Waiting:
                return None
            except ProgramError as found:
                error = str(found)
        except ProgramError as found:
            error = str(found)
        if not error and final is None and len(host.asked) > len(host.answers):
            return None  # it ended without a look at what it asked for: the next one may look
        return Result("\n".join(attempt.output), final, error)

    def _kept(self, attempt: Interpreter, host: Host, result: Result, steps: int) -> Result:
        """Keep the variables, the smallest first where there is not room for all."""
        names = {*self.variables, *attempt.assigned}
        merged = {name: value for name, value in attempt.variables.items() if name in names}
        left, seen = self.limits.max_kept, set[int]()
        sizes = {name: size(value, set(), self.limits.max_kept) for name, value in merged.items()}
        kept: dict[str, Value] = {}
        for name in sorted(merged, key=lambda name: (sizes[name], name)):
            needed = size(merged[name], seen, left)
            if needed <= left:
                kept[name] = merged[name]
                left -= needed
        self.variables = {name: value for name, value in merged.items() if name in kept}
        dropped = tuple(name for name in merged if name not in kept)
        return Result(
            result.output,
            result.answer,
            result.error,
            asks=len(host.answers),
            steps=steps,
            notes=tuple(host.noted),
            dropped=dropped,
        )
