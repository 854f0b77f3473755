"""What benchmarks/chronicle_warm_up.py learns from: what a teacher says at chosen pages."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.babilong_teacher import BabiTeacher
from benchmarks.chronicle_teacher import FIELDS, NO_MORE, NOTHING, Teacher, agents
from recollect.agents.gated import GatedAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.models.model import LoadedModel
from recollect.models.tokenizer import load_tokenizer
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Group, Rollout
from recollect.samples import samples_of
from recollect.tasks.base import Split, TaskFamily
from recollect.tasks.haystacks.babilong import BabiLong
from recollect.tasks.made.chronicle import LEAST, Chronicle
from recollect.tasks.made.chronicle_words import MONTHS, first_names, surnames, towns
from recollect.types import Sample, Task

FIRST = 1_000_000
"""The first training task of the warm-up: runs begin with 0 and never come here."""
_WORD = re.compile(r"[A-Z]\w+")
_NAMES = re.compile(r"[A-Z]\w+ [A-Z]\w+|(?<=keeper of the )\w+ \w+")
BASELINES = ("rag", "full_context", "rag_window")
"""Agents that answer in one turn: of theirs, every text makes one lesson."""
TOGETHER = 32
"""Tasks of one job."""
SLIPS = 0.04
"""Share of the pages at which the teacher writes a line that does not matter. Nobody learns from
that page, but from those behind it: a memory of one's own is never clean for long."""


@dataclass(frozen=True)
class Job:
    """Some episodes of one agent; they depend on nothing else."""

    model: Path
    agent: str
    limits: tuple[int, int, int]
    """Tokens of a memory, of one that does not know the question, and of an answer."""
    first: int
    count: int
    times: int
    """Length of the texts, in multiples of the shortest."""
    shares: tuple[float, float]
    """How many pages are learned from that change nothing: of those that name somebody who matters,
    and of the others."""
    page: int = 256
    """Tokens of a page."""
    only_letters: bool = False
    """Read nothing but the pages with letters that count: long memories in few pages, and answers
    that count far. All answers are learned from, and a twentieth of the pages."""
    split: Split = "train"
    seed: int = 0
    data: Path = Path("data")


Lesson = tuple[str, Sample]
"""What it teaches (answer, changed, quoted, near, elsewhere), and its tokens."""


def episodes(job: Job, model: LoadedModel) -> list[Group]:
    """Let the teacher play; what it could not finish is left out."""
    name, _, variant = job.agent.partition("_qa")
    agent, kinds = agents(*job.limits)["gated" if variant else name]
    slips = SLIPS if job.split == "train" else 0.0
    teacher: Teacher | BabiTeacher = Teacher(isinstance(agent, GatedAgent), slips)
    kinds = ("count",) if job.only_letters else kinds
    texts: TaskFamily = Chronicle(kinds, tokens=job.times * LEAST, chunk_tokens=job.page)
    if variant:
        teacher = BabiTeacher()
        texts = BabiLong(f"qa{variant}", job.times * LEAST, folder=job.data / "babilong")
    tasks = []
    first = job.first + (FIRST if job.split == "train" else 0)
    for i in range(first, first + job.count):
        task = texts.task(i, job.seed, job.split)
        if job.only_letters:
            task = replace(task, chunks=[task.chunks[at] for at in task.questions[0].evidence])
        if job.split == "train" and not variant:
            task = renamed(task, Random(i))
        tasks.append(task)
    policy = ScriptedPolicy(model.tokenizer, teacher.reply)
    speaker = Model(policy, Renderer(model.tokenizer), True, window=model.window)
    rollout = Rollout(agent, {"memory": speaker, "answer": speaker}, AnswerReward("boxed_match"))
    groups = asyncio.run(rollout.groups(tasks, 1, (job.seed,)))
    # What passages say is read as it should be, also where they do not hold the answer.
    return [g for g in groups if g[0].ok and (g[0].reward == 1.0 or job.agent in BASELINES)]


SYLLABLES = [a + b for a in "bdfghjklmnprstvz" for b in ("a", "e", "i", "o", "u", "ar", "el", "in")]
ENDINGS = ("", "n", "r", "l", "s", "th", "ck", "ndt")


def renamed(task: Task, rng: Random) -> Task:
    """Give people and towns names that nobody has: copied, not known by heart.

    Half of the words are enough to tell that a name can be anything.
    """
    known = {*first_names("test"), *surnames("test"), *towns("test"), *MONTHS}
    new: dict[str, str] = {}
    for word in (*first_names("train"), *surnames("train"), *towns("train")):
        made = "".join(rng.choices(SYLLABLES, k=rng.choice((2, 2, 3)))) + rng.choice(ENDINGS)
        made = made.capitalize()
        if rng.random() < 0.5 and word not in MONTHS and made not in known:
            new[word] = made
            known.add(made)

    def put(text: str) -> str:
        return _WORD.sub(lambda found: new.get(found[0], found[0]), text)

    questions = tuple(
        replace(q, text=put(q.text), answers=tuple(map(put, q.answers))) for q in task.questions
    )
    return replace(task, chunks=[put(page) for page in task.chunks], questions=questions)


def lessons(job: Job, model: LoadedModel) -> list[Lesson]:
    """Choose what to learn from: all answers, pages that say anything that matters, some others.

    Nine of ten pages are about other people. Shown all of them, a model learns to copy.
    """
    rng = Random(job.first)
    groups = episodes(job, model)
    found = []
    for sample in samples_of(groups, [[[1.0] * len(e.contexts) for e in g] for g in groups]):
        what = _taught(model.tokenizer.decode([int(i) for i in sample.token_ids]))
        near, elsewhere = job.shares
        share = {"near": near, "elsewhere": elsewhere, "slip": 0.0}.get(what, 1.0)
        if job.only_letters and what != "answer":
            share = min(share, 0.05)
        if rng.random() < share:
            found.append((what, sample))
    return found


