"""The curator on real LoCoMo with a small chat model on one GPU: before, warmed up, trained.

    python scripts/convert_smollm2.py --out models/smollm2
    python -m benchmarks.curator_gpu --model models/smollm2 --data locomo10.json --out runs/curator

Every seed holds out two other conversations, which neither its warm-up nor its training sees. The
memories are the turns of a conversation; the reader is the rule `evidence`, so nothing asks a
server. Seeds share the GPU. The same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.curator_table import show, show_seed
from benchmarks.curator_teacher import PROMPTS, Teacher
from benchmarks.form import learn_form
from benchmarks.squad import run, shared_gpu
from recollect.agents.curator import CuratorAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.chat.tools import Limits
from recollect.commands.train import train_to_result
from recollect.concurrency.stop import Stop
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.display import open_console
from recollect.foreign import shown
from recollect.memory.selection import Retrieval
from recollect.memory.tools import MemoryTools
from recollect.models.model import load_model
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rollout import Group, Rollout
from recollect.runs.checkpoints import find_checkpoint
from recollect.tasks.conversations.locomo import read_locomo
from recollect.tasks.conversations.locomo_files import LocomoOptions, build_locomo
from recollect.tasks.conversations.locomo_folder import Locomo
from recollect.train import saved_model
from recollect.train.rollouts import Rollouts
from recollect.train.wiring import make_agent, make_reward

REWARD = MemoryDelta(retrieval=Retrieval(top_k=3), panel=8, panel_weight=1.0)
HELD_OUT = 2
"""Conversations of each seed that it never sees."""


class Quiet:
    """A watcher of evaluations: says nothing."""

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None: ...
    def validation(self, step: int, results: dict[str, Any]) -> None: ...
    def phase(self, name: str, done: int, total: int) -> None: ...
    def note(self, text: str) -> None:
        """Print what a person should know."""
        print(text, flush=True)


def settings(model: Path, options: argparse.Namespace) -> TrainConfig:
    """Return the run of a seed with some model."""
    folder = options.out / f"seed{options.seed}"
    tasks = Locomo(folder / "data")
    return replace(
        preset("locomo"),
        name="curator",
        seed=options.seed,
        folder=folder,
        model=ModelConfig(
            path=str(model), device=options.device, recompute=1.0, cache_gib=options.cache_gib
        ),
        tasks=tasks,
        agent=CuratorAgent(
            tools=MemoryTools(operations=("create", "update", "delete"), top_k=4),
            limits=Limits(
                max_assistant_turns=4,
                max_turn_tokens=144,
                max_context_tokens=4096,
                max_tool_response_length=2400,
            ),
            prompts=PROMPTS,
        ),
        reward=REWARD,
        rollout=RolloutConfig(tasks=options.tasks, n=options.n),
        loss=LossConfig(kl_coef=0.0, clip_high=0.28),
        optim=OptimConfig(lr=options.lr, warmup_steps=3, weight_decay=0.0),
        updates_per_step=min(2, options.tasks),
        token_budget=1 << 17,
        val=ValidationConfig(
            tasks=min(options.val, tasks.size("test")), temperature=1.0, before_training=False
        ),
        steps=options.steps,
        test_freq=options.steps,
        save_freq=10,
    )


def build_data(options: argparse.Namespace) -> None:
    """Deal the conversations: the turns are the memories, two conversations are held out."""
    folder = options.out / f"seed{options.seed}" / "data"
    if folder.exists():
        return
    ids = [conversation.id for conversation in read_locomo(options.data)]
    first = HELD_OUT * options.seed
    test = tuple(ids[(first + i) % len(ids)] for i in range(min(HELD_OUT, len(ids) - 1)))
    kept = LocomoOptions(options.data, folder, observation=False, event_summary=False, test=test)
    report = build_locomo(kept)
    print(f"held out {', '.join(test)}; tasks {dict(report.tasks)}", flush=True)


def warm_up(config: TrainConfig, folder: Path, episodes: int) -> None:
    """Let the teacher play on the training conversations, and fit the model to what it said."""
    model = load_model(config.model)
    policy = ScriptedPolicy(model.tokenizer, Teacher(config.seed).reply)
    speaker = Model(policy, Renderer(model.tokenizer), True, window=model.window)
    roles = {"memory": speaker, "answer": speaker}
    tasks = [config.tasks.task(i, config.seed, "train") for i in range(episodes)]
    rollout = Rollout(make_agent(config), roles, make_reward(config, roles), concurrency=1)
    groups = asyncio.run(rollout.groups(tasks, 1, ("warm up",)))
    groups = [group for group in groups if group[0].ok]
    earned = [episode.reward or 0.0 for [episode] in groups]
    print(f"the teacher earns {sum(earned) / len(earned):+.3f}, n {len(earned)}", flush=True)
    learn_form(model, groups, config.token_budget)
    folder.parent.mkdir(parents=True, exist_ok=True)
    saved_model.export(folder, model)


def evaluate(config: TrainConfig, name: str) -> float:
    """Run the held-out questions once, keep a row of each, and return the seconds it took."""
    began = time.perf_counter()
    rollouts = Rollouts.open(config, learns=False)
    try:
        groups = asyncio.run(rollouts.validate(Quiet()))
    finally:
        rollouts.roles.close()
    rows = [
        {
            "question": episode.task.id,
            "conversation": episode.task.cluster,
            "category": episode.task.questions[0].category,
            "reward": episode.reward,
            "failure": f"{episode.failure.boundary}: {episode.failure.kind}"
            if episode.failure
            else "",
            "ops": [op.kind for op in episode.ops],
            **episode.scores,
        }
        for [episode] in groups
    ]
    path = config.folder / f"{name}.json"
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for [episode] in groups[:2]:
        said = [rollouts.decode(c.role, c.ids)[-1500:] for c in episode.contexts]
        print(
            f"--- {name}, {episode.task.id}, reward {episode.reward}", *map(shown, said), sep="\n"
        )
    return time.perf_counter() - began


def fit(config: TrainConfig, seconds: float, folder: Path) -> None:
    """Train to the last step, or until the time is over, and keep the model of the last one."""
    stop = Stop()
    timer = threading.Timer(max(1.0, seconds), stop.soon.set)
    timer.daemon = True
    timer.start()
    train_to_result(config, open_console(), stop)
    timer.cancel()
    free()
    checkpoint = find_checkpoint(config.folder / config.name)
    model = load_model(config.model)
    saved_model.load_weights(checkpoint.path, model)
    saved_model.export(folder, model)


def free() -> None:
    """Give the memory of a model that is no longer used back: other seeds share the GPU."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def one_seed(options: argparse.Namespace) -> None:
    """Do what is missing of a seed."""
    began = time.perf_counter()
    build_data(options)
    base = settings(options.model, options)
    warm = settings(base.folder / "warm", options)
    if not (base.folder / "warm" / "config.json").exists():
        warm_up(base, base.folder / "warm", options.episodes)
        free()
        print(f"warm-up done after {time.perf_counter() - began:.0f} s", flush=True)
    took = 30.0
    for name, config in (("before", base), ("warmed", warm)):
        if not (base.folder / f"{name}.json").exists():
            took = evaluate(config, name)
            free()
            print(f"{name} measured after {time.perf_counter() - began:.0f} s", flush=True)
    trained = base.folder / "trained"
    if not trained.exists():
        # What is left after the last evaluation, and a step that is under way, must fit too.
        left = 60 * options.minutes - (time.perf_counter() - began) - 1.5 * took - 20
        few = replace(warm.val, tasks=min(8, warm.val.tasks))  # `evaluate` measures all of them
        fit(replace(warm, val=few), left, trained)
        free()
    print(f"trained after {time.perf_counter() - began:.0f} s", flush=True)
    if not (base.folder / "after.json").exists():
        evaluate(settings(trained, options), "after")
    show_seed(base.folder)
    print(f"{time.perf_counter() - began:.0f} s")


async def every_seed(options: argparse.Namespace) -> None:
    """Run the seeds side by side; the first that fails ends all."""
    async with asyncio.TaskGroup() as group:
        for seed in range(options.seeds):
            log = options.out / f"seed{seed}" / "seed.log"
            command = (sys.executable, "-m", "benchmarks.curator_gpu", *sys.argv[1:])
            group.create_task(run(log, *command, "--seed", seed))


def main() -> None:
    """Run what is missing, then print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="locomo10.json, or a part of it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, help="run one seed, in this process")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=8.0, help="for all, training cut to fit")
    parser.add_argument("--tasks", type=int, default=16, help="per step")
    parser.add_argument("--n", type=int, default=16, help="episodes per task")
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--val", type=int, default=224, help="held-out questions of a seed")
    parser.add_argument("--episodes", type=int, default=1024, help="of the teacher")
    parser.add_argument("--cache-gib", type=float, default=8.0)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.seed is not None:
        one_seed(options)
        return
    try:
        with shared_gpu(options.out):
            asyncio.run(every_seed(options))
    except* RuntimeError as failed:
        sys.exit("\n".join(str(error) for error in failed.exceptions))
    show(options.out, options.seeds)


if __name__ == "__main__":
    main()
