"""Make the demo's base model: a word-level tokenizer, and a tiny Llama with a habit to unlearn.

    python scripts/make_demo_model.py [demo | short_diary | two_stage] [--out FOLDER]

The warm start is supervised, on single steps of the fold: write down one word of what was read,
mostly one of the asked kind, and answer with the word in the memory. Which mention to keep is not
taught: the teacher keeps or overwrites its memory by chance, whatever the question says. That this
is wrong, and what would be right, only the reward can tell. The demo's model has two more lessons,
on longer chunks: its memory begins with the last word of the question; and where two words that no
question has are in the place of "first" and "last", one is the order to keep, the other the order
to overwrite. What "first" and "last" ask for stays open. The two-stage model has another habit to
unlearn, in the other role: to answer with any word of the asked kind, unread.
CPU, one thread, about eight minutes; the same weights every time on the same machine.
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
from transformers import LlamaForCausalLM
from warm_start import END, Row, fit, make_network, save, word_tokenizer

from recollect.agents.base import Agent
from recollect.agents.fold import NO_MEMORY, FoldPrompts
from recollect.chat.chat import Model
from recollect.chat.policy import Policy
from recollect.chat.rendering import Renderer
from recollect.config.presets import PRESETS
from recollect.models.tokenizer import HFTokenizer
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Rollout
from recollect.seeds import derive
from recollect.tasks.made.recall import DIARY, SHORT_DIARY, Recall, Wording
from recollect.types import Completion, Sampling, Task

DEMO = PRESETS["demo"]

WORDS = r"\\boxed\{|\w+|[^\w\s]"
"""A token is \\boxed{, a word, or a single mark: so no text spells a control token."""
WEIGHT = 3
"""Of a token that leaves a choice, beside one that leaves none."""
NOTHING = "nothing"
"""What the memory says while the asked kind has not been mentioned."""


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

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Draw a reply."""
        rng = Random(sampling.seed)
        said = [rng.choices(list(c), list(c.values()))[0] for c in self.likely(prompt_ids)]
        ids = tuple(self.words.index(word) for word in said)
        return Completion(ids, (0.0,) * len(ids), "stop")


class Reader(Policy, Protocol):
    """A teacher that reads stories."""

    @property
    def words(self) -> Sequence[str]:
        """Return all words, by token id."""

    def likely(self, prompt_ids: Sequence[int], said_ids: Sequence[int]) -> list[dict[str, float]]:
        """Return what might have been said in place of every word, with its chances."""


def make_rows(
    teacher: Reader, tokenizer: HFTokenizer, agent: Agent, family: Recall, tasks: int,
    distractors: Sequence[int] = (), orders: Sequence[str] = (),
) -> list[Row]:  # fmt: skip
    """Let a teacher run an agent on training tasks of both kinds, first and latest.

    Where several numbers of distractors or orders are given, tasks have them in turn.
    """
    model = Model(teacher, Renderer(tokenizer))
    rollout = Rollout(agent, {"memory": model, "answer": model}, AnswerReward())
    numbers = distractors or (family.distractors,)
    turns = [replace(family, keep="either", distractors=n) for n in numbers]
    stories = [turns[i % len(turns)].task(i, derive("warm start")) for i in range(tasks)]
    if orders:
        stories = [with_order(task, orders[i % len(orders)]) for i, task in enumerate(stories)]
    groups = asyncio.run(rollout.groups(stories, 1, ("warm start",)))
    number = {word: i for i, word in enumerate(teacher.words)}
    rows = []
    for context in (context for [episode] in groups for context in episode.contexts):
        [turn] = context.turns
        likely = teacher.likely(context.ids[: turn.start], turn.token_ids)
        chances = [{number[word]: p for word, p in own.items()} for own in likely]
        rows.append(Row(context.ids, dict(enumerate(chances, start=turn.start - 1))))
    Random(derive("order")).shuffle(rows)
    return rows


def with_order(task: Task, order: str) -> Task:
    """Put an order in place of the last word of the question; an empty one changes nothing."""
    [asked] = task.questions
    text = asked.text.rpartition(" ")[0] + f" {order}?" if order else asked.text
    return replace(task, questions=(replace(asked, text=text),))


@dataclass(frozen=True)
class Lesson:
    """One part of a warm start."""

    family: Recall
    habits: Mapping[str, Any]
    """Of the teacher."""
    tasks: int = 20_000
    steps: int = 2500
    lr: float = 6e-3
    distractors: tuple[int, ...] = ()
    """Numbers of them, in turn; by default as the family has."""
    orders: tuple[str, ...] = ()
    """In turn, in place of the last word of the question; empty ones leave it as it is."""


SHORT = Lesson(SHORT_DIARY, {})
LONG = Lesson(
    DIARY,
    {"slip": 0.1, "stay": 0.4, "repeats": True},
    tasks=6_000,
    steps=900,
    lr=4e-3,
    distractors=(3, 5, 7, 8),
)
KEEP, OVERWRITE = "previous", "No"
ORDERS = Lesson(
    DIARY,
    {**LONG.habits, "stay": 0.45, "orders": {KEEP: 1.0, OVERWRITE: 0.0}},
    tasks=5_000,
    steps=700,
    lr=3e-3,
    distractors=(3, 5, 7, 9),
    orders=("", KEEP, "", OVERWRITE, "", "", KEEP, "", OVERWRITE, ""),
)
LESSONS = {
    "demo": (SHORT, LONG, ORDERS),
    "short_diary": (SHORT,),
    "two_stage": (replace(SHORT, habits={"guess": 0.4}),),
}


def main() -> None:
    """Make the tokenizer and the model, and write them to a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("preset", choices=LESSONS, nargs="?", default="demo")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--start", type=Path, help="a model to give the last lesson alone")
    parser.add_argument("--last-steps", type=int, help="of the last lesson, in place of its own")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wording = DEMO.tasks.words
    tokenizer = make_tokenizer(wording, DEMO.agent.prompts)
    words = tokenizer.hf.convert_ids_to_tokens(list(range(tokenizer.vocab_size)))
    kinds = {value: kind for kind, values in wording.values.items() for value in values}
    network, lessons = make_network(tokenizer), LESSONS[options.preset]
    if options.last_steps:
        lessons = (*lessons[:-1], replace(lessons[-1], steps=options.last_steps))
    if options.start:
        lessons = lessons[-1:]
        network = LlamaForCausalLM.from_pretrained(
            options.start,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
        )
    for lesson in lessons:
        teacher = Teacher(words, kinds, **lesson.habits)
        rows = make_rows(
            *(teacher, tokenizer, DEMO.agent, lesson.family, lesson.tasks),
            *(lesson.distractors, lesson.orders),
        )
        fit(network, rows, lesson.steps, lesson.lr, weight=WEIGHT)
    save(network, tokenizer, options.out or Path(PRESETS[options.preset].model.path))


if __name__ == "__main__":
    main()
