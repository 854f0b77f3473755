"""`benchmarks/train_step.py` counts the tokens that it computes; all else there needs a GPU."""

from __future__ import annotations

from benchmarks import train_step
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import DEMO_MODEL
from recollect.engines.verl.launch.shapes import KNOWN
from recollect.models.activations import per_token, tokens_within
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


def test_thirty_turns_of_a_7b_are_cut_to_what_fits_into_an_h200():
    """Sixteen conversations of 30 turns at once would take 270 GiB, four rows of them 91."""
    size, weights = 28 * 3584, KNOWN["Qwen2.5-7B"].parameters
    free = 139.0 - 6 * weights / 2**30  # beside bfloat16 weights and float32 gradients
    whole = train_step.TOOLS + 30 * (train_step.CALL + train_step.RESULT)
    trie = train_step.TOOLS + 16 * (whole - train_step.TOOLS)
    assert trie * per_token(size, 0.0) > 2 * free
    most = tokens_within(size, 0.0, free)
    assert 3 * whole < most < 4 * whole and most * per_token(size, 0.0) < 0.91 * free
    assert tokens_within(size, 1.0, free) > trie  # recomputed, all sixteen fit at once
    # What was measured to fit is still allowed: four rows of a chunk, and its trie.
    assert most > 4 * 6180
