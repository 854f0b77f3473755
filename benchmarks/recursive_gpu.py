"""A small chat model on one GPU learns to find evidence by code and to answer by reading it.

    python -m benchmarks.recursive_gpu --model models/smollm2 --data data/squad --out runs/recursive

A teacher shows the language: any of a few programs, and the answer where a part holds it. Then the
reward decides. Run the same command again to continue after a kill: the warm model is kept, and the
run continues at its last checkpoint. Without --data the tasks are recall stories.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from benchmarks.form import learn_form
from recollect.agents.recursive import RecursiveAgent
from recollect.agents.recursive_prompts import RecursivePrompts
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.commands.train import run_training
from recollect.config.engine import ModelConfig
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.models.model import load_model
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.programs import ProgramReward
from recollect.rollout import Rollout
from recollect.tasks.documents.squad import Squad
from recollect.tasks.made.recall import Recall
from recollect.train import saved_model
from recollect.types import Task

PROGRAMS = (
    "answer(ask(search(question, 1)[0], question))",
    "answer(ask(search(question, 3)[2], question))",
    "answer(ask(text[:800], question))",
    "answer(ask(text[-800:], question))",
    "print(search(question, 1)[0][:200])",
    "answer(search(question, 1)[0][:40])",
)
"""All run; one of them finds the evidence most often."""
PROMPTS = RecursivePrompts(
    program="Write one short program between ``` and ``` that answers the question from the"
    " variable text, with search, ask and answer.\n\n<problem>\n{problem}\n</problem>",
    part="<text>\n{chunk}\n</text>\n\nAnswer from this text in a few words.\n\n"
    "<problem>\n{problem}\n</problem>",
)


@dataclass
class Teacher:
    """Writes any of the programs, and answers from a part that holds the answer."""

    answers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    said: int = 0

    def learn(self, task: Task) -> Task:
        """Look a task's answers up."""
        self.answers |= {q.text: q.answers for q in task.questions}
        return task

    def reply(self, prompt: str) -> str:
        """Write a program, or read a part."""
        problem = re.findall(r"<problem>\n(.*?)\n</problem>", prompt, re.DOTALL)[-1]
        part = re.search(r"<text>\n(.*?)\n</text>", prompt, re.DOTALL)
        if part is None:
            self.said += 1
            return f"```\n{Random(self.said).choice(PROGRAMS)}\n```"
        return next((a for a in self.answers.get(problem, ()) if a in part[1]), "nothing found")


def settings(model: str, options: argparse.Namespace) -> TrainConfig:
    """Return the run; texts are longer than any part that is read."""
    tasks = Squad(documents=16, folder=options.data) if options.data else Recall(chunks=24)
    return replace(
        preset("squad"),
        name=f"seed-{options.seed}",
        seed=options.seed,
        folder=options.out,
        model=ModelConfig(path=model, device=options.device, recompute=1.0),
        tasks=tasks,
        agent=RecursiveAgent(
            max_turns=2,
            max_turn_tokens=48,
            max_result_chars=300,
            max_part_tokens=320,
            max_answer_tokens=24,
            max_asks=4,
            prompts=PROMPTS,
        ),
        reward=ProgramReward("boxed_match", calls=0.01),
        rollout=RolloutConfig(tasks=options.tasks, n=16),
        val=ValidationConfig(tasks=options.val, temperature=0.0),
        steps=options.steps,
        test_freq=options.steps,
        save_freq=10,
    )


def warm_up(config: TrainConfig, folder: Path, episodes: int) -> None:
    """Let the teacher play, and fit the model to what it said."""
    model = load_model(config.model)
    teacher = Teacher()
    policy = ScriptedPolicy(model.tokenizer, teacher.reply)
    speaker = Model(policy, Renderer(model.tokenizer), True, window=model.window)
    tasks = [teacher.learn(config.tasks.task(10_000 + i, 1, "train")) for i in range(episodes)]
    roles = {"memory": speaker, "answer": speaker}
    rollout = Rollout(config.agent, roles, ProgramReward(), concurrency=1)
    groups = [g for g in asyncio.run(rollout.groups(tasks, 1, ("warm up",))) if g[0].ok]
    learn_form(model, groups, config.token_budget)
    folder.mkdir(parents=True, exist_ok=True)
    saved_model.export(folder, model)


def main() -> None:
    """Warm up unless that is done, then train or continue."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--val", type=int, default=256)
    parser.add_argument("--episodes", type=int, default=1024, help="of the teacher")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    began = time.perf_counter()
    warm = options.out / "warm"
    if not (warm / "config.json").exists():
        warm_up(settings(options.model, options), warm, options.episodes)
    run_training(settings(str(warm), options))
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
