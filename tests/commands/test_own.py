"""Your own agent, reward, tasks and metric from the command line, in the embedded engine."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.config.stored import read_settings
from recollect.runs.run import read_episodes, read_metrics
from tests.support.own import own_folder
from tests.support.warm import Warm

SMALL = [
    *("--steps", "2", "--rollout.tasks", "2", "--rollout.n", "4", "--updates-per-step", "1"),
    *("--val.tasks", "4", "--val.lengths", "1", "--val.length-tasks", "4"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch) as folder:
        yield folder


def train(*words: str) -> int:
    return main(["train", "demo", *SMALL, *words])


def test_a_function_is_trained(here):
    assert train("--agent", "mine:two_pass") == 0
    rows = read_metrics(Path("runs/demo"))
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[-1]["contexts/per_episode"] == 4 and rows[-1]["episodes/failed"] == 0
    assert rows[-1]["tokens/trained"] == rows[-1]["tokens/sampled"] > 0
    [first, *_] = read_episodes(Path("runs/demo/episodes/val-000002.jsonl.gz"))
    labels = [(c.role, c.label, c.stratum, c.question) for c in first.contexts]
    assert labels == [
        *((("memory", f"memory {i}", "memory", None)) for i in (1, 2, 3)),
        ("answer", "question 1", "question 1", 0),
    ]
    assert [op.label for op in first.ops] == ["memory 1", "memory 2", "memory 3"]
    assert train("--agent", "mine:two_pass", "--steps", "3") == 0  # goes on with the same run
    assert [row["step"] for row in read_metrics(Path("runs/demo"))] == [0, 1, 2, 3]


def test_a_run_is_of_one_code(here, capsys):
    """Resumed with other code, a run would be a mixture, and its own copy would be lost."""
    words = ["--agent", "mine:two_pass", "--steps", "1"]
    assert train(*words) == 0
    begun, copy = Path("runs/demo/config.json").read_text(), Path("runs/demo/code/mine.py")
    before, changed = copy.read_text(), copy.read_text().replace("Memory:", "Notes:")
    Path("mine.py").write_text(changed)
    del sys.modules["mine"]
    capsys.readouterr()
    for name in ([], ["--resume", "runs/demo/checkpoints/step-000001"]):
        assert train(*words, "--steps", "2", *name) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "runs/demo was trained with other code: the module mine has changed" in said
        assert "a copy is in runs/demo/code" in said and "another --name" in said
    assert copy.read_text() == before and Path("runs/demo/config.json").read_text() == begun
    # Knowingly, it goes on as another run; put back, as the same one.
    assert train(*words, "--steps", "2", "--name", "other", "--resume", "runs/demo") == 0
    assert Path("runs/other/code/mine.py").read_text() == changed
    assert [row["step"] for row in read_metrics(Path("runs/other"))] == [2]
    Path("mine.py").write_text(before)
    del sys.modules["mine"]
    assert train(*words, "--steps", "2") == 0
    assert [row["step"] for row in read_metrics(Path("runs/demo"))] == [0, 1, 2]


def test_a_run_without_a_checkpoint_starts_again_with_other_code(here):
    words = ["--agent", "mine:two_pass", "--steps", "1"]
    assert train(*words) == 0
    shutil.rmtree("runs/demo/checkpoints")
    with open("mine.py", "a") as file:
        file.write("# changed\n")
    del sys.modules["mine"]
    assert train(*words) == 0
    assert Path("runs/demo/code/mine.py").read_text().endswith("# changed\n")
    assert not list(Path("runs/demo").glob("code-*"))


SCRIPT = """
import recollect

async def short(task, chats, memory):
    return [(await chats.open().say(q.text, max_tokens=4)).text for q in task.questions]

