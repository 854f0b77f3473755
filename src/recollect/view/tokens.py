"""One reply token by token: how likely the sampler found each, and how likely the weights now do.

What the trainer computed at the time of the step is not stored; the ratio shown is that of the
run's weights as they are now.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from recollect.errors import UserError
from recollect.foreign import one_line, shown
from recollect.types import Sample
from recollect.view.sources import RunSource
from recollect.view.weights import Weights

MOST = 4000
"""Tokens of a reply that are shown."""


def tokens(
    source: RunSource, weights: Weights, n: int, context: int, turn: int, compare: bool
) -> dict[str, Any]:
    """Return the tokens of one reply; with `compare`, as the run's weights see them now."""
    record = source.record(n)
    try:
        said = record["contexts"][context]
        own = said["turns"][turn]
    except IndexError:
        raise UserError(f"episode {n} has no such turn", "choose one of its turns") from None
    if not said.get("exact", True):
        raise UserError(
            "the server of this model returned no tokens", "there is nothing to show here"
        )
    ids = said["ids"][own["start"] : own["end"]][:MOST]
    sampled = own["logprobs"][:MOST]
    loss = source.config().get("loss") or {}
    low, high = loss.get("clip_low", 0.2), loss.get("clip_high", 0.2)
    texts, note = _texts(source, ids)
    now: list[float] | None = None
    if compare:
        now = _now(weights, said["ids"], own, _temperature(source, n))[:MOST]
    return {
        "tokens": [
            _token(texts[i], ids[i], sampled[i], None if now is None else now[i], (low, high))
            for i in range(len(ids))
        ],
        "clip": [low, high],
        "weights": weights.name if compare else "",
        "trained": bool(said.get("trainable", True)),
        "note": note,
    }


def _token(
    text: str, token: int, sampled: float | None, now: float | None, clip: tuple[float, float]
) -> dict[str, Any]:
    ratio = None
    if sampled is not None and now is not None:
        ratio = math.exp(max(-50.0, min(50.0, now - sampled)))
    clipped = ""
    if ratio is not None:
        clipped = "low" if ratio < 1 - clip[0] else "high" if ratio > 1 + clip[1] else ""
    return {
        "text": text,
        "id": token,
        "sampler": None if sampled is None else math.exp(sampled),
        "now": None if now is None else math.exp(now),
        "ratio": ratio,
        "clipped": clipped,
    }


def _temperature(source: RunSource, n: int) -> float:
    """Return the temperature that log-probabilities are under; of greedy ones it is 1."""
    split = source.place(n)[0]
    section = source.config().get("rollout" if split == "train" else "val") or {}
    return float(section.get("temperature", 1.0)) or 1.0


def _texts(source: RunSource, ids: list[int]) -> tuple[list[str], str]:
    """Return the text of every token, or its number where no tokenizer is here."""
    folder = source.folder / "model"
    if not folder.is_dir():
        folder = Path(str((source.config().get("model") or {}).get("path", ""))).expanduser()
    try:
        from recollect.models.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(folder)
    except (ImportError, UserError) as error:
        note = one_line(f"numbers instead of texts: {error}", 300)
        return [str(token) for token in ids], note
    found = []
    for token in ids:
        text = tokenizer.decode([token])
        found.append(shown(text if text else tokenizer.decode_control(token)))
    return found, ""


def _now(weights: Weights, ids: list[int], own: dict[str, Any], temperature: float) -> list[float]:
    """Ask the run's model how likely the reply is."""
    with weights.lock:
        learner = weights.learner()
        import torch

        from recollect.train.predictions import Predictions

        row = np.array(ids[: own["end"]], dtype=np.int64)
        trained = np.zeros(len(row), dtype=bool)
        trained[max(1, own["start"]) :] = True
        zeros = np.zeros(len(row), dtype=np.float32)
        sample = Sample(row, trained, zeros, zeros, 0, 0)
        model = learner.model
        with torch.no_grad():
            asked = Predictions.of([sample], model.device, False)
            found: list[float] = asked.logprobs(model, temperature).float().cpu().tolist()
        return found
