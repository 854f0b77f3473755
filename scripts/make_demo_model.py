"""Make the demo's base model: a word-level tokenizer, and a tiny Llama with a habit to unlearn.

    python scripts/make_demo_model.py [--out FOLDER]
    python scripts/make_demo_model.py --guess 0.4 --out src/recollect/demo/two_stage

The warm start is supervised, on single steps of the fold: write down one word of what was read,
mostly one of the asked kind, and answer with the word in the memory. Which mention to keep is not
taught: the teacher overwrites its memory more often than not, whatever the question says. That
this is wrong, and what would be right, only the reward can tell. With --guess there is a second
habit to unlearn, in the other role: to answer with any word of the asked kind, unread.
CPU, one thread, about 90 seconds; the same weights every time on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from recollect.agents.fold import NO_MEMORY, FoldPrompts
from recollect.chat import Model
from recollect.presets import DEMO_MODEL, PRESETS
from recollect.rendering import Renderer
from recollect.rewards import AnswerReward
from recollect.rollout import Rollout
from recollect.seeds import derive
from recollect.tasks.recall import Wording
from recollect.train.model import HFTokenizer
from recollect.types import Completion, Sampling

DEMO = PRESETS["demo"]

END = "<end>"
ROLES = ("<system>", "<user>", "<assistant>", "<tool>")
WORDS = r"\\boxed\{|\w+|[^\w\s]"
"""A token is \\boxed{, a word, or a single mark: so no text spells a control token."""
TEMPLATE = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
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
    return word_tokenizer(words, WORDS)


def word_tokenizer(words: Sequence[str], pattern: str) -> HFTokenizer:
    """Give every word a token, and the control tokens; a pattern cuts texts into words."""
    vocabulary = dict.fromkeys(["<pad>", "<unk>", END, *ROLES, *words])
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(vocabulary)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    backend.decoder = decoders.WordPiece(cleanup=True)  # no space before a full stop
    hf = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=TEMPLATE,
    )
    return HFTokenizer(hf, len(vocabulary), [hf.convert_tokens_to_ids(END)])


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

    def reply(self, prompt_ids: Sequence[int]) -> list[dict[str, float]]:
        """Return the words it may say, with their chances; only one of them can be uncertain."""
        prompt = [self.words[i] for i in prompt_ids]
        memory = prompt[len(prompt) - prompt[::-1].index("Memory") + 1]
        asked = prompt[prompt.index("Which") + 1]
        if "Answer" in prompt:
            likely = self.answer(asked, memory)
            return [{"\\boxed{": 1.0}, likely, {"}": 1.0}, {END: 1.0}]
        told = [value for verb, value in pairwise(prompt) if verb == "chose"]
        fitting = [value for value in told if self.category[value] == asked]
        chances: Counter[str] = Counter()
        for value in told:
            chances[value] += self.slip / len(told)
        kept = self.category.get(memory) == asked
        stay = kept * (self.stay if fitting else 1.0)
        chances[memory] += (1 - self.slip) * stay
        for value in fitting or [NOTHING]:
            chances[value] += (1 - self.slip) * (1 - stay) / max(len(fitting), 1)
        return [{word: p for word, p in chances.items() if p > 0}, {END: 1.0}]

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
        said = [rng.choices(list(c), list(c.values()))[0] for c in self.reply(prompt_ids)]
        ids = tuple(self.words.index(word) for word in said)
        return Completion(ids, (0.0,) * len(ids), "stop")


@dataclass(frozen=True)
class Row:
    """One context of the teacher: its tokens, and what it might have said from `start` on."""

    ids: list[int]
    start: int
    chances: list[dict[int, float]]


def make_rows(teacher: Teacher, tokenizer: HFTokenizer, tasks: int) -> list[Row]:
    """Let the teacher run the demo's agent on training tasks of both kinds, first and latest."""
    family = replace(DEMO.tasks, keep="either")
    model = Model(teacher, Renderer(tokenizer))
    rollout = Rollout(DEMO.agent, {"memory": model, "answer": model}, AnswerReward())
    stories = [family.task(i, derive("warm start")) for i in range(tasks)]
    groups = asyncio.run(rollout.groups(stories, 1, ("warm start",)))
    number = {word: i for i, word in enumerate(teacher.words)}
    rows = []
    for context in (context for [episode] in groups for context in episode.contexts):
        start = context.turns[0].start
        chances = teacher.reply(context.ids[:start])
        rows.append(
            Row(context.ids, start, [{number[w]: p for w, p in c.items()} for c in chances])
        )
    Random(derive("order")).shuffle(rows)
    return rows


def divergence(network: LlamaForCausalLM, rows: Sequence[Row]) -> torch.Tensor:
    """Return KL(teacher || model) of every reply token, those that leave a choice first."""
    ids = torch.zeros(len(rows), max(len(row.ids) for row in rows), dtype=torch.long)
    at: list[tuple[int, int, dict[int, float]]] = []
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)  # pads stand last, where nothing sees them
        at += [(i, row.start + j - 1, chances) for j, chances in enumerate(row.chances)]
    at.sort(key=lambda entry: len(entry[2]) == 1)
    hidden = network.model(input_ids=ids, use_cache=False).last_hidden_state
    predicted = network.lm_head(hidden[[i for i, _, _ in at], [j for _, j, _ in at]])
    wanted = torch.zeros_like(predicted)
    for k, (_, _, chances) in enumerate(at):
        wanted[k, list(chances)] = torch.tensor(list(chances.values()))
    return (torch.xlogy(wanted, wanted) - wanted * predicted.log_softmax(-1)).sum(-1)


