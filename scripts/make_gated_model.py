"""Make a tiny model that knows the form of a gated reader's replies, and train its gates.

    python scripts/make_gated_model.py --out FOLDER            # the warm start
    python scripts/make_gated_model.py --out FOLDER --train    # and docs/results/gated.md

The teacher finds a word of the asked kind and copies it, but opens its gates almost by chance: it
rewrites the memory where nothing is to be found, and stops reading before it has found anything.
Which chunks matter, and when enough is read, only the rewards tell. CPU, one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random

import torch
from make_demo_model import WEIGHT, WORDS, make_rows, spaced_tokenizer
from warm_start import END, fit, make_network, save

from recollect.agents.fold import NO_MEMORY
from recollect.agents.gated import GatedAgent, GatedPrompts
from recollect.commands.train import run_training
from recollect.config.presets import PRESETS
from recollect.config.rollout import ValidationConfig
from recollect.config.train import TrainConfig
from recollect.files import read_json
from recollect.models.tokenizer import HFTokenizer
from recollect.rewards.answers import AnswerReward
from recollect.rewards.reading import GateReward
from recollect.runs.run import read_metrics
from recollect.types import Completion, Sampling

DEMO = PRESETS["short_diary"]

TAGS = ("<check>", "</check>", "<update>", "</update>", "<next>", "</next>")
CHOICES = ("yes", "no", "continue", "end")
FINDS, IDLE = 0.7, 0.4
"""How often the teacher writes where there is something to write, and where there is not."""
ENOUGH, TOO_SOON = 0.4, 0.2
"""How often it stops with a fitting memory, and without one."""


def settings(model: Path) -> TrainConfig:
    """Return the run: stories in which the first of several mentions counts."""
    return replace(
        DEMO,
        name="gated_demo",
        model=replace(DEMO.model, path=str(model)),
        tasks=replace(DEMO.tasks, chunks=4),
        agent=GatedAgent(
            chunk_size=None,
            max_memory_tokens=12,
            max_answer_tokens=6,
            prompts=GatedPrompts(
                read="{problem}\n{chunk}\nMemory: {memory}",
                answer="{problem}\nMemory: {memory}\nAnswer:",
            ),
        ),
        reward=GateReward(),
        outcome_share=0.9,
        val=ValidationConfig(tasks=256, temperature=1.0, lengths=(1, 2, 4), length_tasks=256),
        steps=100,
    )


def make_tokenizer() -> HFTokenizer:
    """Give every word of the stories a token, and every tag one."""
    wording = DEMO.tasks.words
    pattern = "|".join(TAGS) + "|" + WORDS
    words = [w for values in wording.values.values() for w in values]
    words += ["Which", "did", "I", "choose", "first", "last", "?", "chose", ".", "Memory", ":"]
    words += ["Answer", "\\boxed{", "}", *wording.values, *NO_MEMORY.split(), *TAGS, *CHOICES]
    return spaced_tokenizer(words, pattern)


@dataclass(frozen=True)
class Teacher:
    """A policy that knows the form and how to copy, and not when."""

    words: Sequence[str]
    """By token id."""
    category: dict[str, str]
    """Of every value."""

    def chances(self, prompt: Sequence[str], said: Sequence[str]) -> dict[str, float]:
        """Return what may follow what was said, with its chances."""
        memory = prompt[len(prompt) - list(prompt)[::-1].index("Memory") + 1]
        asked = prompt[list(prompt).index("Which") + 1]
        if "Answer" in prompt:
            return {("\\boxed{", memory, "}", END)[len(said)]: 1.0}
        told = [value for verb, value in pairwise(prompt) if verb == "chose"]
        fitting = [value for value in told if self.category[value] == asked]
        if len(said) == 1:
            yes = FINDS if fitting else IDLE
            return {"yes": yes, "no": 1 - yes}
        if len(said) == 4 and said[1] == "yes":
            values = fitting or told
            return {v: values.count(v) / len(values) for v in dict.fromkeys(values)}
        if said and said[-1] == "<next>":
            held = said[4] if said[1] == "yes" else memory
            end = ENOUGH if self.category.get(held) == asked else TOO_SOON
            return {"end": end, "continue": 1 - end}
        form = ["<check>", "", "</check>", "<update>", "", "</update>", "<next>", "", "</next>"]
        if len(said) > 1 and said[1] == "no":
            form.pop(4)
        return {[*form, END][len(said)]: 1.0}

    def likely(self, prompt_ids: Sequence[int], said_ids: Sequence[int]) -> list[dict[str, float]]:
        """Return what might have been said in place of every word, with its chances."""
        prompt = [self.words[i] for i in prompt_ids]
        said = [self.words[i] for i in said_ids]
        return [self.chances(prompt, said[:k]) for k in range(len(said))]

    def walk(self, prompt_ids: Sequence[int], seed: int) -> list[tuple[str, dict[str, float]]]:
        """Draw a reply, with what else might have been said in place of each word."""
        prompt, rng = [self.words[i] for i in prompt_ids], Random(seed)
        said: list[tuple[str, dict[str, float]]] = []
        while not said or said[-1][0] != END:
            chances = self.chances(prompt, [word for word, _ in said])
            said.append((rng.choices(list(chances), list(chances.values()))[0], chances))
        return said

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Draw a reply."""
        ids = tuple(self.words.index(word) for word, _ in self.walk(prompt_ids, sampling.seed))
        return Completion(ids, (0.0,) * len(ids), "stop")


