"""The page in a real Chromium: every part, on runs that were really made."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from recollect.commands.evaluate import evaluate
from recollect.concurrency.stop import Stop
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.evaluation.models import Opened
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.setup import Own
from recollect.foreign import shown
from recollect.types import Failure, Question
from recollect.view.answers import Answers
from recollect.view.export import export
from recollect.view.sources import open_sources
from tests.support.hostile import ACTS_ON_A_SCREEN, NASTY
from tests.support.scripted import respond, scripted_models
from tests.support.viewing import (
    FINE,
    KEPT,
    LOST,
    MISREAD,
    NEVER,
    Browser,
    browser,
    context,
    decode,
    episode,
    open_run,
    planted,
    viewing,
    write_step,
)


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a fold and a curator for a step each, and evaluate two agents with a scripted model."""
    pytest.importorskip("torch")
    import recollect

    folder = tmp_path_factory.mktemp("real")
    small = ValidationConfig(tasks=8, lengths=(1, 2), length_tasks=4)
    for name, n in (("demo", 8), ("curator", 4)):
        config = replace(
            preset(name),
            folder=folder,
            steps=1,
            updates_per_step=1,
            rollout=RolloutConfig(tasks=2, n=n, keep_groups=-1),
            val=small,
        )
        recollect.train(config, quiet=True)
    _evaluate(folder / "evaluation")
    return folder


def _evaluate(folder: Path, agents: tuple[str, ...] = ("fold", "rag")) -> None:
    def forgetful(prompt: str) -> str:
        return "nothing" if "section" in prompt and "9" in prompt else respond(prompt)

    options = EvalOptions(
        tasks=("recall@1k",), agents=agents, model="", n=4, chunk_size=400, out=folder
    )
    own = Own(opened=Opened(scripted_models(forgetful), {"memory": {}, "answer": {}}))
    evaluate(options, "recollect eval", Console(file=io.StringIO()), Stop(), own)


def test_a_planted_overwrite_is_found_in_three_clicks(page, tmp_path):
    with viewing(planted(tmp_path)) as (url, _):
        page.open(url)
        page.click("nav a", "Why it failed")
        page.click("[data-cause=overwritten]", "2")
        page.wait("#count", "2 of 14")
        page.click("#episodes tbody a")
        assert "died in chunk 3" in page.wait("#story", "overwritten").text
        assert page.wait(".turn[aria-current=step]").text.startswith("chunk 3")
        page.wait("#frame del", "mango")
        page.wait("#frame ins", "bicycle")
        page.click("#strip li:first-child button")
        assert page.wait("#frame mark").text == "mango"
    assert page.errors() == []


def test_search_filters_deep_links_keys_and_looks(page, tmp_path):
    with viewing(planted(tmp_path)) as (url, _):
        page.open(url + "#/episodes/planted?result=wrong&split=val")
        page.wait("#count", "4 of 14")
        page.wait("#search").send_keys("kiwi")
        page.wait("#count", "3 of 14")
        assert "text=kiwi" in page.driver.current_url
        address = page.driver.current_url
        page.open(address)
        page.wait("#count", "3 of 14")
        body = page.wait("body")
        page.wait("h1").click()
        body.send_keys("j")
        assert page.script("return document.activeElement.tagName") == "A"
        body.send_keys("t")
        first = page.script("return document.documentElement.dataset.theme")
        body.send_keys("t")
        assert {first, page.script("return document.documentElement.dataset.theme")} == {
            "dark",
            "light",
        }
        page.open(url + "#/film/planted/0?turn=0")
        page.wait(".turn[aria-current=step]", "chunk 1")
        page.wait("body").send_keys("x")
        page.wait(".turn[aria-current=step]", "chunk 3")
        named = page.script(
            "return [...document.querySelectorAll('button, a, input, select')].every("
            "e => e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label'))"
        )
        assert named
        page.driver.set_window_size(380, 800)
        wide = page.script("return document.documentElement.scrollWidth - innerWidth")
        page.driver.set_window_size(1280, 900)
        assert wide <= 0
    assert page.errors() == []


