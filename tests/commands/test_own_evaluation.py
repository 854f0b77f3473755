"""Your own agent, tasks and metric in an evaluation, beside ours, over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.evaluation.folder import read_episodes
from recollect.evaluation.results import load
from tests.support.chat_server import chat_server
from tests.support.own import own_folder
from tests.support.warm import Warm


@pytest.fixture
def here(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch) as folder:
        yield folder


def test_an_agent_of_yours_is_measured_beside_ours(here, capsys):
    with chat_server(lambda _text: "e1") as server:
        words = ["--agents", "fold,rag,mine:two_pass,mine.py:Reader", "--tasks", "mine:Chess"]
        words += ["--metrics", "token_f1,mine:close_enough", "--model", server.url]
        words += ["--set", "mine.py:Reader.max_note_tokens=7", "--out", "out", "--n", "2"]
        assert main(["eval", *words]) == 0
        shown = capsys.readouterr().out
        assert "mine:two_pass" in shown and "mine:Chess" in shown
        assert "as asked for with --metrics" in shown and "mine:close_enough" in shown
        beside = shown.partition("as asked for")[2].partition("build in")[0]
        assert "answer_match" not in beside  # which leads the one set that there is
        config = json.loads(Path("out/config.json").read_text())
        assert '"max_note_tokens": 7' in config["agents"]["mine.py:Reader"]
        assert list(config["code"]) == ["mine"] and Path("out/code/mine.py").is_file()
        results = json.loads(Path("out/results.json").read_text())
        assert "mine:close_enough" in json.dumps(results)
        # A metric that was written later is in the file, and not in its stored copy.
        del sys.modules["mine"]
        with open("mine.py", "a") as file:
            file.write("\n\ndef later(prediction, answers):\n    return 0.25\n")
        assert main(["replay", "out", "--metrics", "mine.py:later"]) == 0
        assert "mine.py:later" in Path("out/report.md").read_text()
        # Scored again elsewhere, the metric comes from the folder.
        del sys.modules["mine"]
        Path("mine.py").unlink()
        assert main(["replay", "out", "--metrics", "mine:close_enough"]) == 0


def test_a_class_with_a_tool_is_measured_beside_ours_and_its_tool_is_called(here, capsys):
    call = '<tool_call>{"name": "whisper", "arguments": {"word": "E1"}}</tool_call>'
    with chat_server(lambda text: call if "Move" in text else "e1" * ("e1" in text)) as server:
        words = ["--agents", "fold,rag,mine:Seeker", "--tasks", "mine:Chess", "--n", "1"]
        words += ["--set", "mine:Seeker.tools=mine:shout,mine:whisper"]
        words += ["mine:Seeker.memory=mine:Notebook", "--model", server.url, "--out", "out"]
        assert main(["eval", *words]) == 0
    [episode] = [e for e in read_episodes(Path("out")) if e["agent"] == "mine:Seeker"]
    assert episode["failure"] is None and episode["answers"] == ["e1"]
    assert any(text == "<tool_response>\ne1\n</tool_response>" for text in server.texts)
    config = json.loads(Path("out/config.json").read_text())
    assert "Notebook" in config["agents"]["mine:Seeker"] and list(config["code"]) == ["mine"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--agents", "mine:nobody"], "has no nobody"),
        (["--agents", "nobody"], "there is no agent 'nobody'"),
        (["--tasks", "mine:Reader"], "is not a task family"),
        (["--tasks", "mine:Chess@8k"], "mine:Chess has no method of_length"),
        (["--metrics", "mine:nothing"], "has no nothing"),
        (["--metrics", "nothing"], "there is no metric 'nothing'"),
        (["--agents", "own:Plain", "--set", "own:Plain.n=4"], "Plain has no settings: those of a"),
    ],
)
def test_bad_names_are_one_message(here, capsys, words, says):
    Path("own.py").write_text(
        "class Plain:\n    n = 3\n\n    async def run(self, task, chats, memory):\n        pass\n"
    )
    given = ["--model", "http://127.0.0.1:9/v1", "--out", "out"]
    given += [] if "--tasks" in words else ["--tasks", "recall@1k"]
    assert main(["eval", *given, *words]) == 2
    said = capsys.readouterr().err
    assert says in said and "fix: " in said


MISTAKES = {
    "name": ("return [undefined]", "own.py:2: NameError: name 'undefined' is not defined", 0),
    "text": ("return 'yes'", "own.py:1: OwnMistake: the agent wrong returned 'yes', not a", 0),
    "value": (
        "return [int((await chats.open().say('How many?', max_tokens=9)).text)]",
        "own.py:2: ValueError: invalid literal for int() with base 10: 'e1'",
        4,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_an_agent_is_found_before_anything_is_stored(here, capsys, name):
    """Four calls, not 200 episodes; corrected, the same command works in the same folder."""
    body, says, calls = MISTAKES[name]
    Path("own.py").write_text(f"async def wrong(task, chats, memory):\n    {body}\n")
    with chat_server(lambda _text: "e1") as server:
        words = ["eval", "--agents", "fold,own:wrong", "--tasks", "recall@1k", "--n", "100"]
        words += ["--model", server.url, "--out", "out", "--no-closed-book"]
        assert main(words) == 2
        said = capsys.readouterr().err
        assert says in said.replace("\n", " ") and "fix: " in said and "Traceback" not in said
        asked = [text for text in server.texts if text != "Say OK."]  # asked of every server
        assert len(asked) == calls and not Path("out/config.json").exists()
        del sys.modules["own"]
        Path("own.py").write_text("async def wrong(task, chats, memory):\n    return ['e1']\n")
        assert main([*words[:5], "--n", "1", *words[7:]]) == 0


def test_what_fails_on_one_task_only_is_counted_with_its_line(here, capsys):
    Path("own.py").write_text(
        "async def third(task, chats, memory):\n"
        "    if 'test-0-2-' in task.id:\n        raise KeyError('third')\n    return ['e1']\n"
    )
    with chat_server(lambda _text: "e1") as server:
        words = ["eval", "--agents", "own:third", "--tasks", "recall@1k", "--n", "4"]
        assert main([*words, "--model", server.url, "--out", "out", "--no-closed-book"]) == 0
    said = capsys.readouterr().out
    assert "1 of 4 episodes failed; the first one at own.py:3: KeyError" in said


def test_a_mistake_in_ones_tasks_or_metric_is_found_first(here, capsys):
    Path("own.py").write_text(
        "def close(prediction, answers):\n    return prediction.lowr()\n\n"
        "def tasks(split):\n    return [1 / 0]\n\ndef words(prediction, answers):\n"
        "    return 'good'\n\nclass Odd:\n    name, metric = 'odd', 'nope'\n"
        "    def size(self, split):\n        return 2\n    def longer(self, times):\n"
        "        return self\n    def task(self, index, seed=0, split='train'):\n"
        "        from mine import Chess\n        return Chess().task(index, seed, split)\n"
    )
    common = ["eval", "--model", "http://127.0.0.1:9/v1", "--out", "out"]
    for words, says in {
        ("--tasks", "recall@1k", "--metrics", "own:close"): "own.py:2: AttributeError",
        (
            "--tasks",
            "recall@1k",
            "--metrics",
            "own:words",
        ): "own.py:7: OwnMistake: the metric returned 'good'",
        ("--tasks", "own:Odd"): "there is no metric 'nope'",
        ("--tasks", "own:tasks"): "own.py:5: ZeroDivisionError: division by zero",
    }.items():
        assert main([*common, *words]) == 2
        said = capsys.readouterr().err
        assert says in said and "Traceback" not in said


CHANGING = """
import itertools, random, time
N = itertools.count()

