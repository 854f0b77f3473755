"""A user's module on the nodes of a cluster: every worker starts with the run's own, or not at all.

Each node has its own copy of the run's folder, or of what is installed there.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.function import as_agent
from recollect.config.modules import load
from recollect.config.presets import preset
from recollect.engines.verl.run.folder import prepare
from recollect.engines.verl.worker.worker import Worker
from recollect.errors import UserError
from tests.support.own import own_folder

AGENT = "async def agent(task, chats, memory):\n    return ['x']\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch) as folder:
        yield folder


def installed(where: str, text: str) -> Path:
    folder = Path(where).absolute() / "site-packages"
    folder.mkdir(parents=True)
    (folder / "shared_agent.py").write_text(text)
    return folder


def prepared(agent: str) -> Path:
    config = preset("demo")
    val = replace(config.val, tasks=2)
    config = replace(config, agent=as_agent(load(agent)), steps=1, val=val)
    return prepare(config, Path("run")).path


def start(run: Path, packages: Path | None = None) -> Worker:
    """Start a worker as a process does that has imported nothing of the user's yet."""
    for name in ("mine", "shared_agent"):
        sys.modules.pop(name, None)
    here = str(Path.cwd())
    sys.path[:] = [p for p in sys.path if not p.startswith(here)]
    sys.path += [str(packages)] if packages else []
    return Worker.open(run, 1)


def test_a_module_that_differs_between_nodes_stops_the_other_one(here):
    run = prepared("mine:two_pass")
    other = Path(shutil.copytree(run, "other")).absolute()
    assert start(run).agent.function.__name__ == "two_pass"
    assert Path(sys.modules["mine"].__file__) == run / "code/mine.py"  # what travelled, not ours
    assert start(other).agent.function.__name__ == "two_pass"
    with (other / "code/mine.py").open("a") as file:
        file.write("\nNUMBER = 8\n")
    with pytest.raises(UserError) as caught:
        start(other)
    what, fix = caught.value.what, caught.value.fix
    assert "the module mine differs from the one that the run was started with" in what
    assert str(other / "code/mine.py") in what and "let every node see the same run" in fix


def test_an_installed_module_of_another_version_stops_its_node(here):
    packages = installed("usual", AGENT)
    sys.path.append(str(packages))
    run = prepared("shared_agent:agent")
    assert not (run / "code/shared_agent.py").exists()  # installed: it does not travel
    assert start(run, packages).agent.function.__name__ == "agent"
    newer = installed("newer", AGENT.replace("x", "y"))
    with pytest.raises(UserError, match="the module shared_agent differs") as caught:
        start(run, newer)
    assert str(newer) in caught.value.what
    with pytest.raises(UserError, match="there is no module shared_agent"):
        start(run)
