"""What is installed is locked with checksums; the bill of materials lists all of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ("demo.txt", "torch.txt", "test.txt", "bench.txt", "cuda.txt")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?: \\)?$")


def test_every_requirement_of_the_two_commands_has_a_checksum():
    for name in FILES:
        lines = (ROOT / "requirements" / name).read_text().splitlines()
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            if PIN.match(line):
                assert line.endswith(" \\") and following.startswith("    --hash=sha256:"), line
            else:
                assert line.startswith(("#", "-r ", "    --hash=sha256:")), line
    makefile = (ROOT / "Makefile").read_text()
    assert "CHECKED := --require-hashes --no-deps" in makefile
    for name in set(FILES) - {"torch.txt"}:
        assert re.search(rf"install .*\(CHECKED\).* -r requirements/{name}", makefile), name
    assert "known_build.py $(VENV)/wheels" in makefile


@pytest.mark.parametrize(
    ("name", "checked"), [("torch-2.13.0-cp311", True), ("torch-2.13.0+cpu-cp311", False)]
)
def test_a_published_build_of_torch_needs_its_checksum(tmp_path, name, checked):
    (tmp_path / f"{name}-cp311-linux_x86_64.whl").write_bytes(b"not torch")
    command = [sys.executable, "requirements/known_build.py", str(tmp_path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("--require-hashes" in said.stdout) is checked
    assert ("your own build" in said.stderr) is not checked


def test_torch_has_checksums_for_both_kinds_of_machine():
    text = (ROOT / "requirements/torch.txt").read_text()
    assert text.count("--hash") >= 7  # two Pythons on x86, ARM and macOS, and a CPU build
    assert "torch==" not in (ROOT / "requirements/demo.txt").read_text()


def test_the_bill_of_materials_lists_what_is_locked_the_same_every_time():
    files = [f"requirements/{name}" for name in FILES[:3]]
    command = [sys.executable, "scripts/sbom.py", *files]
    first, second = (subprocess.check_output(command, cwd=ROOT) for _ in range(2))
    assert first == second
    bill = json.loads(first)
    assert bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.5"
    listed = {(part["name"], part["version"]) for part in bill["components"]}
    for name in files:
        for line in (ROOT / name).read_text().splitlines():
            if found := PIN.match(line):
                assert (re.sub(r"[-_.]+", "-", found[1]).lower(), found[2]) in listed
    assert all(part["hashes"] for part in bill["components"])


def test_clusters_ask_for_a_token_and_have_no_dashboard():
    for name in ("slurm.sbatch", "ray_cluster.yaml"):
        text = (ROOT / "recipes" / name).read_text()
        assert "RAY_AUTH_MODE=token" in text and "--include-dashboard=false" in text
    slurm = (ROOT / "recipes/slurm.sbatch").read_text()
    assert "--node-ip-address" in slurm and "0.0.0.0" not in slurm
    assert subprocess.run(["bash", "-n", str(ROOT / "recipes/slurm.sbatch")]).returncode == 0
    assert "vulnerability" in (ROOT / "SECURITY.md").read_text()