def table(run: Path) -> str:
    """Show how held-out accuracy and the gates changed, then accuracy by length, as Markdown."""
    names = ("update_gate", "exit", "sections", "malformed")
    lines = ["| step | accuracy | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for row in read_metrics(run):
        if "val/accuracy" in row:
            cells = [row.get(f"val/score/{name}") for name in names]
            shown = " | ".join("" if cell is None else f"{cell:.3f}" for cell in cells)
            accuracy = "{val/accuracy:.3f} [{val/low:.3f}, {val/high:.3f}]".format_map(row)
            lines.append(f"| {row['step']} | {accuracy} | {shown} |")
    lengths = read_json(run / "lengths.json", "run it again")
    lines += ["", "| length | accuracy |", "|---|---|"]
    lines += [
        f"| {times}x | {own['mean']:.3f} [{own['low']:.3f}, {own['high']:.3f}] |"
        for times, own in lengths.items()
    ]
    return "\n".join(lines)


def main() -> None:
    """Make the model; with --train also train its gates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--answers-only", action="store_true", help="no rewards for the gates")
    parser.add_argument("--once", action="store_true", help="later mentions never mislead")
    parser.add_argument("--tasks", type=int, default=6_000)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not (options.out / "config.json").exists():
        tokenizer = make_tokenizer()
        words = tokenizer.hf.convert_ids_to_tokens(list(range(tokenizer.vocab_size)))
        wording = DEMO.tasks.words
        kinds = {value: kind for kind, values in wording.values.items() for value in values}
        config = settings(options.out)
        agent = replace(config.agent, exit_gate=False)  # all of every story is read
        teacher = Teacher(words, kinds)
        rows = make_rows(teacher, tokenizer, agent, config.tasks, options.tasks)
        network = make_network(tokenizer)
        fit(network, rows, options.steps, 6e-3, weight=WEIGHT)
        save(network, tokenizer, options.out)
    if options.train:
        name = f"seed-{options.seed}" + "-answers-only" * options.answers_only
        config = replace(settings(options.out), name=name + "-once" * options.once)
        config = replace(config, seed=options.seed)
        if options.once:
            config = replace(config, tasks=replace(config.tasks, updates=0.0))
        if options.answers_only:
            config = replace(config, reward=AnswerReward(), outcome_share=1.0)
        if run_training(replace(config, folder=options.out / "runs")) == 0:
            print(table(options.out / "runs" / config.name))


if __name__ == "__main__":
    main()
