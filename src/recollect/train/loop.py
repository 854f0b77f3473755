"""The training loop: generate, reward, advantage, update, report.

Steps count from 1; step 0 is the model before training. All that decides a step is the weights, the
optimiser and the step's number, so a run that is killed and resumed equals an undisturbed one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from recollect.accuracy import Accuracy, accuracy, by_category
from recollect.concurrency.stop import Stop
from recollect.errors import UserError
from recollect.rollout import Group
from recollect.runs.run import Run
from recollect.runs.stopping import Stopping, stop_requested
from recollect.train import metrics as report
from recollect.train import saved_model
from recollect.train.comparison import differs
from recollect.train.failures import failures, refuse_dead, refuse_silent, refuse_unmeasured
from recollect.train.learner import Learner
from recollect.train.lengths import crowded_tasks
from recollect.train.prefetch import Batches
from recollect.train.rollouts import Rollouts
from recollect.train.watcher import Watcher


@dataclass
class Outcome:
    """How a run ended."""

    step: int
    """The last finished step."""
    parameters: int
    """Weights of the model ..."""
    adapters: int = 0
    """... and those of its adapters, where only these are trained."""
    finished: bool = False
    """Whether the configured number of steps was reached."""
    signal: int = 0
    """What stopped it before."""
    groups: list[Group] = field(default_factory=list)
    """The last step's rollouts."""
    lengths: dict[int, Accuracy] = field(default_factory=dict)
    """Held-out accuracy by multiple of the training length; empty unless finished."""
    distractors: dict[int, Accuracy] = field(default_factory=dict)
    """The same by multiple of the distractors, at the training length."""
    times: dict[str, float] = field(default_factory=dict)
    """Seconds that measuring these took."""


async def train(
    rollouts: Rollouts, run: Run, watcher: Watcher, stop: Stop | None = None
) -> Outcome:
    """Train from the run's checkpoint, or from the start, to the configured step.

    Setting `stop.soon` ends the run after its present step, as the first Ctrl-C does.
    """
    for note in (*rollouts.roles.said(), *rollouts.config.notes):
        watcher.note(note)
    try:
        return await _train(_Training(rollouts, run, watcher), stop)
    finally:
        rollouts.roles.close()


async def _train(training: _Training, stop: Stop | None) -> Outcome:
    config, outcome = training.config, training.outcome
    await training.begin()
    with stop_requested(training.watcher.note, stop) as stopping:
        while outcome.step < config.steps and not stopping:
            step, clock = outcome.step + 1, report.Clock()
            if not await training.generate(step, stopping):
                break
            clock.lap("rollout")
            learned = await training.learn(step, clock)
            metrics = training.describe(step, learned)
            if training.validates(step):
                metrics |= await training.validate(step)
                clock.lap("validation")
            training.close(step, metrics, clock)
        if outcome.step:
            training.save()
        outcome.signal = stopping.number
    outcome.finished = outcome.step >= config.steps
    if outcome.finished:
        await training.finish()
    return outcome


