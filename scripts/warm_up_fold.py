"""Teach a small model the form of a fold over SQuAD by examples, before it learns by reward.

    python scripts/warm_up_fold.py --model models/smollm2 --data data/squad --out models/warm

The examples are episodes of the very agent that is trained afterwards, spoken by a teacher who
knows the answer: it copies the sentence that holds it from the section that shows it, keeps its
memory everywhere else, and puts the answer into a box. They come from training questions alone.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import preset
from recollect.config.train import TrainConfig
from recollect.models.model import load_model
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Group, Rollout
from recollect.samples import samples_of
from recollect.train import saved_model
from recollect.train.trainer import Trainer
from recollect.types import Task

NOTHING = "Nothing yet."
FIELD = {
    name: re.compile(rf"<{name}>\n(.*?)\n</{name}>", re.DOTALL)
    for name in ("problem", "section", "memory")
}
LONGEST = 240
"""Characters of a sentence that is copied; of a longer one the part around the answer."""


@dataclass
class Teacher:
    """Reply as one who knows where the answer stands."""

    known: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By question: the sentence that holds the answer, and the answer."""

    def learn(self, task: Task) -> bool:
        """Look a task's answer up; false if its document does not hold it."""
        (question,) = task.questions
        document = task.chunks[question.evidence[0]]
        for answer in question.answers:
            at = document.find(answer)
            if at >= 0:
                sentence = sentence_around(document, at, at + len(answer))
                self.known[question.text] = (sentence, answer)
                return True
        return False

    def reply(self, prompt: str) -> str:
        """Write the next memory, or the answer."""
        sentence, answer = self.known[field_of(prompt, "problem")]
        section, memory = FIELD["section"].search(prompt), field_of(prompt, "memory")
        remembered = flat(sentence) in flat(memory)
        if section is None:
            if not remembered:
                raise ValueError("the text was cut through the sentence")
            return f"\\boxed{{{answer}}}"
        if flat(sentence) in flat(section[1]):
            return sentence
        return memory if remembered else NOTHING


def field_of(prompt: str, name: str) -> str:
    """Return what a prompt shows under a name."""
    found = FIELD[name].search(prompt)
    if found is None:
        raise ValueError(f"the prompt shows no {name}")
    return found[1].strip()


def flat(text: str) -> str:
    """Leave only single spaces."""
    return " ".join(text.split())


def sentence_around(text: str, begin: int, end: int) -> str:
    """Cut out the sentence of an answer, or the part of it around the answer."""
    starts = [
        text.rfind(mark, 0, begin) + len(mark) for mark in (". ", "\n") if mark in text[:begin]
    ]
    first = max(starts, default=0)
    last = text.find(". ", end)
    last = len(text) if last < 0 else last + 1
    if last - first > LONGEST:
        spare = (LONGEST - (end - begin)) // 2
        first, last = max(first, begin - spare), min(last, end + spare)
    return text[first:last].strip()


async def episodes(
    config: TrainConfig, teacher: Teacher, speaker: Model, count: int
) -> list[Group]:
    """Let the teacher play training tasks; those whose text was cut through the sentence fail.

    They are the last ones of the order in which training takes them: it begins with others.
    """
    last = config.tasks.size("train") - 1  # type: ignore[union-attr]
    tasks = [config.tasks.task(last - i, config.seed, "train") for i in range(count)]
    known = [task for task in tasks if teacher.learn(task)]
    models = {"memory": speaker, "answer": speaker}
    return await Rollout(config.agent, models, AnswerReward()).groups(known, 1, (config.seed,))


def main() -> None:
    """Play, train, save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=32, help="episodes of one update")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    base = preset("squad")
    family = dataclasses.replace(base.tasks, folder=options.data)
    config = dataclasses.replace(base, tasks=family, seed=options.seed)
    model = load_model(ModelConfig(options.model, options.device, recompute=1.0))
    teacher = Teacher()
    policy = ScriptedPolicy(model.tokenizer, teacher.reply)
    speaker = Model(policy, Renderer(model.tokenizer), True, window=model.window)
    started = time.perf_counter()
    groups = asyncio.run(episodes(config, teacher, speaker, options.tasks))
    shown = [group for group in groups if group[0].ok]
    print(f"{len(shown)} of {len(groups)} episodes, whose memory holds the answer in the end")
    # Without a clip to either side, an advantage of 1 makes it the likelihood of what was said.
    loss = LossConfig("cispo", clip_low=0.0, clip_high=0.0, kl_coef=0.0)
    optim = OptimConfig(options.lr, warmup_steps=5, weight_decay=0.0)
    trainer = Trainer(model, loss, optim, token_budget=config.token_budget)
    shown *= options.epochs
    for at in range(0, len(shown), options.batch):
        batch = shown[at : at + options.batch]
        ones = [[[1.0] * len(e.contexts) for e in group] for group in batch]
        metrics = trainer.update(samples_of(batch, ones))
        print(
            f"{at + len(batch):5} episodes, loss {metrics['train/entropy']:.3f},"
            f" {time.perf_counter() - started:.0f} s",
            flush=True,
        )
    options.out.mkdir(parents=True, exist_ok=True)
    saved_model.export(options.out, model)


if __name__ == "__main__":
    main()
