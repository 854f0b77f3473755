"""What a run would do, before anything starts: the resolved settings, sizes and work per step."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from recollect.agents.base import Estimated, check_window, part_name
from recollect.config.overlay import to_table
from recollect.config.train import TrainConfig
from recollect.display.figures import grid
from recollect.display.numbers import count, gib
from recollect.errors import UserError
from recollect.files import dotted, loads, read_json
from recollect.models.tokenizer import check_folder, load_counter
from recollect.train.lengths import check_tasks
from recollect.train.trial import rehearse

HEADER = 1 << 27
"""Bytes of the longest header of a safetensors file, as its own library allows."""
LOOKED_AT = 16
"""Tasks that are made to estimate a step's work."""


def show_plan(config: TrainConfig) -> RenderableType:
    """Lay out what `config` would do."""
    folder = check_folder(config.model.path)
    check_window(config.agent, smallest_window(config, folder))
    check_tasks(config, config.val.length_tasks)
    parameters = count_parameters(folder)
    facts = {
        "run folder": str(config.folder / config.name),
        "parameters": f"{parameters:,}",
        "memory": _memory(config, parameters),
        **_work(config, folder),
        "validation": (
            f"{config.val.before_training + -(-config.steps // config.test_freq)} times"
            f" {config.val.tasks} tasks"
            f" x {config.val.n}, at the end at {list(config.val.lengths) or 'no other'} lengths"
        ),
    }
    notes = [Text(f"note: {note}") for note in (*config.notes, *rehearse(config))]
    return Group(grid(dict(dotted(to_table(config, TrainConfig)))), "", grid(facts), *notes)


def _work(config: TrainConfig, folder: Path) -> dict[str, str]:
    """Say how much a step is, the longest of the curriculum, and how much all are."""
    rollout, most = config.rollout, episodes(config)
    steps = Counter(rollout.times(step) for step in range(1, config.steps + 1))
    works = {times: estimate(config, folder, times) for times in steps}
    known = {times: work for times, work in works.items() if work is not None}
    longest = max(steps)
    work = known.get(longest)
    each = f"{work.contexts:.1f} contexts each" if work else "contexts as the agent decides"
    sampled = sum(steps[times] * work.sampled for times, work in known.items())
    return {
        "a step": (
            f"{rollout.tasks} tasks x {rollout.n} episodes, {each}"
            f"{f' at {longest}x the text' if longest > 1 else ''},"
            f" {config.updates_per_step * config.epochs} optimiser steps"
            f"{_refilled(config)}{_again(config)}"
        ),
        "tokens a step": (
            f"{count(work.prompt)} tokens of text and memory read at most ({count(work.shared)}"
            f" where siblings share them), {count(work.sampled)} sampled at most"
            if work
            else f"unknown: {part_name(config.agent)} has no method work"
        ),
        "the run": (
            f"{config.steps} steps, {config.steps * most:,} episodes"
            f"{' at most' if most > rollout.tasks * rollout.n else ''}"
            f"{f', {count(sampled)} tokens sampled at most' if known else ''}"
        ),
    }


@dataclasses.dataclass(frozen=True)
class StepWork:
    """What one step asks of the model, at most."""

    contexts: float
    """Per episode."""
    prompt: float
    shared: float
    """Prompt tokens if all siblings of a task read the same chunk at once."""
    sampled: float


def episodes(config: TrainConfig) -> int:
    """Count the episodes of a step, at most: all of its tasks may be drawn again."""
    rollout = config.rollout
    return rollout.tasks * ((rollout.refills + 1) * rollout.n + _forked(config))


def _forked(config: TrainConfig) -> int:
    """Count the episodes of a task that continue from the middle of others, at most."""
    return config.local.n * config.local.forks


def estimate(config: TrainConfig, folder: Path, times: int = 1) -> StepWork | None:
    """Look at the first tasks and count what the episodes of a step would read and may write.

    Texts have `times` their length. An episode from the middle counts as a whole one. None if the
    agent does not know.
    """
    agent = config.agent
    if not isinstance(agent, Estimated):
        return None
    n, refills = config.rollout.n, config.rollout.refills
    # Refills bring other tasks; only as many groups as there are tasks are ever gone on from.
    work = _estimate(config, agent, folder, times, n + _forked(config))
    again = _estimate(config, agent, folder, times, n) if refills else StepWork(0, 0, 0, 0)
    return StepWork(
        work.contexts,
        work.prompt + refills * again.prompt,
        work.shared + refills * again.shared,
        work.sampled + refills * again.sampled,
    )


