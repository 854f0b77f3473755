"""Three kinds of question about one kind of list, and a teacher that knows the language alone.

For `benchmarks/recursive.py`: which program fits which question, only the reward tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from recollect.agents.recursive import RecursiveAgent
from recollect.agents.recursive_prompts import RecursivePrompts
from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.made.wordings import PLAIN
from recollect.types import Completion, Question, Sampling, Task

END = "<end>"
KINDS = {
    "first": "Which {} came first ?",
    "last": "Which {} came last ?",
    "count": "How often came {} ?",
}
HEAD = '```\nw=split(text);k="'
ORDERS = ('".strip();r=w;', '".strip();r=reversed(w);')
ENDS = (
    "answer(r[r.index(k)+1])",
    "answer(r[r.index(k)-1])",
    "answer(count(r,k))",
    "answer(len(r))",
    "answer(ask(text,question))",
    "answer(",
)
"""The last of them is malformed."""
FENCE = "```"
NUMBERS = tuple(map(str, range(10)))
AGENT = RecursiveAgent(
    max_turns=1,
    max_turn_tokens=8,
    max_part_tokens=64,
    max_answer_tokens=4,
    max_asks=2,
    prompts=RecursivePrompts(program="{problem} Program", part="{chunk} {problem} Part"),
)
VALUES = {kind: PLAIN.values[kind] for kind in ("fruit", "colour", "metal", "tree")}
WORDS = (
    *("Which", "How", "often", "came", "first", "last", "?", "Program", "Part", *VALUES),
    *(value for values in VALUES.values() for value in values),
    *(HEAD, *ORDERS, *ENDS, FENCE, *NUMBERS),
)


@dataclass(frozen=True)
class Lists:
    """Lists such as "fruit mango tree oak fruit plum", and questions of three kinds about them."""

    name: ClassVar[str] = "lists"
    metric: ClassVar[str] = "boxed_match"

    entries: int = 6

    def size(self, split: Split) -> int | None:
        """Say that there is no end."""
        return None

    def longer(self, times: int) -> Lists:
        """Return the same family with longer lists."""
        return replace(self, entries=self.entries * times)

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Make one task; its text decides its split, so that none is in both."""
        for attempt in range(256):
            rng = Random(derive("lists", seed, split, index, attempt))
            kinds = [rng.choice(list(VALUES)) for _ in range(self.entries)]
            pairs = [(kind, rng.choice(VALUES[kind])) for kind in kinds]
            text = " ".join(f"{kind} {value}" for kind, value in pairs)
            if split == ("train", "test")[derive("split", text) % 2]:
                break
        asked, how = rng.choice(kinds), rng.choice(list(KINDS))
        own = [value for kind, value in pairs if kind == asked]
        answer = {"first": own[0], "last": own[-1], "count": str(len(own))}[how]
        question = Question(KINDS[how].format(asked), (answer,), how, (0,))
        name = f"lists-{split}-{seed}-{index}-of-{self.entries}"
        return Task(name, (text,), (question,), self.name)


@dataclass(frozen=True)
class Teacher:
    """A policy that writes any program of the language about what is asked, whatever the kind."""

    words: Sequence[str]
    """By token id."""

    def likely(
        self, prompt_ids: Sequence[int], said_ids: Sequence[int] = ()
    ) -> list[dict[str, float]]:
        """Return the words that it may say, with their chances."""
        prompt = [self.words[i] for i in prompt_ids]
        if "Part" in prompt:
            shown = [word for word in prompt if any(word in v for v in VALUES.values())]
            return [{word: shown.count(word) / len(shown) for word in shown}, {END: 1.0}]
        asked = prompt[prompt.index("came") + (1 if "How" in prompt else -1)]
        any_of = lambda words: dict.fromkeys(words, 1 / len(words))  # noqa: E731
        return [{HEAD: 1.0}, {asked: 1.0}, any_of(ORDERS), any_of(ENDS), {FENCE: 1.0}, {END: 1.0}]

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Draw a reply."""
        rng = Random(sampling.seed)
        said = [rng.choices(list(c), list(c.values()))[0] for c in self.likely(prompt_ids)]
        ids = tuple(self.words.index(word) for word in said)
        return Completion(ids, (0.0,) * len(ids), "stop")