def test_a_list_that_is_drawn_again_keeps_its_place(page, tmp_path):
    with viewing(planted(tmp_path)) as (url, _):
        page.open(url + "#/episodes/planted")
        page.wait("#count", "14 of 14")
        page.wait("h1").click()
        for _ in range(3):
            page.wait("body").send_keys("j")
        chosen = "return document.activeElement.getAttribute('href')"
        address = page.script(chosen)
        assert address.startswith("#/film/planted/")
        page.driver.execute_async_script("redraw().then(() => arguments[0]())")
        assert page.script(chosen) == address
        page.script("document.querySelector('[data-filter=result]').focus()")
        page.driver.execute_async_script("redraw().then(() => arguments[0]())")
        assert page.script("return document.activeElement.dataset.filter") == "result"
    assert page.errors() == []


def test_an_address_that_names_nothing_here_says_so(page, tmp_path):
    """Another folder's episode in its place would be taken for the one that was asked for."""
    with viewing(planted(tmp_path)) as (url, _):
        for place in ("film/elsewhere/0", "why/elsewhere", "episodes/elsewhere"):
            page.open(f"{url}#/{place}")
            page.wait("main", "There is no folder elsewhere here")
        for place, title in (("runs/elsewhere", "Runs"), ("compare/elsewhere", "Compare")):
            page.open(f"{url}#/{place}")
            page.wait("h1", title)
            page.click("nav a", "Episodes")
            page.wait("#count", "14 of 14")
        page.open(url + "#/%ff")
        page.wait("h1", "Runs")
    assert page.errors() == []


def test_an_agent_can_be_chosen_where_the_page_cannot_choose_one(page, tmp_path):
    _evaluate(tmp_path / "one", ("fold",))
    _evaluate(tmp_path / "several", ("rag", "full_context"))
    with viewing(tmp_path) as (url, _):
        page.open(url + "#/compare?a=one&b=several")
        page.wait("#comparison", "several has several agents")
        page.click("#comparison label:last-child option", "rag")
        page.wait("#comparison", "one, fold minus several, rag; 4 answers")
        page.open(url + "#/compare?a=one&b=several&a_is=flod")
        page.wait("#comparison", "one has no agent flod")
        page.click("#comparison label:first-child option", "fold")
        page.wait("#comparison", "several has several agents")
    assert all("400 (Bad Request)" in message for message in page.errors())


def test_what_nothing_has_measured_is_not_shown_as_wrong(page, tmp_path):
    unread = {"score": None, "answer": "", "failure": "judge: it is gone"}
    found = {"mean": None, "low": None, "high": None, "right": 0, "n": 0, "answers": [unread]}
    with viewing(planted(tmp_path)) as (url, _):
        page.open(url)
        page.wait("h1", "Runs")
        shown = page.script(f"return show(outcome({json.dumps(found)})).textContent")
        assert "not scored" in shown and "\u2717" not in shown
    with open_run(tmp_path / "empty") as run, viewing(run.folder) as (url, _):
        page.open(url + "#/why/planted")
        page.wait("main p", "Every wrong answer")
        assert "Nothing has scored" not in page.text()
        write_step(run, 1, 0.5, replace(LOST, scores={}, answer_scores=[], reward=None))
        page.wait("main", "Nothing has scored these answers.")
    assert page.errors() == []


def test_a_live_run_updates_without_a_reload(page, tmp_path):
    with open_run(tmp_path) as run:
        write_step(run, 1, 0.5, *FINE, LOST)
        with viewing(run.folder) as (url, _):
            page.open(url + "#/episodes/planted")
            page.script("window.same = true")
            page.wait("#live", "1 running")
            page.wait("#count", "7 of 7")
            write_step(run, 2, 0.75, *MISREAD, NEVER)
            page.wait("#count", "10 of 10")
            page.click("nav a", "Runs")
            page.wait("#curves svg title", "")
            dots = len(page.all("#curves figure:nth-child(2) circle"))
            write_step(run, 3, 0.9, *FINE)
            page.wait("#curves figure:nth-child(2) circle:nth-of-type(3)")
            assert len(page.all("#curves figure:nth-child(2) circle")) == dots + 1
            assert page.script("return window.same")
    assert page.errors() == []


