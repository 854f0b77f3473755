"""Folders as the viewer reads them: lists, growth, damage, comparison, and who may look."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recollect
from recollect.cli import main
from recollect.commands.view import CompareOptions, ViewOptions, run_compare, run_view
from recollect.display import open_console
from recollect.errors import UserError
from recollect.policies.scripted import ScriptedPolicy
from recollect.runs.run import read_metrics
from recollect.serve.listening import bind, find_key
from recollect.types import Question, Task
from recollect.view.answers import Answers
from recollect.view.comparison import Side, compare
from recollect.view.curves import curves, differences
from recollect.view.sources import RunSource, Source, open_sources
from recollect.view.tokens import tokens
from recollect.view.weights import Weights
from tests.support.viewing import (
    FINE,
    LOST,
    MISREAD,
    NEVER,
    open_run,
    planted,
    viewing,
    write_step,
)
from tests.test_without_torch import HIDE


def fetch(url: str, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_ten_thousand_episodes_are_listed_in_under_two_seconds(tmp_path):
    many = [replace(own, task=replace(own.task, id=f"{own.task.id}-{i}"))
            for i, own in enumerate([*FINE, *MISREAD, LOST, NEVER] * 20)]  # fmt: skip
    with open_run(tmp_path) as run:
        first = run.write_episodes(1, "val", many, lambda _role, ids: bytes(ids).decode())
        for step in range(2, 51):
            (first.parent / f"val-{step:06d}.jsonl.gz").write_bytes(first.read_bytes())
    [source] = open_sources([run.folder])
    started = time.perf_counter()
    source.refresh()
    assert time.perf_counter() - started < 2
    assert len(source.rows) == 10_000
    started = time.perf_counter()
    assert source.stored(9_998).task == "planted-198"
    assert time.perf_counter() - started < 0.5


def test_what_nothing_has_scored_is_neither_right_nor_wrong(tmp_path):
    """Episodes that `recollect serve` keeps have no reward: nobody has said what is right."""
    unscored = replace(LOST, reward=None, scores={}, answer_scores=())
    with open_run(tmp_path) as run:
        write_step(run, 1, 0.5, unscored, MISREAD[0], *FINE)
    answers = Answers(open_sources([tmp_path]))
    [id] = answers.sources
    rows = answers.source(id).rows
    assert [row["score"] for row in rows][:2] == [None, 0.0]
    analysis = answers.analyses[id]
    analysis.finish()
    assert analysis.causes[rows[0]["n"], 0][0] == ""
    [everything] = analysis.table()["all"]
    assert everything["n"] == len(rows) - 1
    assert sum(share["count"] for share in everything["shares"].values()) == 1
    [source] = answers.sources.values()
    assert compare(Side(source, "1"), Side(source, "1"))["n"] == len(rows) - 1
    assert main(["view", str(tmp_path), "--export", str(tmp_path / "page.html")]) == 0


def test_a_run_is_read_as_it_grows_and_when_it_is_cut(tmp_path):
    with open_run(tmp_path) as run:
        write_step(run, 1, 0.5, *FINE)
        [source] = open_sources([tmp_path])
        source.refresh()
        stamp = source.stamp()
        assert len(source.rows) == 6
        write_step(run, 2, 0.6, LOST)
        assert source.stamp() != stamp
        source.refresh()
        assert len(source.rows) == 7 and source.rows[-1]["step"] == 2
        (run.folder / "episodes" / "val-000001.jsonl.gz").unlink()
        source.refresh()
        assert [row["task"] for row in source.rows] == ["planted"]
        assert source.stored(0).task == "planted"
    assert not list(tmp_path.rglob("*.tmp-*"))


def test_damaged_files_are_named_and_the_rest_is_shown(tmp_path):
    folder = planted(tmp_path)
    (folder / "episodes" / "val-000002.jsonl.gz").write_bytes(b"\x1f\x8bnot whole")
    (folder / "metrics.jsonl").write_text('{"step": 1}\nnot json\n')
    [source] = open_sources([folder])
    source.refresh()
    assert len(source.rows) == 14 and "val-000002" in source.notes[0]
    assert "damaged" in curves(source)["error"]
    for wrong in (tmp_path / "nothing", folder / "episodes"):
        with pytest.raises(UserError):
            open_sources([wrong])


def test_curves_have_intervals_and_settings_that_differ_are_listed(tmp_path):
    both = [planted(tmp_path, "one", 0), planted(tmp_path, "two", 1)]
    sources = open_sources(both)
    panels = curves(sources[0])["panels"]
    assert panels["accuracy"] == [(0, 0.2, 0.1, pytest.approx(0.3)), (1, 0.5, 0.4, 0.6)]
    step, mean, low, high = panels["reward"][1]
    assert (step, mean) == (1, 0.5) and low < mean < high
    assert panels["speed"][1][1] == 300
    assert {row["name"] for row in differences(sources)} == {"name", "seed"}


def test_the_comparison_pairs_by_task_with_the_paired_test(tmp_path, capsys):
    with open_run(tmp_path) as run:
        write_step(run, 1, 0.5, *FINE[:4], *MISREAD, LOST)
        right = [replace(own, reward=1.0, scores={"answer": 1.0}, answer_scores=[1.0])
                 for own in (*MISREAD, LOST)]  # fmt: skip
        write_step(run, 2, 0.9, *FINE, *right)
    [source] = open_sources([run.folder])
    source.refresh()
    found = compare(Side(source, "2"), Side(source, "1"))
    assert (found["n"], found["first"], found["second"], found["both"]) == (7, 3, 0, 4)
    assert found["p"] == 0.25 and found["difference"] == pytest.approx(3 / 7)
    assert found["unpaired"] == [2, 0]
    options = CompareOptions(f"{run.folder}@2", f"{run.folder}@1")
    assert run_compare(options, open_console()) == 0
    out = capsys.readouterr().out
    assert "+0.429" in out and "p = 0.250" in out and "Won by the first: 3" in out
    with pytest.raises(UserError, match="no held-out episodes of step 9"):
        compare(Side(source, "9"), Side(source))


def evaluated(folder: Path, word: str, kept: int = 2) -> Source:
    """Evaluate tasks whose names never change; `word` is in those beyond the first `kept`."""

    def family(split: str) -> list[Task]:
        words = [str(i) if i < kept else f"{word} {i}" for i in range(4)]
        return [
            Task(f"{split}-{i}", [f"It is {own}."], (Question("Which?", (own,)),), "words")
            for i, own in enumerate(words)
        ]

    model = ScriptedPolicy.model(lambda prompt: "1")
    recollect.evaluate(
        tasks=[family], agents=["fold"], model=model, n=4, out=folder, closed_book=False, quiet=True
    )
    [source] = open_sources([folder])
    source.refresh()
    return source


def test_tasks_of_the_same_name_whose_data_changed_are_not_compared(tmp_path):
    first = Side(evaluated(tmp_path / "first", "one"))
    found = compare(first, Side(evaluated(tmp_path / "second", "another")))
    assert (found["n"], found["unpaired"]) == (2, [2, 2])
    with pytest.raises(UserError, match="no task in common"):
        compare(first, Side(evaluated(tmp_path / "third", "third", kept=0)))


async def one(task, chats, memory):
    return ["1" for _ in task.questions]


async def other(task, chats, memory):
    return [(await chats.open().say(q.text)).text for q in task.questions]


def agents_of(folder: Path, agents: list[Any], said: str = "0") -> Source:
    """Evaluate agents on tasks whose answers are 0 and 1, with a model that says one thing."""

    def family(split: str) -> list[Task]:
        asked = [(Question("Which?", (str(i),)),) for i in range(2)]
        return [Task(f"{split}-{i}", [f"It is {i}."], q, "two") for i, q in enumerate(asked)]

    model = ScriptedPolicy.model(lambda prompt: said)
    recollect.evaluate(tasks=[family], agents=agents, model=model, n=2, out=folder, quiet=True)
    [source] = open_sources([folder])
    source.refresh()
    return source


def test_an_agent_is_never_compared_with_whatever_came_last(tmp_path):
    """Of a side that leaves its agent open, the same one is taken, or the only one there is."""
    single, several = agents_of(tmp_path / "a", [one]), agents_of(tmp_path / "b", [other, "fold"])
    for name in ("other", "fold"):
        found = compare(Side(several, name), Side(single))
        assert found["chosen"] == [name, "one"] and found["n"] == 2
        assert (found["first"], found["second"]) == (1, 1)
    found = compare(Side(several, "fold"), Side(several))
    assert found["chosen"] == ["fold", "fold"] and found["both"] == 1
    found = compare(Side(several), Side(several))
    assert found["chosen"] == ["", ""] and found["n"] == 6
    for first, second in ((Side(single), Side(several)), (Side(several), Side(single, "one"))):
        with pytest.raises(UserError, match=r"b has several agents.*(?s:.)*b@fold: fold, other"):
            compare(first, second)
    for sides in ((Side(several), Side(single, "oen")), (Side(single, "oen"), Side(several))):
        with pytest.raises(
            UserError, match=r"a has no agent oen(?s:.)*choose from closed_book, one"
        ):
            compare(*sides)
    found = compare(Side(single), Side(agents_of(tmp_path / "c", [other], "1")))
    assert found["chosen"] == ["one", "other"] and found["n"] == 2


def test_nothing_is_served_beyond_loopback_without_a_key(tmp_path, monkeypatch):
    folder = planted(tmp_path)
    with pytest.raises(UserError, match="no API key"):
        run_view(ViewOptions((folder,), host="0.0.0.0", port=0))
    monkeypatch.setenv("VIEWER_SECRET", "open sesame 123")
    assert find_key("0.0.0.0", "VIEWER_SECRET") == "open sesame 123"
    with viewing(folder, key="open sesame 123") as (url, _):
        assert fetch(url)[0] == 200  # the page holds nothing
        assert fetch(url + "api/state")[0] == 401
        assert fetch(url + "api/state", Authorization="Bearer open sesame 124")[0] == 401
        assert fetch(url + "api/state", Authorization="Bearer open sesame 123")[0] == 200


def test_other_names_and_other_pages_are_refused(tmp_path):
    with viewing(planted(tmp_path)) as (url, _):
        assert fetch(url + "api/state")[0] == 200
        assert fetch(url + "api/state", Host="evil.example")[0] == 421
        request = urllib.request.Request(url + "api/s/planted/whatif", b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert refused.value.code == 403
        for path in ("api/s/planted/film/999", "api/s/other/rows", "api/s/planted/film/../..",
                     "api/nothing", "api/s/planted/tokens/0/9/9"):  # fmt: skip
            status, body = fetch(url + path)
            assert status in (400, 404), path
            assert b"Traceback" not in body
        with urllib.request.urlopen(url, timeout=10) as page:
            policy = page.headers["Content-Security-Policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy


def test_the_page_asks_nobody_else():
    page = Path(sys.modules["recollect.view.server"].__file__).parent / "page"
    for file in page.iterdir():
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "innerHTML" not in text, file


def test_a_folders_own_modules_are_not_imported_unless_trusted(tmp_path):
    folder = planted(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["code"] = {"evil": {"file": "code/evil.py", "sha256": "0"}}
    (folder / "config.json").write_text(json.dumps(config))
    answers = Answers(open_sources([folder]))
    with pytest.raises(UserError, match="--trust"):
        answers.what_if("planted", {"n": 0, "turn": 0})


def test_view_without_torch_and_without_a_web_server(tmp_path):
    folder, page = planted(tmp_path), tmp_path / "page.html"
    code = (
        f"{HIDE}\n"
        "from recollect.cli import main\n"
        f"sys.exit(main(['view', {str(folder)!r}, '--export', {str(page)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert page.stat().st_size > 30_000
    plain = code.replace(f"'--export', {str(page)!r}", "'--port', '0'")
    done = subprocess.run([sys.executable, "-c", plain], capture_output=True, text=True)
    assert done.returncode == 2 and "[view]" in done.stderr


def test_a_page_is_written_into_a_new_folder_and_not_over_one(tmp_path):
    folder, page = planted(tmp_path), tmp_path / "new" / "page.html"
    assert run_view(ViewOptions((folder,), export=page)) == 0 and page.is_file()
    for place in (Path("."), tmp_path):
        with pytest.raises(UserError, match="is a folder"):
            run_view(ViewOptions((folder,), export=place))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe is no file"):
        run_view(ViewOptions((folder,), export=tmp_path / "pipe"))
    if Path("/proc").is_dir():
        with pytest.raises(UserError, match="cannot write /proc/page"):
            run_view(ViewOptions((folder,), export=Path("/proc/page")))


def test_a_busy_port_is_named(tmp_path):
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        with pytest.raises(UserError, match="cannot listen"):
            bind("127.0.0.1", held.getsockname()[1])


def test_siblings_carry_advantages_and_the_first_divergence(tmp_path):
    [source] = open_sources([planted(tmp_path)])
    assert isinstance(source, RunSource)
    found = Answers([source]).get(f"s/{source.id}/siblings/0", {})
    assert [own["reward"] for own in found["rollouts"]] == [0.0, 1.0, 0.0]
    assert [own["advantage"] for own in found["rollouts"]] == pytest.approx([-1 / 3, 2 / 3, -1 / 3])
    assert found["divergence"] == 0
    assert sum(own["causes"] == ["overwritten"] for own in found["rollouts"]) == 1


def test_tokens_show_the_steps_own_ratios_and_clips(tmp_path):
    """Over all tokens of a step they come to what the trainer logged of it."""
    small = ["--steps", "1", "--rollout.tasks", "8", "--rollout.n", "8", "--updates-per-step", "4"]
    small += ["--rollout.keep-groups", "-1", "--val.tasks", "2", "--val.lengths", "1"]
    small += ["--val.length-tasks", "2"]
    small += ["--optim.lr", "1e-2", "--optim.warmup-steps", "0"]  # so that later ratios leave 1
    small += ["--loss.dual-clip", "1.3"]  # few tokens of worse episodes become thrice as likely
    assert main(["train", "demo", "--folder", str(tmp_path), *small]) == 0
    [source] = open_sources([tmp_path / "demo"])
    source.refresh()
    weights = Weights(source)
    found = []
    for row in source.rows:
        contexts = source.record(row["n"])["contexts"]
        if row["split"] == "val":
            assert not any(context["learned"] for context in contexts)
        else:
            turns = [tokens(source, weights, row["n"], c, 0, False) for c in range(len(contexts))]
            found += [token for one in turns if one["learned"] for token in one["tokens"]]
    logged = read_metrics(tmp_path / "demo")[-1]
    ratios = [token["ratio"] for token in found]
    assert max(ratios) == pytest.approx(logged["train/ratio_max"], rel=1e-4)
    assert max(ratios) > 1.2 and min(ratios) < 0.8
    for side in ("high", "low", "dual"):
        share = sum(token["clipped"] == side for token in found) / len(found)
        assert share == pytest.approx(logged[f"train/clip_{side}"], abs=1e-9) and share > 0
    assert any(abs(ratio - 1) < 1e-4 for ratio in ratios)  # at first both are the same weights