def dice(prediction, answers):
    return random.random()

def turns(prediction, answers):
    return next(N) % 7 / 7

def clock(prediction, answers):
    return time.time() % 1

def steady(prediction, answers):
    return float(prediction in answers)
"""


@pytest.mark.parametrize("name", ["dice", "turns", "clock"])
def test_a_metric_that_changes_its_mind_is_refused(here, capsys, name):
    """Two replays of one evaluation would give two scores."""
    Path("own.py").write_text(CHANGING)
    with chat_server(lambda _text: "e1") as server:
        words = ["eval", "--agents", "fold", "--tasks", "recall@1k", "--n", "1"]
        words += ["--model", server.url, "--out", "out", "--no-closed-book", "--metrics"]
        assert main([*words, f"own:{name}"]) == 2
        says = f"the metric own:{name} gives the same answer 0"
        assert says in capsys.readouterr().err and not Path("out").exists()
        assert main([*words, "own:steady"]) == 0
        capsys.readouterr()
        assert main(["replay", "out", "--metrics", f"own:{name}"]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("    os.closerange(3, 60)\n", "let your own code close only what it has opened"),
        (
            "    for task in asyncio.all_tasks() - {asyncio.current_task()}:\n"
            "        task.cancel()\n    await asyncio.sleep(0.1)\n",
            "let your own code cancel only tasks that it has made",
        ),
    ],
)
def test_an_agent_that_takes_things_away_is_one_message(here, body, says):
    """In a process of its own: it also closes what the tests have open."""
    Path("own.py").write_text(
        f"import asyncio, os\n\n\nasync def taking(task, chats, memory):\n{body}    return ['e1']\n"
    )
    with chat_server(lambda _text: "e1") as server:
        words = ["eval", "--agents", "own:taking", "--tasks", "recall@1k", "--n", "2"]
        words += ["--model", server.url, "--out", "out", "--no-closed-book"]
        taken = Warm(words)
        _, said = taken.communicate(timeout=60)
    assert taken.returncode == 2
    assert says in said and "Traceback" not in said


def test_measuring_a_preset_finds_a_mistake_at_once_too(here, capsys):
    Path("own.py").write_text("async def wrong(task, chats, memory):\n    return [undefined]\n")
    assert main(["eval", "demo", "--agent", "own:wrong"]) == 2
    said = capsys.readouterr().err
    assert "own.py:2: NameError: name 'undefined' is not defined (in a trial episode)" in said


def test_a_file_of_yours_that_has_the_name_of_a_standard_module_breaks_nothing(here):
    """Neither the command nor the processes that it starts take it for Python's own."""
    for name in ("json", "random", "types", "queue"):
        Path(f"{name}.py").write_text("raise ImportError('taken for the standard one')\n")
    script = (
        "import sys; from pathlib import Path; from recollect.__main__ import main\n"
        "sys.path.insert(0, str(Path.cwd())); sys.exit(main())"
    )
    with chat_server(lambda _text: "e1") as server:
        words = ["eval", "--agents", "mine:two_pass", "--tasks", "mine:Chess", "--n", "2"]
        words += ["--model", server.url, "--workers", "2", "--out", "out", "--no-closed-book"]
        command = [sys.executable, "-P", "-c", script, *words]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path[1:])}
        ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert main(["eval", "--agents", "json.py:two", "--tasks", "mine:Chess", "--model", "x"]) == 2


