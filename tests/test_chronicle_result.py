"""`make result`: its teacher is right, its tables say what scores say, and it can be carried on."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import chronicle, chronicle_table
from benchmarks.chronicle_teacher import agents, asked_about, episodes, noted, recall
from recollect.tasks.made.chronicle import Chronicle
from recollect.tasks.made.chronicle_reader import Reader
from tests.support.play import TOKENIZER

MODEL: Any = SimpleNamespace(tokenizer=TOKENIZER, window=1 << 20)


@pytest.mark.parametrize("name", ["fold", "fold_blind", "gated", "full_context", "rag"])
def test_the_teacher_earns_every_reward(name):
    agent, kinds = agents(2000, 8000, 200)[name]
    found = episodes(agent, kinds, 3, MODEL, seed=0)
    assert len(found) == 3


@pytest.mark.parametrize("kind", ["overwrite", "count", "two-hop", "blind"])
def test_a_memory_of_the_teacher_carries_all_that_is_needed(kind):
    """Written after every page and read back before the next, it answers like the whole text."""
    task = Chronicle((kind,)).task(2)
    known = "" if kind == "blind" else task.questions[0].text
    memory = ""
    for page in task.chunks:
        reader = recall(memory, known)
        reader.read(page)
        memory = noted(reader, known)
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
    lines = [json.dumps(r | {"pages": pages}) for r in rows]
    (folder / "scores.jsonl").write_text("\n".join(lines) + "\n")


def made_up(out, fold: dict[str, float], rag: dict[str, float]) -> str:
    for seed in range(3):
        for length, pages in (("1x", 16), ("8x", 128), ("16x", 256), ("32x", 512)):
            for name, share in (("fold", fold), ("rag", rag)):
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
    assert "overwrite, fold: ahead of every trained baseline" in said
    assert "keeps 0.83 of its 1x accuracy at 32x" in said
    assert "| overwrite | 8x | fold - rag | +0.500 [" in said
    assert f"{1 - (0.75 / 0.9) ** (1 / 496):.4f} |" in said
    behind = made_up(tmp_path / "b", low, good)
    assert "not ahead of every trained baseline" in behind
    assert chronicle_table.markdown(tmp_path / "none") == "no scores yet"


def test_comparisons_are_corrected_for_their_number(tmp_path):
    made_up(tmp_path, {"1x": 1, "8x": 0.5, "16x": 0.5, "32x": 0.5}, dict.fromkeys(
        ("1x", "8x", "16x", "32x"), 0.4))  # fmt: skip
    cells = chronicle_table.cells_of(list(chronicle_table.rows(tmp_path)))
    alone = chronicle_table.compare(
        cells["fold", "overwrite", "8x"], cells["rag", "overwrite", "8x"]
    )
    held = [row[4][3] for row in chronicle_table.comparisons(cells)]
    assert len(held) == 3 and all(p == pytest.approx(3 * alone[3]) for p in held)
    assert alone[0] == pytest.approx(0.1)


def test_what_is_carried_is_small_and_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(chronicle, "PART", 1000)
    out = tmp_path / "out"
    write(out, "fold-0", "1x", [row("fold", 0, i, 1.0) for i in range(400)])
    kept = {
        "warm.safetensors": bytes(range(256)) * 20,
        "fold-0/chronicle/checkpoints/step-000005/weights.safetensors": b"w" * 5000,
        "fold-0/chronicle/config.json": b"{}",
    }
    dropped = ("warm/model.safetensors", "fold-0/chronicle/model/model.safetensors", "fold-0/x.log")
    for name, data in (*kept.items(), *((name, b"heavy") for name in dropped)):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)
    parts = chronicle.pack(out)
    assert len(parts) > 1 and all(part.stat().st_size <= 1000 for part in parts)
    there = tmp_path / "there"
    (there / "carry").mkdir(parents=True)
    for part in parts:
        (there / "carry" / part.name).write_bytes(part.read_bytes())
    chronicle.unpack(there)
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
    options = chronicle.parse()
    assert options.more == ["--optim.eps", "1"]
    found = chronicle.trained_agents(options)
    assert list(found)[:3] == ["fold", "full_context", "rag"]
    assert found["fold_blind"].asked == "chronicle:blind"
    assert found["babilong_qa2"].asked == "babilong:qa2"
    names = [name for name, _, _ in chronicle.lengths(options)]
    assert names == ["1x", "2x", "4x", "8x", "16x", "32x", "longest"]
    assert {n for _, tokens, n in chronicle.lengths(options) if tokens <= 8 * 4096} == {256}
