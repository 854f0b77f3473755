"""The reward `memory_delta`: how much better a reader does after the agent's edits than before.

Knows nothing of what agents do: it compares the store at the end of an episode with its base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from recollect.agents.resources import Resources
from recollect.bounds import FROM_0, FROM_1, check_bounds
from recollect.concurrency.many import Once, concurrently
from recollect.errors import UserError, boundary
from recollect.memory.base import Memory
from recollect.memory.changes import CountTokens, Growth, count_words
from recollect.memory.entries import Entry, number_of
from recollect.memory.selection import Passage, Retrieval
from recollect.memory.store import Store
from recollect.metrics import Metric, find_metric
from recollect.policies.cached import RemoteModel
from recollect.policies.client import Endpoint
from recollect.rewards.answers import tool_use
from recollect.rewards.base import Score
from recollect.rewards.judge import Judge
from recollect.rewards.readers import (
    ChatAnswerer,
    EvidenceReader,
    MetricScorer,
    Reader,
    Scorer,
    TextReader,
)
from recollect.seeds import derive
from recollect.tasks.base import SharedBases
from recollect.types import Context, Episode, Task

Mode = Literal["delta", "new_only", "new+format"]
MODES: tuple[Mode, ...] = ("delta", "new_only", "new+format")
CANDIDATES = 4
"""Questions looked at for each of a panel's places."""
WROTE, WROTE_NOTHING = 0.1, -1.0
"""The published system's bonus for writing at least one memory, and its penalty for none."""


@dataclass(frozen=True)
class Reading:
    """What retrieval found in a store, and how well a reader did with it."""

    found: tuple[Passage, ...]
    perf: float


Panel = Sequence[tuple[Task, int, Reading]]
"""Other questions of a base, and how well it answers them."""