def _estimate(config: TrainConfig, agent: Estimated, folder: Path, times: int, n: int) -> StepWork:
    """Count the work of a step's tasks with `n` episodes each."""
    family = config.tasks.longer(times) if times > 1 else config.tasks
    tasks = [family.task(i, config.seed) for i in range(min(LOOKED_AT, config.rollout.tasks))]
    tokenizer, room = load_counter(folder), window(folder)
    works = [agent.work(task, tokenizer, room) for task in tasks]
    scale = config.rollout.tasks / len(works)
    return StepWork(
        sum(work.contexts for work in works) / len(works),
        sum(n * work.prompt for work in works) * scale,
        sum(n * work.prompt - (n - 1) * work.common for work in works) * scale,
        sum(n * work.sampled for work in works) * scale,
    )


def smallest_window(config: TrainConfig, folder: Path) -> int:
    """Return the tokens that every model's context holds, as far as the settings tell."""
    models, found = config.models, []
    if models.learning:
        found.append(window(folder))
    for role in models.fixed:
        if not models.is_served(role):
            found.append(window(check_folder(getattr(models, role), f"models.{role}")))
        elif (given := getattr(models, f"{role}_window")) is not None:
            found.append(given)
    return min(found, default=1 << 30)


def window(folder: Path) -> int:
    """Read how many tokens a model's context holds."""
    path = folder / "config.json"
    fix = "give the folder of a transformers model"
    config = read_json(path, fix)
    config = config.get("text_config") or config
    known = config.get("max_position_embeddings", 1 << 30) if isinstance(config, dict) else None
    if not isinstance(known, int) or known < 1:
        raise UserError(f"{path}: max_position_embeddings is {known!r}", fix)
    return known


def count_parameters(folder: Path) -> int:
    """Add up the shapes in the headers of a folder's safetensors files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = loads(file.read(min(size, HEADER)))
            shapes = [header[name]["shape"] for name in header if name != "__metadata__"]
            total += sum(map(math.prod, shapes))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} holds no weights: {error}", "give a folder with whole *.safetensors"
            ) from error
    return total


def _refilled(config: TrainConfig) -> str:
    """Say how many tasks may take the places of others, if any."""
    most = config.rollout.refills * config.rollout.tasks
    return f"; up to {most} tasks more where all did equally well" if most else ""


def _again(config: TrainConfig) -> str:
    """Say what is run again from the middle, if anything."""
    local = config.local
    places = "" if local.forks == 1 else f" from each of {local.forks} places"
    return f"; of every task {local.n} episodes more from the middle{places}" if local.n else ""


@dataclasses.dataclass(frozen=True)
class ResidentBytes:
    """Bytes that stay in memory for a whole run: weights in every form, gradients, averages."""

    device: int
    host: int
    """Where the optimiser's part of a model on a GPU is kept there."""


def held(config: TrainConfig, parameters: int, gpu: bool) -> ResidentBytes:
    """Count what a run holds, beside activations and the sampler's cache; adapters are nothing."""
    each = 2 if config.model.weights == "bfloat16" else 4
    copies = bool(config.loss.kl_coef) + bool(config.rollout.ahead)
    critic = 0
    if config.advantage == "gae":
        own = config.critic.path
        folder = check_folder(own, "critic.path") if own else check_folder(config.model.path)
        critic = count_parameters(folder)
    trained = 0 if config.model.lora.rank else parameters + critic
    reference = 0 if config.model.lora.rank else copies * parameters
    device = each * (parameters + critic + reference) + 4 * trained
    if gpu:  # what the sampler reads; embeddings that are held in float32 stay so
        device += 2 * parameters
    # AdamW's two averages, and the originals of weights that are held with less precision
    averages = (8 if each == 4 else 12) * trained
    away = gpu and config.optim.offload
    return ResidentBytes(device + (0 if away else averages), averages if away else 0)


def _on_gpu(device: str) -> bool:
    if device != "auto":
        return device.startswith("cuda")
    import torch  # two seconds, which a named device need not wait for

    return torch.cuda.is_available()


def _memory(config: TrainConfig, parameters: int) -> str:
    it = held(config, parameters, _on_gpu(config.model.device))
    host = f", {gib(it.host)} more on the host" if it.host else ""
    return (
        f"{gib(it.device)} weights and optimiser{host},"
        f" up to {config.model.cache_gib:g} GiB sampler cache"
    )
