"""Hostile and random programs for the interpreter, and what 100,000 of them do to it.

    python -m benchmarks.hostile_programs --programs 100000

Known ways out of Python sandboxes, programs grown from the grammar, and mutations of programs that
work. An escape is a value of a kind that the language does not have, a crash any exception that is
no ProgramError, a hang a program over its steps or over SLOWEST seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from benchmarks.program_escapes import BOMBS, ESCAPES, SAMPLES
from recollect.programs.budget import Limits
from recollect.programs.host import Asked, Host
from recollect.programs.session import Result, Session
from recollect.programs.values import KINDS

LIMITS = Limits(max_steps=20_000, max_bytes=1 << 22, max_kept=1 << 20)
SLOWEST = 5.0
OPERATORS = "+ - * / // % ** << >> | & ^ @ and or == < in is"
FORMATS = ("", ">9", ".2f", "999", "9999", "x")
TEXT = "Ann chose a fig. Bob paid $12.50 on 2023-01-02. VAR XAB = 7. VAR YCD = XAB.\n" * 40


@dataclass
class Tally:
    """What happened to the programs."""

    ends: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def __str__(self) -> str:
        ends = ", ".join(f"{n} {name}" for name, n in sorted(self.ends.items()))
        by = Counter(problem.split(":")[0] for problem in self.problems)
        return (
            f"{sum(self.ends.values())} programs: {ends}; escapes {by['escape']},"
            f" crashes {by['crash']}, hangs {by['hang']}, slowest {self.slowest:.2f} s"
        )


def bombs() -> Iterator[str]:
    """Yield programs with patterns that are made to explode."""
    for bomb in BOMBS:
        for text in ("'a' * 3000 + '!'", "text", "'ab' * 500"):
            for how in ("findall", "match", "re.split"):
                yield f"print({how}({bomb!r}, {text}))"


def grown(rng: Random, depth: int = 0) -> str:
    """Grow an expression from the grammar."""
    if depth > 4 or rng.random() < 0.25:
        atoms = ("text", "x", "y", "1", "0", "-3", "2.5", "'a'", "''", "None", "True", "[]", "{}")
        return rng.choice((*atoms, "question", "10**9", "range(9)", "'a' * 99"))
    one, two, three = (grown(rng, depth + 1) for _ in range(3))
    names = "len sum min max sorted count find split window range zip enumerate reversed int float"
    names += " round abs dict set list tuple str repr any all findall finditer sub match ask search"
    names += " note recall answer print re.findall re.sub open eval type"
    methods = "lower split strip join replace find rfind count append pop get items keys values add"
    methods += " index sort insert extend zfill group format __class__ startswith partition"
    args = ", ".join((one, two, three)[: rng.randrange(4)])
    return rng.choice(
        (
            f"({one} {rng.choice(OPERATORS.split())} {two})",
            f"{rng.choice(names.split())}({args})",
            f"{rng.choice(names.split())}({args})",
            f"({one}).{rng.choice(methods.split())}({args})",
            f"{one}[{two}]",
            f"{one}[{two}:{three}]",
            f"[{one} for x in {two} if {three}]",
            f"{{{one}: {two} for x, y in {three}}}",
            f"{{{one} for x in {two}}}",
            f"({one} if {two} else {three})",
            f"[{one}, {two}]",
            f"{{{one}: {two}}}",
            f"f'{{{one.replace(chr(39), chr(34))}:{rng.choice(FORMATS)}}}'",
            f"sorted({one}, key=lambda y: {two})",
            f"not {one}",
        )
    )


def program(rng: Random) -> str:
    """Grow a program from the grammar."""
    lines: list[str] = []
    for _ in range(rng.randrange(1, 6)):
        value, other = grown(rng, 1), grown(rng, 2)
        name = rng.choice(("x", "y", "z", "text", "len", "x[0]", "x['a']", "x, y"))
        lines += rng.choice(
            (
                [f"{name} = {value}"],
                [f"{name} += {value}"],
                [value],
                [
                    f"for x in {value}:",
                    f"    y = {other}",
                    f"    {rng.choice(('break', 'x', 'pass'))}",
                ],
                [f"if {value}:", f"    x = {other}", "else:", f"    y = {other}"],
                [f"while {value}:", f"    x = {other}"],
                [f"answer({value})"],
                [f"del {rng.choice('xyz')}"],
            )
        )
    return "\n".join(lines)


def mutated(source: str, rng: Random) -> str:
    """Change a program a little: letters, lines, and pieces of others."""
    for _ in range(rng.randrange(1, 6)):
        at, to = sorted(rng.randrange(len(source) + 1) for _ in range(2))
        how = rng.randrange(6)
        if how == 0:
            source = source[:at] + source[min(to, at + 8) :]
        elif how == 1:
            source = source[:to] + source[at:to] + source[to:]
        elif how == 2:
            source = source[:at] + rng.choice("()[]{}'\"\\\n :,.=+-*%_0xÄ\x00\t") + source[at:]
        elif how == 3:
            donor = rng.choice((*SAMPLES, *ESCAPES))
            cut = rng.randrange(len(donor))
            source = source[:at] + donor[cut : cut + 12] + source[at:]
        elif how == 4:
            source = source.replace(rng.choice(("text", "1", "x", "'")), rng.choice(("10**9", "y")))
        else:
            lines = source.split("\n")
            rng.shuffle(lines)
            source = "\n".join(lines)
    return source


def programs(count: int, seed: int = 0) -> Iterator[str]:
    """Yield hostile programs: known escapes and bombs first, then grown and mutated ones."""
    rng = Random(seed)
    known = [*ESCAPES, *bombs(), *SAMPLES]
    yield from known[:count]
    for i in range(count - len(known)):
        yield program(rng) if i % 2 else mutated(rng.choice((*SAMPLES, *ESCAPES)), rng)


async def _answer(asked: Sequence[Asked]) -> list[str]:
    return ["yes"] * len(asked)


def _search(query: str, most: int) -> list[str]:
    return [TEXT[:100]] * min(most, 3)


def foreign(session: Session, result: Result) -> str:
    """Name what a program has got hold of that is no value of the language; usually nothing."""
    left, seen = list(session.variables.values()), set()
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if type(value) not in KINDS:
            return type(value).__name__
        if type(value) in (list, tuple, dict):
            left += list(value)
        if type(value) is dict:
            left += list(value.values())
    said = result.output + (result.answer or "")
    return next(
        (w for w in ("<class", "<function", "<built-in", "<bound", "root:") if w in said), ""
    )


def run_all(sources: Iterator[str], limits: Limits = LIMITS) -> Tally:
    """Run programs one by one, a few in each session, and note what must not happen."""
    tally, session = Tally(), None
    for number, source in enumerate(sources):
        if session is None or number % 3 == 0:
            given = {"text": TEXT, "question": "Who?"}
            session = Session(given, limits, lambda: Host(_search, ("a note",), max_asks=16))
        began = time.perf_counter()
        try:
            result = asyncio.run(session.run(source, _answer))
        except Exception as error:  # whatever it is, it is what is looked for
            tally.ends["crashed"] += 1
            tally.problems.append(f"crash: {type(error).__name__}: {error!s:.80}: {source!r:.300}")
            continue
        seconds = time.perf_counter() - began
        tally.slowest = max(tally.slowest, seconds)
        ended = "malformed" if result.malformed else "failed" if result.error else "ended"
        tally.ends[ended] += 1
        if seconds > SLOWEST:
            tally.problems.append(f"hang: {seconds:.1f} s: {source!r:.300}")
        if found := foreign(session, result):
            tally.problems.append(f"escape: {found}: {source!r:.300}")
        if "\n" in result.error or len(result.error) > 200:
            tally.problems.append(f"crash: an error of several lines: {source!r:.300}")
    return tally


def main() -> None:
    """Run the programs and print what happened."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.perf_counter()
    tally = run_all(programs(options.programs, options.seed))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(*tally.problems[:20], sep="\n")
    print(
        f"{tally}; {time.perf_counter() - began:.0f} s; memory {before:.0f} MiB before, {peak:.0f}"
    )
    raise SystemExit(bool(tally.problems))


if __name__ == "__main__":
    main()
