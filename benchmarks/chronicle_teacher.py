"""The warm-up of benchmarks/chronicle.py: a teacher that reads by rules shows the form of a memory.

    python benchmarks/chronicle_teacher.py --model models/smollm2 --out runs/chronicle/warm

One adapter for all agents, trained by likelihood on the teacher's episodes of training tasks that
no run uses. It writes the adapter (a few megabytes) and the merged model; where the adapter is
there already, only the model is written again.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file, save_file

from recollect.agents.base import Agent
from recollect.agents.baselines import FullContextAgent
from recollect.agents.fold import FoldAgent
from recollect.agents.gated import GatedAgent
from recollect.agents.rag import RagAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.config.engine import LoraConfig, LossConfig, ModelConfig, OptimConfig
from recollect.models.model import LoadedModel, load_model
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Group, Rollout
from recollect.samples import samples_of
from recollect.tasks.made.chronicle import Chronicle, Kind
from recollect.tasks.made.chronicle_reader import Reader
from recollect.train import saved_model
from recollect.train.trainer import Trainer
from recollect.types import Sample

NOTHING = "Nothing yet."
FIRST = 1_000_000
"""The first training task of the warm-up: runs begin with 0 and never come here."""
_FIELD = {
    name: re.compile(rf"<{name}>\n(.*?)\n</{name}>", re.DOTALL)
    for name in ("problem", "section", "memory")
}
_TOWN = re.compile(r"(\w+)(?: \(before (\w+)\))?")
_DATE = re.compile(r"\d+ [A-Z]\w+")
KNOWN: tuple[Kind, ...] = ("overwrite", "count", "two-hop")


def agents(
    memory: int, blind_memory: int, answer: int
) -> dict[str, tuple[Agent, tuple[Kind, ...]]]:
    """Return what is trained, and on which kinds of question."""
    fold = FoldAgent(None, memory, answer)
    every = (*KNOWN, "blind")
    rag = RagAgent("bm25", 32, 20, 256 + memory, answer)
    return {
        "fold": (fold, KNOWN),
        "fold_blind": (replace(fold, max_memory_tokens=blind_memory), ("blind",)),
        "gated": (GatedAgent(None, memory, answer, exit_gate=False), KNOWN),
        "full_context": (FullContextAgent(max_answer_tokens=answer), every),
        "rag": (rag, every),
    }


def asked_about(question: str) -> tuple[str, str]:
    """Return the kind of a question (place, sent, received, kept) and whom or what it names."""
    if found := re.fullmatch(r"Where does the keeper of the (.+) live now\?", question):
        return "kept", found[1]
    if found := re.fullmatch(r"Where does (.+) live now\?", question):
        return "place", found[1]
    found = re.fullmatch(r"On how many different days did (.+) (send|receive) a letter\?", question)
    if not found:
        return "all", ""
    return ("sent" if found[2] == "send" else "received"), found[1]


def recall(memory: str, question: str) -> Reader:
    """Take a memory back into a reader."""
    reader, (kind, name) = Reader(), asked_about(question)
    for line in memory.splitlines():
        subject, colon, said = line.partition(": ")
        if not colon:
            continue
        if kind in ("sent", "received"):
            days = reader.sent if kind == "sent" else reader.received
            days[subject].update(dict.fromkeys(_DATE.findall(said)))
        elif kind == "kept" and subject == name:
            reader.keepers[subject] = said
        elif found := _TOWN.fullmatch(said):
            reader.towns[subject] = found[1]
            reader.before |= {subject: found[2]} if found[2] else {}
    return reader


def noted(reader: Reader, question: str) -> str:
    """Write what a reader should keep for a question, or for any."""
    kind, name = asked_about(question)
    lines = []
    if kind in ("sent", "received"):
        days = (reader.sent if kind == "sent" else reader.received).get(name, {})
        lines = [f"{name}: {', '.join(days)}"] if days else []
    else:
        people = [name] if kind == "place" else []
        if kind == "kept" and name in reader.keepers:
            lines, people = [f"{name}: {reader.keepers[name]}"], [reader.keepers[name]]
        if kind == "all":
            people = sorted(reader.towns)
        for person in people:
            if person in reader.towns:
                before = f" (before {old})" if (old := reader.before.get(person)) else ""
                lines.append(f"{person}: {reader.towns[person]}{before}")
    return "\n".join(lines) or NOTHING


@dataclass
class Teacher:
    """Reply as one who reads by rules; questions about a shown text are looked up."""

    known: dict[str, str] = field(default_factory=dict)
    gated: bool = False

    def reply(self, prompt: str) -> str:
        """Write the next memory, or the answer."""
        question = _field(prompt, "problem")
        if "<section>" not in prompt:
            return f"\\boxed{{{self.known[question]}}}"
        memory = _field(prompt, "memory")
        reader = recall(memory, question)
        reader.read(_field(prompt, "section"))
        new = noted(reader, question)
        if not self.gated:
            return new
        changed = new not in (memory, NOTHING)
        update = f"<check>yes</check><update>{new}</update>" if changed else "<check>no</check>"
        return f"{update}<next>continue</next>"


def _field(prompt: str, name: str) -> str:
    found = _FIELD[name].search(prompt)
    if found is None:
        raise ValueError(f"the prompt shows no {name}")
    return found[1].strip("\n")


def episodes(
    agent: Agent, kinds: tuple[Kind, ...], count: int, model: LoadedModel, seed: int
) -> list[Group]:
    """Let the teacher play; whatever it could not finish is left out."""
    teacher = Teacher(gated=isinstance(agent, GatedAgent))
    tasks = []
    for i in range(count):
        task = Chronicle(kinds).task(FIRST + i, seed, "train")
        if not any(q.text in teacher.known for q in task.questions):
            teacher.known |= {q.text: q.answers[0] for q in task.questions}
            tasks.append(task)
    policy = ScriptedPolicy(model.tokenizer, teacher.reply)
    speaker = Model(policy, Renderer(model.tokenizer), True, window=model.window)
    rollout = Rollout(agent, {"memory": speaker, "answer": speaker}, AnswerReward("boxed_match"))
    groups = asyncio.run(rollout.groups(tasks, 1, (seed,)))
    return [group for group in groups if group[0].ok and group[0].reward == 1.0]


def lessons(groups: list[Group], model: LoadedModel, share: float, seed: int) -> list[Sample]:
    """Choose what to learn from: answers, pages that change a memory, and some that do not.

    Fifteen of sixteen pages leave a memory as it was. Shown all of them, a model learns to copy.
    """
    rng = Random(seed)
    samples = []
    for sample in samples_of(groups, [[[1.0] * len(e.contexts) for e in g] for g in groups]):
        said = model.tokenizer.decode([int(i) for i in sample.token_ids])
        memory, reply = _FIELD["memory"].search(said), sample.token_ids[sample.trained]
        new = model.tokenizer.decode([int(i) for i in reply])
        same = memory is not None and new.strip() == memory[1].strip()
        empty = new.startswith(NOTHING) or "<check>no</check>" in new
        if not (same or empty) or "<section>" not in said or rng.random() < share:
            samples.append(sample)
    rng.shuffle(samples)
    return samples


def warm_up(model: LoadedModel, samples: list[Sample], options: argparse.Namespace) -> None:
    """Train by likelihood: an advantage of 1 and no clipping."""
    loss = LossConfig("cispo", clip_low=0.0, clip_high=0.0, kl_coef=0.0)
    optim = OptimConfig(options.lr, warmup_steps=5, weight_decay=0.0)
    trainer = Trainer(model, loss, optim, token_budget=options.token_budget)
    for at in range(0, len(samples), options.batch):
        metrics = trainer.update(samples[at : at + options.batch])
        print(f"{at:6} pages, loss {metrics['train/entropy']:.3f}", flush=True)


def main() -> None:
    """Play, train, save; or only merge an adapter that is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=2048, help="episodes of each agent")
    parser.add_argument("--agents", nargs="+", help="all, if none is named")
    parser.add_argument("--batch", type=int, default=96, help="pages and answers of one update")
    parser.add_argument("--unchanged", type=float, default=0.15,
                        help="share of the pages that leave the memory as it was")  # fmt: skip
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--memory", type=int, default=160)
    parser.add_argument("--blind-memory", type=int, default=1024)
    parser.add_argument("--answer", type=int, default=24)
    parser.add_argument("--token-budget", type=int, default=1 << 16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    adapter = options.out.with_suffix(".safetensors")
    torch.manual_seed(options.seed)
    lora = LoraConfig(options.rank)
    model = load_model(ModelConfig(options.model, options.device, lora, recompute=1.0))
    trained = {n: p for n, p in model.network.named_parameters() if p.requires_grad}
    if adapter.exists():
        with torch.no_grad():
            for name, tensor in load_file(adapter).items():
                trained[name].copy_(tensor)
    else:
        groups = []
        known = agents(options.memory, options.blind_memory, options.answer)
        for name in options.agents or known:
            agent, kinds = known[name]
            own = episodes(agent, kinds, options.tasks, model, options.seed)
            print(f"{name}: {len(own)} of {options.tasks} episodes are right", flush=True)
            groups += own
        samples = lessons(groups, model, options.unchanged, options.seed)
        warm_up(model, samples, options)
        adapter.parent.mkdir(parents=True, exist_ok=True)
        save_file({n: p.detach().contiguous() for n, p in trained.items()}, adapter)
    saved_model.export(options.out, model)


if __name__ == "__main__":
    main()
