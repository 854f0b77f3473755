"""`module:Name` finds what it names, or says in one line what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recollect.config.modules import is_named, load
from recollect.config.sources import copy_sources, import_stored, sources, table_of
from recollect.config.stored import own_sources
from recollect.errors import UserError


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """Run in an empty folder, and forget what was imported from it."""
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.path[:] = path


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("mine:Agent", True),
        ("pack.age:Agent.inner", True),
        ("../there/mine.py:agent", True),
        ("fold", False),
        ("hotpotqa@7k", False),
        ("mine:", False),
        (":Agent", False),
        ("mine:not a name", False),
        ("a b:Agent", False),
    ],
)
def test_what_has_the_form_of_a_name(text, named):
    assert is_named(text) is named


def test_a_name_is_found_in_the_folder_in_a_package_and_by_path(tmp_path):
    write("own_one.py", "import own_helper\nVALUE = own_helper.VALUE\n")
    write("own_helper.py", "VALUE = 7\n")
    assert load("own_one:VALUE") == 7
    write("own_pack/__init__.py", "")
    write("own_pack/deep.py", "class Outer:\n    class Inner:\n        value = 3\n")
    assert load("own_pack.deep:Outer.Inner").value == 3
    write("else/where/own_two.py", "def f():\n    import own_beside\n    return own_beside.X\n")
    write("else/where/own_beside.py", "X = 1\n")
    assert load("else/where/own_two.py:f")() == 1  # what it imports later is found, too
    assert load("collections:OrderedDict")  # an installed module


@pytest.mark.parametrize(
    ("name", "text", "says", "fix"),
    [
        ("own_a:f", None, "there is no module own_a: it is neither in", "path/to/file.py:Name"),
        ("gone/own_a.py:f", None, "there is no file gone/own_a.py", "existing file"),
        ("own_b:two_pas", "def two_pass(): ...", "own_b.py has no two_pas", "two_pass"),
        ("own_c:f", "x = 1\ny = undefined\n", "own_c.py:2: NameError: name 'undefined'", "line"),
        ("own_d:f", "def f(:\n", "own_d.py:1: SyntaxError", "line"),
        ("own_e:f", "\nimport nowhere_at_all\n", "own_e.py:2: ModuleNotFoundError", "line"),
        ("own_f:f", "raise SystemExit(3)\n", "own_f.py:1: SystemExit: 3", "line"),
        ("types:f", "def f(): ...", "types is also the name of another module", "another name"),
        ("2.py:f", "def f(): ...", "cannot be imported under the name '2'", "letters"),
    ],
)
def test_mistakes_are_one_line_with_the_fix(name, text, says, fix):
    if text is not None:
        module = name.partition(":")[0]
        write(module if module.endswith(".py") else f"{module}.py", text)
    with pytest.raises(UserError) as caught:
        load(name)
    assert says in caught.value.what and "\n" not in caught.value.what
    assert fix in caught.value.fix


def test_a_module_travels_with_what_it_imports_beside_it(tmp_path):
    write("own_pack/__init__.py", "")
    write("own_pack/agents.py", "import json\nfrom own_pack import words\ndef f(): ...\n")
    write("own_pack/words.py", "YES = 1\n")
    write("own_pack/unused.py", "NO = 1\n")
    found = sources([load("own_pack.agents:f"), dict, Path])
    assert [s.relative for s in found] == [
        "own_pack/__init__.py",
        "own_pack/agents.py",
        "own_pack/words.py",
    ]
    run = tmp_path / "run"
    copy_sources(found, run)
    table = table_of(found)
    for name in table:
        del sys.modules[name]
    Path("own_pack").rename("moved")
    import_stored(table, run)
    assert Path(sys.modules["own_pack.words"].__file__).is_relative_to(run / "code")


def test_a_file_is_the_copy_that_a_run_stored_until_either_changes(tmp_path):
    write("alike.py", "import beside_alike\ndef f(): ...\n")
    write("beside_alike.py", "")
    found = sources([load("alike:f")])
    copy_sources(found, tmp_path / "run")
    write("run/config.json", "{}")
    for name in ("alike", "beside_alike"):
        del sys.modules[name]
    import_stored(table_of(found), tmp_path / "run")
    assert load("alike.py:f") is load("alike:f") is sys.modules["alike"].f
    write("beside_alike.py", "changed = True\n")
    with pytest.raises(UserError, match="or what it imports, differs from a run's copy"):
        load("alike.py:f")


def test_a_module_that_differs_is_refused(tmp_path):
    write("own_g.py", "def f(): ...\n")
    found = sources([load("own_g:f")])
    copy_sources(found, tmp_path / "run")
    table = table_of(found)
    import_stored(table, tmp_path / "run")  # the same file is loaded already
    write("run/code/own_g.py", "def f(): return 1\n")
    with pytest.raises(UserError, match="the module own_g differs from the one that the run was"):
        import_stored(table, tmp_path / "run")
    Path("run/code/own_g.py").unlink()
    with pytest.raises(UserError, match="the run's module own_g is missing"):
        import_stored(table, tmp_path / "run")


MADE = """
from dataclasses import dataclass, field
import shared_index

@dataclass
class Mine:
    rooms: int = 2
    index: shared_index.Index = field(init=False)

    def __post_init__(self):
        self.index = shared_index.Index()
"""


def test_what_a_part_of_yours_makes_for_itself_is_stored_from_another_folder_too(
    monkeypatch, tmp_path
):
    write("there/shared_index.py", "class Index:\n    pass\n")
    write("here/mine_part.py", MADE)
    monkeypatch.syspath_prepend(tmp_path / "there")
    monkeypatch.syspath_prepend(tmp_path / "here")
    part = load("mine_part:Mine")()
    assert [source.module for source in own_sources(part)] == ["mine_part", "shared_index"]
