"""The vocabulary: tasks and questions, turns and contexts, episodes and samples.

Plain data. Knows nothing of models, tokenizers, torch or files.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

StopReason = Literal["stop", "length"]
"""Why a completion ended: the model stopped by itself, or it met a limit."""


@dataclass(frozen=True)
class Question:
    """Something asked about a task's text."""

    text: str
    answers: tuple[str, ...]
    """Every accepted answer; the first one is shown to people."""
    category: str = ""
    evidence: tuple[int, ...] = ()
    """Indices of the chunks that hold what the answer needs."""
    position: int | None = None
    """Asked after this chunk (0-based); None means after the last one."""
    every: bool = False
    """All of the answers together are asked for, not one of them."""

    def __post_init__(self) -> None:
        answers: Any = self.answers
        if isinstance(answers, str):  # a comma was forgotten, and every letter would be right
            raise TypeError(f"answers is the text {answers!r}: write ({answers!r},)")
        if not isinstance(answers, tuple | list):  # others are used up by reading them once
            raise TypeError(f"answers is {answers!r:.80}: write a tuple of texts")
        if odd := [answer for answer in answers if not isinstance(answer, str)]:
            raise TypeError(f"the answer {odd[0]!r} is not a text")


@dataclass(frozen=True)
class Task:
    """Chunks of text that arrive in order, and the questions asked about them."""

    id: str
    chunks: Sequence[str]
    """May be lazy: only `len`, indexing and iteration are used."""
    questions: tuple[Question, ...]
    source: str = ""
    """The data family, for per-source scores."""
    meta: dict[str, Any] = field(default_factory=dict)
    """What else is known. `item` names what is asked where several tasks ask the same, `cluster`
    what it shares with other tasks: a conversation, an article; without either it is the text. With
    `questions_known` False the questions are asked only after the reading."""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise TypeError(f"the id {self.id!r} of a task is not a text")
        if isinstance(self.chunks, str):
            raise TypeError(f"chunks is the text {self.chunks[:40]!r}: write it into a list")
        chunks: Any = self.chunks
        if not isinstance(chunks, Sized):
            raise TypeError(f"chunks is {chunks!r:.80}: write a list of texts")
        if isinstance(self.questions, Question):
            raise TypeError("questions is one Question: write it into a tuple")
        questions: Any = self.questions
        if not isinstance(questions, tuple | list):
            raise TypeError(f"questions is {questions!r:.80}: write a tuple of Question")
        if odd := [question for question in questions if not isinstance(question, Question)]:
            raise TypeError(f"{odd[0]!r:.80} is no Question")

    @property
    def item(self) -> str:
        """What is asked; tasks of several seeds may ask the same."""
        return str(self.meta.get("item", self.id))

    @property
    def cluster(self) -> str:
        """Tasks of one cluster are no independent draws: intervals are drawn over clusters.

        Tasks about the same text are one, whatever their ids; a lazy text may be too long to read.
        """
        named = self.meta.get("cluster", self.meta.get("item"))
        if named is not None:
            return str(named)
        texts = [*map(str, self.chunks)] if isinstance(self.chunks, list | tuple) else []
        if not any(map(str.strip, texts)):
            return self.id
        digest = blake2b(digest_size=16)
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data))
            digest.update(data)
        return f"text {digest.hexdigest()}"

    def without_text(self, cluster: str = "") -> Task:
        """Return the task without its chunks, still in its cluster, or in the one that is named."""
        cluster = cluster or self.cluster
        bare = replace(self, chunks=())
        named = {**self.meta, "cluster": cluster}
        return bare if bare.cluster == cluster else replace(bare, meta=named)


@dataclass(frozen=True)
class Sampling:
    """How a policy continues a prompt."""

    max_tokens: int = 1024
    temperature: float = 1.0
    """0 picks the most likely token."""
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    """Texts that end the completion; they stay in it, because they were sampled."""
    seed: int = 0


@dataclass(frozen=True)
class Completion:
    """What a policy sampled: `token_ids` as drawn, and the log-probability of each."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Under softmax(logits / temperature), before top-p; under softmax(logits) if greedy."""
    stop_reason: StopReason

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} tokens but {len(self.logprobs)} logprobs")


