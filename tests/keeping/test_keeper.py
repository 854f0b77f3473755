"""Reading once, reading on, forgetting: the memory is a function of what was read, and kept."""

import asyncio
import os

import pytest

from recollect.agents.bank import BankAgent
from recollect.agents.base import check_window
from recollect.agents.baselines import FullContextAgent
from recollect.agents.fold import FoldAgent
from recollect.agents.function import as_agent
from recollect.agents.gated import GatedAgent
from recollect.agents.named import agents
from recollect.agents.rolling import RollingAgent
from recollect.config.modules import load
from recollect.errors import UserError
from recollect.keeping.keeper import Keeper, fitting, memory_from, memory_record, memory_text
from recollect.keeping.shelf import Shelf
from recollect.keeping.windows import Item, pack, pieces
from recollect.policies.scripted import ScriptedPolicy
from recollect.types import Question
from tests.support.own import MINE, own_folder

count = len


def words(n: int, start: int = 0) -> str:
    return " ".join(f"word{i}" for i in range(start, start + n))


class Sum:
    """Keeps the lengths of all sections it was shown, as a model that remembers would."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, prompt: str) -> str:
        self.calls += 1
        if "<section>" not in prompt:
            return "answer from " + prompt.partition("<memory>\n")[2].partition("\n</memory>")[0]
        section = prompt.partition("<section>\n")[2].partition("\n</section>")[0]
        memory = prompt.partition("<memory>\n")[2].partition("\n</memory>")[0]
        kept = "" if memory == "No previous memory" else memory
        return f"{kept}{section.split()[0]};"


def keeper(shelf: Shelf, policy=None, agent=None, root="") -> tuple[Keeper, Sum]:
    script = policy or Sum()
    model = ScriptedPolicy.model(script)
    agent = agent or FoldAgent(200, 100, 100, query_aware=False)
    return Keeper(agent, {"memory": model, "answer": model}, shelf, root=root), script


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_pieces_lose_nothing_and_fit(size):
    text = "One. Two three.\n\nFour five six seven. Eight\nnine " + "x" * 100 + " end"
    found = list(pieces(text, size, count))
    assert "".join(piece for piece, _ in found).split() == text.split() or size < 7
    assert "".join("".join(piece for piece, _ in found).split()) == "".join(text.split())
    assert all(count(piece) == length <= size for piece, length in found)


def test_full_windows_stay_when_items_are_added():
    items = [Item(words(20, i * 20)) for i in range(10)]
    before = list(pack(items[:7], 300, count))
    after = list(pack(items, 300, count))
    assert after[: len(before) - 1] == before[:-1]
    assert all(window.tokens <= 300 and count(window.text) <= 300 for window in after)


def test_what_was_read_is_not_read_again(tmp_path):
    items = [Item(words(20, i * 20)) for i in range(6)]
    first, asked = keeper(Shelf(tmp_path))
    kept = asyncio.run(first.read(items))
    assert kept.read == kept.windows == asked.calls > 2
    again, asked = keeper(Shelf(tmp_path))
    same = asyncio.run(again.read(items))
    assert (same.read, asked.calls, same.hash, same.state) == (0, 0, kept.hash, kept.state)
    more = asyncio.run(again.read([*items, Item(words(20, 999))]))
    assert more.read <= 2 and memory_text(more.memory).startswith(memory_text(kept.memory)[:-8])


def test_a_killed_reading_continues_where_it_was(tmp_path):
    items = [Item(words(20, i * 20)) for i in range(6)]

    class Dies(Sum):
        def __call__(self, prompt: str) -> str:
            if self.calls == 3:
                raise RuntimeError("killed")
            return super().__call__(prompt)

    dying, _ = keeper(Shelf(tmp_path), Dies())
    with pytest.raises(Exception, match="killed"):
        asyncio.run(dying.read(items))
    resumed, asked = keeper(Shelf(tmp_path))
    kept = asyncio.run(resumed.read(items))
    whole, _ = keeper(Shelf())
    assert asked.calls == kept.windows - 3
    assert kept.hash == asyncio.run(whole.read(items)).hash


def test_without_an_item_the_memory_is_that_of_a_reader_who_never_saw_it(tmp_path):
    items = [Item(words(20, i * 20)) for i in range(8)]
    for gone in range(len(items)):
        rest = items[:gone] + items[gone + 1 :]
        forgetful, _ = keeper(Shelf(tmp_path))
        asyncio.run(forgetful.read(items))
        kept = asyncio.run(forgetful.read(rest))
        never, _ = keeper(Shelf())
        assert kept.hash == asyncio.run(never.read(rest)).hash
        assert items[gone].text.split()[0] + ";" not in memory_text(kept.memory)


def test_answers_come_from_the_memory_and_leave_it_alone(tmp_path):
    own, _ = keeper(Shelf(tmp_path))
    kept = asyncio.run(own.read([Item(words(60))]))
    before = kept.hash
    answers, cost = asyncio.run(own.answer(kept, [Question("Which?", ()), Question("And?", ())]))
    assert answers == ["answer from " + memory_text(kept.memory)] * 2 and cost.calls == 2
    assert kept.hash == before
    restored = memory_from(memory_record(kept.memory), own.agent)
    assert asyncio.run(own.answer(restored, [Question("Which?", ())]))[0] == answers[:1]


def test_a_question_known_while_reading_has_memories_of_its_own(tmp_path):
    aware, asked = keeper(Shelf(tmp_path), agent=FoldAgent(200, 100, 100))
    items = [Item(words(60))]
    one = asyncio.run(aware.read(items, [Question("Who?", ())]))
    other = asyncio.run(aware.read(items, [Question("Where?", ())]))
    assert one.state != other.state and asked.calls == 2 * one.windows


def test_every_agent_with_a_memory_can_keep():
    async def noting(task, chats, memory):
        for chunk in task.chunks:
            memory.text = f"{memory.text}{chunk.split()[0]};"
        return [memory.text for _ in task.questions]

    def reply(prompt: str) -> str:
        return "<check>yes</check><update>seen</update><next>continue</next> <state>s</state>"

    for agent in (
        GatedAgent(200, 100, 100),
        RollingAgent(200, 100, 100),
        BankAgent(200),
        as_agent(noting),
    ):
        own, _ = keeper(Shelf(), reply, agent)
        kept = asyncio.run(own.read([Item(words(60))]))
        assert kept.windows == (3 if hasattr(agent, "chunk_size") else 1) and memory_text(
            kept.memory
        )
        restored = memory_from(memory_record(kept.memory), agent)
        assert restored.snapshot() == kept.memory.snapshot()


@pytest.mark.parametrize("name", sorted(agents()))
@pytest.mark.parametrize("window", [512, 700, 2048])
def test_every_agent_fits_a_small_window_or_is_refused(name, window):
    try:
        fitted = fitting(agents()[name], window)
    except UserError:
        assert name in ("bank", "callback", "parallel")
    else:
        check_window(fitted, window)


def test_the_memory_of_a_function_that_was_edited_is_another(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch):
        agent = as_agent(load("mine:two_pass"))
        first, again = (keeper(Shelf(), agent=agent)[0].root for _ in range(2))
        (tmp_path / "mine.py").write_text(MINE.replace("max_tokens=64", "max_tokens=63"))
        assert keeper(Shelf(), agent=agent)[0].root != first == again


def test_an_agent_that_keeps_nothing_is_refused():
    with pytest.raises(UserError, match="FullContextAgent keeps no memory"):
        keeper(Shelf(), agent=FullContextAgent())


def test_a_state_that_is_damaged_is_named(tmp_path):
    own, _ = keeper(Shelf(tmp_path))
    kept = asyncio.run(own.read([Item(words(20))]))
    (tmp_path / f"{kept.state}.json").write_text("{")
    with pytest.raises(UserError, match=f"{kept.state}.json cannot be read"):
        asyncio.run(keeper(Shelf(tmp_path))[0].read([Item(words(20))]))


def test_the_newest_states_are_those_saved_last_whatever_the_clock_says(tmp_path):
    before, shelf = Shelf(tmp_path), Shelf(tmp_path)
    for name in ("old", "older"):
        before.save(name, {})
    os.utime(tmp_path / "older.json", (1e9, 1e9))
    for number, name in enumerate("abca"):
        shelf.save(name, {})
        os.utime(tmp_path / f"{name}.json", (1e6 - number, 1e6 - number))
    assert shelf.keep_newest(4) == 1 and set(shelf.keys()) == {"old", "a", "b", "c"}
    assert shelf.keep_newest(2) == 2 and set(shelf.keys()) == {"a", "c"}
