"""Replies that are mostly copies, with and without drafts, side by side.

A gated agent reads chronicles. Its replies are a teacher's: quotes of the page, the lines of
a memory that change, a tag. The model computes every one of them at full cost, but the teacher's
tokens take the place of those it draws; `--own` keeps its own (after a warm-up much the same).

    python scripts/convert_smollm2.py --out models/smollm2
    python -m benchmarks.copies --model models/smollm2 --device cuda
    python -m benchmarks.copies --model runs/chronicle/warm --device cuda --own --temperature 0

`--plain` measures each length of drafts with the model's own layers as well, before the fused ones.
`--profile` prints the Python functions that take the most time.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import itertools
import pstats
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from benchmarks.chronicle_teacher import Teacher
from recollect.agents.gated import GatedAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.config.engine import ModelConfig
from recollect.models.model import LoadedModel, load_model
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Group, Rollout
from recollect.sampler import decode, drafts, rows
from recollect.sampler.bursts import Burst
from recollect.sampler.paged import PagedPolicy
from recollect.tasks.made.chronicle import Chronicle
from recollect.types import Completion, Sampling, Task, Turn

Measured = tuple[dict[bytes, tuple[int, ...]], float]
"""Replies by their prompts, and the seconds they took."""


@dataclass
class Forced:
    """A sampler whose model is made to say what was said before to the same prompts."""

    policy: PagedPolicy
    replies: dict[bytes, tuple[int, ...]]
    table: np.ndarray = field(default_factory=lambda: np.zeros((1, 1)))
    """A row for every reply: the tokens, as floats."""
    asked: int = 0

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Sample with a seed that is the number of the reply."""
        row = self.asked % len(self.table)
        self.asked += 1
        said = self.replies[np.asarray(prompt_ids, dtype=np.int32).tobytes()]
        self.table[row, : len(said)] = said
        self.table[row, len(said) :] = said[-1]
        return await self.policy.sample(prompt_ids, replace(sampling, seed=row))

    @contextmanager
    def speaking(self, turns: int, longest: int) -> Iterator[None]:
        """Let draws be tokens, and let tokens be picked by them, at the usual cost."""
        self.table, self.asked = np.zeros((turns, longest + 64)), 0
        pick, uniforms = rows.pick, rows.uniforms

        def said(logits: Any, temperature: Any, top_p: Any, uniform: Any, *how: Any) -> Any:
            _tokens, logprobs = pick(logits, temperature, top_p, (uniform + 1) / (1 << 20), *how)
            return uniform.long(), logprobs

        try:
            for module in (decode, drafts, rows):
                vars(module)["pick"] = said
            vars(rows)["uniforms"] = lambda seeds, at: self.table[
                seeds.astype(np.int64) % len(self.table), np.minimum(at, self.table.shape[1] - 1)
            ]
            yield
        finally:
            for module in (decode, drafts, rows):
                vars(module)["pick"] = pick
            vars(rows)["uniforms"] = uniforms


def run(policy: Any, model: LoadedModel, tasks: list[Task], o: argparse.Namespace) -> list[Group]:
    """Run one episode of every task."""
    sampling = Sampling(temperature=o.temperature)
    speaker = Model(policy, Renderer(model.tokenizer), False, sampling, model.window)
    agent = GatedAgent(None, o.memory, o.answer, exit_gate=False, lines=True)
    models = {"memory": speaker, "answer": speaker}
    rollout = Rollout(agent, models, AnswerReward("boxed_match"), o.concurrency)
    return asyncio.run(rollout.groups(tasks, 1, (o.seed, "copies")))


def turns_of(groups: list[Group]) -> list[tuple[bytes, Turn]]:
    """Return every turn of every episode, with its prompt."""
    return [
        (np.asarray(context.ids[: turn.start], dtype=np.int32).tobytes(), turn)
        for group in groups
        for episode in group
        for context in episode.contexts
        for turn in context.turns
    ]


def taught(model: LoadedModel, tasks: list[Task], o: argparse.Namespace) -> list[Group]:
    """Let the teacher play."""
    return run(ScriptedPolicy(model.tokenizer, Teacher(gated=True).reply), model, tasks, o)


