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
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from recollect.chat import Model
from recollect.presets import CURATOR_MODEL, PRESETS
from recollect.rendering import Renderer
from recollect.rollout import Rollout
from recollect.seeds import derive
from recollect.tasks import world
from recollect.train.model import HFTokenizer
from recollect.train.wiring import make_agent, make_reward
from recollect.types import Completion, Sampling

PRESET = PRESETS["curator"]

END = "<end>"
ROLES = ("<system>", "<user>", "<assistant>", "<tool>")
TEMPLATE = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
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
class Choice:
    """A piece of text the teacher says, and the chances of what else it might have said."""

    said: str
    chances: Mapping[str, float] = field(default_factory=dict)
    """By first token; empty where there is no choice."""


@dataclass(frozen=True)
class Teacher:
    """A policy that calls the tools in the right form, and is careless about the rest."""

    tokenizer: HFTokenizer
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

    def tokens(self, choices: Sequence[Choice]) -> list[dict[int, float]]:
        """Return the chances of every token, that which is said first."""
        rows: list[dict[int, float]] = []
        for choice in choices:
            ids = self.tokenizer.encode(choice.said)
            rows += [{i: 1.0} for i in ids]
            if choice.chances:
                firsts = {self.tokenizer.encode(t)[0]: p for t, p in choice.chances.items()}
                rows[-len(ids)] = {ids[0]: firsts.pop(ids[0]), **firsts}
        return [*rows, {self.tokenizer.end_ids[0]: 1.0}]

    def rows(self, prompt_ids: Sequence[int], seed: int) -> list[dict[int, float]]:
        """Return the chances of every token of the reply to a prompt."""
        prompt = self.tokenizer.hf.decode(list(prompt_ids))
        return self.tokens(self.reply(prompt, Random(seed)))

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Draw a reply."""
        ids = tuple(next(iter(row)) for row in self.rows(prompt_ids, derive(*prompt_ids)))
        return Completion(ids, (0.0,) * len(ids), "stop")


@dataclass(frozen=True)
class Row:
    """One chat of the teacher, and what it might have said at each of its places."""

    ids: list[int]
    chances: dict[int, dict[int, float]]
    """By the place before the token."""


def make_tokenizer() -> HFTokenizer:
    """Give every word that a chat can hold a token."""
    texts = [*SPANS, "DONE", "Created memory_1.", "memory_1\n", ". ", "'.", " ", "?"]
    texts += [re.sub(r"\{\w+\}", "_", text) for text in (world.FACT, world.QUESTION)]
    texts += [*world.PEOPLE, *world.VALUES, *(v for own in world.VALUES.values() for v in own)]
    texts += [f"D{session}:{turn}" for session in range(1, 5) for turn in range(1, 8)]
    texts += [str(n) for n in range(1, 10)] + [f"memory_{n}" for n in range(1, 32)]
    words = [word for text in texts for word in re.findall(PIECES, text)]
    vocabulary = dict.fromkeys(["<pad>", "<unk>", END, *ROLES, *sorted(set(words))])
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(vocabulary)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
    backend.decoder = decoders.Fuse()
    hf = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    return HFTokenizer(hf, len(vocabulary), [hf.convert_tokens_to_ids(END)])


def make_rows(teacher: Teacher, tasks: int) -> list[Row]:
    """Let the teacher run the preset's agent on training tasks of its own."""
    model = Model(teacher, Renderer(teacher.tokenizer))
    rollout = Rollout(make_agent(PRESET), {"memory": model}, make_reward(PRESET, model))
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
        chances: dict[int, dict[int, float]] = {}
        for turn in context.turns:
            prompt = context.ids[: turn.start]
            said = teacher.rows(prompt, derive(*prompt))
            chances |= {turn.start + j - 1: row for j, row in enumerate(said)}
        assert teacher.tokenizer.hf.unk_token_id not in context.ids
        rows.append(Row(context.ids, chances))
    return rows


def renamed(row: Row, turns: Sequence[int], rng: Random) -> Row:
    """Give the turns of a chat other ids: evidence must be looked up, not known by heart."""
    new = dict(zip(turns, rng.sample(turns, len(turns)), strict=True))
    chances = {
        place: {new.get(id, id): p for id, p in own.items()} for place, own in row.chances.items()
    }
    return Row([new.get(id, id) for id in row.ids], chances)


def divergence(network: LlamaForCausalLM, rows: Sequence[Row]) -> tuple[torch.Tensor, int]:
    """Return KL(teacher || model) of every token said, the n that leave a choice first; and n."""
    ids = torch.zeros(len(rows), max(len(row.ids) for row in rows), dtype=torch.long)
    at: list[tuple[int, int, dict[int, float]]] = []
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)  # pads stand last, where nothing sees them
        at += [(i, place, chances) for place, chances in row.chances.items()]
    at.sort(key=lambda entry: len(entry[2]) == 1)
    hidden = network.model(input_ids=ids.to(network.device), use_cache=False).last_hidden_state
    predicted = network.lm_head(hidden[[i for i, _, _ in at], [j for _, j, _ in at]])
    cells = [(k, id, p) for k, (_, _, chances) in enumerate(at) for id, p in chances.items()]
    wanted = torch.zeros(predicted.shape)
    wanted[[k for k, _, _ in cells], [id for _, id, _ in cells]] = torch.tensor(
        [p for _, _, p in cells]
    )
    wanted = wanted.to(network.device)
    kl = (torch.xlogy(wanted, wanted) - wanted * predicted.log_softmax(-1)).sum(-1)
    return kl, sum(len(chances) > 1 for _, _, chances in at)


def warm_start(
    network: LlamaForCausalLM, rows: Sequence[Row], turns: Sequence[int], steps: int, lr: float
) -> None:
    """Fit all that the teacher might have said, not only what it happened to say."""
    size, rng = 64, Random(derive("names"))
    optimiser = torch.optim.AdamW(network.parameters(), lr, (0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda s: min(1, (s + 1) / 50) * (0.525 + 0.475 * math.cos(math.pi * s / steps))
    )
    for step in range(steps):
        batch = [renamed(rows[(step * size + i) % len(rows)], turns, rng) for i in range(size)]
        kl, choices = divergence(network, batch)
        # Most tokens leave no choice and are learned at once: the others count four times.
        loss = (4 * kl[:choices].sum() + kl[choices:].sum()) / (len(kl) + 3 * choices)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            choice, rest = kl[:choices].mean(), kl[choices:].sum() / size
            print(
                f"step {step}: {choice:.3f} nats from a choice, {rest:.4f} from the rest",
                flush=True,
            )


def make_network(tokenizer: HFTokenizer) -> LlamaForCausalLM:
    """Make a Llama of random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        tie_word_embeddings=True,
        initializer_range=0.08,
        bos_token_id=None,
        eos_token_id=tokenizer.end_ids[0],
        pad_token_id=tokenizer.hf.pad_token_id,
    )
    return LlamaForCausalLM(config)


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
    warm_start(network, rows, turns, options.steps, options.lr)
    network.generation_config = GenerationConfig(
        eos_token_id=list(tokenizer.end_ids), pad_token_id=tokenizer.hf.pad_token_id
    )
    network.save_pretrained(options.out)
    tokenizer.hf.save_pretrained(options.out)
    print(f"{network.num_parameters():,} weights in {options.out}")


if __name__ == "__main__":
    main()
