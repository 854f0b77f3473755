"""`recollect eval`, `replay` and `judge-check`, as a person types them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from recollect.cli import main
from recollect.config.presets import preset
from recollect.evaluation.judge_pairs import PAIRS
from recollect.evaluation.models import open_models
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.report.content import model_name
from recollect.evaluation.results import load
from recollect.memory.tools import REFERENCE
from tests.support import world
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.support.chat_server import chat_server
from tests.support.fake_trackers import install
from tests.support.hostile import ACTS_ON_A_SCREEN, NASTY
from tests.support.tiny import tiny_model
from tests.support.token_server import (
    TokenServer,
    http_response,
    listening,
    read_request,
    token_server,
)

DETAIL = re.compile(r"^([a-z][\w/ .-]*?) {2,}(\S+) +(\S+) to (\S+) +(\d+)$", re.MULTILINE)
ROW = re.compile(r"(\d+)x the text +(\d\.\d{3}) +(\d\.\d{3}) to (\d\.\d{3}) +\S+ +(\d+) +(\d+)")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


# A preset, as training validates it


def evaluate(model: Path, *more: str) -> int:
    return main(["eval", "demo", "--model.path", str(model), "--val.tasks", "6", *more])


def rows(text: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, row)) for row in ROW.findall(text)]


def test_a_row_for_every_length(capsys, model):
    assert evaluate(model, "--val.lengths", "1", "3", "--val.n", "2") == 0
    text = capsys.readouterr().out
    assert "95% interval" in text and "failed" in text
    found = rows(text)
    assert [row[0] for row in found] == [1, 3]
    for _times, mean, low, high, n, failed in found:
        assert 0 <= low <= mean <= high <= 1
        assert (n, failed) == (12, 0)


def test_a_failed_episode_is_shown_and_counts_as_wrong(capsys, model):
    """A chunk of four hundred facts does not fit the window, and every episode fails."""
    long = ("--tasks.distractors", "400", "--val.lengths", "1")
    assert evaluate(model, *long) == 1
    ((_times, mean, low, high, n, failed),) = rows(capsys.readouterr().out)
    assert (mean, low, n, failed) == (0, 0, 6, 6)
    assert high > 0.3  # six failures prove little


@pytest.mark.parametrize("name", ["locomo", "locomo_published"])
def test_locomo_shows_all_that_its_reward_measures(capsys, model, tmp_path, name):
    """Performance before and after, reward, growth, tool use and categories, with intervals."""
    world.made_up(tmp_path)
    folder = ("--tasks.folder", str(tmp_path / "made_up"), "--agent.limits.max-turn-tokens", "24")
    limits = ("--agent.limits.max-context-tokens", "900", "--agent.limits.max-assistant-turns", "2")
    short = ("--agent.prompts.system", "", "--agent.prompts.user", "{question}")
    more = ("--model.path", str(model), "--val.tasks", "4", "--folder", str(tmp_path / "runs"))
    assert main(["eval", name, *folder, *limits, *short, *more]) == 0
    text = capsys.readouterr().out
    found = {row[0]: row[1:] for row in DETAIL.findall(text)}
    for row in ("reward", "performance before", "performance after", "growth/tokens", "turns"):
        mean, low, high = map(float, found[row][:3])
        assert low <= mean <= high and low < high, row
    assert any(row.startswith("category ") for row in found)
    assert any(row.startswith("growth/created") for row in found)


def test_the_published_tools_are_search_and_create():
    tools = preset("locomo_published").agent.tools
    assert tools.operations == ("create",) and tools.required == REFERENCE.required


def test_it_leaves_nothing_behind(capsys, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert evaluate(model, "--val.lengths", "1") == 0
    assert not list(tmp_path.iterdir())


# Agents on task families


def speak(request: dict[str, Any]) -> dict[str, Any]:
    """Keep the whole text in mind, and answer with its last word before a full stop."""
    prompt = "\n".join(m["content"] for m in request["messages"])
    if "New memory:" in prompt:
        section = prompt.partition("<section>")[2].partition("</section>")[0]
        memory = prompt.partition("<memory>")[2].partition("</memory>")[0]
        kept = (memory.replace("No previous memory", "") + section).split()
        return {"content": " ".join(kept)}
    asked = re.search(r"favourite (\w+) that (\w+) named", prompt)
    if asked is None:
        return {"content": "OK"}
    category, person = asked.groups()
    told = prompt.partition("<problem>")[0] + prompt.partition("</problem>")[2]
    about = re.compile(rf"\b{person}\b.*\b{category}\b|\b{category}\b.*\b{person}\b")
    found = [s for s in re.split(r"[.\n]", told) if about.search(s)]
    return {"content": f"\\boxed{{{found[-1].split()[-1]}}}" if found else "I do not know."}


@contextmanager
def serving() -> Iterator[TokenServer]:
    with token_server(ByteTokenizer(), None, speak) as server:
        yield server


def command(server: TokenServer, out: Path, *more: str) -> list[str]:
    agents = ("--agents", "fold,full_context", "--n", "5", "--seeds", "2", "--concurrency", "4")
    # The server names no tokenizer: a token is estimated at three bytes.
    sizes = ("--chunk-size", "200", "--max-memory-tokens", "4000")
    url = ("--model", server.url, "--out", str(out))
    return ["eval", "--tasks", "recall@256,512", *agents, *sizes, *url, *more]


def asked(server: TokenServer) -> int:
    """Count what was asked, without what `connect` says to see whether anybody is there."""
    return sum(r["messages"][-1]["content"] != "Say OK." for r in server.asked)


def test_an_evaluation_from_command_to_results(capsys, tmp_path: Path):
    out = tmp_path / "found"
    with serving() as server:
        assert main(command(server, out, "--prices", "1,2")) == 0
    shown = capsys.readouterr().out
    assert "recall@256" in shown and "fold" in shown and "closed" in shown
    assert "fold" in (out / "report.md").read_text() and (out / "report.html").exists()
    results = load(out)
    cells = {(c.task, c.agent): c for c in results.cells}
    assert len(cells) == 2 * 3
    whole = cells["recall@256", "full_context"]
    assert whole.primary == "answer_match" and whole.family == "recall"
    assert whole.scores["answer_match"].mean == 1.0
    assert whole.scores["answer_match"].n == whole.scores["answer_match"].n_tasks == 10
    assert {"exact_match", "boxed_exact_match", "token_f1", "rouge_l"} <= set(whole.scores)
    assert "locomo_f1" not in whole.scores and whole.published == []
    assert whole.scores["boxed_exact_match"].mean == 1.0 and set(whole.seeds) == {"0", "1"}
    assert whole.closed_book is not None and whole.closed_book.mean == 0.0
    # A sentence that falls between two windows may be lost.
    assert cells["recall@256", "fold"].scores["answer_match"].mean >= 0.8
    assert 150 < whole.tokens < 400 < cells["recall@512", "fold"].tokens < 700
    fold = cells["recall@256", "fold"].cost
    # As the server counts: 7 tokens read and 3 written in every call.
    assert fold.build_read == 7 * fold.build_calls and fold.answer_written == 3 * fold.answer_calls
    assert fold.build_calls >= 20 and fold.answer_calls == 10
    assert fold.dollars == pytest.approx(fold.calls * (7 + 2 * 3) / 1e6)
    assert whole.cost.build_calls == 0 and fold.memory_chars > 100
    versus = {(c.first, c.second): c for c in results.comparisons if c.task == "recall@256"}
    assert versus["full_context", "closed_book"].p < 0.01
    assert versus["fold", "full_context"].p == 1.0
    assert results.command.startswith("recollect eval --tasks recall@256,512 --agents fold")
    assert set(results.data) == {"recall@256", "recall@512"} and results.versions["recollect"]
    assert results.model["memory"]["id"] == "tiny" and results.n_failed == 0
    worth_a_look = {e.agent for e in results.examples}
    assert "closed_book" in worth_a_look and "full_context" not in worth_a_look


def test_the_same_command_asks_nothing_again_and_replay_asks_nothing(capsys, tmp_path: Path):
    out = tmp_path / "found"
    with serving() as server:
        assert main(command(server, out)) == 0
        before = asked(server)
        assert main(command(server, out)) == 0
        assert asked(server) == before
        assert main(command(server, out, "--n", "6")) == 0
        assert asked(server) > before
        refused = main(command(server, out, "--temperature", "0.1"))
    assert refused == 2 and "temperature was 0.7, now 0.1" in capsys.readouterr().err
    assert (out / "calls.jsonl").read_text() == ""
    assert main(["replay", str(out), "--metrics", "rouge_l,token_f1", "--prices", "1,1"]) == 0
    results = load(out)
    assert set(results.cells[0].scores) == {"rouge_l", "token_f1", "answer_match"}
    assert results.cells[0].cost.dollars and results.cells[0].scores["rouge_l"].n == 12


def test_resuming_shuffling_and_replaying_change_no_digit(capsys, tmp_path: Path):
    """Episodes end in another order every time: what is printed must not depend on it."""
    out = tmp_path / "found"
    with serving() as server:
        assert main(command(server, out, "--n", "2")) == 0
        assert main(command(server, out, "--n", "6")) == 0  # what is there is not run again
    before = digits(out)
    path = out / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for seed in range(3):
        Random(seed).shuffle(lines)
        path.write_bytes(b"".join(lines))
        assert main(["replay", str(out)]) == 0
        assert digits(out) == before


def digits(folder: Path) -> dict[str, Any]:
    """Return all that was found, without when it was."""
    return asdict(replace(load(folder), created="", seconds=0.0))


def test_trackers_get_the_scores_of_an_evaluation_once(capsys, tmp_path: Path, monkeypatch):
    fake, out = install(monkeypatch, "wandb"), tmp_path / "found"
    named = ("--tracking.project", "compare", "--tracking.tags", "a", "b")
    with serving() as server:
        for _ in range(2):  # the second time everything is there
            assert main(command(server, out, "--trackers", "wandb", *named)) == 0
    (run,) = fake.runs.values()
    assert run.settings["project"] == "compare" and run.settings["tags"] == ["a", "b"]
    assert run.settings["name"] == "found" and run.opened == 2
    results = load(out)
    for cell in results.cells:
        score = cell.scores[cell.primary]
        place = f"eval/{cell.task}/{cell.agent}"
        assert run.scalars(f"{place}/{cell.primary}") == [(0, score.mean)]
        assert run.scalars(f"{place}/{cell.primary}/low") == [(0, score.low)]
        assert run.scalars(f"{place}/n") == [(0, score.n)]
    ((_, table),) = run.tables("scores")
    assert len(table.data) == sum(len(cell.scores) for cell in results.cells)


def judge(text: str) -> str:
    """Accept what names an accepted answer: lists of every candidate pass, like vague ones not."""
    right = text.rpartition("Right answer: ")[2].partition("\n")[0].lower()
    graded = text.rpartition("Answer to grade: ")[2].lower()
    told = any(word in graded for word in re.findall(r"\w+", right) if len(word) > 3)
    return json.dumps({"label": "CORRECT" if told else "WRONG"})


def test_a_judge_is_measured_kept_and_can_be_exchanged(capsys, tmp_path: Path):
    out = tmp_path / "found"
    with serving() as server:
        assert main(command(server, out, "--agents", "full_context", "--no-closed-book")) == 0
    assert load(out).judge is None and len(load(out).cells) == 2
    with chat_server(judge) as server:
        assert main(["replay", str(out), "--judge", server.url]) == 0
        error = load(out).judge
        asked = len(server.asked)
        assert asked >= len(PAIRS) and all(r["temperature"] == 0 for r in server.asked)
        assert main(["replay", str(out), "--judge", server.url]) == 0
        assert len(server.asked) == asked  # every verdict was kept
    assert error is not None and error.model == "tiny" and len(error.prompt_hash) == 16
    kinds = {kind.kind: kind for kind in error.kinds}
    assert kinds["candidates"].accepted > 0 and kinds["gives up"].accepted == 0
    assert error.false_accept.n + error.false_reject.n == len(PAIRS)
    assert 0 < error.false_accept.low < error.false_accept.mean < error.false_accept.high < 1
    scores = load(out).cells[0].scores
    assert scores["judge"].mean == scores["answer_match"].mean == 1.0
    with chat_server(lambda _text: "hm") as server:
        assert main(["replay", str(out), "--judge", server.url, "--judge-model", "other"]) == 2
    assert "neither CORRECT nor WRONG" in capsys.readouterr().err


def test_a_judge_can_be_measured_alone(capsys):
    with chat_server(lambda _text: '{"label": "CORRECT"}') as server:
        assert main(["judge-check", "--url", server.url]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    wrong = sum(not pair.right for pair in PAIRS)
    assert f"all wrong ones refused {wrong} of {wrong} 1.000" in shown
    assert "vague" in shown and "gives up" in shown


def test_a_model_folder_is_evaluated_too(capsys, model, tmp_path: Path):
    sizes = ("--chunk-size", "200", "--max-memory-tokens", "8", "--max-answer-tokens", "8")
    words = ["eval", "--tasks", "recall@128", "--agents", "fold", "--n", "3"]
    assert main([*words, *sizes, "--model", str(model), "--out", str(tmp_path / "x")]) == 0
    results = load(tmp_path / "x")
    assert [c.agent for c in results.cells] == ["fold", "closed_book"]
    assert results.model["memory"]["fingerprint"] and results.n_failed == 0


def test_a_model_has_the_name_of_the_run_that_trained_it(model, tmp_path: Path):
    shutil.copytree(model, tmp_path / "me" / "model")
    options = EvalOptions(("recall",), model=str(tmp_path / "me" / "model"))
    assert model_name(open_models(options).facts) == "model"
    (tmp_path / "me" / "config.json").write_text("{}")
    assert model_name(open_models(options).facts) == "me"


@pytest.mark.parametrize("text", NASTY)
def test_nothing_that_is_asked_or_said_ends_an_evaluation(capsys, tmp_path: Path, text: str):
    """What was paid for is stored, scored and shown, again at every resume."""
    lines = [{"text": f"{text}. It is red.", "question": f"Which? {text}", "answer": "red"}] * 2
    lines = [line | {"id": f"{i}{text}"} for i, line in enumerate(lines)]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = lambda _request: {"content": f"\\boxed{{red}} {text}"}  # noqa: E731
    name = f"model {text}" if text.strip() else "model"
    words = ["eval", "--tasks", f"jsonl:{tasks}", "--agents", "fold,full_context", "--n", "2"]
    sizes = ("--chunk-size", "4000", "--max-memory-tokens", "4000", "--out", str(tmp_path / "x"))
    with token_server(ByteTokenizer(), None, said, name=name) as server:
        for _ in range(2):
            assert main([*words, *sizes, "--model", server.url]) == 0
    results = load(tmp_path / "x")
    assert results.n_failed == 0
    assert {c.scores["answer_match"].mean for c in results.cells} == {1.0}
    heard = capsys.readouterr()
    assert not ACTS_ON_A_SCREEN.search(heard.out + heard.err)
    stored = [json.loads(line) for line in (tmp_path / "x" / "episodes.jsonl").open("rb")]
    assert all(record["answers"][0].startswith("\\boxed{red}") for record in stored)
    for page in ("report.html", "report.md"):
        assert not ACTS_ON_A_SCREEN.search((tmp_path / "x" / page).read_text(encoding="utf-8"))


HOSTILE = "\x1b[2J\u202eno\r\n  fix: rm -rf /\ud800"


def test_no_error_of_a_server_acts_on_the_terminal(capsys, tmp_path: Path):
    """Model ids, error texts and notes: one line each, and nothing in them is obeyed."""
    for status in (400, 401, 500):

        async def handle(reader, writer, status=status):
            while (head := await read_request(reader)) is not None:
                body = json.dumps({"error": {"message": HOSTILE * 50}}).encode()
                ids = json.dumps({"data": [{"id": HOSTILE}, {"id": HOSTILE * 2}]}).encode()
                models = head[0].endswith("/models") and status == 400
                writer.write(http_response(200, ids) if models else http_response(status, body))

        with listening(handle) as (port, _):
            url = f"http://127.0.0.1:{port}/v1"
            assert main(["eval", "--tasks", "recall@128", "--model", url]) == 2
        told = capsys.readouterr().err
        assert not ACTS_ON_A_SCREEN.search(told) and "recollect:" in told
        fixes = [line for line in told.splitlines() if line.strip().startswith("fix:")]
        assert len(fixes) == 1 and "rm -rf" not in fixes[0][:20]
        assert len(told) < 3000


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--agents", "fold,rga"), "no agent 'rga'"),
        (("--agents", ""), "there are no agents"),
        (("--chunk-size", "0"), "set --chunk-size"),
        (("--set", "fold.chunk=3"), "there is no chunk"),
        (("--set", "rag.top_k=3"), "sets nothing"),
        (("--set", "fold.chunk_size=0"), "fold.chunk_size is 0\n  fix: set fold.chunk_size to 1"),
        (("--set", "fold.chunk_size=big"), "chunk_size should be a valid integer"),
        (("--tasks", "recal@1k"), "there is no task 'recal'"),
        (("--metrics", "bleu"), "no metric 'bleu'"),
        (("--prices", "cheap"), "not prices"),
        (("--trackers", "tb"), "no tracker 'tb'"),
        (("--n", "0"), "n is 0"),
        (("--concurrency", "0"), "concurrency must be at least 1, got"),
    ],
)
def test_mistakes_are_named_before_anything_is_asked(capsys, tmp_path, more, message):
    with serving() as server:
        assert main(command(server, tmp_path / "x", *more)) == 2
        assert asked(server) == 0
    assert message in capsys.readouterr().err


def test_a_model_folder_that_is_not_there_is_named_by_its_setting(capsys, tmp_path):
    assert main(["eval", "--tasks", "recall@128", "--model", str(tmp_path / "nowhere")]) == 2
    assert "give --model a folder" in capsys.readouterr().err


def test_a_folder_without_an_evaluation_is_refused(capsys, tmp_path):
    assert main(["replay", str(tmp_path)]) == 2
    assert "holds no evaluation" in capsys.readouterr().err
    assert main(["replay"]) == 2
    assert "needs a folder" in capsys.readouterr().err
