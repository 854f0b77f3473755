"""The doctor: every ailment has a status and a fix, and its ranges are those we publish."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from recollect.commands import doctor
from recollect.commands.doctor import EMBEDDER, GIB, Machine, examine, within
from recollect.errors import UserError
from recollect.packaging import NAME, _described, install, ranges

VERSIONS = {
    "numpy": "2.4.6", "rich": "15.0.0", "tyro": "1.0.16", "pydantic": "2.14.3",
    "pyarrow": "26.0.1", "packaging": "26.3", "torch": "2.13.0+cpu",
    "transformers": "5.17.0", "safetensors": "0.8.0", "peft": "0.21.2", "pyyaml": "6.0.3",
}  # fmt: skip
WELL = Machine("3.11.9", VERSIONS)


def finding(machine: Machine, name: str) -> doctor.Finding:
    return next(f for f in examine(machine) if f.name == name)


def with_version(name: str, version: str | None) -> Machine:
    versions = {**VERSIONS, name: version}
    return replace(WELL, versions={n: v for n, v in versions.items() if v is not None})


def test_a_machine_with_everything_is_well():
    assert {f.status for f in examine(WELL)} == {"ok", "absent"}
    assert finding(WELL, "device").found == "cpu, 1 thread"


@pytest.mark.parametrize(
    ("version", "span", "inside"),
    [("2.13.0+cpu", ">=2.11,<2.14", True), ("2.14.0", ">=2.11,<2.14", False),
     ("3", ">=3.0,<4", True), ("1.2.3.4", ">=1.2,<1.3", True), ("0.9.2", "==0.9.1", False),
     ("0.9.1", "", True)],
)  # fmt: skip
def test_versions_are_compared_by_their_numbers(version, span, inside):
    assert within(version, span) == inside


@pytest.mark.parametrize("name", ["numpy", "torch", "transformers", "safetensors"])
def test_what_training_needs_and_is_missing_is_bad(name):
    found = finding(with_version(name, None), name)
    assert (found.status, found.found) == ("bad", "not installed")
    assert found.fix == install("local" if name in ranges("local") else "")


@pytest.mark.parametrize("version", ["2.10.9", "2.14.0", "2.14.0.dev20260101"])
def test_a_version_out_of_range_is_bad_and_names_the_range(version):
    found = finding(with_version("torch", version), "torch")
    assert found.status == "bad" and "needs >=2.11,<2.14" in found.found
    assert found.fix == "pip install 'torch>=2.11,<2.14'"


@pytest.mark.parametrize("version", ["5.9.0", "5.22.3"])
def test_the_ends_of_a_range_are_in_it(version):
    assert finding(with_version("transformers", version), "transformers").status == "ok"


def test_what_only_some_features_need_is_not_bad():
    assert finding(with_version("peft", None), "peft").status == "absent"
    assert finding(with_version("peft", "0.1"), "peft").status == "warning"
    assert finding(WELL, "uvicorn").status == "absent"
    assert finding(WELL, "uvicorn").found.endswith(f"need it: {install('serve')})")
    assert finding(WELL, EMBEDDER).found.endswith(f"{install('embed')})")
    assert finding(WELL, "wandb").status == "absent"
    assert finding(with_version("wandb", "0.20"), "wandb").status == "ok"


@pytest.mark.parametrize(("python", "status"), [("3.10.1", "bad"), ("3.13.0", "bad"),
                                                ("3.12.11", "ok")])  # fmt: skip
def test_python_must_be_in_range(python, status):
    assert finding(replace(WELL, python=python), "python").status == status


def test_the_device_memory_and_disk_are_judged():
    assert finding(replace(WELL, device="error: no libc10"), "device").status == "bad"
    assert finding(replace(WELL, nvidia_driver=True), "device").status == "warning"
    gpu = replace(WELL, nvidia_driver=True, device="cuda (H200)")
    assert finding(gpu, "device").status == "ok"
    assert finding(replace(WELL, memory=GIB), "memory").status == "warning"
    assert finding(replace(WELL, free_disk=0), "free disk").status == "warning"
    assert not any(f.name == "device" for f in examine(with_version("torch", None)))


def test_everything_bad_or_doubtful_has_a_fix():
    ill = Machine("3.9.0", {}, nvidia_driver=True, free_disk=0, memory=0)
    for found in [*examine(ill), *examine(replace(ill, versions=VERSIONS))]:
        assert found.fix or found.status in ("ok", "absent"), found


@pytest.mark.parametrize(("over", "status"), [(True, "bad"), (False, "warning")])
def test_another_package_of_the_import_name_is_named_with_the_way_out(over, status):
    found = finding(replace(WELL, strangers={"recollect 0.3.1": over}), "import name")
    assert found.status == status and "recollect 0.3.1 also installs a package" in found.found
    assert found.fix == f"pip uninstall -y recollect && {install(again=True)}"


def test_the_findings_are_printed_with_each_fix_once():
    console = Console(file=io.StringIO(), width=80)
    machine = replace(WELL, versions={"numpy": "2.4.6"})
    doctor.show(console, examine(machine))
    shown = console.file.getvalue()
    assert shown.count(f"\n  {install('local')}\n") == 1
    assert "✓  numpy" in shown and "✗  torch" in shown and "Ready" not in shown
    console = Console(file=io.StringIO(), width=80)
    doctor.show(console, examine(WELL))
    assert "Ready: recollect train demo" in console.file.getvalue()


def test_this_machine_is_looked_at_and_the_status_follows():
    console = Console(file=io.StringIO())
    expected = any(f.status == "bad" for f in examine(doctor.look()))
    assert doctor.doctor(console) == int(expected)


def test_looking_for_trouble_imports_no_torch():
    code = "import sys, recollect.commands.doctor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


DAMAGED = {
    "no text": b"Metadata-Version: 2.1\nName: rich\nVersion: \xff\xfe\n",
    "empty": b"",
    "no version": b"Metadata-Version: 2.1\nName: rich\n",
    "not a version": b"Metadata-Version: 2.1\nName: rich\nVersion: [red]new\x1b[31m\n",
    "no file": None,
    "a folder": "folder",
}


def spoil(folder: Path, name: str, data: bytes | str | None) -> None:
    """Put a damaged distribution before the others."""
    info = folder / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_bytes(b"\xff\x00recollect/")
    if isinstance(data, bytes):
        (info / "METADATA").write_bytes(data)
    elif data is not None:
        (info / "METADATA").mkdir()


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_installation_is_named_with_its_fix(kind, tmp_path, monkeypatch):
    spoil(tmp_path, "rich", DAMAGED[kind])
    spoil(tmp_path, "recollect", DAMAGED[kind])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(doctor, "_ask_torch", lambda: ("cpu", 1))  # torch itself is not looked at
    out = io.StringIO()
    assert doctor.doctor(Console(file=out, width=200)) == 1
    said = out.getvalue()
    assert "needs" in said and f"'rich{ranges()['rich']}'" in said and "\x1b" not in said


def test_our_own_damaged_metadata_are_one_message(tmp_path, monkeypatch):
    _described.cache_clear()
    spoil(tmp_path, NAME.replace("-", "_"), DAMAGED["no text"])
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        with pytest.raises(UserError, match="metadata of recollect-rl are damaged"):
            ranges()
    _described.cache_clear()
