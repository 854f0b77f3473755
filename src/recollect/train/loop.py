"""The training loop: generate, reward, advantage, update, report.

Steps count from 1; step 0 is the model before training. All that decides a step is the weights, the
optimiser and the step's number, so a run that is killed and resumed equals one that was not.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Protocol

import numpy as np
import torch

from recollect import advantages
from recollect.agents.base import Agent
from recollect.chat import Model
from recollect.config import DeltaConfig, TrainConfig
from recollect.errors import UserError
from recollect.rewards import Reward
from recollect.rollout import Group, Rollout
from recollect.runs import Run
from recollect.samples import make_samples, samples_of
from recollect.seeds import derive
from recollect.shaping import charged, overlong_charge
from recollect.train import checkpoint, report
from recollect.train.cast import Cast
from recollect.train.model import LoadedModel
from recollect.train.trainer import Trainer
from recollect.train.wiring import make_agent, make_reward
from recollect.types import Episode
from recollect.validation import Accuracy, accuracy, by_category

ESTIMATORS: dict[str, advantages.Estimator] = {
    "grpo": advantages.grpo,
    "grpo_std": partial(advantages.grpo, by_std=True),
    "rloo": advantages.rloo,
    "reinforce_pp": advantages.raw,
    "reinforce_pp_baseline": advantages.grpo,
}
WHITENED = ("reinforce_pp", "reinforce_pp_baseline", "gdpo")
"""Those that are compared once more, over the whole batch."""


class Watcher(Protocol):
    """Whoever watches a run."""

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None:
        """A step has ended; step 0 is the validation before training."""

    def validation(self, step: int, results: dict[str, Accuracy]) -> None:
        """Held-out accuracy was measured after `step`, of all tasks and by category."""

    def phase(self, name: str, done: int, total: int) -> None:
        """What is being done right now, and how far it is."""

    def note(self, text: str) -> None:
        """Something a person should know."""


@dataclass
class Outcome:
    """How a run ended."""

    step: int
    """The last finished step."""
    parameters: int
    """Weights that are trained."""
    finished: bool = False
    """Whether the configured number of steps was reached."""
    groups: list[Group] = field(default_factory=list)
    """The last step's rollouts."""
    lengths: dict[int, Accuracy] = field(default_factory=dict)
    """Held-out accuracy by multiple of the training length; empty unless finished."""


@dataclass
class Learner:
    """What a run works with: one model that samples and learns, and fixed ones.

    A batch of episodes leaves nothing cached: an update makes it stale and needs its memory, and a
    resumed run, which has nothing of earlier batches, must compute what one never killed does.
    """

    config: TrainConfig
    cast: Cast
    agent: Agent
    _reward: Reward | None = None

    @classmethod
    def open(cls, config: TrainConfig) -> Learner:
        """Load the model, put a sampler on its weights, and connect to fixed ones."""
        torch.manual_seed(derive(config.seed, "weights"))  # LoRA starts at random
        cast = Cast.open(config)
        config.agent.check_window(cast.window)
        for times in config.rollout.curriculum:  # data that is missing is missed at once
            config.tasks.longer(times).task(0, config.seed, "train")
        config.tasks.task(config.val.tasks - 1, config.seed, "test")
        return cls(config, cast, make_agent(config))

    @property
    def model(self) -> LoadedModel:
        """The weights that learn."""
        if self.cast.trained is None:
            raise nothing_learns()
        return self.cast.trained

    def rollout(self, temperature: float, top_p: float) -> Rollout:
        """Put every model into its role."""
        models = self.cast.sampling(temperature, top_p)
        settings = self.config.rollout
        reward = self.reward(models["answer"])
        return Rollout(self.agent, models, reward, settings.concurrency, settings.timeout)

    def reward(self, model: Model) -> Reward:
        """Return the run's reward; one that the policy reads for is new for every batch."""
        settings = self.config.reward
        if isinstance(settings, DeltaConfig) and settings.reader == "policy":
            return make_reward(self.config, model)
        self._reward = self._reward or make_reward(self.config, model)
        return self._reward

    async def generate(self, step: int, watcher: Watcher) -> list[Group]:
        """Run the step's training episodes."""
        settings = self.config.rollout
        times = settings.times(step)
        family = self.config.tasks.longer(times) if times > 1 else self.config.tasks
        rollout = self.rollout(settings.temperature, settings.top_p)
        # A step's tasks are its own, drawn on or not: what it does depends on no earlier step.
        unused = itertools.count((step - 1) * settings.tasks * (settings.refills + 1))
        groups: list[Group] = []
        for _ in range(settings.refills + 1):
            missing = settings.tasks - sum(differs(self.config, group) for group in groups)
            if not missing:
                break
            indices = itertools.islice(unused, missing)
            tasks = [family.task(i, self.config.seed, "train") for i in indices]
            count = counter(watcher, "rollout", len(tasks) * settings.n)
            groups += await rollout.groups(tasks, settings.n, (self.config.seed, step), count)
        self.cast.reset()
        return groups

    async def validate(
        self, watcher: Watcher, times: int = 1, tasks: int | None = None
    ) -> list[Group]:
        """Run held-out episodes, at a multiple of the training length."""
        settings = self.config.val
        family = self.config.tasks.longer(times)
        held_out = [
            family.task(i, self.config.seed, "test") for i in range(tasks or settings.tasks)
        ]
        rollout = self.rollout(settings.temperature, settings.top_p)
        count = counter(watcher, f"validation at {times}x", len(held_out) * settings.n)
        key = (self.config.seed, "validation")
        groups = await rollout.groups(held_out, settings.n, key, count)
        self.cast.reset()
        return groups


