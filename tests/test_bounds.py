"""Numbers without sense are refused by name, before anything is made."""

from __future__ import annotations

import math

import pytest

from recollect.bounds import ABOVE_0, DECAY, FINITE, FROM_0, FROM_1, NUCLEUS, SHARE
from recollect.cli import main
from recollect.config.engine import LoraConfig, LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import PRESETS
from recollect.errors import UserError
from recollect.models.model import load_model
from recollect.rewards.answers import AnswerAndTools
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rewards.reading import CallbackReward, GateReward, RoundReward

WRONG = {
    "optim.clip-norm": ("-1", "0", "nan"),
    "optim.lr": ("-1", "nan", "inf"),
    "optim.warmup-steps": ("-1",),
    "optim.eps": ("0", "-1e-8", "nan"),
    "optim.weight-decay": ("-0.1", "nan"),
    "model.lora.rank": ("-1",),
    "model.lora.alpha": ("0", "-1"),
    "model.threads": ("-1",),
    "model.recompute": ("2", "-1", "nan"),
    "model.cache-gib": ("0", "-1", "nan", "inf"),
    "loss.clip-low": ("-0.1", "nan"),
    "loss.clip-high": ("-0.1", "nan"),
    "loss.dual-clip": ("1", "nan", "inf"),
    "loss.tis-cap": ("-1", "nan"),
    "loss.kl-coef": ("-1", "nan", "inf"),
    "loss.entropy-coef": ("nan",),
    "critic.lr": ("0", "nan"),
    "critic.gamma": ("nan",),
    "critic.cliprange-value": ("nan", "-1"),
    "local.weight": ("0", "nan", "inf"),
    "local.forks": ("0",),
    "overlong.charge": ("-1", "nan"),
    "overlong.limit": ("-1",),
    "rollout.tasks": ("0",),
    "rollout.temperature": ("0", "nan", "inf"),
    "rollout.top-p": ("0", "1.5", "-1", "nan"),
    "rollout.timeout": ("0", "nan"),
    "rollout.concurrency": ("0",),
    "val.temperature": ("-1", "nan"),
    "val.top-p": ("0", "1.5"),
    "val.lengths": ("0", "-1"),
    "val.length-tasks": ("0",),
    "models.temperature": ("-1", "nan"),
    "models.top-p": ("0",),
    "models.timeout": ("0", "nan"),
    "models.backoff": ("-1",),
    "models.answer-window": ("0",),
    "outcome-share": ("nan", "1.5"),
    "negative-weight": ("nan", "-0.1"),
    "updates-per-step": ("0",),
    "test-freq": ("0",),
}
CASES = [(name, value) for name, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_number_without_sense_is_refused_by_name(capsys, tmp_path, name, value):
    assert main(["train", "demo", "--folder", str(tmp_path), f"--{name}", value]) == 2
    said = capsys.readouterr().err
    assert f"{name.replace('-', '_')} is " in said and f"set --{name} " in said
    assert not list(tmp_path.iterdir())


def test_of_several_numbers_each_counts(capsys):
    assert main(["train", "demo", "--optim.betas", "2", "0.9"]) == 2
    assert "optim.betas is 2.0 0.9" in capsys.readouterr().err
    assert main(["train", "demo", "--optim.betas", "0.9", "1"]) == 2
    assert main(["train", "demo", "--val.lengths", "1", "0"]) == 2


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (AnswerAndTools, "boxed_bonus", math.nan),
        (CallbackReward, "callback", math.inf),
        (GateReward, "late", math.nan),
        (RoundReward, "bonus", math.nan),
        (MemoryDelta, "growth_penalty", -1.0),
        (MemoryDelta, "growth_budget", 0),
    ],
)
def test_rewards_are_numbers(kind, name, value):
    with pytest.raises(UserError, match=f"reward.{name} is"):
        kind(**{name: value})


def test_what_has_sense_is_taken():
    OptimConfig(lr=0.0, warmup_steps=0, betas=(0.0, 0.0), weight_decay=0.0, clip_norm=math.inf)
    LossConfig(clip_low=10.0, clip_high=math.inf, tis_cap=math.inf, kl_coef=0.0)
    ModelConfig(recompute=1.0, lora=LoraConfig(rank=0))
    GateReward(early=-1.0, late=0.5)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        (FINITE, (-1e9, 0, 1e9), (math.inf, -math.inf)),
        (FROM_0, (0, 1e-9, 5), (-1e-9, math.inf)),
        (FROM_1, (1, 7), (0, 0.99, math.inf)),
        (ABOVE_0, (1e-9, 7), (0, -1, math.inf)),
        (SHARE, (0, 0.5, 1), (-1e-9, 1.01)),
        (NUCLEUS, (1e-9, 1), (0, 1.01)),
        (DECAY, (0, 0.999), (-0.1, 1)),
    ],
)
def test_bounds_hold_what_they_say(bounds, inside, outside):
    assert all(map(bounds.hold, inside)) and not any(map(bounds.hold, (*outside, math.nan)))


@pytest.mark.parametrize("targets", ["foo", "model.norm", "*"])
def test_adapters_for_layers_that_are_not_there(targets):
    config = ModelConfig(PRESETS["demo"].model.path, "cpu", LoraConfig(2, targets=targets))
    with pytest.raises(UserError, match="set --model"):
        load_model(config)
