"""`benchmarks/train_step.py` counts the tokens that it computes; all else there needs a GPU."""

from __future__ import annotations

from benchmarks import train_step
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import DEMO_MODEL
from recollect.models.model import load_model
from recollect.train.trainer import Trainer


def test_the_tokens_of_a_gradient_are_a_number(monkeypatch):
    monkeypatch.setattr(train_step, "TOOLS", 60)
    model = load_model(ModelConfig(DEMO_MODEL, "cpu"))
    trainer = Trainer(model, LossConfig(kl_coef=0.0), OptimConfig())
    samples = train_step.tool_task(2, 2, model.tokenizer.vocab_size)
    trainer.share, trainer.token_budget = False, 1 << 20
    rows = train_step.gradient(trainer, samples)
    trainer.share = True
    trie = train_step.gradient(trainer, samples)
    assert isinstance(rows, int) and 0 < trie < rows
