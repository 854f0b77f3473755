"""`make result`: its teacher is right, its tables say what scores say, and it can be carried on."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import (
    chronicle,
    chronicle_beside,
    chronicle_carry,
    chronicle_lessons,
    chronicle_pilot,
    chronicle_plan,
    chronicle_table,
)
from benchmarks.babilong_teacher import BabiTeacher
from benchmarks.chronicle_lessons import Job, episodes, keep, kept, lessons, renamed
from benchmarks.chronicle_teacher import NO_MORE, Teacher, asked_about, follow, gates, noted, recall
from recollect.agents.fold import NO_MEMORY
from recollect.agents.gated import parse_gates, with_lines
from recollect.tasks.made.chronicle import Chronicle
from recollect.tasks.made.chronicle_reader import Reader, statements
from recollect.tasks.made.chronicle_words import FIRST, first_names
from tests.support.play import TOKENIZER

MODEL: Any = SimpleNamespace(tokenizer=TOKENIZER, window=1 << 20)


@pytest.mark.parametrize("name", ["fold", "fold_blind", "gated", "gated_blind", "full_context"])
def test_the_teacher_earns_every_reward(name):
    job = Job(Path(), name, (3000, 8000, 200), 0, 3, 1, (1.0, 1.0))
    assert len(episodes(job, MODEL)) == 3


def test_lessons_are_the_pages_that_matter_and_some_others(tmp_path):
    job = Job(Path(), "gated", (2000, 8000, 200), 0, 6, 1, (0.0, 0.0))
    few, every = (lessons(replace(job, shares=both), MODEL) for both in ((0, 0), (1, 1)))
    assert {what for what, _ in few} == {"answer", "changed", "quoted"}
    assert {what for what, _ in every} == {"answer", "changed", "quoted", "near", "elsewhere"}
    assert 6 * 17 - 12 < len(every) < 6 * 17 and len(few) < 60  # but for slips
    for what, sample in every:
        said = TOKENIZER.decode([int(i) for i in sample.token_ids[sample.trained]])
        assert ("<update>" in said) == (what == "changed")
        silent = NO_MORE.sub("", said).startswith("<check>no")
        assert silent == (what in ("near", "elsewhere"))
    keep(tmp_path / "lessons.npz", every)
    again = kept(tmp_path / "lessons.npz")
    assert [what for what, _ in again] == [what for what, _ in every]
    for (_, one), (_, other) in zip(again, every, strict=True):
        for name in ("token_ids", "trained", "advantages"):
            assert (getattr(one, name) == getattr(other, name)).all()


PAGE = (
    "A title\nAda Ash has moved to Calby. Ada Ash asked for the jade fan, in vain."
    " On 3 May Ada Ash wrote to Ben Oak. The jade fan was handed to Ben Oak."
    " Ben Oak looked at rooms in Penham, but did not take them."
)


def test_the_teacher_quotes_what_a_decision_rests_on():
    def of(question: str) -> list[str]:
        return [quote.text for quote in follow(statements(PAGE), Reader(), question)]

    assert of("Where does Ada Ash live now?") == ["Ada Ash has moved to Calby."]
    letters = ["On 3 May Ada Ash wrote to Ben Oak."]
    assert of("On how many different days did Ben Oak send a letter?") == letters
    assert of("Where does the keeper of the jade fan live now?") == [
        "Ada Ash asked for the jade fan, in vain.",
        "The jade fan was handed to Ben Oak.",
        "Ben Oak looked at rooms in Penham, but did not take them.",
    ]


@pytest.mark.parametrize(
    ("asked", "memory", "reply"),
    [
        ("Ada Ash send", "Nothing yet.", "So sent 3 May. Those sent 3 May. <check>yes</check>"),
        ("Ada Ash send", "3 May: letter", "<check>yes</check><update>3 May: letter</update>"),
        ("Ben Oak send", "Nothing yet.", "So received 3 May. Those sent none. <check>no</check>"),
        ("Ben Oak receive", "9 June: letter", "<check>yes</check><update>3 May: letter</update>"),
    ],
)
def test_the_teacher_looks_up_in_its_quotes_which_letters_count(asked, memory, reply):
    said = Teacher(gated=True).reply(
        f"<problem>\nOn how many different days did {asked} a letter?\n</problem>"
        f"<section>\n{PAGE}\n</section><memory>\n{memory}\n</memory>"
    )
    name = asked.rpartition(" ")[0]
    assert said.startswith(f"Of {name}: On 3 May Ada Ash wrote to Ben Oak. Of {name}: no more. So")
    assert reply in said


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        (
            "Nothing yet.",
            "Of the jade fan: Ada Ash asked for the jade fan, in vain."
            " Of the jade fan: The jade fan was handed to Ben Oak. Of the jade fan: no more."
            " Of Ben Oak: Ben Oak looked at rooms in Penham, but did not take them."
            " Of Ben Oak: no more."
            " <check>yes</check><update>keeper of the jade fan: Ben Oak\n"
            "home of the keeper: unknown</update>",
        ),
        (
            "keeper of the red bell: Cora Elm\nhome of the keeper: Calby",
            "Of the red bell: no more. Of Cora Elm: no more. <check>no</check>",
        ),
    ],
)
def test_the_teacher_names_whom_it_looks_for_until_there_is_no_more(memory, says):
    """First the thing that is asked for, then whoever keeps it after the page."""
    thing = says.partition(":")[0].removeprefix("Of the ")
    said = Teacher(gated=True).reply(
        f"<problem>\nWhere does the keeper of the {thing} live now?\n</problem>"
        f"<section>\n{PAGE}\n</section><memory>\n{memory}\n</memory>"
    )
    assert said == says


def test_a_teacher_that_slips_writes_what_does_not_matter_and_is_right_in_the_end(monkeypatch):
    monkeypatch.setattr(chronicle_lessons, "SLIPS", 0.3)
    job = Job(Path(), "gated", (2000, 8000, 200), 0, 9, 1, (1.0, 1.0))
    groups = episodes(job, MODEL)
    slipped = {
        context.turns[0].token_ids
        for group in groups
        for context in group[0].contexts
        if TOKENIZER.decode(context.turns[0].token_ids).startswith("<check>yes")
    }
    assert len(groups) == 9 and len(slipped) > 10
    kept = lessons(job, MODEL)
    assert len(kept) < 9 * 17 - 10  # nobody learns to slip
    for _, sample in kept:
        reply = TOKENIZER.decode([int(i) for i in sample.token_ids[sample.trained]])
        assert not reply.startswith("<check>yes")


def test_some_lessons_count_far_though_few_pages_are_read():
    job = Job(Path(), "gated", (2000, 8000, 999), 0, 9, 16, (1.0, 1.0), only_letters=True)
    groups = episodes(job, MODEL)
    counts = [int(group[0].task.questions[0].answers[0]) for group in groups]
    pages = [len(group[0].contexts) - 1 for group in groups]
    assert len(groups) == 9 and max(counts) > 20 and max(pages) < 64, "of 256"
    kept = [what for what, _ in lessons(job, MODEL)]
    assert kept.count("answer") == 9 and len(kept) < sum(pages) / 4


def test_a_baseline_learns_from_all_that_it_is_shown():
    """Also where a search finds no answer: what is there is read, and a town is guessed."""
    job = Job(Path(), "rag", (2000, 8000, 200), 0, 9, 4, (1.0, 1.0))
    groups = episodes(job, MODEL)
    assert len(groups) == 9 and not all(group[0].reward for group in groups)
    assert len(lessons(job, MODEL)) == 9
    o = argparse.Namespace(
        model=Path(), agents=("rag", "full_context", "rag_window"), shares=(1, 0.25, 0.5),
        tasks=256, memory=1, blind_memory=1, answer=1, unchanged=(0.3, 0.2), seed=0, data=Path(),
    )  # fmt: skip
    short, whole = chronicle_lessons.jobs(o)
    assert not short and not any(own.only_letters for own in whole)
    played = Counter((own.agent, own.times) for own in whole for _ in range(own.count))
    assert played == {("rag", 1): 256, ("rag", 4): 32, ("full_context", 1): 64,
                      ("rag_window", 4): 128}  # fmt: skip


def test_a_memory_of_a_keeper_has_two_lines_whoever_had_the_thing():
    task = Chronicle(("two-hop",), tokens=16384).task(5)
    question, memory, keepers = task.questions[0].text, NO_MEMORY, set()
    for page in task.chunks:
        prompt = f"<problem>\n{question}\n</problem><section>\n{page}\n</section>"
        said = Teacher(gated=True).reply(f"{prompt}<memory>\n{memory}\n</memory>")
        new = parse_gates(said, exit_gate=False).update
        memory = with_lines(memory.removeprefix(NO_MEMORY), new, TOKENIZER, 999) if new else memory
        assert memory == NO_MEMORY or len(memory.splitlines()) == 2
        keepers |= {line for line in memory.splitlines() if line.startswith("keeper")}
    assert len(keepers) > 1
    asked = f"<problem>\n{question}\n</problem><memory>\n{memory}\n</memory>"
    assert Teacher().reply(asked) == f"\\boxed{{{task.questions[0].answers[0]}}}"


def test_the_teacher_counts_days_aloud_when_it_answers():
    asked = "<problem>\nOn how many different days did Ada Ash send a letter?\n</problem>"
    for memory, reply in (
        ("3 May: letter\n9 June: letter", "1: 3 May, 2: 9 June \\boxed{2}"),
        ("Nothing yet.", "\\boxed{0}"),
    ):
        assert Teacher().reply(f"{asked}<memory>\n{memory}\n</memory>") == reply


@pytest.mark.parametrize("kind", ["overwrite", "two-hop"])
def test_a_name_of_the_teacher_follows_a_space(kind):
    """Words at the start of a line have other tokens than in the middle of a text."""
    task = Chronicle((kind,), tokens=4096).task(3)
    names, memory = set(), NO_MEMORY
    for page in task.chunks:
        prompt = f"<problem>\n{task.questions[0].text}\n</problem><section>\n{page}\n</section>"
        said = Teacher(gated=True).reply(f"{prompt}<memory>\n{memory}\n</memory>")
        new = parse_gates(said, exit_gate=False).update
        memory = with_lines(memory.removeprefix(NO_MEMORY), new, TOKENIZER, 999) if new else memory
        known = set(first_names("train"))
        found = [m for m in re.finditer(r"\w+", said) if m[0] in known]
        assert all(said[m.start() - 1] == " " for m in found)
        names |= {m[0] for m in found}
    assert names


def test_the_teacher_of_passages_quotes_what_they_say():
    asked = "Where does {} live now?"
    for name, reply in (
        (
            "Ada Ash",
            "Of Ada Ash: Ada Ash has moved to Calby. Of Ada Ash: no more."
            " home of Ada Ash: Calby \\boxed{Calby}",
        ),
        ("Ben Oak", "\\boxed{Calby}"),  # nothing is said of him: a guess
    ):
        told = f"{PAGE[8:70]}\n\n... It is false that {name} has"
        prompt = f"<problem>\n{asked.format(name)}\n</problem>\n{told}"
        assert Teacher().reply(prompt) == reply


@pytest.mark.parametrize("variant", ["qa1", "qa2", "qa3"])
def test_the_teacher_of_babilong_answers_from_its_memory(variant):
    stories = {
        "qa1": ("Where is John?", "hall", "kitchen"),
        "qa2": ("Where is the apple?", "kitchen", "garden"),
        "qa3": ("Where was the apple before the garden?", "hall", "kitchen"),
    }
    question, early, late = stories[variant]
    question += " Answer with one word."
    pages = (
        "Once upon a time John went to the hall. John took the apple there. A dog barked.",
        "Mary moved to the garden. John travelled to the kitchen. John dropped the apple.",
        "Mary went back to the kitchen. Mary grabbed the apple. Mary journeyed to the garden.",
    )
    teacher, memory, found = BabiTeacher(), NO_MEMORY, []
    for page in pages:
        shown = f"<problem>\n{question}\n</problem><memory>\n{memory}\n</memory>"
        reply = teacher.reply(f"{shown}<section>\n{page}\n</section>")
        new = parse_gates(reply, exit_gate=False).update
        memory = with_lines(memory.removeprefix(NO_MEMORY), new, TOKENIZER, 999) if new else memory
        shown = f"<problem>\n{question}\n</problem><memory>\n{memory}\n</memory>"
        found.append(teacher.reply(shown))
    assert found[1 if variant == "qa2" else 0] == f"\\boxed{{{'' if variant == 'qa3' else early}}}"
    assert found[-1] == f"\\boxed{{{late}}}"


def test_other_names_change_nothing_but_names():
    task = Chronicle(("overwrite",)).task(4)
    other = renamed(task, Random(0))
    assert "August" in FIRST and " August" in " ".join(other.chunks)  # a month keeps its name
    reader = Reader()
    for page in other.chunks:
        reader.read(page)
    (question,) = other.questions
    assert reader.answer(question.text) == question.answers[0]
    words = [set(" ".join(t.chunks).split()) for t in (task, other)]
    assert len(words[1] - words[0]) > 10


@pytest.mark.parametrize("kind", ["overwrite", "count", "two-hop", "blind"])
def test_a_memory_of_the_teacher_carries_all_that_is_needed(kind):
    """Written after every page and read back before the next, it answers like the whole text."""
    task = Chronicle((kind,)).task(2)
    known = "" if kind == "blind" else task.questions[0].text
    memory = ""
    for page in task.chunks:
        reader = recall(memory, known)
        follow(statements(page), reader, known)
        new = parse_gates(gates(memory, noted(reader, known)), exit_gate=False).update
        memory = with_lines(memory, new, TOKENIZER, 9999) if new else memory
    for question in task.questions:
        reader = recall(memory, known)
        assert reader.answer(question.text) == question.answers[0]
    assert asked_about("anything else") == ("all", "")
    assert noted(Reader(), known) == "Nothing yet."


def row(agent: str, seed: int, item: int, score: float, cause: str = "") -> dict[str, Any]:
    return {
        "kind": "overwrite", "agent": agent, "item": f"{item}#0", "task": str(item),
        "score": score, "failed": False, "cause": cause, "pages": 16,
    }  # fmt: skip


def write(out, name: str, length: str, rows: list[dict[str, Any]], pages: int = 16) -> None:
    folder = out / name / length
    folder.mkdir(parents=True)
    lines = [json.dumps(r | {"pages": pages, "length": length}) for r in rows]
    (folder / "scores.jsonl").write_text("\n".join(lines) + "\n")


def made_up(out, gated: dict[str, float], rag: dict[str, float]) -> str:
    for seed in range(3):
        for length, pages in (("1x", 16), ("8x", 128), ("16x", 256), ("32x", 512)):
            for name, share in (("gated", gated), ("rag", rag)):
                rows = [
                    row(name, seed, i, float(i < 40 * share[length]), "overwritten")
                    for i in range(40)
                ]
                write(out, f"{name}-{seed}", length, rows, pages)
    return chronicle_table.markdown(out)


def test_the_tables_say_who_is_ahead_and_what_is_kept(tmp_path):
    good = {"1x": 0.9, "8x": 0.9, "16x": 0.8, "32x": 0.75}
    low = {"1x": 0.9, "8x": 0.4, "16x": 0.3, "32x": 0.2}
    said = made_up(tmp_path / "a", good, low)
    assert "overwrite, gated: ahead of every trained baseline" in said
    assert "keeps 0.83 of its 1x accuracy at 32x" in said
    assert "| overwrite | 8x | gated - rag | +0.500 [" in said
    assert f"{1 - (0.75 / 0.9) ** (1 / 496):.4f} |" in said
    behind = made_up(tmp_path / "b", low, good)
    assert "not ahead of every trained baseline" in behind
    assert chronicle_table.markdown(tmp_path / "none") == "no scores yet"


def test_a_trained_agent_is_compared_with_itself_before_on_the_tasks_of_its_seed(tmp_path):
    for seed in range(2):
        better, worse = ([row("gated", seed, i, float(i < n)) for i in range(40)] for n in (36, 28))
        write(tmp_path, f"gated-{seed}", "1x", better)
        write(tmp_path, f"gated_warmed-{seed}", "1x", worse)
    found = list(chronicle_table.rows(tmp_path))
    assert {r["agent"] for r in found} == {"gated", "gated before reward"}
    [added] = chronicle_table.rewarded(chronicle_table.cells_of(found))
    assert added[:4] == ("overwrite", "1x", "gated", "gated before reward")
    assert added[4][0] == pytest.approx(0.2)
    assert "| overwrite | 1x | gated - gated before reward | +0.200 [" in chronicle_table.markdown(
        tmp_path
    )


def test_baselines_measured_later_stand_beside_the_memory_of_a_page(tmp_path):
    page = (
        "## Results\n\n### Accuracy\n\n| kind | agent | 1x | 8x | hazard |\n|---|---|---|---|---|\n"
        "| overwrite | gated |  | 0.800 [0.652, 0.895] n=40 | 0.1 |\n"
        "| overwrite | rag |  | 0.100 [0.040, 0.231] n=40 f=2 |  |\n\n### More\n\n| x | y |\n"
    )
    assert chronicle_beside.published(page) == {
        ("gated", "overwrite", "8x"): (0.8, 0.652, 0.895),
        ("rag", "overwrite", "8x"): (0.1, 0.04, 0.231),
    }
    for odd, why in ((page.replace("0.800 [", "about 0.8 ["), "about 0.8"), ("", "no table")):
        with pytest.raises(SystemExit, match=why):
            chronicle_beside.published(odd)
    for name in ("rag", "gated_warmed"):
        share = {"rag": 0.25, "gated_warmed": 0.5}[name]
        own = [row(name.partition("_")[0], 0, i, float(i < 40 * share)) for i in range(40)]
        write(tmp_path, f"{name}-0", "8x", own)
    cells = chronicle_table.cells_of(list(chronicle_table.rows(tmp_path)))
    [line] = chronicle_beside.beside(cells, page)[2:]
    # Newcombe's interval of 32 of 40 against 10 of 40, worked out by hand from Wilson's two.
    assert line == "| overwrite | 8x | gated - rag | +0.550 [+0.338, +0.694] |"
    [before] = chronicle_table.unrewarded(cells)
    assert before[2:4] == ("gated before reward", "rag") and before[4][0] == pytest.approx(0.25)


def test_an_answer_of_two_parts_counts_once(tmp_path):
    for part in ("8x", "near"):
        write(tmp_path, "rag-0", part, [row("rag", 0, i, 1.0) for i in range(40)])
        path = tmp_path / "rag-0" / part / "scores.jsonl"
        path.write_text(path.read_text().replace('"length": "near"', '"length": "8x"'))
    [(key, own)] = chronicle_table.cells_of(list(chronicle_table.rows(tmp_path))).items()
    assert key == ("rag", "overwrite", "8x") and len(own) == 40


def test_comparisons_are_corrected_for_their_number(tmp_path):
    made_up(tmp_path, {"1x": 1, "8x": 0.5, "16x": 0.5, "32x": 0.5}, dict.fromkeys(
        ("1x", "8x", "16x", "32x"), 0.4))  # fmt: skip
    cells = chronicle_table.cells_of(list(chronicle_table.rows(tmp_path)))
    alone = chronicle_table.compare(
        cells["gated", "overwrite", "8x"], cells["rag", "overwrite", "8x"]
    )
    held = [row[4][3] for row in chronicle_table.comparisons(cells)]
    assert len(held) == 3 and all(p == pytest.approx(3 * alone[3]) for p in held)
    assert alone[0] == pytest.approx(0.1)


def test_what_is_carried_is_small_and_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(chronicle_carry, "PART", 1000)
    out = tmp_path / "out"
    write(out, "fold-0", "1x", [row("fold", 0, i, 1.0) for i in range(400)])
    kept = {
        "warm-lessons.npz": bytes(range(256)) * 20,
        "fold-0/chronicle/checkpoints/step-000005/weights.safetensors": b"w" * 5000,
        "fold-0/chronicle/config.json": b"{}",
        "fold-0/far/films.jsonl": b"{}",
    }
    dropped = ("warm/model.safetensors", "fold-0/chronicle/model/model.safetensors", "fold-0/x.log")
    for name, data in (*kept.items(), *((name, b"heavy") for name in dropped)):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)
    few = sum(part.stat().st_size for part in chronicle_carry.pack(out, adapters=False))
    parts = chronicle_carry.pack(out, adapters=True)
    assert few < sum(part.stat().st_size for part in parts)
    assert len(parts) > 1 and all(part.stat().st_size <= 1000 for part in parts)
    there = tmp_path / "there"
    (there / "carry").mkdir(parents=True)
    for part in parts:
        (there / "carry" / part.name).write_bytes(part.read_bytes())
    chronicle_carry.unpack(there)
    assert all((there / name).read_bytes() == data for name, data in kept.items())
    assert not any((there / name).exists() for name in dropped)
    assert list(chronicle_table.rows(there)) == list(chronicle_table.rows(out))


def test_every_agent_of_the_plan_is_trained_on_what_it_is_measured_on(tmp_path, monkeypatch):
    command = [
        "chronicle",
        "--model",
        "m",
        "--out",
        str(tmp_path),
        "--data",
        "d",
        "--optim.eps",
        "1",
    ]
    monkeypatch.setattr(sys, "argv", command)
    options = chronicle_plan.parse(chronicle.__doc__)
    assert options.more == ["--optim.eps", "1"]
    found = chronicle_plan.trained_agents(options)
    assert list(found) == ["gated", "rag", "rag_window", "full_context", "rag_hybrid"]
    assert {agent.asked for agent in found.values()} == {"chronicle:overwrite,count,two-hop"}
    both = [{name: (sets, n)
             for name, sets, n in chronicle_plan.parts(options, "chronicle:count", memory)}
            for memory in (True, False)]  # fmt: skip
    parts, baselines = both
    assert baselines == {name: own for name, own in parts.items() if name != "shuffled"}
    assert next(iter(parts)) == "longest"
    assert parts["near"] == ("chronicle:count@4096,32768", 86)
    assert parts["32x"] == ("chronicle:count@131072", 43)
    assert parts["shuffled"] == ("chronicle:count@8192#shuffled", 86)
    assert parts["longest"][0] == "chronicle:count@1000000"


def test_the_whole_plan_asks_for_what_is_there(tmp_path, monkeypatch):
    """Every command of a whole run, none of them run: what it trains, measures and sets."""
    asked: list[list[str]] = []

    async def noted_down(log: Path, *command: object) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        asked.append([str(word) for word in command])

    monkeypatch.setattr(chronicle, "run", noted_down)
    words = ["x", "--model", "m", "--out", str(tmp_path), "--data", "d", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", words)
    asyncio.run(chronicle.everything(chronicle_plan.parse(chronicle.__doc__)))
    commands = Counter(word for words in asked for word in words if word in ("train", "eval"))
    agents, seeds, lengths = 5, 2, 4  # the longest, 32x, 16x, near; a memory's control as well
    each = agents * seeds
    measured = each * lengths + seeds + each * (lengths - 1) + seeds  # trained, and before that
    assert commands == {"train": each, "eval": measured + 3 + 2}  # BABILong; bounds and before
    for words in asked:
        if "eval" in words and "--set" in words:
            named = words[words.index("--agents") + 1 : words.index("--model")]
            sets = words[words.index("--set") + 1 :]
            of = {own.partition(".")[0] for own in sets if not own.startswith("--")}
            assert of <= set(named)
    wide = [words for words in asked if "rag.max_context_tokens=7000" in words]
    assert len(wide) == seeds * (lengths - 1) and all("rag_window" not in own for own in wide)
    readers = [words for words in asked if "benchmarks.chronicle_perfect" in words]
    assert [words[words.index("--seeds") + 1] for words in readers] == ["0", "1"]
    kept = [words for words in asked if "full_context" in words and "train" in words]
    assert len(kept) == 2 and all(
        words[words.index("--model.cache-gib") + 1] == "8.0" for words in kept
    )
    begun = {words[words.index("--agent") + 1]: words[words.index("--model.path") + 1]
             for words in asked if "train" in words}  # fmt: skip
    starts = {name: Path(path).relative_to(tmp_path).name for name, path in begun.items()}
    baselines = dict.fromkeys(("rag", "full_context"), "warm-baselines")
    order = [words[words.index("--folder") + 1] for words in asked if "train" in words]
    assert [Path(path).name for path in order[:2]] == ["gated-0", "gated-1"]
    assert {Path(path).name[-1] for path in order[2 : 2 + agents - 1]} == {"0"}
    assert starts == {"gated": "warm", **baselines}
    taught = [words[words.index("--out") + 1] for words in asked if "--answer" in words]
    assert [Path(path).name for path in taught] == ["warm", "warm-baselines", "warm-babilong"]
    assert {path.name for path in tmp_path.glob("*/done")} == {"done"}


def test_a_reader_that_fails_stops_nothing_else_and_is_not_forgotten(tmp_path, monkeypatch):
    trained: list[str] = []

    async def failing(log: Path, *command: object) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        if "benchmarks.chronicle_perfect" in command:
            raise RuntimeError("no tokenizer")
        await asyncio.sleep(0)
        trained.extend(["x"] * ("train" in command))

    monkeypatch.setattr(chronicle, "run", failing)
    monkeypatch.setattr(sys, "argv", ["x", "--model", "m", "--out", str(tmp_path), "--seeds", "1"])
    with pytest.raises(RuntimeError, match="no tokenizer"):
        asyncio.run(chronicle.everything(chronicle_plan.parse(chronicle.__doc__)))
    assert len(trained) == 5 == len(list(tmp_path.glob("*/done")))


def test_what_is_not_trained_is_measured_before_reward_all_the_same(tmp_path, monkeypatch):
    done: list[str] = []

    async def noted_down(log: Path, *command: object) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        done.extend(f"{word} {log.parent.name}" for word in command if word in ("train", "eval"))

    monkeypatch.setattr(chronicle, "run", noted_down)
    words = ["x", "--model", "m", "--out", str(tmp_path), "--agents", "gated", "rag", "--seeds",
             "1", "--not-trained", "gated", "--parts", "trained", "warmed"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", words)
    asyncio.run(chronicle.everything(chronicle_plan.parse(chronicle.__doc__)))
    assert {*done} == {"train rag-0", "eval rag-0", "eval rag_warmed-0", "eval gated_warmed-0"}
    done.clear()
    monkeypatch.setattr(sys, "argv", [*words[:-3], "--parts", "warmed"])
    asyncio.run(chronicle.everything(chronicle_plan.parse(chronicle.__doc__)))
    assert {*done} == {"eval rag_warmed-0", "eval gated_warmed-0"}


def test_each_agent_may_have_its_own_number_of_seeds(monkeypatch):
    words = ["x", "--model", "m", "--out", "o", "--agents", "gated", "rag", "fold", "--seeds"]
    for given, runs in ((["2"], [2, 2, 2]), (["3", "1"], [3, 1, 1]), (["1", "2", "3"], [1, 2, 3])):
        monkeypatch.setattr(sys, "argv", [*words, *given])
        trained = chronicle_plan.trained_agents(chronicle_plan.parse(chronicle.__doc__))
        count = Counter(name for name, _seed in chronicle_plan.seeded(trained))
        assert [count[name] for name in ("gated", "rag", "fold")] == runs


@pytest.mark.parametrize("broken", ["", "better-0"])
def test_the_pilot_trains_every_way_and_says_so_if_one_fails(tmp_path, monkeypatch, broken):
    asked: list[Path] = []

    async def noted_down(log: Path, *_command: object) -> None:
        asked.append(log)
        if broken in log.parts:
            raise RuntimeError("it broke")

    monkeypatch.setattr(chronicle, "run", noted_down)
    monkeypatch.setattr(chronicle_pilot, "shared_gpu", lambda _out: contextlib.nullcontext())
    monkeypatch.setattr(sys, "argv", ["x", "--model", "m", "--out", str(tmp_path)])
    assert chronicle_pilot.main() == bool(broken)
    trained = [log.parent.name for log in asked if log.name == "train.log"]
    assert sorted(trained) == sorted(f"{name}-0" for name in chronicle_pilot.WAYS)


@pytest.mark.parametrize("places", [1, 2, 9])
def test_no_more_programs_than_places_are_on_the_gpu(tmp_path, monkeypatch, places):
    running, most = 0, 0

    async def counted(log: Path, *command: object) -> None:
        nonlocal running, most
        log.parent.mkdir(parents=True, exist_ok=True)
        on_gpu = not {"benchmarks.chronicle_perfect", "benchmarks.chronicle_table"} & {*command}
        running += on_gpu
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= on_gpu

    monkeypatch.setattr(chronicle, "run", counted)
    words = ["x", "--model", "m", "--out", str(tmp_path), "--at-once", str(places)]
    monkeypatch.setattr(sys, "argv", words)
    asyncio.run(chronicle.everything(chronicle_plan.parse(chronicle.__doc__)))
    assert most == places


def test_the_pilot_takes_the_way_that_ends_highest(tmp_path):
    ends = {"siblings": [0.5, 0.5, 0.4], "better": [0.5, 0.6, 0.7], "adapters": [0.9, 0.5, 0.6]}
    for name, rewards in ends.items():
        folder = tmp_path / f"{name}-0" / "chronicle"
        folder.mkdir(parents=True)
        rows = [{"reward/mean": reward} for reward in rewards]
        rows += [{"val/accuracy": rewards[-1]}]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    said, best = chronicle_pilot.table(tmp_path)
    assert best == "--lr 3e-05 --updates 2 --negative-weight 0"
    assert f"| better | `{best}` | 0.500 | 0.700 | 0.700 |" in said and "better-faster" not in said
    assert chronicle_pilot.table(tmp_path / "none")[1] == ""
