"""The distribution's name: what is installed, what it needs, and who else uses the import name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from recollect import packaging
from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def dist_info(site: Path, name: str, version: str, record: str = "", *lines: str) -> None:
    """Put a distribution's metadata into a folder, as pip does."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    head = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines]
    (folder / "METADATA").write_text("\n".join(head) + "\n\n")
    (folder / "RECORD").write_text(record)


def ask(site: Path, call: str, *before: Path) -> object:
    """Evaluate something of `recollect.packaging` in an interpreter that sees only a folder."""
    code = f"import json; from recollect import packaging; print(json.dumps(packaging.{call}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*before, site)))}
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, env=environment, cwd=site, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sources_that_are_not_installed_are_described_by_pyproject(tmp_path):
    source = ROOT / "src"
    assert ask(tmp_path, "version()", source) == PROJECT["version"]
    assert ask(tmp_path, "python_range()", source) == PROJECT["requires-python"]
    assert ask(tmp_path, "ranges()", source) == {
        re.split("[<>=]", line)[0]: line[len(re.split("[<>=]", line)[0]) :]
        for line in PROJECT["dependencies"]
    }


def test_what_is_installed_is_described_by_its_metadata(tmp_path):
    dist_info(
        tmp_path,
        "recollect-rl",
        "9.8.7",
        "",
        "Requires-Python: <3.13,>=3.11",
        "Requires-Dist: numpy<3,>=2.0",
        "Requires-Dist: torch<2.14,>=2.11; extra == 'local'",
        "Requires-Dist: transferqueue==0.1.11; extra == 'verl'",
    )
    source = ROOT / "src"
    assert ask(tmp_path, "version()", source) == "9.8.7"
    assert ask(tmp_path, "ranges()", source) == {"numpy": ">=2.0,<3"}
    assert ask(tmp_path, "ranges('local')", source) == {"torch": ">=2.11,<2.14"}
    assert ask(tmp_path, "ranges('verl')", source) == {"transferqueue": "==0.1.11"}


def test_a_stranger_of_the_same_import_name_is_noticed(tmp_path):
    dist_info(tmp_path, "recollect", "0.3.1", "recollect/__init__.py,,\nrecollect/store.py,,\n")
    dist_info(tmp_path, "recollect-rl", "0.1.0", "recollect/__init__.py,,\n")
    dist_info(tmp_path, "recollections", "1.0", "recollections/__init__.py,,\n")
    dist_info(tmp_path, "other", "2.0", "other/recollect/__init__.py,,\n")
    assert ask(tmp_path, "strangers()", ROOT / "src") == {"recollect 0.3.1": False}


def test_a_stranger_whose_files_are_mixed_with_ours_is_worse(tmp_path):
    package = tmp_path / "recollect"
    package.mkdir()
    for name in ("__init__.py", "packaging.py"):
        shutil.copy(ROOT / "src" / "recollect" / name, package / name)
    dist_info(tmp_path, "recollect", "0.3.1", "recollect/__init__.py,,\n")
    assert ask(tmp_path, "strangers()") == {"recollect 0.3.1": True}


def test_every_hint_names_our_distribution():
    wrong = re.compile(r"pip install ['\"]?recollect(?!-rl)")
    files = [*(ROOT / "src").rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    files += [path for path in (ROOT / "recipes").rglob("*") if path.is_file()]
    assert [str(path) for path in files if wrong.search(path.read_text("utf-8"))] == []
    assert PROJECT["name"] == packaging.NAME


@pytest.mark.parametrize(
    "origin, wanted, again",
    [
        (None, "'recollect-rl[embed]'", "recollect-rl"),
        ("not json", "'recollect-rl[embed]'", "recollect-rl"),
        ({"url": "file:///is/gone", "dir_info": {}}, "'recollect-rl[embed]'", "recollect-rl"),
        (
            {"url": ROOT.as_uri(), "dir_info": {"editable": True}},
            f"-e '{ROOT}[embed]'",
            f"-e {ROOT}",
        ),
        ({"url": ROOT.as_uri(), "dir_info": {}}, f"'{ROOT}[embed]'", str(ROOT)),
        (
            {"url": "https://host/r.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "'recollect-rl[embed] @ git+https://host/r.git@ab12'",
            "'recollect-rl @ git+https://host/r.git@ab12'",
        ),
        (
            {"url": "https://host/r.whl", "archive_info": {}},
            "'recollect-rl[embed] @ https://host/r.whl'",
            "'recollect-rl @ https://host/r.whl'",
        ),
    ],
)
def test_a_fix_installs_from_where_this_package_came(tmp_path, origin, wanted, again):
    """The distribution may be on no index: what a hint says must work where it is read."""
    dist_info(tmp_path, "recollect-rl", "0.1.0", "recollect/__init__.py,,\n")
    if origin:
        (folder,) = tmp_path.glob("recollect_rl-*.dist-info")
        text = origin if isinstance(origin, str) else json.dumps(origin)
        (folder / "direct_url.json").write_text(text)
    source = ROOT / "src"
    assert ask(tmp_path, "install('embed')", source) == f"pip install {wanted}"
    said = ask(tmp_path, "install(again=True)", source)
    assert said == f"pip install --force-reinstall --no-deps {again}"


def test_in_its_own_folder_a_checkout_is_a_dot(monkeypatch):
    packaging._source.cache_clear()
    monkeypatch.chdir(ROOT)
    assert packaging.install("local,serve") in (
        "pip install -e '.[local,serve]'", "pip install '.[local,serve]'"
    )  # fmt: skip


def test_a_hint_needs_no_current_folder(tmp_path, monkeypatch):
    place = tmp_path / "gone"
    place.mkdir()
    monkeypatch.chdir(place)
    place.rmdir()
    assert packaging.install("local").startswith("pip install ")
