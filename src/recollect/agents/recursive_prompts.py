"""The prompts of the recursive agent: the language on a page, and how a part is asked about."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recollect.agents.tags import spoken
from recollect.agents.templates import check_fields

_FENCED = re.compile(r"```[a-z]*[ \n]?(.*?)(?:```|\Z)", re.DOTALL)

LANGUAGE = """\
The language is a small part of Python: assignments, if, for, while, comprehensions, f-strings,
lists, dicts, sets and the usual methods. There are no imports, functions or classes. What you
print, and the value of the last line, is shown to you, cut if it is long. Variables stay.
- text: all of the text; chunks: its parts in a list; question: the problem
- search(words, n): the n best passages; find(text, word): all places; window(text, place, size)
- findall(pattern, text), sub(pattern, new, text), match(pattern, text); re.findall works, too
- split(text), split(text, separator), split(text, size); count(items): how often each comes
- len, sum, min, max, sorted, range, zip, enumerate, int, float, round, str, any, all
- ask(part, question): you read a part yourself, in a chat of its own, and answer in words;
  a list of parts is read side by side
- note(text) keeps a note for later questions; recall(word) finds notes
- answer(value): ends with the answer; a list is joined by commas"""


@dataclass(frozen=True)
class RecursivePrompts:
    """Texts with the fields {problem}, {size}, {result}, {left} and {chunk}."""

    program: str = (
        "A long text is in the variable text. You cannot see it: you read it with short programs,"
        f" one in every reply, between ``` and ```.\n\n{LANGUAGE}\n\n"
        "The text has {size}.\n\n<problem>\n{problem}\n</problem>\n\n"
        "Write the next program. End with answer(...) as soon as you know the answer."
    )
    result: str = "<result>\n{result}\n</result>\n{left}"
    last: str = "This is the last program: end it with answer(...)."
    part: str = (
        "<text>\n{chunk}\n</text>\n\nAnswer from this text alone, in a few words. Say nothing found"
        " if it does not hold the answer.\n\n<problem>\n{problem}\n</problem>\n\nYour answer:"
    )

    def __post_init__(self) -> None:
        check_fields("program", self.program, {"problem"})
        check_fields("part", self.part, {"chunk", "problem"})


def program_of(reply: str) -> str | None:
    """Return the program in a reply: what is between the first ``` and the next, or the end."""
    found = _FENCED.search(spoken(reply))
    source = found[1].strip("\n") if found else ""
    return source if source.strip() else None


def in_box(answer: str) -> str:
    """Put an answer where every agent's answer is looked for; an empty one needs no box."""
    return answer if "\\boxed{" in answer or not answer.strip() else f"\\boxed{{{answer}}}"
