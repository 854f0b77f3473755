"""The page of `make result`: films, curves and tables, made from the little that is carried."""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import (
    chronicle_carry,
    chronicle_headline,
    chronicle_page,
    chronicle_perfect,
    chronicle_table,
)
from benchmarks.chronicle_teacher import HOME, Teacher, asked_about, shown
from recollect.commands.evaluate import evaluate
from recollect.concurrency.stop import Stop
from recollect.evaluation.models import Opened
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.setup import Own
from tests.support.places import ROOT
from tests.support.play import TOKENIZER
from tests.support.scripted import scripted_models
from tests.test_prose import habits, prose


def flawed(prompt: str) -> str:
    """Read by rules, with a flaw for every kind of question; two of them for places."""
    kind, name = asked_about(shown(prompt, "problem"))
    if "<section>" not in prompt:
        return "\\boxed{99}" if kind in ("sent", "received") else Teacher().reply(prompt)
    reply, memory = Teacher(gated=True).reply(prompt), shown(prompt, "memory")
    if kind == "kept":
        return "<check>no</check>"
    wrong = f"````\n<check>yes</check><update>{HOME}{name}: Nowhere</update>"
    if kind == "place" and len(name) % 3 == 0 and name in memory:
        return reply if name in shown(prompt, "section") else wrong
    return wrong if kind == "place" and len(name) % 3 == 1 and "<check>yes" in reply else reply


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """Evaluate a teacher with flaws as the experiment does, with a gated agent and a baseline."""
    out = tmp_path_factory.mktemp("out")
    model = replace(scripted_models(flawed)["memory"], window=1 << 20)
    models = {"memory": model, "answer": model}
    gated = ("gated.chunk_size=none", "gated.exit_gate=false", "gated.lines=true")
    for agent, part, tokens, n in (
        ("gated", "near", 4096, 6), ("gated", "far", 16384, 1), ("full_context", "near", 4096, 2)
    ):  # fmt: skip
        options = EvalOptions(
            (f"chronicle:overwrite,count,two-hop@{tokens}",), agents=(agent,), n=n, temperature=0,
            out=out / f"{agent}-0" / part, max_memory_tokens=4000, closed_book=False,
            set=gated if agent == "gated" else (), metrics=("boxed_exact_match",),
        )  # fmt: skip
        own = Own(opened=Opened(models, {"memory": {}, "answer": {}}))
        evaluate(options, "recollect eval", Console(file=io.StringIO()), Stop(), own)
        chronicle_table.write_scores(out / f"{agent}-0" / part, 512)
    return out


