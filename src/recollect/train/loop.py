"""The training loop: generate, reward, advantage, update, report.

Steps count from 1; step 0 is the model before training. All that decides a step is the weights, the
optimiser and the step's number, so a run that is killed and resumed equals an undisturbed one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from recollect.accuracy import Accuracy, accuracy, by_category
from recollect.concurrency.stop import Stop
from recollect.errors import UserError
from recollect.foreign import LONGEST, one_line
from recollect.rollout import Group
from recollect.runs.run import Run
from recollect.runs.stopping import stop_requested
from recollect.train import metrics as report
from recollect.train import saved_model
from recollect.train.comparison import differs
from recollect.train.learner import Learner
from recollect.train.lengths import crowded_tasks
from recollect.train.prefetch import Batches
from recollect.train.rollouts import Rollouts
from recollect.train.watcher import Watcher
from recollect.types import Failure, Fault

BLAMED: dict[Fault, str] = {
    "agent": "by the agent itself",
    "environment": "by what it depends on",
    "measurement": "could not be measured",
}


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
        return await _train(rollouts, run, watcher, stop)
    finally:
        rollouts.roles.close()


async def _train(rollouts: Rollouts, run: Run, watcher: Watcher, stop: Stop | None) -> Outcome:
    config = rollouts.config
    learner, batches = Learner(rollouts), Batches(rollouts, watcher)

    def save(folder: Path) -> None:
        learner.save(folder)
        batches.save(folder)

    trained = sum(p.numel() for p in rollouts.model.trainable_parameters())
    fixed = sum(p.numel() for p in rollouts.model.network.parameters()) - trained
    outcome = Outcome(0, fixed, trained) if fixed else Outcome(0, trained)
    if run.checkpoint:
        learner.load(run.checkpoint.path)
        batches.load(run.checkpoint.path)
        outcome.step = run.checkpoint.step
        done = f": no step is left to do, and --steps above {outcome.step} continues the run"
        left = outcome.step < config.steps
        watcher.note(f"resumed after step {outcome.step}{'' if left else done}")
    elif config.val.before_training:
        clock = report.Clock()
        metrics = await measure(rollouts, run, watcher, 0)
        clock.lap("validation")
        run.log(0, metrics | clock.times)
        watcher.step(0, metrics, [])

    with stop_requested(watcher.note, stop) as stopping:
        while outcome.step < config.steps and not stopping:
            step = outcome.step + 1
            clock = report.Clock()
            try:
                groups = await stopping.unless_urgent(batches.take(step))
                if groups is None:
                    break
                outcome.groups = groups
                refuse_dead(outcome.groups, f"step {step}")
                refuse_silent(outcome.groups, config.models.learning, f"step {step}")
            except UserError:  # such as a server that is gone
                if outcome.step:
                    run.save(outcome.step, save)
                raise
            clock.lap("rollout")
            validates = step % config.test_freq == 0 or step == config.steps
            if validates and rollouts.roles.clients and outcome.step:
                # Were the server to go during the validation, nothing after this could be saved.
                run.save(outcome.step, save)
            watcher.phase("update", 0, 0)
            keep = config.rollout.keep_groups
            kept = outcome.groups if keep < 0 else outcome.groups[:keep]
            learn = partial(learner.learn, step, outcome.groups, kept)
            learned = await batches.beside(step + 1, learn)
            clock.lap("update")
            await batches.settle()
            clock.lap("rollout")
            batches.sync()
            clock.lap("sync")
            failed = config.rollout.failure_reward
            metrics = report.rollout_metrics(outcome.groups, failed) | learned
            if kept:
                run.write_episodes(
                    step, "train", [e for group in kept for e in group], rollouts.decode
                )
            if not any(differs(config, group) for group in outcome.groups):
                watcher.note(
                    f"step {step}: in no group did one episode do better than another, so there"
                    " was nothing to learn"
                )
            if validates:
                metrics |= await measure(rollouts, run, watcher, step)
                clock.lap("validation")
            for note in rollouts.roles.said():
                watcher.note(note)
            metrics |= report.call_metrics(rollouts.roles.failed_calls())
            metrics |= report.sampler_metrics(rollouts.roles.sampled())
            run.log(step, metrics | clock.times)
            outcome.step = step
            if step % config.save_freq == 0:
                run.save(step, save)
            watcher.step(step, metrics | clock.times, outcome.groups)
        if outcome.step:
            run.save(outcome.step, save)
        outcome.signal = stopping.number

    outcome.finished = outcome.step >= config.steps
    if outcome.finished:
        saved_model.export(run.folder / "model", rollouts.model)  # before what a server may fail
        clock = report.Clock()
        for times in config.val.lengths:
            groups = await rollouts.validate(watcher, times, config.val.length_tasks)
            outcome.lengths[times] = measured(groups, watcher, f"{times}x the text")
        for times, family in crowded_tasks(config).items():
            groups = await rollouts.validate_on(family, watcher, f"{times}x distractors")
            outcome.distractors[times] = measured(groups, watcher, f"{times}x the distractors")
        clock.lap("validation")
        outcome.times = clock.times
    return outcome


async def measure(rollouts: Rollouts, run: Run, watcher: Watcher, step: int) -> dict[str, float]:
    """Validate, store the episodes, and return the metrics."""
    groups = await rollouts.validate(watcher)
    if failed := failures(groups):
        watcher.note(f"held-out: {failed}")
    refuse_unmeasured(groups, f"the validation after step {step}")
    run.write_episodes(step, "val", [e for group in groups for e in group], rollouts.decode)
    categories = by_category(groups)
    shown = categories if len(categories) > 1 else {}  # a lone category says nothing more
    watcher.validation(step, {"held-out": accuracy(groups), **shown})
    return report.validation_metrics(groups)


def measured(groups: list[Group], watcher: Watcher, what: str) -> Accuracy:
    """Return the accuracy, with a remark on episodes that failed; refuse one that says nothing."""
    if failed := failures(groups):
        watcher.note(f"{what}: {failed}")
    refuse_unmeasured(groups, f"the validation at {what}")
    return accuracy(groups)


def failures(groups: list[Group]) -> str:
    """Say how many episodes failed, by whose fault, and why the first did; nothing if none did."""
    failed = [e.failure for group in groups for e in group if e.failure]
    if not failed:
        return ""
    first, total = failed[0], sum(len(group) for group in groups)
    faults = Counter(failure.fault for failure in failed)
    whose = ", ".join(f"{count} {BLAMED[fault]}" for fault, count in faults.items())
    return f"{len(failed)} of {total} episodes failed ({whose}); the first one at {_cause(first)}"


def _cause(failure: Failure) -> str:
    """Say where an episode failed and why, with the line of a user's own code."""
    place = f" ({failure.place})" if failure.place else ""
    said = one_line(failure.message, LONGEST)
    return f"{failure.boundary}: {failure.kind}: {said}{place}"


