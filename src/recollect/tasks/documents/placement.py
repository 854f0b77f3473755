"""The place of the evidence among other documents: by chance, or at a place to be tested.

uniform leaves it to chance; first, middle and last put it there; forward and backward leave the
places to chance but not the order; far sets the documents as far apart as can be; gapN leaves N
others between neighbours.
"""

from __future__ import annotations

import re
from random import Random

from recollect.errors import UserError

PLACEMENTS = ("uniform", "first", "middle", "last", "forward", "backward", "far", "gapN")
_GAP = re.compile(r"gap(\d+)")


def check_placement(placement: str) -> None:
    """Refuse an unknown placement."""
    if not _GAP.fullmatch(placement) and placement not in PLACEMENTS[:-1]:
        raise UserError(
            f"there is no placement {placement!r}",
            f"choose from {', '.join(PLACEMENTS)} with a number for N",
        )


def place(placement: str, evidence: int, documents: int, rng: Random) -> list[int]:
    """Draw the places of `count` documents with evidence, in the order of the data."""
    if evidence > documents:
        raise UserError(
            f"{evidence} documents with evidence do not fit into {documents}",
            "set more documents",
        )
    spread = _spread(placement, evidence, documents, rng)
    if placement == "backward":
        return spread[::-1]
    if placement not in ("uniform", "forward"):
        rng.shuffle(spread)
    return spread


def _spread(placement: str, evidence: int, documents: int, rng: Random) -> list[int]:
    free = documents - evidence
    if placement == "uniform":
        return rng.sample(range(documents), evidence)
    if placement in ("forward", "backward"):
        return sorted(rng.sample(range(documents), evidence))
    if placement == "far":
        return [round(i * (documents - 1) / max(1, evidence - 1)) for i in range(evidence)]
    gap = _GAP.fullmatch(placement)
    if gap:
        step = int(gap[1]) + 1
        length = step * (evidence - 1) + 1
        if evidence and length > documents:
            raise UserError(
                f"{evidence} documents {gap[1]} apart do not fit into {documents}",
                "set a smaller gap or more documents",
            )
        start = rng.randrange(documents - length + 1) if evidence else 0
        return [start + i * step for i in range(evidence)]
    start = {"first": 0, "middle": free // 2, "last": free}[placement]
    return list(range(start, start + evidence))