few = {"updates_per_step": 1, "rollout": {"tasks": 2, "n": 4}}
few["val"] = {"tasks": 4, "lengths": [1], "length_tasks": 4, "distractors": [1]}
recollect.train("demo", agent=short, steps=1, **few)
"""


def test_a_script_may_ask_for_more_steps_and_its_earlier_version_is_kept(here):
    """A script that trains says for how many steps, too: it changes before it goes on."""
    said = ""
    for steps in (1, 2):
        Path("script.py").write_text(SCRIPT.replace("steps=1", f"steps={steps}"))
        done = Warm([], module=str(here / "script.py"))
        said, errors = done.communicate()
        assert done.returncode == 0, errors
    [kept] = Path("runs/demo").glob("code-*/script.py")
    assert kept.read_text() == SCRIPT
    said = "".join(said.split())
    assert f"script.pyhaschangedsincethisrunbegan:itwas{kept}" in said
    assert [row["step"] for row in read_metrics(Path("runs/demo"))] == [0, 1, 2]


def test_all_parts_may_be_yours_and_their_fields_are_flags(here):
    words = ["--agent", "mine.py:Reader", "--agent.max-note-tokens", "7", "--reward", "mine:long"]
    words += ["--tasks=mine:Chess", "--tasks.moves", "2"]
    assert train(*words) == 0
    table = json.loads(Path("runs/demo/config.json").read_text())
    assert table["agent"] == {"class": "mine:Reader", "max_note_tokens": 7}
    assert table["tasks"] == {"class": "mine:Chess", "moves": 2}
    assert table["reward"] == {"class": "mine:long"}
    assert list(table["code"]) == ["mine"] and Path("runs/demo/code/mine.py").is_file()
    row = read_metrics(Path("runs/demo"))[-1]
    assert row["contexts/per_episode"] == 3 and 0 <= row["val/accuracy"] <= 1


def test_a_metric_and_a_list_of_tasks_may_be_yours(here):
    assert train("--metric", "mine:close_enough", "--tasks", "mine:listed", "--val.tasks", "3") == 0
    table = json.loads(Path("runs/demo/config.json").read_text())
    assert table["reward"]["metric"] == "mine:close_enough"


def test_a_class_with_a_tool_a_memory_and_a_reward_of_its_own_is_trained_and_resumed(here):
    words = ["--agent", "mine:Seeker", "--tools", "mine:shout,mine:whisper"]
    words += ["--memory", "mine:Notebook", "--reward", "mine:Thrifty", "--reward.price", "0.5"]
    words += ["--agent.limits.max-assistant-turns", "3", "--tasks", "mine:Chess"]
    assert train(*words) == 0
    table = json.loads(Path("runs/demo/config.json").read_text())
    assert table["agent"]["tools"] == ["mine:shout", "mine:whisper"]
    assert table["agent"]["memory"] == "mine:Notebook" and table["reward"]["price"] == 0.5
    row = read_metrics(Path("runs/demo"))[-1]
    assert row["score/edits"] == 3 and row["contexts/per_episode"] == 4
    read = read_settings(Path("runs/demo/config.json"))
    assert [tool.name for tool in read.agent.tools] == ["shout", "whisper"]
    assert read.agent.memory.__name__ == "Notebook" and read.agent.limits.max_assistant_turns == 3
    assert main(["train", "runs/demo", "--steps", "3"]) == 0  # from its folder, unchanged
    assert [row["step"] for row in read_metrics(Path("runs/demo"))] == [0, 1, 2, 3]


def test_tools_and_memories_of_yours_go_to_our_agents_and_to_functions(here, capsys):
    assert train("--agent", "mine:two_pass", "--memory", "mine:Notebook", "--dry-run") == 0
    capsys.readouterr()
    for words, says in {
        ("--tools", "mine:shout"): "the agent FoldAgent takes no tools",
        ("--memory", "mine:Notebook"): "the agent FoldAgent chooses its own memory",
        ("--agent", "mine:Seeker", "--tools", "mine:close_enough"): "close_enough is not a tool",
        ("--agent", "mine:Seeker", "--memory", "mine:Chess"): "Chess is no memory: it has no ops",
        ("--agent", "mine:Seeker", "--agent.tools", "mine:nothing"): "has no nothing",
    }.items():
        assert train(*words, "--dry-run") == 2
        assert says in " ".join(capsys.readouterr().err.split())


def test_our_parts_have_short_names(here, capsys):
    assert train("--agent", "gated", "--tasks", "recall@40", "--dry-run", "--reward", "gates") == 0
    shown = capsys.readouterr().out
    assert "recollect.agents.gated:GatedAgent" in shown
    assert re.search(r"agent.max_memory_tokens +3\b", shown)  # taken over from the preset


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--agent", "nowhere:agent"], "there is no module nowhere"),
        (["--agent", "mine:two_pas"], "has no two_pas"),
        (["--agent", "mine:close_enough"], "close_enough is not an agent: it is not async"),
        (["--agent", "mine:Question"], "Question cannot be made without settings"),
        (["--agent", "mine:Chess"], "Chess is not an agent: it has no method run"),
        (["--agent", "mine:Needy"], "Needy cannot be made without settings"),
        (["--agent", "mine:two"], "two does not take (task, chats, memory)"),
        (["--agent", "fould"], "there is no agent 'fould'"),
        (["--agent"], "--agent names nothing"),
        (["--reward", "mine:two_pass"], "two_pass does not take (episode, memory)"),
        (["--reward", "mine:NUMBER"], "7 is not a reward: it cannot be called"),
        (["--tasks", "mine:Reader"], "it has no name, metric, size, task, longer"),
        (["--tasks", "mine:wrong"], "wrong returned 'a task', which is not a Task"),
        (["--tasks", "recal@1k"], "there is no family of tasks 'recal@1k'"),
        (["--metric", "mine:NUMBER"], "mine:NUMBER is not a metric"),
        (["--metric", "f1"], "there is no metric 'f1'"),
        (["--name", "../x"], "the name '../x' is not a folder inside"),
        (["--name", ""], "the name '' is not a folder inside"),
        (["--name", "/x"], "the name '/x' is not a folder inside"),
    ],
)
def test_bad_input_is_one_message_and_no_run(here, capsys, words, says):
    with open("mine.py", "a") as file:
        file.write(
            "\nNUMBER = 7\n\nasync def two(task, chats): ...\n\ndef wrong(split): return ['a task']"
            "\n\n@dataclass(frozen=True)\nclass Needy:\n    size: int\n"
            "    async def run(self, task, chats, memory): ...\n"
        )
    assert train(*words) == 2
    said = capsys.readouterr().err
    assert says in said and "fix: " in said and "Traceback" not in said
    assert not Path("runs").exists()


MISTAKES = {
    "name": ("    return [undefined]", "mine.py:2: NameError: name 'undefined' is not defined"),
    "string": ("    return 'yes'", "mine.py:1: OwnMistake: the agent wrong returned 'yes', not a"),
    "nothing": ("    pass", "mine.py:1: OwnMistake: the agent wrong returned None, not a list"),
    "count": ("    return ['a', 'b']", "the agent wrong returned 2 answers to 1 questions"),
    "reply": (
        "    return [await chats.open().say('a', max_tokens=2)]",
        "among its answers, not a list of answers as texts: return the reply's text",
    ),
    "say": ("    await chats.open().say(7)", "mine.py:2: TypeError: say takes texts and messages"),
    "memory": ("    memory.text = None", "mine.py:2: TypeError: a memory is a text, not NoneType"),
    "role": ("    chats.open('note')", "there is no model for the role 'note'"),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_mistake_in_an_agent_is_reported_with_its_line_before_anything_else(
    here, capsys, name, dry_run
):
    body, says = MISTAKES[name]
    Path("mine.py").write_text(f"async def wrong(task, chats, memory):\n{body}\n")
    assert train("--agent", "mine:wrong", *["--dry-run"] * dry_run) == 2
    said = capsys.readouterr()
    assert says in said.err.replace("\n", " ") and "Traceback" not in said.err
    assert "held-out" not in said.out and not Path("runs").exists()


def test_a_mistake_in_a_reward_is_reported_with_its_line(here, capsys):
    Path("mine.py").write_text("def wrong(episode, memory):\n    return episode.answer[0]\n")
    assert train("--reward", "mine:wrong") == 2
    assert "mine.py:2: AttributeError: 'Episode' object has no" in capsys.readouterr().err
    Path("other.py").write_text("def wrong(episode, memory):\n    return None\n")
    assert train("--reward", "other:wrong") == 2
    assert "other.py:1: OwnMistake: the reward returned None" in capsys.readouterr().err


def test_what_a_model_says_is_no_mistake(here):
    """An agent that cannot read some replies is trained: these episodes fail, and are counted."""
    Path("mine.py").write_text(
        "from recollect.errors import AgentError\n\n"
        "async def strict(task, chats, memory):\n"
        "    reply = await chats.open().say(task.questions[0].text, max_tokens=4)\n"
        "    raise AgentError(reply.text)\n"
    )
    assert train("--agent", "mine:strict", "--dry-run") == 0
    assert train("--agent", "mine:strict") == 2  # all of them: nothing to learn from


def test_a_role_that_learns_and_never_speaks_trains_nothing(here, capsys):
    Path("mine.py").write_text(
        "async def answering(task, chats, memory):\n"
        "    return [(await chats.open().say(q.text, max_tokens=2)).text for q in task.questions]\n"
    )
    words = ["--agent", "mine:answering", "--models.answer", "http://127.0.0.1:9/v1", "--dry-run"]
    assert train(*words) == 2
    said = capsys.readouterr().err
    assert "nothing would be trained: memory learns" in said
    assert "set --models.answer trainable" in said


@pytest.mark.parametrize("engine", [[], ["--engine", "verl", "--cpu"]])
def test_every_engine_warns_or_refuses_at_the_start(here, capsys, engine):
    def planned(*words: str) -> tuple[int, str]:
        status = main(["train", "demo", *SMALL, *words, *engine, "--dry-run"])
        said = capsys.readouterr()
        return status, " ".join((said.out + said.err).split())

    status, said = planned("--rollout.n", "1")
    assert status == 0 and "rollout.n is 1: grpo has no siblings" in said
    status, said = planned("--agent.max-memory-tokens", "5000")
    assert status == 2 and "a memory of 5000 tokens" in said
    status, said = planned("--name", "../x")
    assert status == 2 and "the name '../x' is not a folder inside" in said
    Path("mine.py").write_text(
        "async def silent(task, chats, memory):\n"
        "    return [(await chats.open().say(q.text, max_tokens=2)).text for q in task.questions]\n"
    )
    status, said = planned("--agent", "mine:silent", "--models.answer", "http://127.0.0.1:9/v1")
    assert status == 2 and "nothing would be trained: memory learns" in said


WANDERS = """
import os

