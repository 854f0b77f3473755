"""Nothing in text can stop a run or act on a screen: hostile text through every writer there is."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Group
from rich.table import Table
from rich.text import Text

import recollect
from recollect.chat.rendering import Renderer, user
from recollect.display.console import open_console
from recollect.display.live import Display
from recollect.display.report import Report, report_card, report_markdown
from recollect.display.rollouts import rollout_table
from recollect.evaluation.progress import Progress
from recollect.evaluation.report.charts import Point, Series, chart
from recollect.evaluation.report.files import write_report
from recollect.evaluation.results import load, save
from recollect.evaluation.tables import cost_table, judge_table, score_table
from recollect.files import Lines, read_lines
from recollect.foreign import (
    BROKEN,
    for_markdown,
    for_page,
    one_line,
    readable_json,
    shown,
    storable,
    storable_values,
)
from recollect.memory.corpus import Strings
from recollect.models.tokenizer import HFTokenizer
from recollect.policies.bytes import Utf8Tokenizer
from recollect.policies.cached import Kept, RemoteModel
from recollect.runs.episodes import read_episodes, write_episodes
from recollect.runs.run import Run
from recollect.runs.tracker_services import TrackerConfig
from recollect.runs.trackers import open_trackers
from recollect.tasks.documents import memagent
from recollect.tasks.files.jsonl import Jsonl
from recollect.tasks.files.records import read_records
from recollect.tasks.files.table import TaskTable, write_tasks
from recollect.tasks.made import ledger_files
from recollect.types import Context, Episode, Failure, MemoryOp, Question, Task, Turn
from tests.support.chat_server import chat_server
from tests.support.hostile import ACTS_ON_A_SCREEN, NASTY, texts
from tests.support.made_up_results import results
from tests.support.tiny import byte_tokenizer

RESULTS = results()
A_FEW = settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)


# --- the functions --------------------------------------------------------------------------------


@given(texts)
def test_storable_text_is_utf_8_and_only_halves_of_pairs_change(text: str):
    kept = storable(text)
    assert kept.encode().decode() == kept and len(kept) == len(text)
    changed = [a for a, b in zip(text, kept, strict=True) if a != b]
    assert all(0xD800 <= ord(char) < 0xE000 for char in changed)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)


@given(st.recursive(texts, nested, max_leaves=5))
def test_readable_json_can_be_written_and_read_back(value: Any):
    assert json.loads(readable_json(value).encode()) == storable_values(value)


@given(texts)
def test_nothing_that_is_shown_acts_on_a_screen(text: str):
    for made in (shown(text), one_line(text), for_page(text), for_markdown(text)):
        assert not ACTS_ON_A_SCREEN.search(made)
        made.encode()
    assert shown(shown(text)) == shown(text)
    assert ElementTree.fromstring(f"<p a='{for_page(text)}'>{for_page(text)}</p>").tag == "p"
    assert "\n" not in for_markdown(text)


@given(st.text(), st.integers(20, 60))
def test_one_line_is_printable_and_within_the_limit(raw: str, limit: int):
    line = one_line(raw, limit)
    assert line.isprintable() and len(line) <= limit
    if raw.isprintable() and len(raw) <= limit:
        assert line == " ".join(raw.split())


def test_one_line_keeps_both_ends_and_cuts_between_words():
    for times in (50, 1_000_000):
        line = one_line("alpha " * times + "omega", 40)
        assert line.startswith("alpha alpha") and line.endswith("alpha omega") and " … " in line
        assert set(line.split()) == {"alpha", "omega", "…"}


def test_letters_of_any_script_are_shown_as_they_are():
    text = "中文 עברית عربي نیم\u200cفاصله ไทย é e\u0301 👩\u200d👧 a\tb\nc"
    assert shown(text) == text


# --- files ----------------------------------------------------------------------------------------


def episode(text: str) -> Episode:
    question = Question(text, (text,), category=text)
    turn = Turn(1, (2,), (-0.5,), "stop")
    return Episode(
        task=Task(text, (text,), (question,), source=text, meta={text: [text]}),
        rollout=0,
        contexts=[Context("memory", label=text, ids=[1, 2], turns=[turn])],
        ops=[MemoryOp("replace", {"text": text}, label=text)],
        answers=[text],
        reward=0.5,
        scores={text: 1.0},
        failure=Failure("policy", "Odd", text),
    )


@A_FEW
@given(texts)
def test_logs_keep_text_exactly(text: str):
    with TemporaryDirectory() as name:
        folder = Path(name)
        log = Lines(folder / "lines.jsonl")
        log.append({"said": text, text: 1})
        log.append([text])
        log.close()
        again = _joined(text)
        kept = [record for _number, record in read_lines(folder / "lines.jsonl")]
        assert kept == [{"said": again, again: 1}, [again]]
        write_episodes(folder / "e.gz", [episode(text)], lambda _role, _ids: text)
        (back,) = read_episodes(folder / "e.gz")
        assert back.answers == [again] and back.failure.message == again
        assert back.task.questions[0].text == again and back.ops[0].data == {"text": again}


def _joined(text: str) -> str:
    """Put the halves of a pair that stand side by side together, as every reader of JSON does."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@A_FEW