ENDS = """
import asyncio, sys

async def leave():
    sys.exit(3)

async def agent(task, chats, memory):
    reply = await chats.open("answer").say("Which?", max_tokens=4)
    if task.id.endswith("1"):
        await asyncio.gather(leave(), leave())
    return [reply.text for _ in task.questions]

def metric(prediction, answers):
    if prediction == "nothing":
        sys.exit(4)
    return 1.0
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_agent_that_ends_python_fails_its_episode_and_a_metric_is_named(here, capfd, workers):
    Path("ends.py").write_text(ENDS)
    with chat_server(lambda _text: "nothing") as server:
        words = [
            "--agents",
            "ends:agent",
            "--tasks",
            "mine:Chess",
            "--n",
            "3",
            "--workers",
            workers,
        ]
        words += ["--model", server.url, "--out", "out"]
        assert main(["eval", *words]) == 0
        failures = [e["failure"] for e in read_episodes(Path("out")) if e["agent"] == "ends:agent"]
        [failed] = filter(None, failures)
        assert len(failures) == 3 and failed["boundary"] == "agent"
        assert "ended Python (SystemExit: 3)" in failed["message"] and "ends.py" in failed["place"]
        assert main(["replay", "out", "--metrics", "ends:metric"]) == 2
    shown = capfd.readouterr()
    assert "ends.py:" in shown.err and "it ended Python (SystemExit: 4)" in shown.err
    assert "Traceback" not in shown.out + shown.err and "asyncio" not in shown.out + shown.err


HIDES = """
from recollect.types import Sampling

