"""A tiny Llama over a tokenizer of words, fitted to all that a teacher might have said.

What the words are, who teaches and what, the scripts that make a model say.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, models
from tokenizers.decoders import Decoder
from tokenizers.pre_tokenizers import PreTokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from recollect.models.tokenizer import HFTokenizer
from recollect.seeds import derive
from recollect.types import Completion, Context, Sampling

END = "<end>"
BATCH = 64
"""Rows of one step."""
ROLES = ("<system>", "<user>", "<assistant>", "<tool>")
TEMPLATE = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@dataclass(frozen=True)
class Row:
    """One context of a teacher, and what it might have said at each of its places."""

    ids: list[int]
    chances: Mapping[int, Mapping[int, float]]
    """By the place before the token."""


@dataclass(frozen=True)
class Choice:
    """A piece of text the teacher says, and the chances of what else it might have said."""

    said: str
    chances: Mapping[str, float] = field(default_factory=dict)
    """By first token; empty where there is no choice."""


@dataclass(frozen=True)
class ToolTeacher(ABC):
    """A policy that replies in pieces of text; the same reply to the same prompt."""

    tokenizer: HFTokenizer

    @abstractmethod
    def reply(self, prompt: str, rng: Random) -> list[Choice]:
        """Say the next turn of a chat."""

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

    def rows(self, prompt_ids: Sequence[int]) -> list[dict[int, float]]:
        """Return the chances of every token of the reply to a prompt."""
        prompt = self.tokenizer.hf.decode(list(prompt_ids))
        return self.tokens(self.reply(prompt, Random(derive(*prompt_ids))))

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Draw a reply."""
        ids = tuple(next(iter(row)) for row in self.rows(prompt_ids))
        return Completion(ids, (0.0,) * len(ids), "stop")

    def row(self, context: Context) -> Row:
        """Return all that might have been said in a chat."""
        assert self.tokenizer.hf.unk_token_id not in context.ids
        chances: dict[int, dict[int, float]] = {}
        for turn in context.turns:
            said = self.rows(context.ids[: turn.start])
            chances |= {turn.start + j - 1: row for j, row in enumerate(said)}
        return Row(context.ids, chances)


def word_tokenizer(
    words: Iterable[str], cut: PreTokenizer, join: Decoder, **settings: Any
) -> HFTokenizer:
    """Give every word a token, and the control tokens; `cut` makes words of a text."""
    vocabulary = dict.fromkeys(["<pad>", "<unk>", END, *ROLES, *words])
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(vocabulary)}, "<unk>"))
    backend.pre_tokenizer = cut
    backend.decoder = join
    hf = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=TEMPLATE,
        **settings,
    )
    return HFTokenizer(hf, len(vocabulary), [hf.convert_tokens_to_ids(END)])


def make_network(tokenizer: HFTokenizer) -> LlamaForCausalLM:
    """Make a Llama of about 0.09 million random weights."""
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


def divergence(network: LlamaForCausalLM, rows: Sequence[Row]) -> tuple[torch.Tensor, int]:
    """Return KL(teacher || model) of every token said, the n that leave a choice first; and n."""
    ids = torch.zeros(len(rows), max(len(row.ids) for row in rows), dtype=torch.long)
    at: list[tuple[int, int, Mapping[int, float]]] = []
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


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal, for matrices (Jordan et al., 2024).

    In float32: torch's own computes in bfloat16, which is slow on a CPU without it.
    """

    def __init__(self, matrices: Sequence[torch.nn.Parameter], lr: float) -> None:
        super().__init__(matrices, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Move every matrix M by lr * sqrt(max(1, rows / columns)) along its momentum."""
        for group in self.param_groups:
            for matrix in group["params"]:
                mean = self.state[matrix].setdefault("mean", torch.zeros_like(matrix))
                mean.lerp_(matrix.grad, 0.05)
                move = orthogonal(matrix.grad.lerp(mean, 0.95))
                rows, columns = matrix.shape
                matrix.sub_(move, alpha=group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Bring all singular values near 1, by five steps of a quintic (Newton and Schulz)."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (2.0315 * square @ square - 4.7750 * square) @ x
    return x if wide is matrix else x.T


def fit(
    network: LlamaForCausalLM,
    rows: Sequence[Row],
    steps: int,
    lr: float,
    weight: int,
    vary: Callable[[Row], Row] = lambda row: row,
    matrix_lr: float = 0.0,
) -> None:
    """Fit all that the teacher might have said, not only what it happened to say.

    Most tokens leave no choice and are learned at once: the others count `weight` times. `vary`
    changes a row whenever its turn comes. AdamW moves all weights, or with a `matrix_lr` only
    embeddings and norms, and Muon the matrices of the layers, which takes fewer steps.
    """
    matrices = [p for p in network.model.layers.parameters() if p.ndim == 2] if matrix_lr else []
    rest = [p for p in network.parameters() if all(p is not m for m in matrices)]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(rest, lr, (0.9, 0.98), weight_decay=0.01)
    ]
    if matrices:
        optimisers.append(Muon(matrices, matrix_lr))
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(
            own, lambda s: min(1, (s + 1) / 50) * (0.525 + 0.475 * math.cos(math.pi * s / steps))
        )
        for own in optimisers
    ]
    for step in range(steps):
        batch = [vary(rows[(step * BATCH + i) % len(rows)]) for i in range(BATCH)]
        kl, choices = divergence(network, batch)
        loss = (weight * kl[:choices].sum() + kl[choices:].sum()) / (
            len(kl) + (weight - 1) * choices
        )
        network.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for part in (*optimisers, *schedules):
            part.step()
        if step % 100 == 0 or step == steps - 1:
            choice, rest = kl[:choices].mean(), kl[choices:].mean()
            print(
                f"step {step}: divergence {choice:.3f} of choices, {rest:.4f} of the rest",
                flush=True,
            )


def save(network: LlamaForCausalLM, tokenizer: HFTokenizer, folder: Path) -> None:
    """Write both to a folder, with what ends a turn."""
    network.generation_config = GenerationConfig(
        eos_token_id=list(tokenizer.end_ids), pad_token_id=tokenizer.hf.pad_token_id
    )
    network.save_pretrained(folder)
    tokenizer.hf.save_pretrained(folder)
    print(f"{network.num_parameters():,} weights in {folder}")