@given(texts)
def test_runs_and_trackers_take_any_text(text: str):
    with TemporaryDirectory() as name:
        folder = Path(name) / "run"
        with Run.open(folder, {"name": text, "agent": {text: [text]}}) as run:
            run.log(1, {text: 1.0, "reward": 0.5})
            run.write_episodes(1, "train", [episode(text)], lambda _role, _ids: text)
            run.write_text("report.md", f"# {text}")
        config = {"name": text, "agent": {"note": [text]}}
        named = TrackerConfig(run=text, tags=(text,))
        with open_trackers(["tensorboard"], folder, config, named) as trackers:
            trackers.log(1, {text: 1.0, "reward": 0.5}, [episode(text)])
        assert trackers.opened == []
        assert (folder / "report.md").read_text(encoding="utf-8") == _as_written(f"# {text}")


def _as_written(text: str) -> str:
    return storable(text).replace("\r\n", "\n").replace("\r", "\n")  # as text files are read


@A_FEW
@given(texts)
def test_parquet_takes_any_text(text: str):
    chunk = text or "x"
    task = Task(text, (chunk,), (Question(text, (chunk,), text),), text, {"about": text})
    with TemporaryDirectory() as name:
        folder = Path(name)
        assert write_tasks(folder / "tasks.parquet", [task]) == 1
        back = TaskTable(folder / "tasks.parquet", "").task(0)
        assert back.chunks == (storable(chunk),) and back.questions[0].text == storable(text)
        assert back.meta == {"about": storable(text)}
        memagent.write_rows(folder / "rows.parquet", [task])
        memagent.write_eval(folder / "rows.json", [task])
        ledger_files.write_rows(folder / "ledger.parquet", [task])
        ledger_files.write_eval(folder / "ledger.json", [task])
        assert json.loads((folder / "rows.json").read_bytes())[0]["input"] == storable(text)
    assert len(Strings.pack([text])) == 1


def test_bytes_that_are_no_text_spoil_a_character_and_not_a_file(tmp_path: Path):
    raw = b'{"text": "a\xff\xc3(\xed\xa0\x80b", "question": "q\x80?", "answer": "\xfe"}\n'
    plain, packed = tmp_path / "tasks.jsonl", tmp_path / "more.jsonl.gz"
    plain.write_bytes(raw * 1)
    with gzip.open(packed, "wb") as file:
        file.write(raw)
    task = Jsonl(plain).task(0, split="test")
    assert task.chunks[0].startswith(f"a{BROKEN}") and task.questions[0].answers == (BROKEN,)
    for path in (plain, packed):
        ((_place, record),) = read_records(path)
        assert record["question"] == f"q{BROKEN}?"


def test_a_line_of_ten_megabytes_is_kept_and_shown(tmp_path: Path):
    text = "\u4e2d\x1b[31m" * 1_250_000 + "\ud800"
    log = Lines(tmp_path / "lines.jsonl")
    log.append([text])
    log.close()
    assert [record for _, record in read_lines(tmp_path / "lines.jsonl")] == [[text]]
    assert len(one_line(text, 100)) <= 100 and not ACTS_ON_A_SCREEN.search(shown(text))
    assert len(printed(rollout_table([[episode(text)]]))) < 10_000


# --- pages ----------------------------------------------------------------------------------------


def hostile_results(text: str):
    """Put text wherever a server, a data set or a model could have put it."""
    (first, *_), (shown_example, *_) = RESULTS.cells, RESULTS.examples
    cells = [
        replace(cell, task=f"{cell.task}{text}", family=f"{cell.family}{text}", agent=f"a{text}")
        for cell in RESULTS.cells
        if cell.agent == first.agent
    ]
    example = replace(
        shown_example,
        task=cells[0].task,
        agent=cells[0].agent,
        question=text,
        answers=[text],
        answer=text,
        category=text,
        memory=text,
        failure=text,
    )
    judge = replace(RESULTS.judge, model=text, prompt_hash=text)
    model = {"memory": {"id": text, "url": text}, "answer": {"folder": text}}
    return replace(
        RESULTS,
        command=text,
        model=model,
        config={"sets": {}, "note": text},
        versions={text: text},
        data={text: text},
        cells=cells,
        comparisons=[],
        examples=[example],
        judge=judge,
    )


