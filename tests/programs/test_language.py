"""The language of programs: what it computes, what it refuses, and what each costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from benchmarks.hostile_programs import bombs, programs, run_all
from benchmarks.program_escapes import ESCAPES
from recollect.programs.budget import Limits
from recollect.programs.host import Asked, Host
from recollect.programs.session import Result, Session

TEXT = "Ann chose a fig. Bob paid $12.50. VAR XAB = 7. VAR YCD = XAB. Ann chose a plum."


class Asking:
    """Answers what is asked, and keeps which questions came together."""

    def __init__(self) -> None:
        self.rounds: list[list[Asked]] = []

    async def __call__(self, asked: Sequence[Asked]) -> list[str]:
        self.rounds.append(list(asked))
        return [f"<{text}>" for text, _question in asked]


def ran(*sources: str, limits: Limits = Limits(), asks: int = 8) -> tuple[Result, Asking]:
    """Run programs one after another; return the last one's result."""
    session = Session({"text": TEXT, "question": "Who?"}, limits, lambda: Host(max_asks=asks))
    asking = Asking()
    for source in sources:
        result = asyncio.run(session.run(source, asking))
    return result, asking


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("2 + 3 * 4", "14"),
        ("7 // 2, 7 % 3, 2 ** 5, 1 / 4", "(3, 1, 32, 0.25)"),
        ("x = [1, 2]\ny = x\ny.append(3)\nx", "[1, 2, 3]"),
        ("a, b = 1, 'z'\nf'{a:>3}|{b}|{2.5:.2f}'", "  1|z|2.50"),
        ("[x * y for x in [1, 2] for y in range(3) if y]", "[1, 2, 2, 4]"),
        ("x = 5\n[x for x in [1]]\nx", "5"),
        ("{w: len(w) for w in ['a', 'bb']}", "{'a': 1, 'bb': 2}"),
        ("{3, 1, 3}", "{3, 1}"),
        ("sorted({'b': 1, 'a': 2}.items(), key=lambda p: -p[1])", "[('a', 2), ('b', 1)]"),
        ("d = {'a': 1, 'b': 3}\nsorted(d, key=d.get, reverse=True)", "['b', 'a']"),
        ("count('b a b c b a'.split())", "{'b': 3, 'a': 2, 'c': 1}"),
        ("count(text, 'Ann'), len(find(text, 'chose'))", "(2, 2)"),
        ("findall(r'VAR (\\w+) = (\\w+)', text)", "[('XAB', '7'), ('YCD', 'XAB')]"),
        ("re.search('paid (?P<n>\\S+)', text).group('n')", "$12.50."),
        ("sub('[aeiou]', '_', 'plum fig')", "pl_m f_g"),
        ("window(text, find(text, 'paid')[0], 10)", " Bob paid "),
        ("split('one two three', 8)", "['one two ', 'three']"),
        ("total = 0\nfor i in range(9):\n  if i == 5: break\n  total += i\ntotal", "10"),
        ("i = 0\nwhile i < 4:\n  i += 1\ni", "4"),
        ("max(['a', 'ccc', 'bb'], key=len)", "ccc"),
        ("'Ann' in text and not 'Zoe' in text", "True"),
        ("print('a', 1)\nprint([None])", "a 1\n[None]"),
        ("note('x is 3')\nrecall('X')", "['x is 3']"),
        ("int('1,200') + float('$0.5')", "1200.5"),
        ("x = 1 if text else 2", "(no output: print what you want to see)"),
    ],
)
def test_the_language_says_what_python_says(source, said):
    assert ran(source)[0].text == said


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("x = 1\nx.real", "line 2: an attribute cannot be a value of its own"),
        ("text.__class__", "line 1: names do not begin with _ and hold no __"),
        ("\nimport os", "line 2: there are no imports: findall, count, search and the others"),
        ("'a' + 1", "line 1: a text and a number cannot be added"),
        ("x = [1]\nx[3]", "line 2: the index 3 is outside a list of 1"),
        ("{}['k']", "line 1: the dict has no key 'k'"),
        ("1 / 0", "line 1: division by zero"),
        ("10 ** 10 ** 10", "line 1: a number is too large: whole numbers stay below 2**60"),
        ("'%d' % 3", 'line 1: texts are formatted with f"...{x}...", not with %'),
        ("len(1, 2)", "line 1: len takes at most 1 arguments, not 2"),
        ("sorted([1], by=3)", "line 1: sorted takes no by"),
        ("nothing", "line 1: there is no variable nothing"),
        ("for x in [1]:\n  y = x +", "line 2: the syntax is wrong"),
        ("findall('(a)\\\\1', text)", "line 1: backreferences are not supported in patterns"),
        ("sorted([1, 'a'])", "line 1: a number and a text cannot be put in order"),
    ],
)
def test_an_error_is_one_line_with_the_number_of_its_line(source, error):
    found = ran(source)[0].error
    assert found.startswith(error) and "\n" not in found


