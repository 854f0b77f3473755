"""What the simulation of scale is made of: measured numbers, and what is assumed.

Every number says which of the two it is: a measured one names the command that prints it (its
result is in docs/benchmarks.md), an assumed one gives its reason. Knows nothing of nodes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from recollect.engines.verl.launch.shapes import KNOWN, Shape

TRAIN = "python benchmarks/train_step.py --weights bfloat16 --varlen"
RACE = (
    "python -m benchmarks.rollout --peer vllm --model models/random-7b --chunks 1 --tool-tasks 8"
    " --logprobs 1 --seeds 0 --graphs 1024 --sequences 1024 --batch-tokens 32768"
)
CLUSTER = "python benchmarks/cluster_gpu.py --out runs/cluster"
TRAINED = 604_048
"""Tokens of one task that the training step was measured with: 16 rollouts over six chunks."""
MODEL = KNOWN["Qwen2.5-7B"]
"""What the rates were measured with."""


@dataclass(frozen=True)
class Race:
    """A shape of the race between samplers: what one turn reads and writes."""

    tasks: int
    group: int
    shared: int
    own: int
    new: int = 128

    @property
    def sequences(self) -> int:
        return self.tasks * self.group

    @property
    def prefilled(self) -> int:
        """Tokens that are computed before anything is drawn."""
        return self.tasks * self.shared + self.sequences * self.own

    @property
    def context(self) -> float:
        """Tokens of a context while it is continued, on average."""
        return self.shared + self.own + self.new / 2

    def step_bytes(self, shape: Shape) -> float:
        """Return the bytes of weights, keys and values that draw one token of all sequences."""
        return 2 * shape.parameters + self.sequences * self.context * shape.kv_bytes


FOLD = Race(64, 16, 900, 103)
LONE = Race(8, 1, 6000, 0)
RACED_1_5B = {"vllm": (18_700, 1_767), "recollect": (57_200, 1_784)}
"""New tokens a second of a 1.5B in these two shapes: what the rates of the 7B are held against."""


@dataclass(frozen=True)
class Source:
    """Where a number comes from."""

    name: str
    value: float
    measured: bool
    unit: str
    what: str
    origin: str
    """The command that measures it, or the reason to assume it."""


def measured(value: float, unit: str, what: str, command: str) -> Any:
    """Declare a number that a command prints."""
    return field(default=value, metadata={"of": (True, unit, what, command)})


def assumed(value: float, unit: str, what: str, reason: str) -> Any:
    """Declare a number that nobody measured."""
    return field(default=value, metadata={"of": (False, unit, what, reason)})


def sources(numbers: Any) -> list[Source]:
    """Return the numbers of a dataclass that were declared so, measured ones first."""
    found = [
        Source(f.name, getattr(numbers, f.name), *f.metadata["of"])
        for f in dataclasses.fields(numbers)
        if "of" in f.metadata
    ]
    return sorted(found, key=lambda source: not source.measured)


@dataclass(frozen=True)
class Rates:
    """What one H200 does with a 7B; other models by their weights."""

    sampler: Literal["vllm", "recollect"] = "vllm"
    """Whose rates the rollout has."""
    rows: float = measured(
        58.4, "s", "gradient of 604,048 tokens in rows, all layers recomputed",
        f"{TRAIN} --recompute 1 --rows 16",
    )  # fmt: skip
    rows_kept: float = measured(
        44.8, "s", "the same, nothing recomputed: the difference is a forward pass",
        f"{TRAIN} --recompute 0 --rows 4",
    )  # fmt: skip
    trie: float = measured(
        14.5, "s", "the same as a trie, all layers recomputed (the embedded engine)",
        f"{TRAIN} --recompute 1 --rows 16",
    )  # fmt: skip
    vllm_fold: float = measured(
        13_200, "tokens/s", "vLLM, 1,024 sequences of 1,003 tokens and 128 new ones",
        f"{RACE} --modes offline",
    )  # fmt: skip
    vllm_lone: float = measured(
        571, "tokens/s", "vLLM, 8 sequences of 6,000", f"{RACE} --modes offline",
    )  # fmt: skip
    recollect_fold: float = measured(
        16_200, "tokens/s", "our sampler, the same 1,024", f"{RACE} --modes recollect",
    )  # fmt: skip
    recollect_lone: float = measured(
        568, "tokens/s", "our sampler, the same 8", f"{RACE} --modes recollect",
    )  # fmt: skip
    fixed: float = measured(
        9.2, "s", "a step of verl with a model of 88,448 weights, which is overhead",
        f"{CLUSTER} --only vllm --steps 2",
    )  # fmt: skip
    bandwidth: float = assumed(
        4.8e12, "B/s", "an H200's memory", "data sheet; the race decides the share that is reached"
    )
    link: float = assumed(
        450e9 * 0.8, "B/s", "between the GPUs of a node, each direction", "80% of NVLink"
    )
    network: float = assumed(
        50e9 * 0.8, "B/s", "between nodes, for each GPU", "80% of a 400 Gbit/s adapter"
    )
    sync: float = assumed(
        20e9, "B/s", "a sampler takes over new weights",
        "never timed with a 7B; of a model of 270 MB it took 0.2 to 1 s",
    )  # fmt: skip

    def train(self, shape: Shape, trie: bool = False) -> float:
        """Return tokens a second, forward, recomputed and backward."""
        return TRAINED / (self.trie if trie else self.rows) * _smaller(shape)

    def forward(self, shape: Shape) -> float:
        """Return tokens a second, forward only."""
        return TRAINED / (self.rows - self.rows_kept) * _smaller(shape)

    def draw(self, shape: Shape, sequences: float, context: float) -> float:
        """Return the seconds in which every sequence gets one more token."""
        read = 2 * shape.parameters + sequences * context * shape.kv_bytes
        share, each = self.decoding()
        return read / (self.bandwidth * share) + sequences * each

    def decoding(self) -> tuple[float, float]:
        """Return the share of the bandwidth, and the seconds that each sequence adds to a step.

        These two solve the race's two shapes, one with 1,024 sequences and one with 8: what a
        sampler does for every single sequence is most of the former, and little of the latter.
        """
        many, few = ((race.sequences, self._step(race, rate), race.step_bytes(MODEL))
                     for race, rate in zip((FOLD, LONE), self._raced(), strict=True))  # fmt: skip
        slowness = (few[1] * many[0] - many[1] * few[0]) / (few[2] * many[0] - many[2] * few[0])
        return 1 / (slowness * self.bandwidth), (few[1] - slowness * few[2]) / few[0]

    def foretold(self, race: Race, shape: Shape) -> float:
        """Return the new tokens a second that a model would have in a shape of the race."""
        step = self.draw(shape, race.sequences, race.context)
        seconds = race.prefilled / self.forward(shape) + race.new * step
        return race.sequences * race.new / seconds

    def _raced(self) -> tuple[float, float]:
        if self.sampler == "vllm":
            return self.vllm_fold, self.vllm_lone
        return self.recollect_fold, self.recollect_lone

    def _step(self, race: Race, rate: float) -> float:
        """Return the seconds of one token of all sequences, without what is read before."""
        whole = race.sequences * race.new / rate
        return (whole - race.prefilled / self.forward(MODEL)) / race.new


def _smaller(shape: Shape) -> float:
    """Return how many times faster than the measured model a shape is, by its weights."""
    return MODEL.parameters / shape.parameters