os.chdir("{first}")

async def agent(task, chats, memory):
    os.chdir("{later}")
    return [(await chats.open("answer").say(q.text, max_tokens=4)).text for q in task.questions]
"""


def test_an_agent_that_changes_the_current_folder_moves_nothing_of_the_run(here, tmp_path_factory):
    first, later = (tmp_path_factory.mktemp(name) for name in ("first", "later"))
    Path("wanders.py").write_text(WANDERS.format(first=first, later=later))
    line = '{"text": "A cat.", "question": "What?", "answer": "cat"}\n'
    Path("mine.jsonl").write_text(line * 60)
    words = ["--agent", "wanders:agent", "--tasks", "mine.jsonl"]
    assert train(*words) == 0 and train(*words, "--steps", "3") == 0
    assert main(["eval", "runs/demo", "--val.tasks", "2", "--val.lengths", "1"]) == 0
    assert Path.cwd() == here and not [*first.iterdir(), *later.iterdir()]
    table = json.loads(Path("runs/demo/config.json").read_text())
    assert table["tasks"]["file"] == "mine.jsonl" and table["folder"] == "runs"
    assert "runs/demo" in Path("runs/demo/report.md").read_text()


def test_a_metric_that_fails_is_found_before_the_run(here, capsys):
    Path("rates.py").write_text("def metric(prediction, answers):\n    return answers.text\n")
    assert train("--metric", "rates:metric") == 2
    assert "rates.py:2: AttributeError: 'tuple' object has no" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_note_about_failures_names_the_line(here, capsys):
    text = "async def agent(task, chats, memory):\n    await chats.open().say('x', max_tokens=2)\n"
    text += "    if task.id.endswith('test-1'):\n        raise KeyError('gone')\n    return ['x']\n"
    Path("fails.py").write_text(text)
    assert train("--agent", "fails:agent", "--tasks", "mine:Chess") == 0
    assert "the first one at agent: KeyError: 'gone' (fails.py:4)" in capsys.readouterr().out
