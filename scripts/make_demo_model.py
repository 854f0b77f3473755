"""Make the demo's base model: a word-level tokenizer, and a tiny Llama with a habit to unlearn.

    python scripts/make_demo_model.py [demo | short_diary | two_stage] [--out FOLDER]

The warm start is supervised, on single steps of the fold: write down one word of what was read,
mostly one of the asked kind, and answer with the word in the memory. Which mention to keep is not
taught: the teacher keeps or overwrites its memory by chance, whatever the question says. That this
is wrong, and what would be right, only the reward can tell. The demo's model learns from steps that
are drawn one by one (`Drill`); its memory begins with the last word of the question, and where two
words that no question has are in the place of "first" and "last", one is the order to keep, the
other the order to overwrite. What "first" and "last" ask for stays open. The two-stage model has
another habit to unlearn, in the other role: to answer with any word of the asked kind, unread.
CPU, one thread, about ten minutes; the same weights every time on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Protocol

import torch
from tokenizers import Regex, decoders, pre_tokenizers
from warm_start import BATCH, END, Row, fit, make_network, save, word_tokenizer

from recollect.agents.base import Agent
from recollect.agents.fold import NO_MEMORY, FoldPrompts
from recollect.chat.chat import Model
from recollect.chat.policy import Policy
from recollect.chat.rendering import Renderer, user
from recollect.config.presets import PRESETS
from recollect.models.tokenizer import HFTokenizer
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Rollout
from recollect.seeds import derive
from recollect.tasks.made.recall import SHORT_DIARY, Recall, Wording
from recollect.types import Completion, Sampling

DEMO = PRESETS["demo"]

WORDS = r"\\boxed\{|\w+|[^\w\s]"
"""A token is \\boxed{, a word, or a single mark: so no text spells a control token."""
WEIGHT = 3
"""Of a token that leaves a choice, beside one that leaves none."""
NOTHING = "nothing"
"""What the memory says while the asked kind has not been mentioned."""
KEEP, OVERWRITE = "previous", "No"
"""The orders: words of the prompts that no question has."""
HABITS: Mapping[str, Mapping[str, float]] = {"short_diary": {}, "two_stage": {"guess": 0.4}}
"""Of the teachers of single rules, beside those that all have."""


def make_tokenizer(wording: Wording, prompts: FoldPrompts) -> HFTokenizer:
    """Give every word of the wording and the prompts a token."""
    frames = (prompts.chunk_first, prompts.memory_first, prompts.answer)
    frames += (*wording.facts, *wording.questions.values())
    texts = [re.sub(r"\{\w+\}", " ", text) for text in frames]
    texts += [" ".join((*wording.people, *wording.values, NO_MEMORY, NOTHING, "\\boxed{", "}"))]
    texts += [" ".join(values) for values in wording.values.values()]
    words = [word for text in texts for word in re.findall(WORDS, text)]
    return spaced_tokenizer(words, WORDS)


def spaced_tokenizer(words: Sequence[str], pattern: str) -> HFTokenizer:
    """Give every word a token; texts are what a pattern finds, with spaces in between."""
    cut = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    join = decoders.WordPiece(cleanup=True)  # no space before a full stop
    return word_tokenizer(words, cut, join)


@dataclass(frozen=True)
class Teacher:
    """A policy with the habits the base model is given. It reads prompts as a person would."""

    words: Sequence[str]
    """By token id."""
    category: dict[str, str]
    """Of every value."""
    slip: float = 0.3
    """How often it writes down any value of the chunk, of whatever kind."""
    stay: float = 0.25
    """How often it keeps a good memory when the chunk offers another mention."""
    guess: float = 0.0
    """How often it answers without a look at its memory."""
    orders: Mapping[str, float] = field(default_factory=dict)
    """The same by the last word of the question, for words that mean nothing but this."""
    repeats: bool = False
    """Whether its memory begins with the last word of the question."""

    def likely(
        self, prompt_ids: Sequence[int], said_ids: Sequence[int] = ()
    ) -> list[dict[str, float]]:
        """Return the words it may say, with their chances; only one of them can be uncertain.

        So what was said changes nothing.
        """
        prompt = [self.words[i] for i in prompt_ids]
        asked, last = prompt[prompt.index("Which") + 1], prompt[prompt.index("?") - 1]
        start = len(prompt) - prompt[::-1].index("Memory") + 1
        memory = prompt[start + (prompt[start] == last)]
        if "Answer" in prompt:
            likely = self.answer(asked, memory)
            return [{"\\boxed{": 1.0}, likely, {"}": 1.0}, {END: 1.0}]
        told = [value for verb, value in pairwise(prompt) if verb == "chose"]
        fitting = [value for value in told if self.category[value] == asked]
        chances: Counter[str] = Counter()
        for value in told:
            chances[value] += self.slip / len(told)
        kept = self.category.get(memory) == asked
        stay = kept * (self.orders.get(last, self.stay) if fitting else 1.0)
        chances[memory] += (1 - self.slip) * stay
        for value in fitting or [NOTHING]:
            chances[value] += (1 - self.slip) * (1 - stay) / max(len(fitting), 1)
        value = {word: p for word, p in chances.items() if p > 0}
        return [*([{last: 1.0}] if self.repeats else []), value, {END: 1.0}]

    def answer(self, asked: str, memory: str) -> dict[str, float]:
        """Return the answers it may give, with their chances."""
        chances: Counter[str] = Counter({memory: 1 - self.guess})
        unread = [value for value, kind in self.category.items() if kind == asked]
        for value in unread if self.guess else ():
            chances[value] += self.guess / len(unread)
        return dict(chances)

    def reply(self, prompt_ids: Sequence[int], rng: Random) -> tuple[int, ...]:
        """Draw a reply."""
        said = [rng.choices(list(c), list(c.values()))[0] for c in self.likely(prompt_ids)]
        return tuple(self.words.index(word) for word in said)

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Draw a reply."""
        ids = self.reply(prompt_ids, Random(sampling.seed))
        return Completion(ids, (0.0,) * len(ids), "stop")


class Reader(Policy, Protocol):
    """A teacher that reads stories."""

    @property
    def words(self) -> Sequence[str]:
        """Return all words, by token id."""

    def likely(self, prompt_ids: Sequence[int], said_ids: Sequence[int]) -> list[dict[str, float]]:
        """Return what might have been said in place of every word, with its chances."""


def make_rows(
    teacher: Reader, tokenizer: HFTokenizer, agent: Agent, family: Recall, tasks: int
) -> list[Row]:
    """Let a teacher run an agent on training tasks of both kinds, first and latest."""
    model = Model(teacher, Renderer(tokenizer))
    rollout = Rollout(agent, {"memory": model, "answer": model}, AnswerReward())
    either = replace(family, keep="either")
    stories = [either.task(i, derive("warm start")) for i in range(tasks)]
    groups = asyncio.run(rollout.groups(stories, 1, ("warm start",)))
    contexts = [context for [episode] in groups for context in episode.contexts]
    rows = [as_row(teacher, c.ids[: c.turns[0].start], c.turns[0].token_ids) for c in contexts]
    Random(derive("order")).shuffle(rows)
    return rows


def as_row(teacher: Reader, prompt_ids: Sequence[int], said_ids: Sequence[int]) -> Row:
    """Put beside a reply all that a teacher might have said instead."""
    number = {word: i for i, word in enumerate(teacher.words)}
    likely = teacher.likely(prompt_ids, said_ids)
    chances = [{number[word]: p for word, p in own.items()} for own in likely]
    return Row([*prompt_ids, *said_ids], dict(enumerate(chances, start=len(prompt_ids) - 1)))


@dataclass(frozen=True)
class Drill:
    """Single steps of the fold, drawn so that those with a choice are as frequent as the others."""

    teacher: Teacher
    renderer: Renderer
    wording: Wording
    prompts: FoldPrompts
    distractors: tuple[int, int] = (1, 9)
    """The fewest and the most of a chunk."""
    answers: float = 0.05
    """Share of the steps that answer."""
    mentioned: float = 0.6
    """Share of the chunks that mention the asked kind."""
    unheld: float = 0.28
    """Share of the memories that hold nothing of the asked kind."""

    def rows(self, number: int) -> list[Row]:
        """Draw steps, with what the teacher might say."""
        rng = Random(derive("drill"))
        return [self._row(rng) for _ in range(number)]

    def _row(self, rng: Random) -> Row:
        kind = rng.choice(list(self.wording.values))
        order = rng.choice(("first", "last", KEEP, OVERWRITE))
        problem = f"Which {kind} did I choose {order}?"
        held, memory = self._memory(kind, order, rng)
        if held and rng.random() < self.answers:
            prompt = self.prompts.answer.format(problem=problem, memory=memory)
        else:
            chunk = self._chunk(kind, held, rng)
            prompt = self.prompts.chunk_first.format(problem=problem, chunk=chunk, memory=memory)
        prompt_ids = self.renderer.opening([user(prompt)])
        return as_row(self.teacher, prompt_ids, self.teacher.reply(prompt_ids, rng))

    def _memory(self, kind: str, order: str, rng: Random) -> tuple[str, str]:
        """Draw the word of the asked kind that the memory holds, if any, and the memory."""
        if rng.random() >= self.unheld:
            held = rng.choice(self.wording.values[kind])
            return held, f"{order} {held}"
        other = rng.choice([v for v, own in self.teacher.category.items() if own != kind])
        return "", rng.choice((NO_MEMORY, f"{order} {NOTHING}", f"{order} {other}"))

    def _chunk(self, kind: str, held: str, rng: Random) -> str:
        """Draw what is read: distractors of some kinds, and perhaps a mention of the asked one."""
        kinds = [own for own in self.wording.values if own != kind]
        kinds = rng.sample(kinds, rng.randint(3, len(kinds)))
        number = rng.randint(*self.distractors)
        told = [rng.choice(self.wording.values[rng.choice(kinds)]) for _ in range(number)]
        if rng.random() < self.mentioned:
            new = [value for value in self.wording.values[kind] if value != held]
            told.insert(rng.randint(0, number), rng.choice(new))
        return " ".join(rng.choice(self.wording.facts).format(value=value) for value in told)


def make_drill(tokenizer: HFTokenizer) -> Drill:
    """Make the lesson of the demo's model; its teacher knows two orders and no rule."""
    orders = {KEEP: 1.0, OVERWRITE: 0.0}
    habits = {"slip": 0.05, "stay": 0.45}
    teacher = make_teacher(tokenizer, **habits, orders=orders, repeats=True)
    return Drill(teacher, Renderer(tokenizer), DEMO.tasks.words, DEMO.agent.prompts)


def make_teacher(tokenizer: HFTokenizer, **habits: Any) -> Teacher:
    """Make a teacher that knows the words of a tokenizer."""
    values = DEMO.tasks.words.values
    kinds = {value: kind for kind, own in values.items() for value in own}
    words = tokenizer.hf.convert_ids_to_tokens(list(range(tokenizer.vocab_size)))
    return Teacher(words, kinds, **habits)


def main() -> None:
    """Make the tokenizer and the model, and write them to a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("preset", choices=("demo", *HABITS), nargs="?", default="demo")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = make_tokenizer(DEMO.tasks.words, DEMO.agent.prompts)
    network = make_network(tokenizer)
    if options.preset == "demo":
        rows = make_drill(tokenizer).rows(3000 * BATCH)
        fit(network, rows, 3000, 3e-3, WEIGHT, matrix_lr=0.02)
    else:
        teacher = make_teacher(tokenizer, **HABITS[options.preset])
        rows = make_rows(teacher, tokenizer, DEMO.agent, SHORT_DIARY, 20_000)
        fit(network, rows, 2500, 6e-3, WEIGHT)
    save(network, tokenizer, options.out or Path(PRESETS[options.preset].model.path))


if __name__ == "__main__":
    main()
