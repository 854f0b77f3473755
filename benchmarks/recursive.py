"""What the recursive agent learns and costs: a tiny model on the CPU, and RULER by length.

    python -m benchmarks.recursive learn --out FOLDER --seeds 0 1 2
    python -m benchmarks.recursive ruler --tokens 16384 131072 1048576

`learn` warm-starts a model on the language alone and lets the reward teach which program fits which
question. `ruler` lets the scripted teacher solve the aggregations, and adds up the cost of a fold.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from recollect.agents.fold import FoldAgent
from recollect.agents.recursive import RecursiveAgent
from recollect.agents.recursive_teacher import fenced, program_for
from recollect.config.train import TrainConfig
from recollect.policies.bytes import Utf8Tokenizer
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.programs import ProgramReward
from recollect.rollout import Rollout
from recollect.tasks.haystacks.ruler import Ruler
from recollect.tasks.lengths import BYTES_PER_TOKEN

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))


def make_model(folder: Path, tasks: int = 1500, steps: int = 250) -> None:
    """Warm-start a model on the language: every program is as likely for every question."""
    import torch
    from make_demo_model import spaced_tokenizer
    from warm_start import Row, fit, make_network, save

    from benchmarks.recursive_tasks import AGENT, END, WORDS, Lists, Teacher
    from recollect.chat.chat import Model
    from recollect.chat.rendering import Renderer

    torch.set_num_threads(1)
    pattern = "|".join(re.escape(w) for w in sorted(set(WORDS), key=len, reverse=True))
    tokenizer = spaced_tokenizer(list(dict.fromkeys(WORDS)), pattern)
    words = tokenizer.hf.convert_ids_to_tokens(list(range(tokenizer.vocab_size)))
    teacher = Teacher(words)
    model = Model(teacher, Renderer(tokenizer))
    rollout = Rollout(AGENT, {"memory": model, "answer": model}, ProgramReward())
    stories = [Lists().task(i, 1) for i in range(tasks)]
    groups = asyncio.run(rollout.groups(stories, 1, ("warm start",)))
    number = {word: i for i, word in enumerate(words)}
    rows = []
    for context in (c for [episode] in groups for c in episode.contexts):
        [turn] = context.turns
        likely = teacher.likely(context.ids[: turn.start])
        chances = [{number[word]: p for word, p in own.items()} for own in likely]
        rows.append(Row(context.ids, dict(enumerate(chances, start=turn.start - 1))))
    assert END in number
    Random(0).shuffle(rows)
    network = make_network(tokenizer)
    fit(network, rows, steps, 6e-3, weight=3)
    save(network, tokenizer, folder)


def settings(model: Path, seed: int, steps: int) -> TrainConfig:
    """Return the run that learns by reward.

    The warm model writes every program equally often. Its divergence is charged, and rollouts are
    sampled hotter than held-out questions: otherwise a run may settle on one program for two kinds
    of question, before it has seen what the other one earns.
    """
    from benchmarks.recursive_tasks import AGENT, Lists
    from recollect.config.engine import OptimConfig
    from recollect.config.presets import preset
    from recollect.config.rollout import RolloutConfig, ValidationConfig

    demo = preset("demo")
    return replace(
        demo,
        name=f"seed-{seed}",
        seed=seed,
        model=replace(demo.model, path=str(model)),
        tasks=Lists(),
        agent=AGENT,
        reward=ProgramReward("boxed_match"),
        rollout=RolloutConfig(tasks=32, n=8, temperature=1.5),
        loss=replace(demo.loss, kl_coef=0.15),
        optim=OptimConfig(lr=1e-3, warmup_steps=5, weight_decay=0.0),
        updates_per_step=4,
        val=ValidationConfig(tasks=256, temperature=1.0),
        steps=steps,
        test_freq=steps,
        save_freq=max(1, steps // 4),
        folder=model / "runs",
    )


def learn(out: Path, seeds: Sequence[int], steps: int) -> None:
    """Train from every seed and print accuracy before and after, with intervals."""
    from recollect.commands.train import run_training
    from recollect.runs.run import read_metrics

    if not (out / "config.json").exists():
        make_model(out)
    for seed in seeds:
        began = time.perf_counter()
        config = settings(out, seed, steps)
        run_training(config)
        records = read_metrics(out / "runs" / config.name)
        shown = [{k: v for k, v in r.items() if k.startswith("val/")} for r in records]
        shown = [record for record in shown if record]
        print(f"seed {seed}: {time.perf_counter() - began:.0f} s", shown[0], shown[-1], sep="\n")


def teach(prompt: str) -> str:
    """Write the program that solves what a prompt asks."""
    problem = re.findall(r"<problem>\n(.*?)\n</problem>", prompt, re.DOTALL)[-1]
    return fenced(program_for(problem) or "answer('')")


def ruler(lengths: Sequence[int], tasks: int) -> None:
    """Print the score, the tokens and the seconds of the agent, and the tokens of a fold."""
    agent = RecursiveAgent(max_turn_tokens=2000)
    model = ScriptedPolicy.model(teach)
    rollout = Rollout(agent, {"memory": model, "answer": model}, ProgramReward("ruler_recall"))
    print("| task | tokens | right | read | written | seconds | fold reads |\n|" + "---|" * 7)
    for variant in ("cwe", "fwe", "vt"):
        for length in lengths:
            family = Ruler(variant=variant, tokens=length)
            began = time.perf_counter()
            made = [family.task(i, 0, "test") for i in range(tasks)]
            episodes = [g[0] for g in asyncio.run(rollout.groups(made, 1, (0,)))]
            seconds = (time.perf_counter() - began) / tasks
            right = sum((e.answer_scores or [0.0])[0] for e in episodes)
            read = sum(e.prompt_tokens for e in episodes) / tasks / BYTES_PER_TOKEN
            written = sum(e.sampled_tokens for e in episodes) / tasks / BYTES_PER_TOKEN
            # Bytes are its tokens here: chunks of 5,000 tokens of the usual kind.
            fold = FoldAgent(chunk_size=int(5000 * family.bytes_per_token))
            work = fold.work(made[0], Utf8Tokenizer(), 1 << 30)
            reads = work.common / family.bytes_per_token + work.contexts * 1024
            print(
                f"| {variant} | {length:,} | {right:.0f} of {tasks} | {read:,.0f} | {written:,.0f}"
                f" | {seconds:.1f} | {reads:,.0f} |",
                flush=True,
            )


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("learn", "ruler"))
    parser.add_argument("--out", type=Path, default=Path("runs/recursive"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384, 131072, 1048576])
    parser.add_argument("--tasks", type=int, default=4)
    options = parser.parse_args()
    if options.what == "learn":
        learn(options.out, options.seeds, options.steps)
    else:
        ruler(options.tokens, options.tasks)


if __name__ == "__main__":
    main()