@A_FEW
@given(texts)
def test_results_and_reports_take_any_text(text: str):
    with TemporaryDirectory() as name:
        folder = Path(name)
        save(hostile_results(text), folder)
        assert load(folder).examples[0].answer == storable(text)
        markdown, page = write_report(folder)
        written = page.read_text(encoding="utf-8")
        assert not ACTS_ON_A_SCREEN.search(written)
        assert not ACTS_ON_A_SCREEN.search(markdown.read_text(encoding="utf-8"))
    tree = ElementTree.fromstring(written.partition("\n")[2])
    assert not {"script", "img", "b", "a:b"} & {element.tag for element in tree.iter()}


@given(texts)
def test_charts_take_any_text(text: str):
    series = [Series(text, 0, [Point(1.0, 0.5, 0.4, 0.6, text)])]
    svg = chart(text, text, series, lambda _x: text)
    assert not ACTS_ON_A_SCREEN.search(svg)
    assert {e.tag for e in ElementTree.fromstring(svg).iter()} <= {
        *("svg", "text", "path", "g", "title", "circle", "rect")
    }


# --- the terminal ---------------------------------------------------------------------------------


def printed(*renderables: Any, width: int = 100) -> str:
    """Print through the console that every command uses."""
    out = io.StringIO()
    with redirect_stdout(out):
        console = open_console()
        console.width = width
        for renderable in renderables:
            console.print(renderable)
            console.out(renderable if isinstance(renderable, str) else "")
    return out.getvalue()


@A_FEW
@given(texts)
def test_a_terminal_is_never_acted_on(text: str):
    table = Table(title=None)
    table.add_column(Text(text))
    table.add_row(Text(text))
    made = hostile_results(text)
    report = Report(text, Path("run"), None, results_accuracy(), facts={"model": text})
    out = io.StringIO()
    with redirect_stdout(out):
        console = open_console()
        with Display(console, 3, text, {"model": text}, plain=True) as display:
            display.note(text)
            display.show(Text(text))
            display.validation(1, [(text, results_accuracy())])
        with Progress(console, {(text, text): 1}, {text: text}, text, plain=True):
            pass
        with Progress(console, {(text, text): 1}, {text: text}, text, plain=False) as progress:
            console.print(progress._page())
        for renderable in (
            *(table, Group(Text(text)), rollout_table([[episode(text)]]), report_card(report)),
            *(score_table(made), cost_table(made), judge_table(made.judge)),
        ):
            console.print(renderable)
        console.print(text, markup=False)
        console.out(text)
    assert not ACTS_ON_A_SCREEN.search(out.getvalue())
    assert report_markdown(report).encode() and not ACTS_ON_A_SCREEN.search(report_markdown(report))


def results_accuracy():
    from recollect.accuracy import Accuracy

    return Accuracy(0.5, 0.4, 0.6, 10, 0)


# --- tokenizers and servers -----------------------------------------------------------------------


@given(texts)
def test_tokenizers_take_any_text(text: str):
    hf = byte_tokenizer()
    for tokenizer in (Utf8Tokenizer(), HFTokenizer(hf, len(hf), (hf.eos_token_id,))):
        ids = Renderer(tokenizer).opening([user(text)])
        assert all(0 <= i < tokenizer.vocab_size for i in ids)
        assert tokenizer.decode(tokenizer.encode(text)) == storable(text)
        assert isinstance(tokenizer.encode(text, control=True), list)


@pytest.mark.parametrize("text", NASTY)
def test_servers_are_sent_and_may_say_anything(text: str, tmp_path: Path):
    with chat_server(lambda _said: f"a{text}b") as server:
        model = RemoteModel(server.url, cache=tmp_path / "kept.sqlite")
        first = asyncio.run(model(text, text))
        again = RemoteModel(server.url, cache=tmp_path / "kept.sqlite")
        assert asyncio.run(again(text, text)) == first
        assert first.split() == storable(f"a{text}b").split()
        assert server.texts == [storable(f"{text}\n\n{text}")]
    kept = Kept(tmp_path / "own.sqlite")
    kept.put("key", "model", storable(text))
    assert kept.get("key") == storable(text)


# --- the doors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "doors"),
    [
        (r"\bConsole\(", {"display/console.py"}),
        (r"(?<!\bre\.)\bescape\(", {"foreign.py"}),
        (r"(?<![\w.])print\((?!shown\()", {"cli.py", "commands/verbs.py", "serve/server.py"}),
    ],
)
def test_there_is_no_other_door_to_a_screen_or_a_page(pattern: str, doors: set[str]):
    """What prints, opens a console or escapes by itself would pass the one cleaner by."""
    source = Path(recollect.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }
    assert found - doors == set()
