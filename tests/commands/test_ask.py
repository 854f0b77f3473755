"""`recollect ask`: a text is read once, the memory is kept, and many questions are answered."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from threading import Event

import pytest

from recollect.cli import main
from recollect.config.presets import DEMO_MODEL
from tests.support.chat_server import chat_server
from tests.support.own import own_folder

SMALL = ["--set", "chunk_size=100", "max_memory_tokens=100", "max_answer_tokens=50"]


def respond(text: str) -> str:
    """Remember every name with a capital A; answer with the memory."""
    if "<section>" in text:
        section = text.partition("<section>")[2].partition("</section>")[0]
        memory = text.partition("<memory>\n")[2].partition("\n</memory>")[0]
        kept = [] if memory == "No previous memory" else memory.split()
        found = [word for word in section.split() if word.startswith("A")]
        return " ".join(dict.fromkeys([*kept, *found])) or "nothing"
    return "They are " + text.partition("<memory>\n")[2].partition("\n</memory>")[0]


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    chapters = [
        f"{name} lives by the sea. " + "It rained. " * 60 for name in ("Anna", "Abel", "Ada")
    ]
    path.write_text("\n\n".join(chapters))
    return path


def ask(capsys, *args, status=0) -> str:
    assert main(["ask", *map(str, args)]) == status
    out = capsys.readouterr()
    return out.out if not status else out.err


def readings(server) -> int:
    return sum("<section>" in text for text in server.texts)


def test_a_text_is_read_once_and_a_saved_memory_answers_without_it(book, tmp_path, capsys):
    memory, cache = tmp_path / "memory.json", ["--cache", tmp_path / "cache"]
    with chat_server(respond) as server:
        first = ask(
            capsys, book, "Who lives here?", "--model", server.url, *SMALL, *cache,
            "--memory", memory,
        )  # fmt: skip
        assert "They are Anna Abel Ada" in first and "book.txt, at 0.00" in first
        windows = readings(server)
        assert windows > 5 and "tokens in" in first
        again = ask(capsys, "--memory", memory, "Who lives here?", "And who else?")
        assert again.count("They are Anna Abel Ada") == 2 and readings(server) == windows
        ask(capsys, book, "Who lives here?", "--model", server.url, *SMALL, *cache)
        assert readings(server) == windows
        more = tmp_path / "more.txt"
        more.write_text("Agnes came later.")
        grown = ask(capsys, more, "Who now?", "--memory", memory, *cache)
        assert "Anna Abel Ada Agnes" in grown and readings(server) == windows + 1
    record = json.loads(memory.read_text())
    assert [source["name"] for source in record["sources"]] == ["book.txt", "more.txt"]


def test_a_text_that_a_saved_memory_has_read_is_not_read_into_it_again(book, tmp_path, capsys):
    memory, more = tmp_path / "memory.json", tmp_path / "more.txt"
    more.write_text("Agnes came later.")
    with chat_server(respond) as server:
        command = ["Who?", "--model", server.url, *SMALL, "--memory", memory]
        command += ["--cache", tmp_path / "c"]
        ask(capsys, book, *command)
        windows, record = readings(server), memory.read_text()
        again = ask(capsys, book, *command)
        assert "book.txt: read before" in again and "book.txt, at 0.00" in again
        assert readings(server) == windows and memory.read_text() == record
        both = ask(capsys, book, more, *command)
        assert "more.txt: 3 words" in both and "Ada Agnes" in both
        assert readings(server) == windows + 1
    sources = json.loads(memory.read_text())["sources"]
    assert [source["name"] for source in sources] == ["book.txt", "more.txt"]


def test_another_models_memory_is_read_as_text_not_as_tokens(tmp_path, capsys):
    """The ids of one vocabulary mean nothing in another."""
    text, memory = tmp_path / "note.txt", tmp_path / "memory.json"
    text.write_text("Anna owns the house.")
    ask(capsys, text, "Who?", "--model", DEMO_MODEL, "--memory", memory, "--cache", tmp_path / "c")
    record = json.loads(memory.read_text())
    assert record["memory"]["ops"][-1][1]["token_ids"]
    other = ["--memory", memory, "Who?", "--model", DEMO_MODEL.parent / "curator", "--json"]
    found = json.loads(ask(capsys, *other))
    record["memory"]["ops"][-1][1]["token_ids"] = []
    memory.write_text(json.dumps(record))
    expected = json.loads(ask(capsys, *other))
    assert found["answer"] == expected["answer"]
    assert found["cost"]["answer"] == expected["cost"]["answer"]


def test_a_memory_that_was_changed_by_hand_is_refused(book, tmp_path, capsys):
    memory = tmp_path / "memory.json"
    with chat_server(respond) as server:
        ask(capsys, book, "Who?", "--model", server.url, *SMALL, "--cache", tmp_path / "c",
            "--memory", memory)  # fmt: skip
        memory.write_text(memory.read_text().replace("Abel", "Cain"))
        assert "does not hold what its hash says" in ask(
            capsys, "--memory", memory, "Who?", status=2
        )


def test_answers_as_json_and_folders_and_standard_input(book, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    book.rename(folder / "deep" / "book.txt")
    (folder / "picture.png").write_bytes(b"\x89PNG\0\0")
    (folder / ".hidden").write_text("Adam")
    with chat_server(respond) as server:
        options = ["--model", server.url, *SMALL, "--json", "--cache", tmp_path / "c"]
        found = json.loads(ask(capsys, folder, "Who?", *options))
        assert found["answer"] == "They are Anna Abel Ada" and found["cost"]["answer"]["calls"] == 1
        assert {p["document"] for p in found["passages"]} == {os.path.join("deep", "book.txt")}
        monkeypatch.setattr(
            "sys.stdin", io.TextIOWrapper(io.BytesIO("Aki \ud83d".encode("utf-8", "surrogatepass")))
        )
        assert "Aki" in json.loads(ask(capsys, "-", "Who is it?", *options))["answer"]


@pytest.mark.parametrize(("question", "reply"), [("Who?", "Ada \ud83d"), ("Who \udcff?", "Ada")])
def test_half_a_character_in_a_question_or_a_reply_is_answered(
    book, tmp_path, capsys, question, reply
):
    with chat_server(lambda text: reply if "Your answer:" in text else "Ada") as server:
        options = ["--model", server.url, *SMALL, "--json", "--cache", tmp_path / "c"]
        assert json.loads(ask(capsys, book, question, *options))["answer"] == reply


def test_a_typed_question_that_is_no_text_is_asked(book, tmp_path, capsys, monkeypatch):
    typed = io.TextIOWrapper(io.BytesIO(b"Who \xff?\n\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", typed)
    with chat_server(respond) as server:
        options = ["--model", server.url, *SMALL, "--json", "--cache", tmp_path / "c"]
        assert (
            json.loads(ask(capsys, book, *options))["question"] == "Who \N{REPLACEMENT CHARACTER}?"
        )


def test_an_agent_that_keeps_nothing_reads_at_once(book, tmp_path, capsys):
    with chat_server(lambda text: "Anna" if "Anna" in text else "no") as server:
        assert "Anna" in ask(capsys, book, "Who is Anna?", "--model", server.url, "--agent", "rag")


def test_what_an_answer_costs_is_said_once(book, tmp_path, capsys):
    with chat_server(lambda text: "Anna") as server:
        asked = ["Who is Anna?", "Who is Abel?", "--model", server.url, "--agent", "rag", "--json"]
        lines = ask(capsys, book, *asked).splitlines()
        costs = [json.loads(line)["cost"] for line in lines]
        assert [cost["answer"]["calls"] for cost in costs] == [1, 1]
        assert [cost["reading"]["calls"] for cost in costs] == [0, 0]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["missing.txt", "Who?"], "there is no file missing.txt"),
        ([f"{'x' * 5000}/y.txt", "Who?"], "there is no file xxxxxxxx"),
        (["Who is it?"], "there is nothing to read"),
        (["{book}", "Who is it?"], "there is no model to ask"),
        (["{book}", "Who?", "--model", "nowhere"], "nowhere"),
        (["{book}", "Who?", "--model", "{demo}", "--agent", "fould"], "fould"),
        (["{book}", "--memory", "{book}", "Who is it?"], "cannot be read"),
    ],
)
def test_mistakes_are_one_message(args, message, book, capsys):
    filled = [word.format(book=book, demo=DEMO_MODEL) for word in args]
    error = ask(capsys, *filled, status=2)
    assert message in error and "fix:" in error and "Traceback" not in error


def test_a_killed_reading_continues(book, tmp_path, capsys):
    killed, whole = tmp_path / "killed", tmp_path / "whole"

    gone = Event()

    def until_killed(text: str) -> str:
        if readings(server) > 4:
            gone.wait(60)
        return respond(text)

    with chat_server(until_killed) as server:
        args = [str(book), "Who lives here?", "--json", "--model", server.url, *SMALL, "--cache"]
        command = [sys.executable, "-m", "recollect", "ask", *args, str(killed)]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while time.monotonic() < end and len(list(killed.glob("[!.]*.json"))) < 3:
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()
        gone.set()
        known = len(list(killed.glob("[!.]*.json")))
        answers = [json.loads(ask(capsys, *args, where)) for where in (killed, whole)]
    calls = [answer["cost"]["reading"]["calls"] for answer in answers]
    assert 3 <= known < calls[1] and calls[0] == calls[1] - known
    assert answers[0]["memory"] == answers[1]["memory"]
    assert answers[0]["answer"] == answers[1]["answer"]


def test_the_first_line_comes_before_what_is_slow_to_import(book, tmp_path):
    """A person sees how much there is to read while torch and the model are still being loaded."""
    heavy = ("torch", "transformers", "numpy", "recollect.commands.ask", "recollect.display.live")
    code = (
        "import sys\n"
        "from recollect.commands.ask_options import AskOptions\n"
        "from recollect.commands.ask_texts import read_texts\n"
        f"read_texts(AskOptions(({str(book)!r}, 'Who is it?'), model='x'))\n"
        f"print(sorted(set({heavy!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "book.txt: 375 words\n[]\n"


FULL = """
async def crammed(task, chats, memory):
    for chunk in task.chunks:
        await chats.open("memory").say("word " * 2000, max_tokens=8)
    return ["" for _ in task.questions]
"""


def test_a_window_that_an_agent_fills_is_what_to_enlarge(book, tmp_path, monkeypatch, capsys):
    """To run the same command again would end in the same place."""
    with own_folder(tmp_path, monkeypatch, own=FULL), chat_server(respond) as server:
        words = [book, "Who?", "--model", server.url, "--agent", "own:crammed", "--window", "1000"]
        said = ask(capsys, *words, "--cache", tmp_path / "cache", status=2)
    assert "ContextFull" in said and "fix: give it a larger --window" in said
    assert "the same command again" not in said
