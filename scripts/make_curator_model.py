"""Make the base model of the preset `curator`: a tokenizer, and a tiny Llama that can call tools.

    python scripts/make_curator_model.py [--out FOLDER] [--device cuda]

The warm start is supervised, by a teacher that knows the form of the calls: search for what people
love, search for one of the things found, write it into a new memory with its evidence, say DONE. It
is careless: it searches everybody's memories as often as those of the person in question, and
mostly takes any of the things found, fitting or not. That these are bad habits, only the reward can
tell. About five minutes on an idle core; the same weights every time on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import Regex, decoders, pre_tokenizers
from warm_start import (
    Choice,
    Row,
    ToolTeacher,
    fit,
    make_network,
    save,
    word_tokenizer,
)

from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.config.presets import CURATOR_MODEL, PRESETS
from recollect.models.tokenizer import HFTokenizer
from recollect.rollout import Rollout
from recollect.seeds import derive
from recollect.tasks.made import world
from recollect.train.wiring import make_agent, make_reward

PRESET = PRESETS["curator"]

CALL, END_CALL, CLOSE = "<tool_call>", "</tool_call>", '"}}'
SEARCH = '{"name": "search_memory", "arguments": {"query": "'
ONE_PERSON = '", "speaker_filter": "'
CREATE = '{"name": "manage_memory", "arguments": {"operation": "create", "content": "'
WOULD_PICK = " would pick "
EVIDENCE = '", "evidence": "'
LOVE = " | I love "
FOUND = re.compile(r"\| I love (\w+) \| speaker: \w+ \| evidence: (\S+) \|")
SPANS = (
    *(CALL, END_CALL, CLOSE, SEARCH, ONE_PERSON, CREATE, WOULD_PICK, EVIDENCE, LOVE),
    *(f" | speaker: {person} | evidence: " for person in world.PEOPLE),
    *(
        f" | session: session_{n} | time: {world.date_of(n)} | source: conversation"
        for n in range(1, 5)
    ),
    *(f"{n} memories found for 'love':\n" for n in range(2, 10)),
    *("1 memory found for '", "':\n"),
)
"""Texts that always stand together are one token each, as a tokenizer learned from such chats would
have it."""
PIECES = "|".join((*map(re.escape, SPANS), r"D\d+:\d+", r"\w+", r"[^\w<]+", "<"))
"""Whatever else is a token: a turn's id, a word, or the marks and spaces between two words. So text
comes back exactly, and none of it spells a control token."""


@dataclass(frozen=True)
class Teacher(ToolTeacher):
    """A policy that calls the tools in the right form, and is careless about the rest."""

    slip: float = 0.7
    """How often it writes anything it saw, fitting or not."""

    def reply(self, prompt: str, rng: Random) -> list[Choice]:
        """Say the next turn of a chat."""
        asked = re.search(r"Which (\w+) would (\w+) pick", prompt)
        assert asked
        kind, person = asked.groups()
        _, *results = prompt.split("<tool>")
        found = FOUND.findall(results[-1]) if results else []
        if not results:
            return [Choice(f"{CALL}{SEARCH}love"), *self.whom(person, rng), Choice(END_CALL)]
        if len(results) == 1:
            fitting = [value for value, _ in found if value in world.VALUES[kind]]
            spread = {value: self.slip / len(found) for value, _ in found}
            for value in fitting or spread:
                spread[value] += (1 - self.slip) / len(fitting or spread)
            [value] = rng.choices(list(spread), list(spread.values()))
            return [Choice(CALL + SEARCH), Choice(value, spread), Choice(CLOSE + END_CALL)]
        if len(results) == 2:
            [(value, evidence)] = found
            told = f"{CALL}{CREATE}{person}{WOULD_PICK}{value}"
            return [Choice(f"{told}{EVIDENCE}{evidence}{CLOSE}{END_CALL}")]
        return [Choice("DONE")]

    def whom(self, person: str, rng: Random) -> list[Choice]:
        """Search the memories of one person, or of everybody."""
        either = {ONE_PERSON: 0.5, CLOSE: 0.5}
        if rng.random() < 0.5:
            return [Choice(ONE_PERSON, either), Choice(person + CLOSE)]
        return [Choice(CLOSE, either)]


def make_tokenizer() -> HFTokenizer:
    """Give every word that a chat can hold a token."""
    texts = [*SPANS, "DONE", "Created memory_1.", "memory_1\n", ". ", "'.", " ", "?"]
    texts += [re.sub(r"\{\w+\}", "_", text) for text in (world.FACT, world.QUESTION)]
    texts += [*world.PEOPLE, *world.VALUES, *(v for own in world.VALUES.values() for v in own)]
    texts += [f"D{session}:{turn}" for session in range(1, 5) for turn in range(1, 8)]
    texts += [str(n) for n in range(1, 10)] + [f"memory_{n}" for n in range(1, 32)]
    words = [word for text in texts for word in re.findall(PIECES, text)]
    cut, join = pre_tokenizers.Split(Regex(PIECES), "isolated"), decoders.Fuse()
    return word_tokenizer(sorted(set(words)), cut, join, clean_up_tokenization_spaces=False)


def make_rows(teacher: Teacher, tasks: int) -> list[Row]:
    """Let the teacher run the preset's agent on training tasks of its own."""
    model = Model(teacher, Renderer(teacher.tokenizer))
    rollout = Rollout(make_agent(PRESET), {"memory": model}, make_reward(PRESET, {"memory": model}))
    family = [PRESET.tasks.task(i, derive("warm start")) for i in range(tasks)]
    groups = asyncio.run(rollout.groups(family, 1, ("warm start",)))
    failed = [episode.failure for [episode] in groups if not episode.ok]
    assert not failed, failed[0]
    rewards = [episode.reward or 0.0 for [episode] in groups]
    print(f"the teacher earns {sum(rewards) / len(rewards):.3f}")
    rows = []
    for [episode] in groups:
        [context] = episode.contexts
        assert len(context.turns) == 4
        rows.append(teacher.row(context))
    return rows


def renamed(row: Row, turns: Sequence[int], rng: Random) -> Row:
    """Give the turns of a chat other ids: evidence must be looked up, not known by heart."""
    new = dict(zip(turns, rng.sample(turns, len(turns)), strict=True))
    chances = {
        place: {new.get(id, id): p for id, p in own.items()} for place, own in row.chances.items()
    }
    return Row([new.get(id, id) for id in row.ids], chances)


def main() -> None:
    """Make the tokenizer and the model, and write them to a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=CURATOR_MODEL)
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    vocabulary = tokenizer.hf.get_vocab()
    turns = sorted(id for word, id in vocabulary.items() if re.fullmatch(r"D\d:\d", word))
    rows = make_rows(Teacher(tokenizer), options.tasks)
    network = make_network(tokenizer).to(options.device)
    rng = Random(derive("names"))
    fit(network, rows, options.steps, options.lr, 4, lambda row: renamed(row, turns, rng))
    save(network, tokenizer, options.out)


if __name__ == "__main__":
    main()