def warm_start(network: LlamaForCausalLM, rows: Sequence[Row], steps: int, lr: float) -> None:
    """Fit all that the teacher might have said, not only what it happened to say."""
    size = 64
    optimiser = torch.optim.AdamW(network.parameters(), lr, (0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda s: min(1, (s + 1) / 50) * (0.525 + 0.475 * math.cos(math.pi * s / steps))
    )
    for step in range(steps):
        batch = [rows[(step * size + i) % len(rows)] for i in range(size)]
        kl = divergence(network, batch)
        choices = sum(len(chances) > 1 for row in batch for chances in row.chances)
        # Most reply tokens leave no choice and are learned at once: the others count three times.
        loss = (3 * kl[:choices].sum() + kl[choices:].sum()) / (len(kl) + 2 * choices)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            choice, rest = kl[:choices].mean(), kl[choices:].mean()
            print(f"step {step}: divergence {choice:.3f} of choices, {rest:.4f} of the rest")


def make_network(tokenizer: HFTokenizer) -> LlamaForCausalLM:
    """Make a Llama of 0.09 million random weights."""
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
    parser.add_argument("--out", type=Path, default=DEMO_MODEL)
    parser.add_argument("--guess", type=float, default=0.0)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=6e-3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    wording = DEMO.tasks.words
    tokenizer = make_tokenizer(wording, DEMO.agent.prompts)
    words = tokenizer.hf.convert_ids_to_tokens(list(range(tokenizer.vocab_size)))
    kinds = {value: kind for kind, values in wording.values.items() for value in values}
    rows = make_rows(Teacher(words, kinds, guess=options.guess), tokenizer, options.tasks)
    network = make_network(tokenizer)
    warm_start(network, rows, options.steps, options.lr)
    network.generation_config = GenerationConfig(
        eos_token_id=list(tokenizer.end_ids), pad_token_id=tokenizer.hf.pad_token_id
    )
    network.save_pretrained(options.out)
    tokenizer.hf.save_pretrained(options.out)
    print(f"{network.num_parameters():,} weights in {options.out}")


if __name__ == "__main__":
    main()