class _Training:
    """A run under way: what it generates with, what learns, and how far it is."""

    def __init__(self, rollouts: Rollouts, run: Run, watcher: Watcher) -> None:
        self.rollouts, self.run, self.watcher = rollouts, run, watcher
        self.config, self.roles = rollouts.config, rollouts.roles
        self.learner, self.batches = Learner(rollouts), Batches(rollouts, watcher)
        trained = sum(p.numel() for p in rollouts.model.trainable_parameters())
        fixed = sum(p.numel() for p in rollouts.model.network.parameters()) - trained
        self.outcome = Outcome(0, fixed, trained) if fixed else Outcome(0, trained)

    async def begin(self) -> None:
        """Continue from the run's checkpoint; without one, measure the model as it is."""
        watcher, outcome = self.watcher, self.outcome
        if self.run.checkpoint:
            self.learner.load(self.run.checkpoint.path)
            self.batches.load(self.run.checkpoint.path)
            outcome.step = self.run.checkpoint.step
            done = f": no step is left to do, and --steps above {outcome.step} continues the run"
            left = outcome.step < self.config.steps
            watcher.note(f"resumed after step {outcome.step}{'' if left else done}")
        elif self.config.val.before_training:
            clock = report.Clock()
            metrics = await self.validate(0)
            clock.lap("validation")
            self.run.log(0, metrics | clock.times)
            watcher.step(0, metrics, [])

    async def generate(self, step: int, stopping: Stopping) -> bool:
        """Take the step's episodes, with their rewards; tell whether there are any."""
        try:
            groups = await stopping.unless_urgent(self.batches.take(step))
            if groups is None:
                return False
            self.outcome.groups = groups
            refuse_dead(groups, f"step {step}")
            refuse_silent(groups, self.config.models.learning, f"step {step}")
        except UserError:  # such as a server that is gone
            if self.outcome.step:
                self.save()
            raise
        return True

    async def learn(self, step: int, clock: report.Clock) -> dict[str, float]:
        """Update the weights, and the sampler's with them; return what was measured."""
        if self.validates(step) and self.roles.clients and self.outcome.step:
            # Were the server to go during the validation, nothing after this could be saved.
            self.save()
        self.watcher.phase("update", 0, 0)
        learn = partial(self.learner.learn, step, self.outcome.groups, self.kept)
        learned = await self.batches.beside(step + 1, learn)
        clock.lap("update")
        await self.batches.settle()
        clock.lap("rollout")
        self.batches.sync()
        clock.lap("sync")
        return learned

    def describe(self, step: int, learned: dict[str, float]) -> dict[str, float]:
        """Store the step's episodes; return its metrics."""
        groups = self.outcome.groups
        metrics = report.rollout_metrics(groups, self.config.rollout.failure_reward) | learned
        if self.kept:
            episodes = [e for group in self.kept for e in group]
            self.run.write_episodes(step, "train", episodes, self.rollouts.decode)
        if not any(differs(self.config, group) for group in groups):
            self.watcher.note(
                f"step {step}: in no group did one episode do better than another, so there"
                " was nothing to learn"
            )
        return metrics

    @property
    def kept(self) -> list[Group]:
        """The last step's groups that are stored."""
        keep = self.config.rollout.keep_groups
        return self.outcome.groups if keep < 0 else self.outcome.groups[:keep]

    def validates(self, step: int) -> bool:
        """Tell whether a step ends with a validation."""
        return step % self.config.test_freq == 0 or step == self.config.steps

    async def validate(self, step: int) -> dict[str, float]:
        """Answer the held-out tasks, store the episodes, and return the metrics."""
        groups = await self.rollouts.validate(self.watcher)
        if failed := failures(groups):
            self.watcher.note(f"held-out: {failed}")
        refuse_unmeasured(groups, f"the validation after step {step}")
        episodes = [e for group in groups for e in group]
        self.run.write_episodes(step, "val", episodes, self.rollouts.decode)
        categories = by_category(groups)
        shown = categories if len(categories) > 1 else {}  # a lone category says nothing more
        self.watcher.validation(step, {"held-out": accuracy(groups), **shown})
        return report.validation_metrics(groups)

    def close(self, step: int, metrics: dict[str, float], clock: report.Clock) -> None:
        """Log a step that is done, and save it if it is time."""
        for note in self.roles.said():
            self.watcher.note(note)
        metrics |= report.call_metrics(self.roles.failed_calls())
        metrics |= report.sampler_metrics(self.roles.sampled())
        self.run.log(step, metrics | clock.times)
        self.outcome.step = step
        if step % self.config.save_freq == 0:
            self.save()
        self.watcher.step(step, metrics | clock.times, self.outcome.groups)

    def save(self) -> None:
        """Write a checkpoint of the last finished step."""

        def save(folder: Path) -> None:
            self.learner.save(folder)
            self.batches.save(folder)

        self.run.save(self.outcome.step, save)

    async def finish(self) -> None:
        """Export the trained model, then measure it on longer and more crowded texts."""
        rollouts, outcome = self.rollouts, self.outcome
        # Before what a server may fail.
        saved_model.export(self.run.folder / "model", rollouts.model)
        clock = report.Clock()
        for times in self.config.val.lengths:
            groups = await rollouts.validate(self.watcher, times, self.config.val.length_tasks)
            outcome.lengths[times] = self._accuracy(groups, f"{times}x the text")
        for times, family in crowded_tasks(self.config).items():
            groups = await rollouts.validate_on(family, self.watcher, f"{times}x distractors")
            outcome.distractors[times] = self._accuracy(groups, f"{times}x the distractors")
        clock.lap("validation")
        outcome.times = clock.times

    def _accuracy(self, groups: list[Group], what: str) -> Accuracy:
        """Return the accuracy, and note what failed; refuse one that says nothing."""
        if failed := failures(groups):
            self.watcher.note(f"{what}: {failed}")
        refuse_unmeasured(groups, f"the validation at {what}")
        return accuracy(groups)
