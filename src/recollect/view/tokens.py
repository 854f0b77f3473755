"""One reply token by token: how likely the sampler, the trainer and the weights now find each.

What the trainer computed when it learned from a token is stored with the kept training episodes:
their ratio and clipping are those of the step. The weights of now are asked on request.
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
    clip = (low, high, loss.get("dual_clip", math.inf))
    learned = said.get("learned") or {}
    names = ("trainer", "before", "advantage")
    trainer, before, advantage = (_of_turn(learned.get(name), said, turn) for name in names)
    texts, note = _texts(source, ids)
    now: list[float] | None = None
    if compare:
        now = _now(weights, said["ids"], own, _temperature(source, n))[:MOST]
    return {
        "tokens": [
            {
                "text": texts[i],
                "id": ids[i],
                "sampler": _probability(sampled[i]),
                **_at_step(
                    _at(trainer, i),
                    sampled[i] if before is None else before[i],
                    _at(advantage, i) or 0.0,
                    clip,
                ),
                "now": _probability(_at(now, i)),
                "ratio_now": _ratio(_at(now, i), sampled[i]),
            }
            for i in range(len(ids))
        ],
        "learned": trainer is not None,
        "clip": [low, high],
        "weights": weights.name if compare else "",
        "trained": bool(said.get("trainable", True)),
        "note": note,
    }


def _of_turn(values: Any, context: dict[str, Any], turn: int) -> list[float] | None:
    """Cut the values of a context's sampled tokens down to those of one turn."""
    if not isinstance(values, list):
        return None
    sizes = [own["end"] - own["start"] for own in context["turns"]]
    first = sum(sizes[:turn])
    found = values[first : first + sizes[turn]]
    return found if len(found) == sizes[turn] else None


def _at(values: list[float] | None, i: int) -> float | None:
    return None if values is None else values[i]


def _at_step(
    trainer: float | None, before: float | None, advantage: float, clip: tuple[float, float, float]
) -> dict[str, Any]:
    """Return what the trainer made of a token; the loss clips only what goes too far already."""
    ratio = _ratio(trainer, before)
    clipped = ""
    if ratio is not None:
        clipped = "low" if advantage < 0 and ratio < 1 - clip[0] else clipped
        clipped = "high" if advantage > 0 and ratio > 1 + clip[1] else clipped
        clipped = "dual" if advantage < 0 and ratio > clip[2] else clipped
    return {
        "trainer": _probability(trainer),
        "ratio": ratio,
        "advantage": advantage,
        "clipped": clipped,
    }


def _probability(logprob: float | None) -> float | None:
    return None if logprob is None else math.exp(logprob)


def _ratio(logprob: float | None, other: float | None) -> float | None:
    if logprob is None or other is None:
        return None
    return math.exp(max(-50.0, min(50.0, logprob - other)))


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
