"""memory_delta: what pays and what does not, on a made-up world and on the real LoCoMo."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence

import pytest

from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer
from recollect.errors import BoundaryError, UserError
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft
from recollect.memory.selection import Passage, Retrieval, cut, shown
from recollect.memory.store import Store
from recollect.memory.text import TextMemory
from recollect.metrics import exact_match, normalise
from recollect.policies.cached import RemoteModel
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.base import Score
from recollect.rewards.judge import Judge
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rewards.readers import ChatAnswerer, EvidenceReader, MetricScorer, TextReader
from recollect.rollout import Rollout
from recollect.types import Context, Episode, Question, Task
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.support.chat_server import chat_server
from tests.support.world import World

Edit = Callable[[Store], object]


def reward(delta: MemoryDelta, task: Task, corpus: Corpus, edit: Edit = lambda _: None) -> Score:
    async def main() -> Score:
        store = Store(corpus)
        edit(store)
        return await delta(Episode(task, 0, answers=[""]), store)

    return asyncio.run(main())


def gold(task: Task) -> Edit:
    question = task.questions[0]
    fact = f"{question.text} {question.answers[0]}"
    return lambda store: store.add(fact, {"evidence": tuple(task.meta["dia_ids"])})


def without_evidence(task: Task) -> Edit:
    def edit(store: Store) -> None:
        for entry in store.entries():
            if set(entry.metadata["evidence"]) & set(task.meta["dia_ids"]):
                store.delete(entry.id)

    return edit


def copied(corpus: Corpus) -> Edit:
    said = [entry for entry in corpus if entry.metadata["source"] == "conversation"]
    return lambda store: [store.add(entry.content, entry.metadata) for entry in said]


def some(world: World, n: int) -> Sequence[Task]:
    return world.tasks[:: max(1, len(world.tasks) // n)]


# Acceptance: every question of the sample, whatever its category


def test_writing_nothing_earns_exactly_zero(world: World):
    delta = MemoryDelta()
    for task in some(world, 100):
        assert reward(delta, task, world.corpus(task)).reward == 0.0


def test_writing_the_fact_pays_wherever_there_is_something_to_gain(world: World):
    delta = MemoryDelta()
    raised = 0
    for task in some(world, 100):
        score = reward(delta, task, world.corpus(task), gold(task))
        before = score.parts["before"]
        assert score.parts["answer"] == 1.0 and score.reward == 1.0 - before
        raised += score.reward > 0
    assert raised > 0.7 * len(some(world, 100))


def test_deleting_the_evidence_costs_wherever_it_was_found(world: World):
    delta = MemoryDelta()
    harmed = 0
    for task in (task for task in some(world, 100) if task.meta["dia_ids"]):
        score = reward(delta, task, world.corpus(task), without_evidence(task))
        assert score.parts["answer"] == 0.0 and score.reward == -score.parts["before"]
        harmed += score.reward < 0
    assert harmed > 0.4 * len(some(world, 100))


def test_copying_the_conversation_earns_less_than_the_one_fact(world: World):
    delta = MemoryDelta(growth_budget=32)
    for task in some(world, 15):
        corpus = world.corpus(task)
        everything = reward(delta, task, corpus, copied(corpus))
        assert everything.parts["efficiency"] < 0.2
        assert everything.reward < reward(delta, task, corpus, gold(task)).reward


def test_citing_the_evidence_without_saying_anything_does_not_pay(world: World):
    delta = MemoryDelta()
    for task in (task for task in some(world, 50) if task.meta["dia_ids"]):
        question = task.questions[0].text

        def cite(store: Store, task: Task = task, text: str = question) -> None:
            store.add(f"{text} zzz", {"evidence": tuple(task.meta["dia_ids"])})

        score = reward(delta, task, world.corpus(task), cite)
        # Only where the question itself holds words of the answer is anything to be had.
        assert score.reward <= 0 or _shared_words(task)


def _shared_words(task: Task) -> bool:
    question = task.questions[0]
    return bool(set(normalise(question.text).split()) & set(normalise(question.answers[0]).split()))


# The formulas


def passage(text: str, evidence: tuple[str, ...], written: bool = False) -> Passage:
    store = Store(Corpus.build("base", [Draft(text, {"evidence": evidence})]))
    entry = store.add(text, {"evidence": evidence}) if written else store.get("memory_1")
    return Passage(entry, text)


def perf(answers: tuple[str, ...], evidence: tuple[str, ...], *found: Passage) -> float:
    task = Task("t", (), (Question("?", answers),), meta={"dia_ids": list(evidence)})
    return asyncio.run(EvidenceReader()(task, 0, found))


def test_the_evidence_reader_by_hand():
    base, other = passage("pottery and the beach", ("D1",)), passage("camping", ("D9",))
    answer, turns = ("pottery, camping",), ("D1", "D2")
    assert perf(answer, turns) == 0.0
    # A = 1/2 (pottery), V = 1/2 (D1)
    assert perf(answer, turns, base, other) == 0.5
    # Half of what it cites is evidence: A = (1 + 1/2) / 2, V = (1 + A/2) / 2.
    half = passage("camping", ("D2", "D7"), written=True)
    assert perf(answer, turns, base, half) == pytest.approx((0.75 + (1 + 0.375) / 2) / 2)
    # Two facts, each with its own evidence, are as good as one with both.
    facts = [passage(w, (e,), True) for w, e in (("pottery", "D1"), ("camping", "D2"))]
    assert perf(answer, turns, *facts) == 1.0
    assert perf(answer, turns, passage("Pottery; camping!", turns, True)) == 1.0
    # What is written is believed as far as it says the answer, and no further.
    assert perf(answer, turns, passage("pottery", turns, True)) == 0.5
    assert perf(answer, turns, passage("nothing", turns, True)) == 0.0
    assert perf(answer, turns, passage("pottery, camping", ("D8",), True)) == 0.0
    assert perf(("no", *answer), turns, *facts) == 1.0  # the best accepted answer counts
    assert perf(answer, (), base, other) == 1.0  # no evidence is named: any memory may hold it
    with pytest.raises(ValueError, match="no answer to look for"):
        perf(("",), turns, base)


def test_efficiency_is_one_within_the_budget_and_falls_beyond():
    delta = MemoryDelta(growth_budget=100, growth_penalty=0.5)
    assert [delta.efficiency(n) for n in (-500, 0, 100)] == [1.0] * 3
    assert delta.efficiency(300) == 1 / (1 + 0.5 * 2)
    for wrong in ({"growth_budget": 0}, {"growth_penalty": -1.0}, {"mode": "old"}):
        with pytest.raises(UserError):
            MemoryDelta(**wrong)


TASK = Task(
    "small",
    (),
    (Question("Where did Ada move?", ("Oslo",), "single-hop"),),
    meta={"dia_ids": ["D1:1"]},
)
SMALL = Corpus.build(
    "small",
    [
        Draft("I am moving north", {"evidence": ("D1:1",), "speaker": "Ada", "timestamp": "May"}),
        Draft("Ada did the washing", {"evidence": ("D1:2",)}),
    ],
)


def test_growth_and_reward_by_hand():
    delta = MemoryDelta(growth_budget=2)

    def edit(store: Store) -> None:
        store.add("Where did Ada move? To Oslo", {"evidence": ("D1:1",)})
        store.delete("memory_2")

    score = reward(delta, TASK, SMALL, edit)
    # 6 words written, 4 deleted: growth 2, within the budget. The base has the evidence only.
    assert score.parts["efficiency"] == 1.0 and score.parts["growth/tokens"] == 2
    assert score.parts["growth/created"] == score.parts["growth/deleted"] == 1
    assert score.reward == 1.0 - score.parts["before"]
    long = reward(delta, TASK, SMALL, lambda store: store.add("Where did Ada move? Oslo it was"))
    assert long.parts["efficiency"] == 1 / (1 + 2.5)


def test_the_published_mode_reads_only_what_was_written():
    shipped = MemoryDelta(mode="new+format")
    assert reward(shipped, TASK, SMALL).reward == -1.0
    assert reward(shipped, TASK, SMALL, lambda s: s.add("x")).reward == 0.1
    # However badly it would be found: all that was written is read.
    right = {"evidence": ("D1:1",)}
    assert reward(shipped, TASK, SMALL, lambda s: s.add("Oslo", right)).reward == 1.1
    assert reward(shipped, TASK, SMALL, lambda s: s.update("memory_1", "Oslo")).reward == 1.1
    bare = MemoryDelta(mode="new_only")
    assert reward(bare, TASK, SMALL).reward == 0.0
    assert reward(bare, TASK, SMALL, lambda s: s.add("Oslo", right)).reward == 1.0


def test_retrieval_keeps_to_its_budget():
    words = " ".join(f"word{i}" for i in range(100))
    corpus = Corpus.build("c", [Draft(f"boat {words}"), Draft("boat boat"), Draft("boat again")])

    def found(**settings) -> list[str]:
        passages = asyncio.run(Retrieval(**settings).find(Store(corpus), "boat"))
        return [passage.text for passage in passages]

    assert found(top_k=2) == ["boat boat", "boat again"]
    assert found(max_tokens=3) == ["boat boat", "boat"]
    assert [len(text.split()) for text in found(max_tokens=50)] == [2, 2, 46]
    assert cut("a b c", 0) == "" and cut("a  b c", 2) == "a  b" and cut("", 0) == ""
    for wrong in ({"top_k": 0}, {"max_tokens": 0}, {"mode": "smell"}):
        with pytest.raises(UserError):
            Retrieval(**wrong)
    assert shown([]) == "(no memories found)"
    assert shown([Passage(next(iter(SMALL)), "north")]) == "1. [May; Ada] north"


# Readers that answer


def policy_reader(script: Callable[[str], str], scorer=MetricScorer(exact_match)) -> TextReader:
    tokenizer = ByteTokenizer()
    model = Model(ScriptedPolicy(tokenizer, script), Renderer(tokenizer))
    return TextReader(ChatAnswerer(model), scorer)


def reads(prompt: str) -> str:
    return "<think>hm</think> Oslo" if "Oslo" in prompt else "nowhere"


def test_the_policy_reads_what_was_found_and_nothing_else():
    seen: list[str] = []

    def script(prompt: str) -> str:
        seen.append(prompt)
        return reads(prompt)

    delta = MemoryDelta(reads=policy_reader(script))
    score = reward(delta, TASK, SMALL, lambda s: s.add("Ada did move to Oslo"))
    assert score.reward == 1.0 and score.parts["before"] == 0.0
    assert "Ada did the washing" in seen[0] and "Question: Where did Ada move?" in seen[0]
    assert "moving north" not in seen[0]  # shares no word with the question


def test_the_base_is_read_once_per_question_however_many_episodes_ask():
    seen: list[str] = []

    async def script(prompt: str) -> str:
        seen.append(prompt)
        await asyncio.sleep(0)
        return reads(prompt)

    delta = MemoryDelta(reads=policy_reader(script))

    async def main() -> None:
        episodes = [Episode(TASK, i, answers=[""]) for i in range(30)]
        scores = await asyncio.gather(*(delta(episode, Store(SMALL)) for episode in episodes))
        assert {score.reward for score in scores} == {0.0}

    asyncio.run(main())
    reward(delta, TASK, SMALL)
    assert len(seen) == 1
    reward(delta, TASK, SMALL, lambda s: s.add("Ada did move to Oslo"))
    assert len(seen) == 2


def test_what_reads_alike_scores_alike_even_if_the_reader_is_noisy():
    answers = iter(["Oslo", "nowhere", "Oslo"])
    delta = MemoryDelta(reads=policy_reader(lambda _prompt: next(answers)))
    assert reward(delta, TASK, SMALL).reward == 0.0
    assert reward(delta, TASK, SMALL, lambda s: s.add("unrelated")).reward == 0.0


def test_an_endpoint_reads_and_another_judges():
    def respond(text: str) -> str:
        if "Answer to grade" in text:
            return '{"label": "CORRECT"}' if "grade: in Oslo" in text else '{"label": "WRONG"}'
        return "in Oslo" if "to Oslo" in text else "nowhere"

    with chat_server(respond) as server:
        model = RemoteModel(server.url)
        delta = MemoryDelta(reads=TextReader(model, Judge(model)))
        score = reward(delta, TASK, SMALL, lambda s: s.add("Ada did move to Oslo"))
    assert (score.reward, score.parts["before"], score.parts["answer"]) == (1.0, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Writer:
    """An agent that writes one memory and says nothing."""

    content: str

    def new_memory(self, task: Task) -> Store:
        return Store(SMALL)

    async def run(self, task: Task, chats: Chats, memory: Store) -> list[str]:
        memory.add(self.content)
        return [""]


@pytest.mark.parametrize(("status", "where"), [("reader", "reader"), ("judge", "judge")])
def test_a_failing_reader_or_judge_fails_the_episode_and_is_never_a_zero(status: str, where: str):
    def respond(text: str) -> str | int:
        is_judge = "Answer to grade" in text
        return 400 if (status == "judge") == is_judge else "x"

    with chat_server(respond) as server:
        model = RemoteModel(server.url, retries=0)
        delta = MemoryDelta(reads=TextReader(model, Judge(model)))
        rollout = Rollout(Writer("Ada did move to Oslo"), {}, delta)
        groups = asyncio.run(rollout.groups([TASK], 3, (0,)))
    for episode in groups[0]:
        assert episode.failure is not None and episode.failure.boundary == where
        assert episode.reward is None and not episode.ok


def test_a_reader_beyond_its_range_and_a_memory_that_is_no_store_are_errors():
    async def wild(task: Task, index: int, found: Sequence[Passage]) -> float:
        return 2.0

    with pytest.raises(ValueError, match="outside"):
        reward(MemoryDelta(reads=wild), TASK, SMALL)
    with pytest.raises(UserError, match="needs a store"):
        asyncio.run(MemoryDelta()(Episode(TASK, 0, answers=[""]), TextMemory()))

    async def broken(task: Task, index: int, found: Sequence[Passage]) -> float:
        raise OSError("gone")

    with pytest.raises(BoundaryError, match="reader: OSError: gone"):
        reward(MemoryDelta(reads=broken), TASK, SMALL)


def test_contexts_that_answered_earn_their_own_score():
    episode = Episode(TASK, 0, [Context("memory"), Context("answer", question=0)], answers=["Oslo"])
    score = asyncio.run(MemoryDelta()(episode, Store(SMALL)))
    assert list(score.contexts) == [None, 1.0]


def test_a_question_without_an_answer_is_answered_by_saying_so():
    question = Question("?", ("Not mentioned in the conversation",), "adversarial")
    scorer = MetricScorer(exact_match)
    assert asyncio.run(scorer(question, "That is not mentioned.")) == 1.0
    assert asyncio.run(scorer(question, "Oslo")) == 0.0


def test_several_questions_are_averaged():
    two = dataclasses.replace(TASK, questions=(*TASK.questions, Question("Who runs?", ("Ben",))))
    score = reward(MemoryDelta(), two, SMALL, gold(TASK))
    alone = reward(MemoryDelta(), TASK, SMALL, gold(TASK))
    assert score.parts["answer"] == alone.parts["answer"] / 2


def test_tool_use_is_reported():
    contexts = [Context("memory", counts={"calls": 2, "calls/find": 1}) for _ in range(2)]
    score = asyncio.run(MemoryDelta()(Episode(TASK, 0, contexts, answers=[""]), Store(SMALL)))
    assert score.parts["tools/calls"] == 4 and score.parts["tools/calls/find"] == 2
    assert score.parts["turns"] == 0