class Hiding:
    async def run(self, task, chats, memory):
        answers = []
        for question in task.questions:
            chat = chats.open()
            answers.append((await chat.say(question.text)).text)
            if self.odd(task):
                chat.context.turns.clear()
        return answers

    def odd(self, task):
        return not task.id.endswith("0")

class Always(Hiding):
    def odd(self, task):
        return True

class Beside(Hiding):
    async def run(self, task, chats, memory):
        if not self.odd(task):
            return await super().run(task, chats, memory)
        policy = chats.models["answer"].policy
        said = [{"role": "user", "content": question.text} for question in task.questions]
        return [(await policy.reply([one], (), Sampling())).content for one in said]
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_agent_that_hides_its_calls_pays_for_them_and_fails(here, capsys, workers):
    """Every call is in the costs, and nobody says that the model was never asked."""
    Path("hides.py").write_text(HIDES)
    with chat_server(lambda _text: "e1") as server:
        words = ["eval", "--tasks", "mine:Chess", "--n", "4", "--workers", workers]
        words += ["--model", server.url, "--no-closed-book", "--out", "out", "--agents"]
        assert main([*words, "hides:Always"]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "hides.py:5: OwnMistake: the agent Always changed what was said in" in said
        assert "(in a trial episode)" in said
        assert main([*words, "hides:Hiding,hides:Beside"]) == 0
    assert "never asked the model" not in capsys.readouterr().out
    episodes = list(read_episodes(Path("out")))
    for name, says in ("Hiding", "changed what was said in"), ("Beside", "beside its chats"):
        own = [episode for episode in episodes if episode["agent"] == f"hides:{name}"]
        failed = [episode["failure"] for episode in own if episode["failure"]]
        assert len(own) == 4 and len(failed) == 3
        assert all(one["fault"] == "agent" and says in one["message"] for one in failed)
        turns = [turn for e in own for context in e["contexts"] for turn in context["turns"]]
        assert len(turns) == sum(len(e["questions"]) for e in own)
        [cell] = [cell for cell in load(Path("out")).cells if cell.agent == f"hides:{name}"]
        assert cell.cost.calls == len(turns)
        assert cell.cost.answer_read == sum(read for read, _written, *_rest in turns) > 0
        assert cell.cost.answer_written == sum(written for _read, written, *_rest in turns) > 0


def test_an_edited_file_is_not_taken_for_the_copy_of_a_run_beside_it(here, capsys):
    small = ["--steps", "1", "--rollout.tasks", "2", "--rollout.n", "2", "--val.lengths", "1"]
    small += ["--val.tasks", "2", "--val.length-tasks", "2", "--updates-per-step", "1"]
    assert main(["train", "demo", "--agent", "mine:two_pass", *small]) == 0
    words = ["eval", "--tasks", "recall@256", "--n", "1", "--no-closed-book", "--out", "out"]
    words += ["--agents", "runs/demo,mine:two_pass"]
    del sys.modules["mine"]
    assert main(words) == 0  # both are the same
    with open("mine.py", "a") as file:
        file.write("\n# edited\n")
    assert main(["train", "runs/demo", "--steps", "2"]) == 0  # the run keeps to its copy
    for command in (words, ["train", "runs/demo", "--agent", "mine:two_pass", "--steps", "3"]):
        sys.modules.pop("mine")
        capsys.readouterr()
        assert main(command) == 2
        assert "mine.py, or what it imports, differs from a run's copy" in capsys.readouterr().err


def test_an_agent_that_changes_the_current_folder_moves_nothing(here, tmp_path_factory):
    later = tmp_path_factory.mktemp("later")
    text = "import os\n\nasync def agent(task, chats, memory):\n"
    Path("wanders.py").write_text(f"{text}    os.chdir({str(later)!r})\n    return ['cat']\n")
    line = '{"text": "A cat.", "question": "What?", "answer": "cat"}\n'
    Path("mine.jsonl").write_text(line * 3)
    with chat_server(lambda _text: "cat") as server:
        words = ["--agents", "wanders:agent,fold", "--tasks", "mine.jsonl", "--concurrency", "1"]
        assert main(["eval", *words, "--model", server.url, "--out", "out"]) == 0
    assert Path.cwd() == here and not list(later.iterdir())
    assert not any(episode["failure"] for episode in read_episodes(Path("out")))
    assert Path("out/report.md").is_file()


SEERS = """\
from recollect import Question, Task
from recollect.agents.recursive import RecursiveAgent

class Seer:
    sees_answers = True

    async def run(self, task, chats, memory):
        asked = [f"{q.text} It is {q.answers[0]}." for q in task.questions]
        return [(await chats.open().say(text)).text for text in asked]


class Counting(RecursiveAgent):
    pass


class Peeping(RecursiveAgent):
    sees_answers = True


class Reading(RecursiveAgent):
    async def run(self, task, chats, memory):
        return [question.answers[0] for question in task.questions]


class Honest(Reading):
    sees_answers = False

    async def run(self, task, chats, memory):
        return ["".join(question.answers) for question in task.questions]


async def mute(task, chats, memory):
    return ["e1" for _ in task.questions]


class Thief:
    sees_answers = False
    runs = 0

    async def run(self, task, chats, memory):
        Thief.runs += 1
        Thief.sees_answers = 1 < Thief.runs < 4  # neither in the trial nor at the end
        return [(q.answers or ("?",))[0] for q in task.questions]


async def early(task, chats, memory):
    return [(await chats.open().say(q.text)).text for q in task.questions]


class Pages:
    def __init__(self, pages):
        self.pages = pages

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, at):
        return self.pages[at]

    def __iter__(self):
        return iter(self.pages)


def paged(split):
    asked = (Question("What is in the bag?", ("e1",)),)
    return [Task(f"{split} {i}", Pages([f"In bag {i} is e1."]), asked) for i in range(4)]


async def empties(task, chats, memory):
    getattr(task.chunks, "pages", []).clear()
    return await reads(task, chats, memory)


async def reads(task, chats, memory):
    return [(await chats.open().say(chunk)).text for chunk in task.chunks] or [""]
"""


def test_a_metric_that_leads_one_set_is_shown_for_the_others(here, capsys):
    Path("own.py").write_text(ASKING)
    with chat_server(lambda _text: "e1") as server:
        words = ["eval", "--tasks", "own:Led", "own:Matched", "--agents", "full_context"]
        more = ["memagent_sub_em", "hotpotqa_em", "hotpotqa_f1", "locomo_f1", "boxed_exact_match"]
        metrics = ",".join(["token_f1", "answer_match", *more])
        assert main([*words, "--metrics", metrics, "--model", server.url, "--out", "out"]) == 0
    beside = capsys.readouterr().out.partition("as asked for")[2].partition("build in")[0]
    for name in ("answer_match", "token_f1", *more):
        assert name in beside
    assert "full_context" in beside and "…" not in beside  # as wide as a file or a pipe is


def test_whoever_sees_answers_or_asks_no_model_is_named_with_the_scores(here, capsys):
    """Also in the report, which others read, and where the agent is not asked for again."""
    Path("own.py").write_text(SEERS)
    bound = "own:Seer was shown the accepted answers and the evidence: it is a bound"
    mute = "own:mute never asked the model: its answers come from its own code"
    with chat_server(lambda text: text.rpartition("It is ")[2] or "e9") as server:
        words = ["eval", "--tasks", "mine:Chess", "--n", "4", "--model", server.url, "--out", "out"]
        assert main([*words, "--agents", "own:Seer,own:mute"]) == 0
        said = capsys.readouterr().out
        assert bound in said and mute in said and "closed_book was" not in said
        own = "fold,oracle,own:Counting,own:Peeping,own:Reading,own:Honest"
        assert main([*words, "--agents", own]) == 0
    cells = {cell.agent: cell.bound for cell in load(Path("out")).cells}
    bounds = {name for name, is_bound in cells.items() if is_bound}
    assert bounds == {"oracle", "own:Peeping", "own:Reading", "own:Seer"}
    for place in ("report.md", "report.html"):
        assert bound in Path("out", place).read_text() and mute in Path("out", place).read_text()
    report = Path("out/report.md").read_text()
    assert "against own:Seer" not in report and "| **1.000" not in report
    # As folders were before.
    episodes = [json.loads(line) for line in Path("out/episodes.jsonl").read_text().splitlines()]
    lines = [json.dumps({k: v for k, v in e.items() if k != "bound"}) + "\n" for e in episodes]
    Path("out/episodes.jsonl").write_text("".join(lines))
    assert main(["replay", "out"]) == 0
    assert [cell.agent for cell in load(Path("out")).cells if cell.bound] == ["oracle"]


ASKING = """\
from recollect import Question, Task

def longer(prediction, answers):
    return float(len(prediction) > 1)

class Asking:
    name, metric, answers = "asking", "answer_match", ()
    questions = property(lambda self: (Question("Which?", self.answers),))

    def size(self, split):
        return 2

    def longer(self, times):
        return self

    def task(self, index, seed=0, split="train"):
        return Task(f"{split}-{index}", ["It is e1."], self.questions)

class Silent(Asking):
    questions = ()

class Blank(Asking):
    answers = ("",)

class Open(Asking):
    metric = longer

class Abstaining(Asking):
    metric = "answer_overlap"
    questions = (Question("Which?", (), category="abstention"),)

class Empty(Blank):
    metric = "squad_em"

class Unpublished(Asking):
    metric = "squad_em"

class Matched(Asking):
    answers = ("e1",)

class Led(Matched):
    metric = "token_f1"

class Untested(Asking):
    def size(self, split):
        return 0
"""


def test_questions_that_no_score_could_find_right_are_refused_before_a_model_is_asked(here, capsys):
    Path("own.py").write_text(ASKING)
    refused = {
        "Asking": "own:Asking: 'Which?' in task 'test-0' has no accepted answer",
        "Blank": "'Which?' in task 'test-0' has no accepted answer",
        "Unpublished": "'Which?' in task 'test-0' has no accepted answer",
        "Silent": "own:Silent: task 'test-0' has no questions",
        "Untested": "own:Untested has no tasks in its test split fix: let it make some",
    }
    with chat_server(lambda _text: "e1") as server:
        words = ["eval", "--agents", "fold", "--model", server.url, "--out", "out", "--tasks"]
        for name, says in refused.items():
            assert main([*words, f"own:{name}"]) == 2
            assert says in " ".join(capsys.readouterr().err.split())
        assert not server.asked
        assert main([*words, "own:Open"]) == 0  # a metric of one's own needs no answers
    assert "1.000" in capsys.readouterr().out
    for name, right in (("Abstaining", "The text does not say."), ("Empty", "")):
        with chat_server(lambda _text, said=right: said) as server:
            words = ["eval", "--agents", "full_context", "--model", server.url, "--out", name]
            assert main([*words, "--tasks", f"own:{name}"]) == 0
        assert "1.000" in capsys.readouterr().out


def test_an_agent_that_was_edited_is_refused_by_the_name_of_its_module(here, capsys):
    with chat_server(lambda _text: "e1") as server:
        words = ["eval", "--agents", "mine:two_pass", "--tasks", "recall@1k", "--n", "1"]
        words += ["--model", server.url, "--out", "out", "--no-closed-book"]
        assert main(words) == 0
        del sys.modules["mine"]
        with open("mine.py", "a") as file:
            file.write("\n# edited\n")
        assert main(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "agent mine:two_pass was made of other code: the module mine has changed fix:" in said


def test_an_agent_that_keeps_something_between_episodes_is_told(here, capsys):
    Path("own.py").write_text(
        "class Piling:\n"
        "    def __init__(self):\n        self.notes = []\n\n"
        "    async def run(self, task, chats, memory):\n"
        "        self.notes += task.chunks\n"
        "        return [(await chats.open().say(q.text)).text for q in task.questions]\n"
    )
    says = "note: own.py:5: Piling changes self.notes as it runs, which all of its episodes share"
    with chat_server(lambda _text: "e1") as server:
        words = ["--agents", "fold,own:Piling,mine:Reader", "--tasks", "mine:Chess", "--n", "1"]
        assert main(["eval", *words, "--model", server.url, "--out", "out"]) == 0
    assert (said := " ".join(capsys.readouterr().out.split())).count(says) == 1
    assert "Reader changes" not in said
    small = ["--rollout.tasks", "2", "--rollout.n", "2", "--updates-per-step", "1", "--steps", "1"]
    words = ["train", "demo", "--agent", "own:Piling", *small, "--val.tasks", "2", "--val.lengths"]
    for more in (["--dry-run"], []):
        assert main([*words, *more]) == 0
        assert says in " ".join(capsys.readouterr().out.split())


def test_an_agent_that_is_shown_answers_for_a_while_is_a_bound(here, capsys):
    Path("own.py").write_text(SEERS)
    with chat_server(lambda _text: "e9") as server:
        words = ["eval", "--tasks", "mine:Chess", "--n", "4", "--model", server.url, "--out", "out"]
        assert main([*words, "--agents", "own:Thief,fold", "--concurrency", "1"]) == 0
    cells = {cell.agent: cell for cell in load(Path("out")).cells}
    assert cells["own:Thief"].bound and not cells["fold"].bound


def test_an_own_agent_that_could_see_blind_questions_early_is_named(here, capsys):
    Path("own.py").write_text(SEERS)
    with chat_server(lambda _text: "e9") as server:
        words = ["eval", "--tasks", "chronicle:blind@4k", "--n", "2", "--model", server.url]
        assert main([*words, "--agents", "own:early,fold", "--out", "out"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "note: own:early is given the questions with the text" in said
    report = Path("out/report.md").read_text()
    assert "own:early was given the questions of chronicle:blind@4k with the text" in report
    assert "fold was given" not in report


def test_an_agent_does_not_reach_the_object_behind_lazy_chunks(here):
    Path("own.py").write_text(SEERS)
    with chat_server(lambda text: "e1" if "is e1" in text else "e9") as server:
        words = ["eval", "--tasks", "own:paged", "--n", "2", "--model", server.url, "--out", "out"]
        assert main([*words, "--agents", "own:empties,own:reads", "--concurrency", "1"]) == 0
    scores = {cell.agent: cell.scores[cell.primary].mean for cell in load(Path("out")).cells}
    assert scores["own:empties"] == scores["own:reads"] == 1.0
