"""Replies that answer nothing: everything at once, giving up, or the text itself.

A cheat sees the task, the question and the answers of all questions of its family, but not which of
them is right. `chance` is what committing oneself to one answer earns.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from recollect.evaluation.scoring import LONGEST, cut
from recollect.metrics import SCORES
from recollect.types import Question, Task


@dataclass(frozen=True)
class Asked:
    """A question, its task, and what is answered to questions like it."""

    task: Task
    question: Question
    candidates: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """The beginning of the text: more than is scored."""
        found = ""
        for chunk in self.task.chunks:
            found += chunk + "\n\n"
            if len(found) > 2 * LONGEST:
                break
        return found


Cheat = Callable[[Asked], str]

COUNTS = [str(i) for i in range(41)]


def _names(asked: Asked) -> str:
    found = dict.fromkeys(word for word in asked.text.split() if word[:1].isupper())
    return ", ".join(list(found)[:60])


def _wide(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def _rest(asked: Asked) -> str:
    return ", ".join(asked.candidates[1:])


def _boxes_in_a_box(asked: Asked) -> str:
    return "\\boxed{" + " ".join(f"\\boxed{{{c}}}" for c in asked.candidates) + "}"


def _each(form: str, asked: Asked, between: str = " ") -> str:
    return between.join(form.format(candidate) for candidate in asked.candidates)


def _alike(text: str) -> str:
    """Write Latin letters as Cyrillic ones that look the same."""
    return text.translate(str.maketrans("aceopxy", "асеорху"))


CHEATS: dict[str, Cheat] = {
    "list all": lambda a: ", ".join(a.candidates),
    "all joined by or": lambda a: " or ".join(a.candidates),
    "all on lines of their own": lambda a: "\n".join(a.candidates),
    "all in a box": lambda a: f"\\boxed{{{', '.join(a.candidates)}}}",
    "a box for each": lambda a: " ".join(f"\\boxed{{{c}}}" for c in a.candidates),
    "an answer line for each": lambda a: "\n".join(f"Answer: {c}" for c in a.candidates),
    "all, and one in a box": lambda a: f"{', '.join(a.candidates)} \\boxed{{{a.candidates[0]}}}",
    "all after a box": lambda a: f"\\boxed{{?}} {', '.join(a.candidates)}",
    "all without commas": lambda a: " ".join(a.candidates),
    "all with slashes": lambda a: "/".join(a.candidates),
    "all in wide letters": lambda a: _wide(", ".join(a.candidates)),
    "all in capitals": lambda a: ", ".join(a.candidates).upper(),
    "all with invisible joints": lambda a: "\u200b, \u2060".join(a.candidates),
    "all while thinking": lambda a: f"<think>{', '.join(a.candidates)}",
    "two of them": lambda a: f"{a.candidates[0]} or {a.candidates[-1]}",
    "two without a word between": lambda a: f"{a.candidates[0]} {a.candidates[-1]}",
    "none of them": lambda a: f"not {', not '.join(a.candidates)}",
    "no idea": lambda a: "I have no idea.",
    "not mentioned": lambda a: "Not mentioned in the conversation.",
    "no information": lambda a: "No information available",
    "unknown": lambda a: "\\boxed{unknown}",
    "yes and no": lambda a: "yes and no",
    "yes or no": lambda a: "\\boxed{yes or no}",
    "yes, no, maybe": lambda a: "yes, no, maybe",
    "yes and no on two lines": lambda a: "Yes.\nNo.\nBoth are possible.",
    "the context": lambda a: a.text,
    "the start of the context": lambda a: a.text[: LONGEST // 2],
    "a sentence of the context": lambda a: a.text.partition(".")[0],
    "names of the context": _names,
    "the context in a box": lambda a: f"\\boxed{{{a.text[:LONGEST]}}}",
    "the question": lambda a: a.question.text,
    "the question in a box": lambda a: f"\\boxed{{{a.question.text}}}",
    "the question's names": lambda a: " ".join(w for w in a.question.text.split() if w.istitle()),
    "each number": lambda a: " ".join(COUNTS),
    "a range": lambda a: "between 0 and 1000000",
    "all in two boxes": lambda a: f"\\boxed{{{a.candidates[0]}}} or \\boxed{{{_rest(a)}}}",
    "boxes in a box": lambda a: _boxes_in_a_box(a),
    "all as lookalikes": lambda a: _alike(" оr ".join(a.candidates)),
    "all, joined by a lookalike": lambda a: " оr ".join(a.candidates),
    "all as JSON": lambda a: json.dumps({"memory": a.candidates, "answer": a.candidates}),
    "the memory as JSON": lambda a: json.dumps({"notes": a.text[: LONGEST // 3].split("\n")}),
    "one, and then not": lambda a: f"{a.candidates[0]}. No, not {a.candidates[0]}.",
    "one, and any other": lambda a: f"{a.candidates[0]}, or any of {_rest(a)}",
    "all, very often": lambda a: ", ".join(a.candidates) * 200,
    "all with line breaks of other kinds": lambda a: "\u2028".join(a.candidates),
    "all as a table": lambda a: " | ".join(a.candidates),
    "all as alternatives of LaTeX": lambda a: "\\boxed{" + " \\lor ".join(a.candidates) + "}",
    "thinking that does not end": lambda a: f"<think>\n{a.candidates[0]}",
    "the last sentence of the context": lambda a: a.text.strip().rpartition(". ")[2],
    "the last word of the context": lambda a: (a.text.split() or [""])[-1],
    "the question and all": lambda a: f"{a.question.text} {', '.join(a.candidates)}",
    "all joined by and": lambda a: " and ".join(a.candidates),
    "all joined by small words": lambda a: " of the ".join(a.candidates),
    "all joined in another language": lambda a: " oder ".join(a.candidates),
    "all without a space": lambda a: "".join(a.candidates),
    "all with combining marks": lambda a: ", ".join("\u0301".join(c) for c in a.candidates),
    "a final answer for each, on one line": lambda a: _each("Final answer: {}.", a),
    "an answer for each, on one line": lambda a: _each("The answer is {}.", a),
    "each of them denied": lambda a: _each("Not {},", a),
    "all as a JSON list in a box": lambda a: f"\\boxed{{{json.dumps(a.candidates)}}}",
    "all as rows of a table": lambda a: "| answer |\n|---|\n" + _each("| {} |", a, "\n"),
    "all as styled text in a box": lambda a: "\\boxed{" + _each("\\text{{{}}}", a) + "}",
    "all in a box that does not end": lambda a: "\\boxed{" + ", ".join(a.candidates),
    "all behind a comment": lambda a: f"<!-- {', '.join(a.candidates)} --> ?",
    "all after much talk": lambda a: (
        "Let me think. " * 500 + f"\nAnswer: {', '.join(a.candidates)}"
    ),
    "half of them": lambda a: ", ".join(a.candidates[::2]),
    "all as a regular expression": lambda a: f"({'|'.join(a.candidates)})",
    "yes, no": lambda a: "yes, no",
    "no, with a reason for yes": lambda a: "No. Yes, because the text says so.",
    "not enough information": lambda a: "There is not enough information in the text.",
    "all different words of the context": lambda a: " ".join(dict.fromkeys(a.text.split())),
    "nothing": lambda a: "",
    "an article": lambda a: "the",
    "an empty box": lambda a: "\\boxed{}",
    "a full stop": lambda a: ".",
}


def mean_score(metric: str, asked: Sequence[Asked], reply: Cheat) -> float:
    """Return what a cheat earns on questions, as an evaluation scores it."""
    return sum(SCORES[metric](cut(reply(a)), a.question) for a in asked) / len(asked)


def chance(metric: str, asked: Sequence[Asked], most: int = 20) -> float:
    """Return what the best of a family's own answers earns if it is always given."""
    common = Counter(c for a in asked for c in dict.fromkeys(a.candidates)).most_common(most)
    best = max(mean_score(metric, asked, lambda _a, said=said: said) for said, _ in common)
    # Where candidates are known for every question, any one of them is a fair guess.
    return max(best, sum(1 / len(a.candidates) for a in asked) / len(asked))
