"""A checkpoint of a run is a model like any other: it is measured, and asked, by its folder."""

from __future__ import annotations

import torch
from safetensors.torch import load_file

from recollect.cli import main
from recollect.config.presets import preset
from recollect.evaluation.models import open_models
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.reader import Reader


def test_a_checkpoint_is_measured_and_read_with_as_its_run_trained_it(tmp_path, capsys):
    small = [
        "--steps", "2", "--save-freq", "1", "--test-freq", "2", "--rollout.tasks", "2",
        "--rollout.n", "4", "--val.tasks", "2", "--val.lengths", "--val.distractors", "1",
        "--val.no-before-training", "--updates-per-step", "1", "--optim.lr", "0.01",
        "--optim.warmup-steps", "0",
    ]  # fmt: skip
    assert main(["train", "demo", "--name", "mine", "--folder", str(tmp_path), *small]) == 0
    checkpoints = tmp_path / "mine" / "checkpoints"
    seen = []
    for name in ("step-000001", "step-000002"):
        options = EvalOptions((), str(checkpoints / name))
        opened = open_models(options)
        facts = opened.facts["memory"]
        assert facts["id"] == f"mine-{name}" and "run" not in facts
        weights = dict(opened.models["memory"].policy.model.network.named_parameters())
        for key, saved in load_file(checkpoints / name / "weights.safetensors").items():
            assert torch.equal(weights[key], saved), key
        seen.append(facts["fingerprint"])
        assert Reader.open(options).agent == preset("demo").agent
    assert seen[0] != seen[1]

    given = ["eval", "--tasks", "recall@100", "--agents", "fold", "--n", "2", "--out"]
    assert main([*given, str(tmp_path / "e"), "--model", str(checkpoints / "step-000001")]) == 0
    assert "mine-step-000001" in (tmp_path / "e" / "report.md").read_text()
    (checkpoints / "step-000001" / "weights.safetensors").write_bytes(b"")
    capsys.readouterr()
    assert main([*given, str(tmp_path / "f"), "--model", str(checkpoints / "step-000001")]) == 2
    assert "is damaged" in capsys.readouterr().err