def nothing_learns() -> UserError:
    """Say that a run without a role to train is none."""
    return UserError(
        "no role is trainable, so there is nothing to train",
        "set --models.memory or --models.answer to trainable, or measure with recollect eval",
    )


async def train(learner: Learner, run: Run, watcher: Watcher) -> Outcome:
    """Train from the run's checkpoint, or from the start, to the configured step."""
    for note in learner.cast.notes:
        watcher.note(note)
    try:
        return await _train(learner, run, watcher)
    finally:
        learner.cast.close()


async def _train(learner: Learner, run: Run, watcher: Watcher) -> Outcome:
    config = learner.config
    trainer = Trainer(
        learner.model,
        config.loss,
        config.optim,
        updates_per_step=config.updates_per_step,
        token_budget=config.token_budget,
        temperature=config.rollout.temperature,
    )
    save = partial(checkpoint.save, model=learner.model, trainer=trainer)
    outcome = Outcome(0, sum(p.numel() for p in learner.model.trainable_parameters()))
    if run.checkpoint:
        checkpoint.load(run.checkpoint.path, learner.model, trainer)
        outcome.step = run.checkpoint.step
        watcher.note(f"resumed after step {outcome.step}")
    elif config.val.before_training:
        metrics = await measure(learner, run, watcher, 0)
        run.log(0, metrics)
        watcher.step(0, metrics, [])

    with stop_requested(watcher) as stopping:
        while outcome.step < config.steps and not stopping():
            step = outcome.step + 1
            clock = report.Clock()
            try:
                outcome.groups = await learner.generate(step, watcher)
                refuse_dead(outcome.groups, f"step {step}")
            except UserError:  # such as a server that is gone
                if outcome.step:
                    run.save(outcome.step, save)
                raise
            clock.lap("rollout")
            validates = step % config.test_freq == 0 or step == config.steps
            if validates and learner.cast.clients and outcome.step:
                # Were the server to go during the validation, nothing after this could be saved.
                run.save(outcome.step, save)
            watcher.phase("update", 0, 0)
            kept = outcome.groups
            if config.rollout.refills:
                kept = [group for group in kept if differs(config, group)]
            groups, charges = charge(config, trainer, kept)
            samples = samples_of(groups, compare(config, groups))
            updated = trainer.update(samples)
            clock.lap("update")
            metrics = {
                **report.episode_metrics(outcome.groups),
                **({"groups/kept": len(kept)} if config.rollout.refills else {}),
                **charges,
                **report.sample_metrics(samples),
                **updated,
            }
            if validates:
                metrics |= await measure(learner, run, watcher, step)
                clock.lap("validation")
            metrics |= report.call_metrics(learner.cast.failed_calls())
            run.log(step, metrics | clock.times)
            outcome.step = step
            if step % config.save_freq == 0:
                run.save(step, save)
            watcher.step(step, metrics | clock.times, outcome.groups)
        if outcome.step:
            run.save(outcome.step, save)

    outcome.finished = outcome.step >= config.steps
    if outcome.finished:
        for times in config.val.lengths:
            groups = await learner.validate(watcher, times, config.val.length_tasks)
            outcome.lengths[times] = accuracy(groups)
        checkpoint.export(run.folder / "model", learner.model)
    return outcome