def test_ten_thousand_episodes_open_in_under_two_seconds(page, tmp_path):
    many = [replace(own, task=replace(own.task, id=f"{own.task.id}-{i}"))
            for i, own in enumerate([*FINE, *MISREAD, LOST, NEVER] * 20)]  # fmt: skip
    with open_run(tmp_path) as run:
        first = run.write_episodes(1, "val", many, decode)
        for step in range(2, 51):
            (first.parent / f"val-{step:06d}.jsonl.gz").write_bytes(first.read_bytes())
    with viewing(run.folder) as (url, _):
        took = 2000
        for _ in range(3):  # the machine may have other work to do
            page.open("about:blank")
            page.open(url + "#/episodes/planted")
            page.wait("#count", "10,000 of 10,000")
            took = min(took, page.script("return performance.now()"))
            if took < 2000:
                break
        page.wait("#search").send_keys("misread-1")
        page.wait("#count", " of 10,000")
        assert len(page.all("#episodes tbody tr")) <= 100
    assert took < 2000


def test_hostile_text_is_inert_everywhere(page, tmp_path):
    attack = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>" + "".join(NASTY)
    question = Question(f"What? {attack}", (attack,), attack[:50])
    texts = (attack, "</script>" + attack, "x" * 10_000)
    own = [
        episode(f"{attack} {i}", [text] * 3, text, question=question, chunks=texts)
        for i, text in enumerate(texts)
    ]
    own.append(
        episode("f", [attack], "", question=question,
                failure=Failure(attack[:40], attack[:60], attack, "agent"))
    )  # fmt: skip
    with open_run(tmp_path) as run:
        run.write_episodes(1, "train", own, decode)
        write_step(run, 1, 0.5, *own)
    answers = Answers(open_sources([run.folder]))
    export(answers, tmp_path / "page.html")
    with viewing(run.folder) as (url, _):
        for start in (url, f"file://{tmp_path / 'page.html'}"):
            for place in ("#/episodes/planted", "#/why/planted", "#/film/planted/0",
                          "#/film/planted/3", "#/siblings/planted/0",
                          "#/compare?a=planted&b=planted"):  # fmt: skip
                page.open(start + place)
                page.wait("main h1")
                page.wait("main", "window.pwned" if place.startswith(("#/f", "#/e")) else "")
                assert page.script("return window.pwned") is None, place
                assert not page.all("main script, main img, main iframe"), place
                assert not ACTS_ON_A_SCREEN.search(page.text()), place
    assert page.errors() == []


def test_an_exported_file_works_with_the_network_cut(page, tmp_path, real):
    answers = Answers(open_sources([planted(tmp_path), real]))
    export(answers, tmp_path / "page.html", 30)
    page.driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        page.open(f"file://{tmp_path / 'page.html'}")
        page.wait("#curves svg")
        page.wait("#settings td")
        page.click("tbody a", "planted")
        page.click("[data-cause=overwritten]")
        page.click("#episodes tbody a")
        page.wait("#story", "died in chunk 3")
        page.wait("#frame del", "mango")
        page.click("a.button", "side by side")
        page.wait("#siblings .divergence")
        asked = "return performance.getEntriesByType('resource').map(e => e.name)"
        assert [name for name in page.script(asked) if name != "data:,"] == []
    finally:
        page.driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            offline | {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1},
        )
    assert page.errors() == []


