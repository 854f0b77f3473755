"""A call is made once: what was said is said again, by tokens and by messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recollect.chat.policy import Speaker, Spoken, SpokenCall
from recollect.evaluation.calls import CallLog, Calls, RecordedPolicy, RecordedSpeaker, call_key
from recollect.files import Lines, read_lines
from recollect.types import Completion, Sampling


class Counted:
    """A policy that says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        self.asked += 1
        return Completion((self.asked, 7), (-0.5, -0.1), "length")


class CountedSpeaker(Speaker):
    def __init__(self) -> None:
        self.asked = 0

    async def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], sampling: Sampling
    ) -> Spoken:
        self.asked += 1
        return Spoken("é\ud800", "stop", (SpokenCall("1", "find", '{"x": 1}'),), 11, self.asked)


def test_a_policy_is_asked_once_for_each_call_of_each_episode(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    policy = Counted()

    async def ask(log: CallLog, episode: str, prompt: list[int], seed: int) -> Completion:
        return await RecordedPolicy(policy, log.of(episode)).sample(prompt, Sampling(seed=seed))

    log = CallLog(path, ())
    first = asyncio.run(ask(log, "a", [1, 2], 5))
    asyncio.run(ask(log, "b", [1, 2], 5))
    assert policy.asked == 2
    log.close()
    log = CallLog(path, ())
    again = asyncio.run(ask(log, "a", [1, 2], 5))
    assert (again.token_ids, again.stop_reason) == (first.token_ids, "length")
    assert len(again.logprobs) == 2 and policy.asked == 2
    log = CallLog(path, {"b"})  # b has ended, and its calls are forgotten
    asyncio.run(ask(log, "b", [1, 2], 5))
    assert policy.asked == 3
    for prompt, seed in (([1, 3], 5), ([1, 2], 6)):
        asyncio.run(ask(CallLog(path, ()), "a", prompt, seed))
    assert policy.asked == 5


def test_a_speakers_words_calls_and_counts_come_back(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    speaker = CountedSpeaker()
    messages = [{"role": "user", "content": "hello"}]

    def ask() -> tuple[Spoken, dict[str, list[int]]]:
        log = CallLog(path, ())
        calls = log.of("a")
        recorded = RecordedSpeaker(speaker, "memory", calls)
        spoken = asyncio.run(recorded.reply(messages, ({"name": "find"},), Sampling()))
        log.close()
        return spoken, calls.told

    assert ask() == ask() and speaker.asked == 1
    spoken, told = ask()
    assert spoken.calls[0].name == "find" and told == {"memory": [11, 1]}


def test_time_that_calls_took_at_once_counts_once(tmp_path: Path):
    class Slow(Counted):
        async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
            await asyncio.sleep(0.05)
            return await super().sample(prompt_ids, sampling)

    async def ask(calls: Calls) -> float:
        policy, started = RecordedPolicy(Slow(), calls), time.perf_counter()
        await asyncio.gather(*(policy.sample([1], Sampling(seed=i)) for i in range(20)))
        return time.perf_counter() - started

    log = CallLog(tmp_path / "calls.jsonl", ())
    took = asyncio.run(ask(log.tried("a")))
    again = log.of("a")
    asyncio.run(ask(again))
    assert again.replayed == 20 and 0.04 < again.seconds <= took + 0.01
    log.close()


def test_what_a_kill_left_of_a_rewritten_log_is_not_taken_over(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    lines = Lines(path)
    lines.append(("a", "k", [[1], "stop"], 0.5))
    lines.close()
    (tmp_path / ".tmp-calls.jsonl").write_text('["x","k",[[9],"stop"],0.5]\n["y"')
    CallLog(path, ()).close()
    assert [line[0] for _number, line in read_lines(path)] == ["a"]


@given(st.lists(st.binary(max_size=60).filter(lambda b: b"\n" not in b)), st.binary(max_size=60))
def test_a_file_is_cut_to_its_last_whole_line(tmp_path_factory, lines, torn):
    path = tmp_path_factory.mktemp("lines") / "x.jsonl"
    whole = b"".join(line + b"\n" for line in lines)
    path.write_bytes(whole + torn)
    Lines(path).close()
    kept = whole + torn[: torn.rfind(b"\n") + 1]
    assert path.read_bytes() == kept


def test_a_long_torn_line_is_cut(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"[1]\n" + b"x" * 300_000)
    Lines(path).close()
    assert path.read_bytes() == b"[1]\n"
    path.write_bytes(b"x" * 300_000)
    Lines(path).close()
    assert path.read_bytes() == b""


def test_settings_are_part_of_a_call():
    base = Sampling(seed=3)
    others = [Sampling(seed=3, temperature=0.5), Sampling(seed=3, max_tokens=9), Sampling(seed=4)]
    keys = {call_key(b"x", s) for s in (base, *others)} | {call_key(b"y", base)}
    assert len(keys) == 5
