"""The notebook of the examples, run by a real Jupyter kernel."""

from __future__ import annotations

import sys

import pytest

from recollect.cli import main
from tests.support.places import ROOT

nbclient = pytest.importorskip("nbclient", reason="the extra test is not installed")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """Let the kernel python3 be this Python, whatever is installed on the machine."""
    place = tmp_path / "jupyter/kernels/python3"
    place.mkdir(parents=True)
    arguments = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    words = ", ".join(f'"{word}"' for word in arguments)
    (place / "kernel.json").write_text(
        f'{{"argv": [{words}], "display_name": "Python 3", "language": "python"}}'
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))


def test_an_agent_of_a_cell_is_trained_evaluated_plotted_and_resumed(
    tmp_path, kernels, monkeypatch, capsys
):
    notebook = nbformat.read(ROOT / "examples/notebook.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    defined, trained, plotted, measured, resumed = [
        cell.outputs for cell in notebook.cells if cell.cell_type == "code"
    ]
    assert not defined
    assert [kind.output_type for kind in trained] == ["execute_result"], trained  # all silent
    [accuracy] = trained
    assert "Accuracy(n=8, failed=0" in accuracy.data["text/plain"]
    [plot] = plotted
    assert plot.data["image/svg+xml"].count("<polyline") == 2
    [scores] = measured
    assert "'fold'" in scores.data["text/plain"] and "'two_pass'" in scores.data["text/plain"]
    [step] = resumed
    assert step.data["text/plain"] == "(5, 1)"
    source = (tmp_path / "runs/notebook/code/notebook.py").read_text()
    assert source.count("async def two_pass") == 1 and "recollect.train" not in source
    monkeypatch.chdir(tmp_path)
    assert main(["train", "runs/notebook", "--steps", "6"]) == 2  # elsewhere: plainly refused
    said = " ".join(capsys.readouterr().err.split())
    assert "defined in a script or a notebook" in said and "code/notebook.py" in said