def films(out: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    found = [json.loads(x) for p in out.glob("*/*/films.jsonl") for x in p.open()]
    assert {film["agent"] for film in found} == {"gated"}
    by = {(film["kind"], film["length"], film["reason"]): film for film in found}
    assert len(by) == len(found)
    return by


def test_films_say_where_a_memory_goes_wrong(measured):
    by = films(measured)
    for reason in ("overwritten", "written wrong"):
        frames = by["overwrite", "8x", reason]["frames"]
        first = next(frame for frame in frames if frame["should"])
        assert first["changed"] and (first["told"] == "") == (reason == "overwritten")
    never = by["two-hop", "8x", "never written"]["frames"]
    assert never[-1]["should"] and not any(frame["changed"] for frame in never)
    misread = by["count", "8x", "kept but misread"]
    assert not any(frame["should"] for frame in misread["frames"])
    assert misread["frames"][-1]["memory"].count("\n") + 1 == int(misread["answers"][0])
    assert misread["answer"] == "\\boxed{99}"
    right = by["overwrite", "32x", ""]
    assert right["answers"][0] in right["answer"]
    assert right["frames"][-1]["memory"].startswith(HOME + right["question"][11:-10])
    assert right["pages"] == 64 > 2 * len(right["frames"])


def test_every_wrong_answer_of_a_memory_has_a_reason(measured):
    found = [json.loads(x) for p in measured.glob("*/*/scores.jsonl") for x in p.open()]
    assert {r["score"] for r in found} == {0.0, 1.0}
    for r in found:
        wrong = r["agent"] == "gated" and not r["score"]
        assert bool(r["reason"]) == bool(r["cause"]) == wrong


def test_what_the_agent_did_not_cause_is_not_scored(measured, tmp_path):
    folder = tmp_path / "1x"
    shutil.copytree(measured / "full_context-0" / "near", folder)
    (folder / "scores.jsonl").unlink()
    lines = (folder / "episodes.jsonl").read_text().splitlines()
    failure = {
        "boundary": "policy",
        "kind": "OutOfMemoryError",
        "message": "no memory",
        "place": "",
    }
    for fault in ("agent", "environment"):
        failed = json.loads(lines[0]) | {"failure": failure | {"fault": fault}}
        said = "\n".join([json.dumps(failed), *lines[1:]])
        (folder / "episodes.jsonl").write_text(said + "\n")
        with suppress(SystemExit):
            chronicle_table.write_scores(folder, 512)
        assert (folder / "scores.jsonl").exists() == (fault == "agent")
        (folder / "scores.jsonl").unlink(missing_ok=True)


@pytest.fixture
def carried(measured, tmp_path) -> Path:
    """Keep what is carried from one machine to another, and add the metrics of training."""
    copy = tmp_path / "copy"
    for path in measured.rglob("*"):
        if path.name in chronicle_carry.KEPT:
            (copy / path.relative_to(measured)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(measured)).write_bytes(path.read_bytes())
    for agent, seed in (("gated", 0), ("gated", 1), ("full_context", 0)):
        folder = copy / f"{agent}-{seed}" / "chronicle"
        folder.mkdir(parents=True)
        lines = [
            {"step": 0, "val/accuracy": 0.5, "val/low": 0.4, "val/high": 0.6},
            *({"step": i, "reward/mean": 0.1 * i} for i in (1, 2, 3)),
            {"step": 4, "reward/mean": 1.5, "val/accuracy": 0.75, "val/low": 0.7, "val/high": 0.8},
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    return copy


def test_the_page_is_made_from_what_is_carried(carried, tmp_path):
    docs = tmp_path / "docs"
    page = chronicle_page.write(carried, docs)
    said = page.read_text()
    trained = "0.667 (gated, n=6) |  | 1.000 (gated, n=1)"
    assert f"| overwrite | memory, trained |  | {trained} |  |" in said
    assert "| overwrite | best baseline, trained |  | 1.000 (full_context, n=2) |  |  |  |" in said
    assert "| two-hop | gated | 8x | 6 | 0.000 | 1.000 | 0.000 | 0.000 | 0.000 |" in said
    assert "| gated-1 | 0.500 | 0.750 |" in said
    assert "| gated-1 | 0.525 | 0.00, 0.00 |" in said
    assert "| overwrite | gated-0 | 0.667 | 1.000 |" in said
    for name, lines in (("learning", 6), ("lengths", 3)):
        drawn = ElementTree.fromstring((docs / "images" / f"chronicle-{name}.svg").read_text())
        assert f"../images/chronicle-{name}.svg" in said
        paths = [e for e in drawn.iter() if e.get("class") == "line"]
        assert len(paths) == lines
    titles = re.findall(r"^\*\*(\w[^*]*)\*\*", said, flags=re.M)
    assert titles == [
        "Right: overwrite at 32x (64 pages), gated, seed 0",
        "Overwritten: overwrite at 8x (16 pages), gated, seed 0",
        "Kept but misread: count at 32x (64 pages), gated, seed 0",
    ]
    assert re.search(r"^pages 1 to \d+: no change$", said, flags=re.M)
    assert "\n`````\nquestion  Where does" in said  # the reply holds a fence of its own
    assert said.count("\n`````\n") == 2
    assert not habits(prose(said))


def test_a_reader_without_mistakes_shows_what_a_search_can_find(carried):
    """It answers all that it is shown, so that what is wrong was not found."""
    options = argparse.Namespace(
        out=carried, lengths=(1, 16), agents=("gated", "full_context", "rag_64"), hybrid=False,
        tokens=4096, memory=2000, n=4, far=1, seeds=(0,),
    )  # fmt: skip
    chronicle_perfect.measure(options, TOKENIZER, 20_000)
    cells = chronicle_table.cells_of(list(chronicle_table.rows(carried)))

    def right(agent: str, length: str) -> float:
        kinds = ("overwrite", "count", "two-hop")
        own = [row for kind in kinds for row in cells[f"{agent}, perfect", kind, length]]
        return sum(row["score"] for row in own) / len(own)

    assert right("gated", "1x") == right("gated", "16x") == right("full_context", "1x") == 1.0
    assert right("full_context", "16x") < 1.0 and 0.0 < right("rag_64", "1x") < 0.7
    said = chronicle_table.markdown(carried)
    assert "| count | gated | 1.000 [0.510, 1.000] n=4 | 1.000 [0.207, 1.000] n=1 |" in said
    assert said.count("perfect") == 0
    assert "| overwrite | best baseline, perfect reader | 1.000 (full_context, n=4) |" in (
        chronicle_page.short(carried)
    )


def test_kinds_are_put_together_where_all_were_measured():
    """What reward added may be clear over all kinds, though in each of them it is not."""

    def cell(kind: str, *scores: float) -> list[dict[str, object]]:
        return [{"seed": 0, "item": f"{kind}{i}", "task": f"{kind}{i}", "score": score}
                for i, score in enumerate(scores)]  # fmt: skip

    before = "gated" + chronicle_table.WARMED
    cells = {("gated, babilong", "qa1", "1x"): cell("qa1", 1.0)}
    for kind in ("count", "overwrite"):
        cells["gated", kind, "1x"] = cell(kind, *[1.0] * 4)
        cells[before, kind, "1x"] = cell(kind, *[0.0] * 4)
    cells["gated", "count", "8x"] = cells[before, "count", "8x"] = cell("count", 1.0)
    both = chronicle_table.rewarded(chronicle_table.together(cells))
    assert [row[:4] for row in both] == [("all kinds", "1x", "gated", before)]
    alone = chronicle_table.rewarded(cells)
    assert both[0][4][0] == 1.0 and both[0][4][3] < 0.05 < min(row[4][3] for row in alone)


def test_a_page_keeps_what_people_wrote(carried, tmp_path):
    page = tmp_path / "results" / "chronicle.md"
    page.parent.mkdir()
    begin, end = chronicle_page.BEGIN, chronicle_page.END
    page.write_text(f"# The plan\n\n{begin}\nold\n{end}\n\nThe end.\n")
    for _ in range(2):
        chronicle_page.write(carried, tmp_path)
        said = page.read_text()
        assert said.startswith(f"# The plan\n\n{begin}\n") and said.endswith("\n\nThe end.\n")
        assert "old" not in said.split() and said.count("### Films") == 1
    page.write_text("# No place\n")
    with pytest.raises(SystemExit, match="no place for results"):
        chronicle_page.write(carried, tmp_path)
    assert page.read_text() == "# No place\n"


def test_the_page_of_baselines_is_what_was_kept_of_them(tmp_path):
    results = ROOT / "docs" / "results"
    shutil.copytree(results / "kept" / "chronicle-baselines", tmp_path / "run" / "carry")
    (tmp_path / "docs" / "results").mkdir(parents=True)
    for name in ("chronicle", "chronicle-baselines"):
        shutil.copy(results / f"{name}.md", tmp_path / "docs" / "results")
    chronicle_carry.unpack(tmp_path / "run")
    made = chronicle_page.write(tmp_path / "run", tmp_path / "docs", "chronicle-baselines")
    assert made.read_text() == (results / "chronicle-baselines.md").read_text()
    for kind in ("learning", "lengths"):
        picture = Path("images") / f"chronicle-baselines-{kind}.svg"
        kept = results.parent / picture
        assert (tmp_path / "docs" / picture).read_bytes() == kept.read_bytes()
    said = made.read_text()
    assert "### Films" not in said and "### Success" not in said


def test_the_table_of_the_readme_is_made_of_the_pages_with_results(tmp_path):
    results = ROOT / "docs" / "results"
    assert f"\n\n{chronicle_headline.headline(results)}\n\n" in (ROOT / "README.md").read_text()
    for name in ("chronicle", "chronicle-baselines"):
        shutil.copy(results / f"{name}.md", tmp_path)
    page = tmp_path / "chronicle.md"
    text = page.read_text()
    for share, cell in (("0.945", "0.95"), ("0.444", "0.44")):  # half a hundredth goes up
        page.write_text(
            text.replace("| overwrite | gated | 0.953 [", f"| overwrite | gated | {share} [")
        )
        assert f"| {cell}, 0.95, 0.90 |" in chronicle_headline.headline(tmp_path)


def test_a_long_film_is_cut_but_for_its_ends_and_its_turn():
    frames = [{"page": 2 * i, "told": "", "said": "yes", "memory": f"a: {i}", "changed": True,
               "should": "a: 0" if i >= 20 else ""} for i in range(1, 41)]  # fmt: skip
    named = {"kind": "count", "length": "32x", "reason": "overwritten", "agent": "gated"}
    asked = {"seed": 0, "task": "t", "question": "?", "answers": ["1"], "answer": "2", "pages": 90}
    said = "\n".join(chronicle_page.shown_film(named | asked | {"frames": frames}))
    pages = [int(n) for n in re.findall(r"^page (\d+)$", said, flags=re.M)]
    assert pages == [2, 4, 6, 8, 40, 68, 70, 72, 74, 76, 78, 80]
    assert "pages 9 to 39: 15 changes, left out" in said
    assert "pages 81 to 90: no change" in said


def test_the_documentation_has_a_place_for_results():
    said = (ROOT / "docs" / "results" / "chronicle.md").read_text()
    assert said.index(chronicle_page.BEGIN) < said.index(chronicle_page.END)
    assert "python -m benchmarks.chronicle_page runs/chronicle docs" in said