def _taught(said: str) -> str:
    """Tell what a context shows: an answer, a page that changes the memory, one that is quoted and
    does not, one that names somebody who matters, a page about others, or a slip."""
    page, memory = FIELDS["section"].search(said), FIELDS["memory"].search(said)
    if not page or not memory:
        return "answer"
    reply = said[memory.end() :].rpartition("assistant")[2].strip()
    if reply.startswith("<check>yes"):
        return "slip"  # nothing is quoted
    if "<check>no</check>" not in reply and not reply.startswith((NOTHING, memory[1].strip())):
        return "changed"
    if "</check>" in reply and not NO_MORE.sub("", reply).startswith("<check>no"):
        return "quoted"
    problem = FIELDS["problem"].search(said)
    names = _NAMES.findall(f"{problem and problem[1]}\n{memory[1]}")
    return "near" if any(name in page[1] for name in names) else "elsewhere"


_LOADED: dict[Path, Any] = {}


def learn_by_job(job: Job) -> list[Lesson]:
    """Make a job's lessons in a process of their own, which loads the tokenizer once."""
    if job.model not in _LOADED:
        _LOADED[job.model] = SimpleNamespace(tokenizer=load_tokenizer(job.model), window=1 << 20)
    return lessons(job, _LOADED[job.model])


def jobs(o: argparse.Namespace) -> tuple[list[Job], list[Job]]:
    """Return all episodes: those with short pages come first, which are easier and cheaper.

    Of the rest, one of eight is of a text four times as long, and one of sixteen of one sixteen
    times as long, of whose pages fewer are learned from that change nothing: memories are longer
    there, and counts higher. A quarter as many again are thirty-two times as long, of which only
    the pages with letters that count are read.
    """
    limits = (o.memory, o.blind_memory, o.answer)
    short, whole = [], []
    for name, share in zip(o.agents, o.shares, strict=True):
        for first in range(0, int(o.tasks * share), TOGETHER):
            job = Job(o.model, name, limits, first, TOGETHER, 1, o.unchanged, seed=o.seed,
                      data=o.data)  # fmt: skip
            whole.append(job)
            if name.startswith("babilong"):  # facts are few: of pages without any, half is learned
                whole[-1] = replace(job, times=1 + first // TOGETHER % 2, shares=(1.0, 0.5))
                continue
            if name == "rag_window":  # at 1x it shows the whole text, as full_context does
                whole[-1] = replace(job, times=4)
                continue
            if name != "full_context" and (first // TOGETHER) % 4 == 0:
                whole.append(replace(job, first=first + o.tasks, count=TOGETHER // 2, times=4))
            if name in BASELINES:
                continue
            if name == o.agents[0] and (first // TOGETHER) % 8 == 0:
                near, elsewhere = (share / 8 for share in o.unchanged)
                far = {"first": first + 3 * o.tasks, "count": TOGETHER // 2, "times": 16}
                whole.append(replace(job, **far, shares=(near, elsewhere)))
            if name == o.agents[0] and (first // TOGETHER) % 4 == 1:
                letters = replace(job, first=first + 4 * o.tasks, times=32, only_letters=True)
                whole.append(letters)
            if name == o.agents[0] and (first // TOGETHER) % 2 == 0:
                near, elsewhere = (share / 4 for share in o.unchanged)
                easy = replace(job, first=first + 2 * o.tasks, page=64, shares=(near, elsewhere))
                short.append(easy)
    return short, whole


def prepare(o: argparse.Namespace) -> tuple[list[Lesson], list[Lesson]]:
    """Make the lessons in as many processes as there are cores; held-out ones too."""
    held = Job(o.model, o.agents[0], (o.memory, o.blind_memory, o.answer), 0, 96, 1,
               o.unchanged, split="test", data=o.data)  # fmt: skip
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(o.processes, mp_context=processes) as pool:
        asked = pool.submit(learn_by_job, held)
        found = []
        for phase in jobs(o):
            own = [lesson for lessons in pool.map(learn_by_job, phase) for lesson in lessons]
            Random(o.seed).shuffle(own)
            found += own
    return found, asked.result()


def keep(path: Path, found: Sequence[Lesson]) -> None:
    """Write lessons down: a few megabytes that took minutes of many cores."""
    starts = [int(sample.trained.argmax()) for _, sample in found]
    assert all(s.trained[start:].all() for (_, s), start in zip(found, starts, strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez_compressed(
            file,
            ids=np.concatenate([sample.token_ids for _, sample in found]).astype(np.uint32),
            lengths=np.array([len(sample.token_ids) for _, sample in found]),
            starts=np.array(starts),
            taught=np.array([what for what, _ in found]),
        )


def kept(path: Path) -> list[Lesson]:
    """Read lessons back."""
    with np.load(path, allow_pickle=False) as file:
        taught, starts = file["taught"], file["starts"]
        rows = np.split(file["ids"].astype(np.int64), np.cumsum(file["lengths"])[:-1])
    lessons = []
    for i, (ids, start) in enumerate(zip(rows, starts, strict=True)):
        trained = np.arange(len(ids)) >= start
        blank = np.zeros(len(ids), dtype=np.float32)
        sample = Sample(ids, trained, trained.astype(np.float32), blank, i, i)
        lessons.append((str(taught[i]), sample))
    return lessons
