"""Make a tiny model that knows the form of a bank's replies, and train it end to end and in stages.

    python scripts/make_bank_model.py --out FOLDER                    # the warm start
    python scripts/make_bank_model.py --out FOLDER --train --seed 0   # and docs/results/bank.md

The warm start is supervised, by a teacher that knows how notes are written and looked up, and not
much more. While reading it titles a note by the day, by the category or by both, and notes the
category as often as the amount. When asked it looks a note up, mostly by both, or answers with the
question's own example, unread. Which title both roles should agree on, and what is worth noting,
only the reward tells. CPU, one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import torch
from tokenizers import Regex, decoders, pre_tokenizers
from warm_start import (
    BATCH,
    Choice,
    Row,
    ToolTeacher,
    fit,
    make_network,
    save,
    word_tokenizer,
)

from recollect.agents.bank import NO_MEMORY
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.commands.stages.file import StagesOptions, read_plan
from recollect.commands.stages.plan import StagePlan
from recollect.commands.stages.record import markdown, read_results
from recollect.commands.stages.run import run_stages
from recollect.files import read_json
from recollect.models.tokenizer import HFTokenizer
from recollect.rollout import Rollout
from recollect.seeds import derive
from recollect.tasks.made.ledger import Ledger
from recollect.tasks.made.ledger_book import CATEGORIES, DAYS, FIRST_DAY

STAGES = Path(__file__).with_name("bank_stages.toml")

ADD = '<tool_call>{"name": "memory_add", "arguments": {"title": "'
LOOK_UP = '<tool_call>{"name": "memory_key_retrieve", "arguments": {"title": "'
CONTENT, CLOSE = '", "content": "', '"}}</tool_call>'
NEXT = CLOSE + ADD
BOX, CORE = "\\boxed{", "Books until "
SPANS = (
    *(NEXT, ADD, LOOK_UP, CONTENT, CLOSE, BOX, CORE, "Added '", "Core: "),
    *('] User said, "', '] Assistant said, "'),
    *("Error: there is no note '", "'; memory_list shows the titles"),
    "Error: there is a note '",
    "' already; use memory_update to change it, or choose another title",
)
"""Texts that always stand together are one token each."""
KINDS = "|".join(CATEGORIES)
PIECES = "|".join(
    (
        *map(re.escape, SPANS),
        r"\d{4}-\d\d|-\d\d|\d+|\.\d\d|_|\$",
        KINDS,
        rf" ?(?!{KINDS})[A-Za-z']+",
        r"[^\w<$]+",
        "<",
    )
)
"""Whatever else is a token: a month, a day, whole dollars, cents, a category, a word with the space
before it, or marks. So text comes back exactly, and none of it spells a control token."""
DAY = re.compile(r"\d{4}-\d\d-\d\d")
AMOUNT = re.compile(r"\d+\.\d\d")
EXAMPLE = "12.50"
"""What the questions give as an example of an amount."""


@dataclass(frozen=True)
class Teacher(ToolTeacher):
    """A policy that calls the tools in the right form, and is careless about the rest."""

    writes: tuple[float, float] = (0.7, 0.5)
    """How often a note's title begins with the day, being the category alone otherwise; and how
    often the category follows the day."""
    seeks: tuple[float, float] = (0.9, 0.8)
    """The same of the titles that are looked up."""
    amount: float = 0.5
    """How often a note holds the amount, and not the category."""
    both: float = 0.5
    """How often the second of two payments is noted too."""
    looks: float = 0.7
    """How often it looks a note up before it answers."""

    def reply(self, prompt: str, rng: Random) -> list[Choice]:
        """Say the next turn of a chat."""
        opening, *results = prompt.split("<tool>")
        opening = opening.partition("<assistant>")[0]
        if "How much did I" in opening:
            return self.answer(opening, results, rng)
        session = opening.partition("Core: ")[0]
        [day] = set(DAY.findall(session))
        if results:
            return [Choice(CORE + day)]
        said = [Choice(ADD)]
        categories = re.findall(KINDS, session)
        last = len(categories) - 1
        payments = zip(categories, AMOUNT.findall(session), strict=True)
        for i, (category, amount) in enumerate(payments):
            noted = {amount: self.amount, category: 1 - self.amount}
            said += [
                *title(day, category, self.writes, CONTENT, rng),
                Choice(pick(noted, rng), noted),
            ]
            more = {NEXT: self.both, CLOSE: 1 - self.both} if i < last else {CLOSE: 1.0}
            said.append(Choice(pick(more, rng), more))
            if said[-1].said == CLOSE:
                break
        return said

    def answer(self, opening: str, results: Sequence[str], rng: Random) -> list[Choice]:
        """Look a note up, or answer; what was not found is answered with the question's example."""
        asked = opening.partition("How much did I")[2]
        [category], [day] = re.findall(KINDS, asked), DAY.findall(asked)
        first = {LOOK_UP: self.looks, BOX: 1 - self.looks}
        if not results and pick(first, rng) == LOOK_UP:
            return [Choice(LOOK_UP, first), *title(day, category, self.seeks, CLOSE, rng)]
        found = AMOUNT.findall(results[0]) if results else []
        return [Choice(BOX, {} if results else first), Choice((found or [EXAMPLE])[0] + "}")]


def pick(chances: dict[str, float], rng: Random) -> str:
    """Draw one of several texts."""
    return rng.choices(list(chances), list(chances.values()))[0]