@dataclass(frozen=True)
class MemoryDelta:
    """R = E * perf(final) - perf(initial), the mean over the task's questions.

    perf(S) in [0, 1] is how well `reader` answers from what `retrieval` finds in store S, and

        E = 1 / (1 + growth_penalty * max(0, growth tokens / growth_budget - 1))

    where growth is what the store holds more than its base. So writing nothing earns exactly 0,
    harm is negative, and copying everything does not pay. perf(initial) is computed once per
    question and kept: bind another copy when the reader changes, as a policy does with every
    update.

    Memories serve more than one question. Harm to a panel of other questions, which the base
    answers and which are always the same for a base, is charged:

        R := R - panel_weight * max(0, perf_panel(initial) - perf_panel(final))

    so that deleting what only crowds the search of this question does not pay.
    """

    reader: Literal["evidence", "policy", "endpoint"] = "evidence"
    """evidence asks no model: does retrieval bring the answer and the turns it rests on?"""
    reader_url: str = ""
    """The server of the reader `endpoint`, such as http://localhost:8000/v1."""
    metric: Metric | str = "token_f1"
    """The metric for answers of a model, unless there is a judge."""
    judge_url: str = ""
    """The server of a judge; without one the metric decides."""
    judge_model: str = ""
    """The judge's model; empty takes the first one that its server lists."""
    answers: Path | None = None
    """A folder that keeps what reader and judge answered; without it they are asked once a run."""
    max_answer_tokens: int = 64
    retrieval: Retrieval = Retrieval()
    """What the reader sees of a store."""
    mode: Mode = "delta"
    """new_only is how well the reader does with what was written alone; new+format is that with
    0.1 for writing anything and -1 for nothing, the published reward."""
    growth_budget: int = 128
    """Words by which a store may grow for free."""
    growth_penalty: float = 1.0
    panel: int = 8
    """Other questions about the same memories that must not suffer, in the mode delta."""
    panel_weight: float = 1.0
    """What harm to them costs; 0 asks none of them."""
    others: Callable[[Task], Sequence[Task]] | None = field(default=None, repr=False)
    """Returns the tasks that share a task's memories; `bind` fills it in."""
    reads: Reader | None = field(default=None, repr=False)
    """Who reads; `bind` fills it in."""
    scorer: Scorer | None = field(default=None, repr=False)
    """Scores answers that the agent gave itself: their contexts earn their own scores."""
    count_tokens: CountTokens = field(default=count_words, repr=False)
    """Counts tokens for the budgets of growth and of retrieval."""
    _initial: Once[tuple[object, ...], Reading] = field(
        default_factory=Once, init=False, repr=False, compare=False
    )
    _panels: Once[tuple[object, ...], Panel] = field(
        default_factory=Once, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UserError(f"the reward has no mode {self.mode!r}", f"choose {', '.join(MODES)}")
        check_bounds("reward", self, max_answer_tokens=FROM_1)
        check_bounds("reward", self, growth_budget=FROM_1, growth_penalty=FROM_0)
        check_bounds("reward", self, panel=FROM_0, panel_weight=FROM_0)
        find_metric(self.metric)
        if (self.reader == "endpoint") != bool(self.reader_url):
            raise UserError(
                "--reward.reader endpoint and --reward.reader-url go together",
                "set --reward.reader endpoint with --reward.reader-url URL, or neither",
            )

    @property
    def per_batch(self) -> bool:
        """Whether the reader changes with every update."""
        return self.reader == "policy"

    def check(self, resources: Resources) -> None:
        """Refuse an agent without a store, and a search without vectors."""
        if resources.memory is not None and not issubclass(resources.memory, Store):
            raise UserError(
                "the reward compares stores of memories, but the agent edits none",
                "start from the preset curator or locomo",
            )
        resources.require_vectors({"reward.retrieval": self.retrieval.mode})

    def servers(self) -> dict[str, Endpoint]:
        """Return where the reader and the judge are."""
        found = {}
        if self.reader_url:
            found["reader_url"] = Endpoint(self.reader_url)
        if self.judge_url:
            found["judge_url"] = Endpoint(self.judge_url, self.judge_model)
        return found

    def bind(self, resources: Resources) -> MemoryDelta:
        """Open the reader and the judge that the settings name."""
        scorer: Scorer = MetricScorer(find_metric(self.metric))
        if self.judge_url:
            scorer = Judge(RemoteModel(self.judge_url, self.judge_model, self._kept("judge")))
        reads: Reader = EvidenceReader()
        if self.reader == "policy":
            answerer = ChatAnswerer(resources.models["answer"], self.max_answer_tokens)
            reads = TextReader(answerer, scorer)
        elif self.reader == "endpoint":
            remote = RemoteModel(
                self.reader_url, cache=self._kept("reader"), max_tokens=self.max_answer_tokens
            )
            reads = TextReader(remote, scorer)
        shared = resources.tasks if isinstance(resources.tasks, SharedBases) else None
        others = shared.siblings if shared else None
        return replace(self, reads=reads, scorer=scorer, others=others)

    def _kept(self, name: str) -> Path | None:
        return self.answers / f"{name}.jsonl" if self.answers else None

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Compare what the episode left with what it began with."""
        task = episode.task
        if not isinstance(memory, Store) or not task.questions:
            raise UserError(
                f"memory_delta cannot reward task {task.id!r}: it needs a store and a question",
                "use it with the curator, on tasks with questions",
            )
        every = range(len(task.questions))
        before = await concurrently(self._before(task, i, memory) for i in every)
        after = await concurrently(self._after(task, i, memory, before[i]) for i in every)
        old = sum(reading.perf for reading in before) / len(before)
        new = sum(after) / len(after)
        growth = memory.growth(self.count_tokens)
        efficiency = self.efficiency(growth.tokens)
        written = bool(_written(memory))
        reward = {
            "delta": efficiency * new - old,
            "new_only": new,
            "new+format": new + (WROTE if written else WROTE_NOTHING),
        }[self.mode]
        parts = {"answer": new, "before": old, "efficiency": efficiency}
        if panel := await self._panel(task, memory):
            then, now = await self._panel_perf(panel, memory)
            parts |= {"panel": now, "panel/before": then}
            reward -= self.panel_weight * max(0.0, then - now)
        parts |= _growth(growth) | tool_use(episode.contexts)
        return Score(reward, parts, await self._own(episode), after)

    async def _panel(self, task: Task, memory: Store) -> Panel:
        """Return the panel of a task, which is drawn once for all of its episodes."""
        if self.mode != "delta" or not self.panel_weight or self.others is None:
            return ()
        key = (memory.corpus.fingerprint, task.id, task.questions)
        return await self._panels.get(key, lambda: self._draw(task, memory))

    async def _draw(self, task: Task, memory: Store) -> Panel:
        """Draw the panel of a base: questions that it answers, because only these can be harmed.

        A question is not on its own panel.
        """
        assert self.others is not None
        base, own = memory.corpus.fingerprint, {question.text for question in task.questions}
        ranked = sorted(self.others(task), key=lambda other: derive(base, "panel", other.id))
        drawn = [(other, i) for other in ranked for i in range(len(other.questions))]
        drawn = [at for at in drawn if at[0].questions[at[1]].text not in own]
        drawn = drawn[: CANDIDATES * self.panel]
        before = await concurrently(self._before(*at, memory) for at in drawn)
        known = [(*at, reading) for at, reading in zip(drawn, before, strict=True)]
        return [at for at in known if at[2].perf > 0][: self.panel]

    async def _panel_perf(self, panel: Panel, memory: Store) -> tuple[float, float]:
        """Return how well the panel is answered from the base, and from the store as it is now."""
        after = await concurrently(self._read(task, i, memory, was) for task, i, was in panel)
        then = sum(reading.perf for _, _, reading in panel) / len(panel)
        return then, sum(reading.perf for reading in after) / len(panel)

    def efficiency(self, growth_tokens: int) -> float:
        """Return E for a store that grew so much."""
        over = max(0.0, growth_tokens / self.growth_budget - 1)
        return 1 / (1 + self.growth_penalty * over)

    async def _before(self, task: Task, index: int, memory: Store) -> Reading:
        """Read the base, once for all episodes that are rewarded for this question."""

        async def compute() -> Reading:
            base = Store(memory.corpus, memory._embed)
            return await self._read(task, index, base)

        evidence = tuple(task.meta.get("dia_ids", ()))
        key = (memory.corpus.fingerprint, task.questions[index], evidence)
        return await self._initial.get(key, compute)

    async def _after(self, task: Task, index: int, memory: Store, before: Reading) -> float:
        if self.mode != "delta":
            found = tuple(Passage(entry, entry.content) for entry in _written(memory))
            return await self._perf(task, index, found)
        return (await self._read(task, index, memory, before)).perf

    async def _read(
        self, task: Task, index: int, store: Store, known: Reading | None = None
    ) -> Reading:
        if known is not None and not store.ops:
            return known  # a trial without an edit is its base
        with boundary("retrieval"):
            question = task.questions[index].text
            found = await self.retrieval.find(store, question, self.count_tokens)
        # The same memories are read the same way: no noise of a reader's may look like a gain.
        if known is not None and found == known.found:
            return known
        return Reading(found, await self._perf(task, index, found))

    async def _perf(self, task: Task, index: int, found: tuple[Passage, ...]) -> float:
        with boundary("reader"):
            perf = await self._reads(task, index, found)
        if not 0 <= perf <= 1:
            raise ValueError(f"a reader scored {perf}, outside of [0, 1]")
        return perf

    @property
    def _reads(self) -> Reader:
        if self.reads is None and self.reader != "evidence":
            raise UserError(
                f"the reader {self.reader} is not connected", "call the reward's bind first"
            )
        return self.reads or EvidenceReader()

    async def _own(self, episode: Episode) -> list[float | None]:
        """Give a context that answered a question the score of its answer."""

        scorer = self.scorer or MetricScorer(find_metric(self.metric))

        async def score(context: Context) -> float | None:
            if context.question is None:
                return None
            question = episode.task.questions[context.question]
            with boundary("judge"):
                return await scorer(question, episode.answers[context.question])

        return await concurrently(score(context) for context in episode.contexts)


def _written(store: Store) -> list[Entry]:
    """Return what the agent wrote or changed, in the order of the ids."""
    diff = store.diff()
    return sorted((*diff.created, *(new for _, new in diff.updated)), key=lambda e: number_of(e.id))


def _growth(growth: Growth) -> dict[str, float]:
    return {
        "growth/created": growth.created,
        "growth/updated": growth.updated,
        "growth/deleted": growth.deleted,
        "growth/tokens": growth.tokens,
    }
