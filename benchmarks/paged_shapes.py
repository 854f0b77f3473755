"""What the sampler's kernels are measured on: layers, siblings that begin alike, and prompts."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.sampler.paged_attention import Program

PAGE, DRAFT = 32, 16


@dataclass(frozen=True)
class Case:
    """One layer's shape."""

    q_heads: int
    heads: int
    width: int
    window: int | None = None
    softcap: float | None = None


CASES = (
    Case(9, 3, 64),
    Case(28, 4, 128),
    Case(12, 2, 128),
    Case(4, 2, 80),
    Case(4, 4, 32, window=20),
    Case(8, 2, 80, softcap=30.0),
    Case(8, 4, 256, window=100, softcap=50.0),
)


@dataclass(frozen=True)
class Siblings:
    """Running sequences of groups, each group with a beginning of its own."""

    name: str
    case: Case
    groups: int
    siblings: int
    shared: int
    own: int


SIBLINGS = (
    Siblings("135M, fold", CASES[0], 64, 16, 896, 160),
    Siblings("135M, whole window", CASES[0], 64, 8, 7040, 160),
    Siblings("7B, chunk first", CASES[1], 8, 16, 5056, 1600),
    Siblings("7B, memory first", CASES[1], 8, 16, 64, 6592),
)


@dataclass(frozen=True)
class Prompts:
    """Prompts read at once, all alike: what is in the cache of each, and what is new."""

    name: str
    case: Case
    count: int
    cached: int
    new: int
    drafts: bool = False

    @property
    def length(self) -> int:
        return self.cached + self.new

    def tile(self, program: Program) -> int:
        """Return how many tokens a program takes."""
        return DRAFT if self.drafts else program.tile(self.case.q_heads // self.case.heads)

    def flops(self) -> float:
        """Count two products over what each new token sees."""
        seen = self.new * (self.cached + (self.new + 1) / 2)
        return 4.0 * self.case.width * self.case.q_heads * self.count * seen


PROMPTS = (
    Prompts("135M, fold", CASES[0], 1024, 896, 103),
    Prompts("1.5B, long alone", CASES[2], 8, 0, 6000),
    Prompts("7B, long alone", CASES[1], 8, 0, 6000),
    Prompts("7B, a turn with tools", CASES[1], 128, 2000, 70),
    Prompts("7B, chunk first", CASES[1], 16, 5184, 1000),
    Prompts("7B, drafts of 8", CASES[1], 8, 6000, 10, drafts=True),
    Prompts("7B, drafts of 128", CASES[1], 128, 2000, 10, drafts=True),
)