def title(
    day: str, category: str, shares: tuple[float, float], after: str, rng: Random
) -> list[Choice]:
    """Name a note by the day, by the category, or by both; `after` follows."""
    dated, full = shares
    first = {day: dated, category: 1 - dated}
    if pick(first, rng) == category:
        return [Choice(category, first), Choice(after)]
    then = {f"_{category}": full, after: 1 - full}
    if pick(then, rng) == after:
        return [Choice(day, first), Choice(after, then)]
    return [Choice(day, first), Choice(f"_{category}", then), Choice(after)]


def make_tokenizer(family: Ledger) -> HFTokenizer:
    """Give every word that a chat can hold a token."""
    texts = [*SPANS, "DONE", "_", "'.", "}", "\n\n", NO_MEMORY, *CATEGORIES]
    texts += [f"{n}.{n % 100:02d}" for n in range(1, 601)]
    days = (FIRST_DAY + timedelta(days=n) for n in range(DAYS))
    texts += [day.isoformat() for day in days]
    for i in range(600):  # after 300 there are no new words
        task = family.task(i, derive("words"))
        texts += [*task.chunks, *(question.text for question in task.questions)]
    words = sorted({word for text in texts for word in re.findall(PIECES, text)})
    cut, join = pre_tokenizers.Split(Regex(PIECES), "isolated"), decoders.Fuse()
    return word_tokenizer(words, cut, join, clean_up_tokenization_spaces=False)


def make_rows(teacher: Teacher, plan: StagePlan, tasks: int) -> list[Row]:
    """Let the teacher run the agent on training tasks of its own."""
    config = plan.stages[0].config
    model = Model(teacher, Renderer(teacher.tokenizer))
    rollout = Rollout(config.agent, {"memory": model, "answer": model}, config.reward)
    ledgers = [config.tasks.task(i, derive("warm start")) for i in range(tasks)]
    groups = asyncio.run(rollout.groups(ledgers, 1, ("warm start",)))
    failed = [episode.failure for [episode] in groups if not episode.ok]
    assert not failed, failed[0]
    right = [score for [episode] in groups for score in episode.answer_scores]
    print(f"the teacher is right in {sum(right) / len(right):.3f} of {len(right)} answers")
    rows = [teacher.row(context) for [episode] in groups for context in episode.contexts]
    return batched(rows, Random(derive("order")))


def batched(rows: list[Row], rng: Random) -> list[Row]:
    """Put rows of like length beside each other, batch by batch: fewer pads to compute."""
    rng.shuffle(rows)
    rows = rows[: len(rows) // BATCH * BATCH] or rows
    near = [
        r for i in range(0, len(rows), 8 * BATCH) for r in sorted(rows[i : i + 8 * BATCH], key=size)
    ]
    batches = [near[i : i + BATCH] for i in range(0, len(near), BATCH)]
    rng.shuffle(batches)
    return [row for batch in batches for row in batch]


def size(row: Row) -> int:
    """Return the number of tokens."""
    return len(row.ids)


def numbers(tokenizer: HFTokenizer) -> list[list[int]]:
    """Return the ids of dollars, of cents and of days: words of a kind are interchangeable."""
    vocabulary = tokenizer.hf.get_vocab()
    return [
        sorted(id for word, id in vocabulary.items() if re.fullmatch(kind, word))
        for kind in (r"\d{1,3}", r"\.\d\d", r"-\d\d", r"\d{4}-\d\d")
    ]


def swapped(row: Row, kinds: Sequence[Sequence[int]], rng: Random) -> Row:
    """Exchange numbers for others of their kind: they must be copied, not known by heart."""
    new: dict[int, int] = {}
    for ids in kinds:
        own = sorted(set(row.ids) & set(ids))
        new |= dict(zip(own, rng.sample(ids, len(own)), strict=True))
    chances = {
        place: {new.get(id, id): p for id, p in said.items()} for place, said in row.chances.items()
    }
    return Row([new.get(id, id) for id in row.ids], chances)


def make_stages(out: Path, seed: int, payments: int = 1) -> StagePlan:
    """Write the file of stages with the model's folder and the tasks' size in it, and read it."""
    out.mkdir(parents=True, exist_ok=True)
    own = f"model.path = {json.dumps(str(out))}\ntasks.max_transactions = {payments}\n"
    file = out / "bank.toml"
    file.write_text(
        STAGES.read_text("utf-8").replace("[settings]\n", f"[settings]\n{own}"), "utf-8"
    )
    return read_plan(StagesOptions(str(file), folder=out / f"seed-{seed}", seed=seed))


def table(plan: StagePlan) -> str:
    """Show the score after every stage, and on longer ledgers, as Markdown."""
    lines = [markdown(list(read_results(plan.folder).values()))]
    lines += ["| after | length | accuracy | n |", "|---|---|---|---|"]
    for stage in plan.stages:
        lengths = read_json(plan.folder / stage.name / "lengths.json", "run it again")
        lines += [
            f"| {stage.name} | {times}x | {own['mean']:.3f} [{own['low']:.3f}, {own['high']:.3f}]"
            f" | {own['n']} |"
            for times, own in lengths.items()
        ]
    return "\n".join(lines)


def main() -> None:
    """Make the model; with --train also train it, in stages and end to end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--payments", type=int, default=1, help="of a session, at most")
    parser.add_argument("--tasks", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = make_stages(options.out, options.seed, options.payments)
    if not (options.out / "config.json").exists():
        tokenizer = make_tokenizer(plan.stages[0].config.tasks)
        rows = make_rows(Teacher(tokenizer), plan, options.tasks)
        network = make_network(tokenizer)
        kinds, rng = numbers(tokenizer), Random(derive("names"))
        fit(network, rows, options.steps, options.lr, 3, lambda row: swapped(row, kinds, rng))
        save(network, tokenizer, options.out)
    if options.train and run_stages(plan) == 0:
        print(table(plan))


if __name__ == "__main__":
    main()