def measure(
    model: LoadedModel, tasks: list[Task], o: argparse.Namespace, guessed: int, fused: bool
) -> Measured:
    """Run all tasks twice, as graphs are recorded in the first run; print what the second took."""
    room = int(o.cache_gib * 2**30)
    policy = PagedPolicy(
        model, o.concurrency, cache_bytes=room, drafts=guessed, fused=fused, say=print
    )
    busy: list[float] = []
    counted = policy._extender.counted

    def timed(burst: Burst) -> np.ndarray:
        busy.append(burst.seconds)
        return counted(burst)

    vars(policy._extender)["counted"] = timed
    speaks: Any = policy
    if not o.own:
        speaks = Forced(policy, {prompt: turn.token_ids for prompt, turn in o.lessons})
    for _lap in range(2):
        policy.counts()
        busy.clear()
        began = time.perf_counter()
        if o.own:
            groups = run(policy, model, tasks, o)
        else:
            with speaks.speaking(len(o.lessons), max(o.memory, o.answer)):
                groups = run(speaks, model, tasks, o)
        seconds = time.perf_counter() - began
        policy.reset()
    del vars(policy._extender)["counted"]  # it would keep the cache
    turns, counts = turns_of(groups), policy.counts()
    new = sum(len(turn.token_ids) for _, turn in turns)
    failed = sum(bool(episode.failure) for group in groups for episode in group)
    steps = max(1, counts["steps"])
    print(
        f"{'' if fused else 'own layers, '}drafts of {guessed:2}: {seconds:7.2f} s,"
        f" {len(turns) / seconds:8.1f} turns/s, {counts['steps']:6} steps of"
        f" {1000 * sum(busy) / steps:.2f} ms, {new / steps:6.1f} new tokens a step,"
        f" {counts['drafted']:8} drafted, {counts['accepted']:8} accepted"
        f" ({counts['accepted'] / max(1, counts['drafted']):.0%}); {failed} failed",
        flush=True,
    )
    return {prompt: turn.token_ids for prompt, turn in turns}, seconds


def compare(name: str, one: Measured, other: Measured) -> None:
    """Print how much faster the other was, and how many replies were the same."""
    (before, seconds), (after, less) = one, other
    same = sum(after.get(prompt) == said for prompt, said in before.items())
    print(f"{name}{seconds / less:.2f}x; {same} of {len(before)} prompts got the same tokens")


def main() -> None:
    """Measure every length of drafts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tasks", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=4096, help="of a chronicle")
    parser.add_argument("--concurrency", type=int, default=129)
    parser.add_argument("--drafts", type=int, nargs="+", default=[0, 9])
    parser.add_argument("--memory", type=int, default=96)
    parser.add_argument("--answer", type=int, default=24)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--cache-gib", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--float32", action="store_true", help="compare tokens without rounding")
    parser.add_argument("--own", action="store_true", help="let the model say what it says")
    parser.add_argument("--plain", action="store_true", help="also with the model's own layers")
    parser.add_argument("--compile", action="store_true", help="layers, as --model.compile does")
    parser.add_argument("--profile", action="store_true")
    o = parser.parse_args()
    model = load_model(ModelConfig(o.model, o.device, compile=o.compile))
    model.half = not o.float32
    family = Chronicle(("overwrite", "count", "two-hop"), o.tokens)
    tasks = [family.task(i, o.seed, "test") for i in range(o.tasks)]
    o.lessons = turns_of(taught(model, tasks, o))
    sizes = np.array([len(turn.token_ids) for _, turn in o.lessons])
    prompts = np.array([turn.start for _, turn in o.lessons])
    print(
        f"{len(sizes)} turns, {prompts.mean():.0f} tokens of prompt and {sizes.mean():.1f} of the"
        f" teacher's each; {o.concurrency} episodes at once on {torch.device(o.device)}"
    )
    found = []
    profile = cProfile.Profile()
    for guessed, fused in itertools.product(o.drafts, (False, True) if o.plain else (True,)):
        if o.profile:
            profile.enable()
        found.append(measure(model, tasks, o, guessed, fused))
        profile.disable()
    if o.plain:
        for at, guessed in enumerate(o.drafts):
            compare(f"drafts of {guessed:2}, fused: ", found[2 * at], found[2 * at + 1])
    if len(o.drafts) > 1 or not o.plain:
        compare("", found[0], found[-1])
    if o.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