def test_a_training_run_shows_curves_siblings_tokens_and_what_if(page, real):
    with viewing(real) as (url, answers):
        page.open(url)
        page.wait("#curves figure:nth-child(2) .dot")
        assert len(page.all("#curves figure")) == 6
        page.wait("main", "Held-out accuracy by length")
        page.wait("main td", "2x")
        page.wait("#settings td")
        demo = answers.source("demo")
        n = next(row["n"] for row in demo.rows if row["split"] == "train")
        page.open(url + f"#/siblings/demo/{n}")
        page.wait("#siblings th", "advantage")
        assert len(page.all("#siblings thead th")) == 9
        page.click("#siblings thead a")
        page.click("#tokens")
        page.wait("#tokentable th", "sampler")
        page.click("#ratios")
        page.wait("#tokentable th", "ratio now", seconds=60)  # the model is loaded first
        page.click("#strip li:nth-child(3) button")
        gold = demo.rows[next(i for i, row in enumerate(demo.rows) if row["n"] == n)]["gold"]
        page.wait("#edited").clear()
        page.wait("#edited").send_keys(gold)
        page.click("#ask")
        assert "P(correct | edited memory) = " in page.wait("#whatif .figure", seconds=60).text
        right = page.wait("#whatif").text
        page.wait("#edited").clear()
        page.wait("#edited").send_keys("zzz")
        page.click("#ask")
        page.wait("#whatif .figure", "edited memory")
        wrong = page.wait("#whatif").text
        assert "16 of 16 right" in right  # the demo's model repeats what its memory says
        assert int(re.search(r"(\d+) of 16 right", wrong)[1]) < 8  # and guesses one of eight else
        page.click("#strip li:first-child button")
        page.click("#roll")
        page.wait("#whatif .figure", "P(correct | this memory)")
    assert page.errors() == []


def test_a_curator_run_shows_operations_and_searches(page, real):
    with viewing(real / "curator") as (url, answers):
        source = answers.source("curator")
        wrote = next(
            row["n"]
            for row in source.rows
            if {"add"} <= {op.kind for op in source.stored(row["n"]).ops}
        )
        page.open(url + f"#/film/curator/{wrote}")
        page.wait("main", "before,")
        turns = len(page.all(".turn"))
        assert turns >= 2
        seen = ""
        for i in range(turns):
            page.click(f"#strip li:nth-child({i + 1}) button")
            seen += page.wait("#frame").text
        assert "What the search returned" in seen and "there before the episode" in seen
        assert "Operations" in seen and "memory_" in seen
    assert page.errors() == []


def test_a_program_shows_its_result_and_its_calls(page, tmp_path):
    asked = "<problem>\nWhat is Maria's favourite fruit?\n</problem>"
    said = [
        ("answer", asked, "```\nprint(len(text))\n```", "question 1 turn 1"),
        (
            "answer",
            f"{asked}\n<result>\n<b>31</b>\n</result>",
            "```\nanswer(ask(text, 'Which?'))\n```",
            "question 1 turn 2",
        ),
        ("memory", "<text>\nMaria likes mango.\n</text>", "mango", "question 1 call 1"),
    ]
    own = replace(LOST, ops=[], answers=["\\boxed{mango}"])
    own.contexts = [
        context(role, prompt, reply, label=label, counts={"programs": 1} if i < 2 else {})
        for i, (role, prompt, reply, label) in enumerate(said)
    ]
    with open_run(tmp_path) as run:
        write_step(run, 1, 0.5, own)
    with viewing(run.folder) as (url, _answers):
        page.open(url + "#/film/planted/0?turn=0")
        page.wait("#program pre", "print(len(text))")
        page.wait("#program pre", "<b>31</b>")
        page.click("#program .calls a", "question 1 call 1")
        page.wait(".turn[aria-current=step]", "\u21b3 question 1 call 1")
        page.wait("#frame", "Called by question 1 turn 1")
    assert page.errors() == []


def test_an_evaluation_shows_its_texts_and_compares_agents(page, real):
    with viewing(real / "evaluation") as (url, answers):
        source = answers.source("evaluation")
        fold = next(row["n"] for row in source.rows if row["split"] == "fold")
        page.open(url + f"#/film/evaluation/{fold}")
        page.wait("h2", "Text that it read")
        page.wait("#frame pre")
        page.open(url + "#/compare?a=evaluation&b=evaluation&a_is=fold&b_is=rag")
        page.wait("#comparison .figure", "p = ")
        page.wait("#comparison", "evaluation, fold minus evaluation, rag; 4 answers")
        page.open(url)
        page.wait("main", "Held-out accuracy by length")
    assert shown(KEPT) == KEPT and page.errors() == []