def refuse_dead(groups: list[Group], when: str) -> None:
    """End a run in which every episode of a batch failed: later ones would fare no better."""
    failed = [e.failure for group in groups for e in group if e.failure]
    if len(failed) == sum(len(group) for group in groups):
        raise UserError(
            f"all {len(failed)} episodes of {when} failed; the first one at {_cause(failed[0])}",
            "fix that, then run the same command again: the run continues from its last checkpoint",
        )


def refuse_unmeasured(groups: list[Group], when: str) -> None:
    """End a run whose validation says nothing: every episode failed at a server, or has no result.

    Others may fail as a whole: that is what the agent is worth.
    """
    if all(
        e.failure and (report.at_server(e.failure) or not e.measured)
        for group in groups
        for e in group
    ):
        refuse_dead(groups, when)


def refuse_silent(groups: list[Group], learning: Sequence[str], when: str) -> None:
    """End a run in which the model that learns says nothing: no step could train it."""
    contexts = [c for group in groups for e in group if e.counts for c in e.contexts]
    if any(context.trainable and context.turns for context in contexts):
        return
    spoke = sorted({context.role for context in contexts if context.turns})
    others = f"only {' and '.join(spoke)} spoke" if spoke else "nobody spoke"
    if not set(spoke).isdisjoint(learning):
        raise UserError(
            f"nothing can be trained: in {when} all that the model that learns"
            f" ({' and '.join(learning)}) said is marked as not to be trained",
            "let neither your reward nor your agent set context.trainable",
        )
    raise UserError(
        f"nothing can be trained: in {when} the model that learns ({' and '.join(learning)}) said"
        f" nothing; {others}",
        "make a role trainable in which the agent speaks (--models.memory, --models.answer), or"
        " choose another agent",
    )