@dataclass(frozen=True)
class Turn:
    """One model call inside a context: where its sampled tokens start, and what they are."""

    start: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """One per token; none at all in a context that is not exact."""
    stop_reason: StopReason

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass
class Context:
    """One growing token sequence of a chat: everything a model saw and said in it."""

    role: str
    """`memory` or `answer`: decides which model speaks and whether it learns."""
    stratum: str = ""
    """Contexts are compared with contexts of the same stratum in sibling episodes."""
    trainable: bool = True
    ids: Sequence[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    reward: float | None = None
    """This context's own reward; None means the episode's."""
    question: int | None = None
    """Index of the question this context answers."""
    label: str = ""
    """For people: 'chunk 3', 'question 1'."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often what happened in it: tool calls, by outcome and by tool."""
    steps: dict[str, float] = field(default_factory=dict)
    """Rewards for this step alone, by name, beside the reward of the outcome."""
    exact: bool = True
    """False if the server returned no token ids: `ids` only counts them and cannot be trained."""
    chunks: tuple[int, int] | None = None
    """The first and the last chunk of the task that it showed something of, where noted."""
    learned: dict[str, list[float]] = field(default_factory=dict)
    """Figures of a kept training episode, one per sampled token: `trainer`, the logprobs of the
    weights that learned from them, `advantage`, and `before`, the logprobs that ratios are against
    where these are not the sampler's. Empty where nothing was learned from it."""


@dataclass(frozen=True)
class MemoryOp:
    """One edit of a memory. `kind` and `data` suffice to replay it."""

    kind: str
    data: dict[str, Any]
    label: str = ""


Fault = Literal["agent", "environment", "measurement"]
"""Who caused a failure: the agent, something it depends on, or what measures it once it is done."""


@dataclass(frozen=True)
class Failure:
    """The error that ended an episode, the boundary it crossed, and who caused it."""

    boundary: str
    kind: str
    message: str
    fault: Fault = "environment"
    """docs/algorithms.md has the table."""
    place: str = field(default="", compare=False)
    """The file and line in a user's own code, if that raised the error."""


@dataclass
class Episode:
    """One run of an agent on a task."""

    task: Task
    rollout: int
    contexts: list[Context] = field(default_factory=list)
    ops: list[MemoryOp] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """One per question, in the order of `task.questions`."""
    reward: float | None = None
    """Set once, before the episode is expanded into samples."""
    scores: dict[str, float] = field(default_factory=dict)
    """Named measurements beside the reward."""
    failure: Failure | None = None
    seconds: float = 0.0
    answer_scores: list[float] = field(default_factory=list)
    """One per question: how well it was answered, without any bonus."""
    forked: int = 0
    """How many of its contexts were replayed from another episode of the task; they are not trained
    here."""
    namespace: str = ""
    """The trial that its memory was: the name of the base and a tail of its own; empty for a
    memory without a base."""

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def counts(self) -> bool:
        """Whether training compares it: it ended well, or failed by the agent's own doing."""
        return self.failure is None or self.failure.fault == "agent"

    @property
    def measured(self) -> bool:
        """Whether it has a result: a failing judge or reader says nothing about the agent."""
        return self.failure is None or self.failure.fault != "measurement"

    @property
    def sampled_tokens(self) -> int:
        return sum(len(turn.token_ids) for context in self.contexts for turn in context.turns)

    @property
    def prompt_tokens(self) -> int:
        """Tokens sent to models, counting a context again for every turn in it."""
        return sum(turn.start for context in self.contexts for turn in context.turns)


@dataclass(frozen=True)
class Sample:
    """One context as training data. Arrays share one length, the context's."""

    token_ids: np.ndarray
    """int64"""
    trained: np.ndarray
    """bool: true exactly at the tokens the trainable model sampled."""
    advantages: np.ndarray
    """float32: zero where not trained."""
    logprobs: np.ndarray
    """float32: the behaviour policy's, zero where not trained."""
    group: int
    """Samples of one task share it; mini-batches are cut between groups."""
    episode: int
    """Samples of one episode share it."""
    local: bool = False
    """Whether its episode was run again from the middle of another one."""

    def __post_init__(self) -> None:
        sizes = {len(self.token_ids), len(self.trained), len(self.advantages), len(self.logprobs)}
        if len(sizes) != 1:
            raise ValueError(f"a sample's arrays differ in length: {sorted(sizes)}")