@pytest.mark.parametrize(
    "source",
    [
        "'a' * 10**9",
        "[0] * 10**9",
        "x = 'ab'\nfor i in range(99):\n    x += x",
        "x = 'a' * 1000\nx.replace('a', x).replace('a', x)",
        "','.join(['a' * 10000] * 100000)",
        "list(range(10**12))",
        "while True:\n    pass",
        "sum(range(10**12))",
        "findall('(a|b)*a(a|b){300}', 'ab' * 100000)",
    ],
)
def test_what_would_never_end_ends_at_its_budget(source):
    result, _ = ran(source, limits=Limits(max_steps=50_000, max_bytes=1 << 20))
    assert "more than 50000 steps" in result.error or "more than 1048576 bytes" in result.error


def test_variables_are_kept_and_a_failed_program_keeps_what_it_had():
    assert ran("x = [1]", "x.append(2)\ny = 3\nz", "x, y")[0].text == "([1, 2], 3)"
    dropped, _ = ran("x = 'a' * 400000\ny = 1", limits=Limits(max_kept=1 << 20))
    assert dropped.dropped == ("x",) and "too large to be kept" in dropped.text


def test_questions_are_asked_at_once_and_only_when_an_answer_is_needed():
    result, asking = ran("found = [ask(w, 'Who?') for w in ['a', 'b', 'c']]\nprint(found)")
    assert result.text == "['<a>', '<b>', '<c>']" and result.asks == 3
    assert asking.rounds == [[("a", "Who?"), ("b", "Who?"), ("c", "Who?")]]
    result, asking = ran("x = ask('a', 'q')\ny = ask(x + 'b', 'q')\nanswer(y)")
    assert result.answer == "<<a>b>" and len(asking.rounds) == 2
    result, asking = ran("ask(['a'] * 9, 'q')")
    assert "at most 8 calls are left for ask" in result.error and not asking.rounds


def test_a_program_that_runs_again_changes_nothing_twice():
    source = "x.append(1)\nnote('n')\nprint(ask('a', 'q'))\nx.append(2)"
    result, _ = ran("x = []", source)
    assert result.notes == ("n",)
    assert ran("x = []", source, "x")[0].text == "[1, 2]"


def test_an_answer_may_be_a_list():
    assert ran("answer(['a', 'b', 3])\nprint('never')")[0].answer == "a, b, 3"
    assert ran("answer(2.5)")[0].answer == "2.5"


def test_thousands_of_hostile_programs_do_no_harm():
    assert len(ESCAPES) > 60 and len(list(bombs())) > 200
    tally = run_all(programs(2000, seed=1), Limits(3000, 1 << 20, max_kept=1 << 18))
    assert tally.problems == []
    assert min(tally.ends.values()) > 50  # not all of them ended at their first letter


def test_the_same_program_takes_the_same_steps():
    source = "c = count(text.split())\nprint(findall('\\\\w+', text)[:3], sorted(c))"
    assert ran(source)[0] == ran(source)[0] != ran(source + "\n1")[0]