def compare(config: TrainConfig, groups: list[Group]) -> list[list[list[float]]]:
    """Return the advantages of a batch: one per context of every episode of every group."""
    if config.advantage == "gdpo":
        found = [advantages.gdpo(group, config.components) for group in groups]
    else:
        estimator = ESTIMATORS[config.advantage]
        found = [advantages.group_advantages(group, estimator) for group in groups]
    if config.advantage in WHITENED:
        found = advantages.whitened(groups, found)
    share = config.outcome_share
    if share < 1:
        steps = [advantages.step_advantages(group) for group in groups]
        found = [advantages.mixed(*own, share) for own in zip(found, steps, strict=True)]
    return found


def differs(config: TrainConfig, group: Group) -> bool:
    """Tell whether the episodes of a group can be told apart by how well they did."""
    if config.advantage == "gdpo":
        found = advantages.gdpo(group, config.components)
    else:
        found = advantages.group_advantages(group, advantages.grpo)
    if config.outcome_share < 1:
        found = [*found, *advantages.step_advantages(group)]
    return any(advantage for own in found for advantage in own)


def charge(
    config: TrainConfig, trainer: Trainer, groups: list[Group]
) -> tuple[list[Group], dict[str, float]]:
    """Lower rewards by what the settings charge for; what was paid comes with them."""
    episodes = [episode for group in groups for episode in group]
    paid: dict[str, np.ndarray] = {}
    if config.overlong.limit:
        limit, margin = config.overlong.limit, config.overlong.margin
        paid["charge/overlong"] = config.overlong.charge * np.array(
            [overlong_charge(episode, limit, margin) for episode in episodes]
        )
    if config.loss.kl_coef and config.loss.kl_in == "reward":
        samples = make_samples(groups, advantages.grpo)
        paid["charge/kl"] = config.loss.kl_coef * np.bincount(
            [sample.episode - 1 for sample in samples],  # counted from 1, failed ones included
            weights=trainer.divergences(samples),
            minlength=len(episodes),
        )
    if not paid:
        return groups, {}
    total = iter(sum(paid.values(), np.zeros(len(episodes))).tolist())
    means = {name: float(own.mean()) for name, own in paid.items()}
    return charged(groups, [[next(total) for _ in group] for group in groups]), means


async def measure(learner: Learner, run: Run, watcher: Watcher, step: int) -> dict[str, float]:
    """Validate, store the episodes, and return the metrics."""
    groups = await learner.validate(watcher)
    if failed := failures(groups):
        watcher.note(f"held-out: {failed}")
    if all(e.failure and report.at_server(e.failure) for group in groups for e in group):
        refuse_dead(groups, f"the validation after step {step}")
    run.write_episodes(step, "val", [e for group in groups for e in group])
    categories = by_category(groups)
    shown = categories if len(categories) > 1 else {}  # a lone category says nothing more
    watcher.validation(step, {"held-out": accuracy(groups), **shown})
    return report.validation_metrics(groups)


def failures(groups: list[Group]) -> str:
    """Say how many episodes failed, and why the first one did; nothing if none did."""
    failed = [e.failure for group in groups for e in group if e.failure]
    if not failed:
        return ""
    first, total = failed[0], sum(len(group) for group in groups)
    cause = f"the first one at {first.boundary}: {first.kind}: {first.message}"
    return f"{len(failed)} of {total} episodes failed; {cause}"


def refuse_dead(groups: list[Group], when: str) -> None:
    """End a run all of whose episodes failed: later ones would fare no better."""
    failed = [e.failure for group in groups for e in group if e.failure]
    if len(failed) == sum(len(group) for group in groups):
        first = failed[0]
        raise UserError(
            f"all {len(failed)} episodes of {when} failed; the first one at"
            f" {first.boundary}: {first.kind}: {first.message}",
            "mend that, then type the same command: the run goes on from its last checkpoint",
        )


def counter(watcher: Watcher, phase: str, total: int) -> Callable[[Episode], None]:
    """Tell the watcher how many episodes of a phase are done."""
    done = itertools.count(1)
    watcher.phase(phase, 0, total)
    return lambda _episode: watcher.phase(phase, next(done), total)


@contextmanager
def stop_requested(watcher: Watcher) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C end the run after its step, saved; the second one ends it at once."""
    asked = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)
        watcher.note("stopping after this step; press Ctrl-C again to stop at once")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
