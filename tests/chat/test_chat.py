"""Chats: token-exact growth, seeds by what they are for, and the window."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.chat.chat import Chat, Chats, ContextFull, Model
from recollect.chat.rendering import Renderer, tool, user
from recollect.errors import BoundaryError, UserError
from recollect.policies.scripted import ScriptedPolicy, replies
from recollect.types import Completion, Sampling
from tests.support.bytes_tokenizer import END, STOP, TH, ByteTokenizer

TOKENIZER = ByteTokenizer()


@dataclass
class Recorder:
    """A policy that replies from a list of completions and remembers what it was asked."""

    answers: list[Completion]
    asked: list[tuple[list[int], Sampling]] = field(default_factory=list)

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        self.asked.append((list(prompt_ids), sampling))
        return self.answers[len(self.asked) - 1]


def completion(ids: Sequence[int], stop_reason: str = "stop") -> Completion:
    return Completion(tuple(ids), tuple(-0.5 - i for i in range(len(ids))), stop_reason)


def chats(policy, key=(0, 1, "t", 0), tokenizer=TOKENIZER, **settings) -> Chats:
    return Chats({"memory": Model(policy, Renderer(tokenizer), **settings)}, key)


def talk(chat: Chat, *texts: str, **settings):
    async def run():
        return [await chat.say(user(text), **settings) for text in texts]

    return asyncio.run(run())


tokens = st.lists(st.integers(0, 259).filter(lambda i: i not in (256, 257, 258)), max_size=6)
turns = st.lists(st.tuples(tokens, st.booleans(), st.text(max_size=5)), min_size=1, max_size=5)


@given(turns)
def test_a_context_is_prompts_and_sampled_tokens_and_only_grows(turns):
    """Also where the sampled tokens are no text, or not what their text would encode to."""
    answers = [
        completion([*ids, END] if ended else ids, "stop" if ended else "length")
        for ids, ended, _ in turns
    ]
    policy = Recorder(answers)
    chat = chats(policy).open("memory")
    talk(chat, *(text for *_, text in turns))
    context = chat.context
    assert len(context.turns) == len(turns)
    for (prompt, _), turn, answer in zip(policy.asked, context.turns, answers, strict=True):
        assert [*context.ids[: turn.start]] == prompt
        assert tuple(context.ids[turn.start : turn.end]) == turn.token_ids == answer.token_ids
        assert turn.logprobs == answer.logprobs and turn.stop_reason == answer.stop_reason
    assert context.ids == (*policy.asked[-1][0], *answers[-1].token_ids)
    for (earlier, _), (later, _) in zip(policy.asked, policy.asked[1:], strict=False):
        assert later[: len(earlier)] == earlier


@given(turns)
def test_every_turn_is_closed_exactly_once(turns):
    policy = Recorder([completion([*ids, END] if ended else ids) for ids, ended, _ in turns])
    chat = chats(policy).open("memory")
    talk(chat, *(text for *_, text in turns))
    # Each earlier round shows a user's message and a reply, the last prompt one message more.
    assert policy.asked[-1][0].count(END) == 2 * len(turns) - 1


def test_retokenisation_never_happens():
    """Two tokens drawn for "th" stay two, though the text encodes to one."""
    policy = Recorder([completion([*b"th", END]), completion([END])])
    chat = chats(policy).open("memory")
    first = talk(chat, "a", "b")[0]
    assert first.text == "th" and TOKENIZER.encode(first.text) == [TH]
    assert first.token_ids == tuple(b"th")
    assert TH not in policy.asked[1][0]


@pytest.mark.parametrize(
    ("sampled", "closed"), [([97, END], True), ([97], False), ([], False), ([97, STOP], True)]
)
def test_a_reply_without_end_token_gets_one_unsampled(sampled, closed):
    tokenizer = ByteTokenizer(end_ids=(END, STOP))
    policy = Recorder([completion(sampled, "length"), completion([END])])
    chat = chats(policy, tokenizer=tokenizer).open("memory")
    talk(chat, "x", "y")
    first, second = chat.context.turns
    between = chat.context.ids[first.end : second.start]
    assert [*between] == Renderer(tokenizer).suffix([user("y")], closed=closed)
    assert (between[0] == END) is not closed
    assert first.token_ids == tuple(sampled)


def test_reply_leaves_end_tokens_out():
    policy = Recorder([completion([104, 105, STOP, END])])
    reply = talk(chats(policy, tokenizer=ByteTokenizer(end_ids=(END, STOP))).open("memory"), "x")[0]
    assert (reply.text, reply.token_ids, reply.stop_reason) == ("hi", (104, 105), "stop")


def test_tools_are_rendered_at_the_opening():
    policy = Recorder([completion([END]), completion([END])])
    chat = chats(policy).open("memory", tools=["search"])
    asyncio.run(chat.say(user("go")))
    asyncio.run(chat.say(tool("nothing found")))
    assert TOKENIZER.decode(policy.asked[1][0]).count("search") == 1


# --- routing --------------------------------------------------------------------------------------


def test_contexts_are_recorded_in_the_order_they_were_opened():
    opened = chats(Recorder([]), trainable=False)
    opened.open("memory", label="chunk 1")
    opened.open("memory", label="question 1", stratum="q1", question=0)
    first, second = opened.contexts
    assert (first.role, first.stratum, first.label, first.question) == (
        *("memory", "memory", "chunk 1", None),
    )
    assert (second.stratum, second.question) == ("q1", 0)
    assert not first.trainable and not second.trainable


def test_a_role_without_model_is_the_users_mistake():
    with pytest.raises(UserError, match="'answer'") as error:
        chats(Recorder([])).open("answer")
    assert "memory" in error.value.fix


# --- seeds ----------------------------------------------------------------------------------------


def seeds_of(key, opened=3, said=3) -> list[int]:
    policy = Recorder([completion([END])] * opened * said)
    talks = chats(policy, key)
    for chat in [talks.open("memory") for _ in range(opened)]:
        talk(chat, *"abc"[:said])
    return [sampling.seed for _, sampling in policy.asked]


def test_seeds_differ_by_seed_step_task_rollout_context_and_turn():
    keys = list(product((0, 1), (0, 1, "validation"), ("t0", "t1"), range(2)))
    seeds = [seed for key in keys for seed in seeds_of(key)]
    assert len(set(seeds)) == len(keys) * 9
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_are_reproducible_and_fixed_for_good():
    assert seeds_of((0, 1, "t", 0)) == seeds_of((0, 1, "t", 0))
    # A stored run must be repeatable with a later version: this value may not change.
    assert seeds_of((0, 1, "t", 0))[0] == 1999380463924903563


def test_a_seed_does_not_depend_on_what_else_was_said():
    def second_context(before: int) -> int:
        policy = Recorder([completion([END])] * 9)
        talks = chats(policy)
        first, second = talks.open("memory"), talks.open("memory")
        talk(first, *["x"] * before)
        talk(second, "other text")
        return policy.asked[-1][1].seed

    assert second_context(0) == second_context(5)


# --- limits ---------------------------------------------------------------------------------------


def prompt_size(text: str) -> int:
    return len(Renderer(TOKENIZER).opening([user(text)]))


@pytest.mark.parametrize(
    ("room", "asked", "given"), [(7, None, 7), (7, 5, 5), (7, 20, 7), (50, None, 9)]
)
def test_max_tokens_is_clipped_to_the_room(room, asked, given):
    policy = Recorder([completion([END])])
    window = prompt_size("hello") + room
    chat = chats(policy, window=window, sampling=Sampling(max_tokens=9)).open("memory")
    talk(chat, "hello", max_tokens=asked)
    assert policy.asked[0][1].max_tokens == given
    assert chat.room == room - 1


@pytest.mark.parametrize("missing", [0, 1, 100])
def test_a_full_window_is_refused_before_the_policy_is_asked(missing):
    policy = Recorder([])
    chat = chats(policy, window=prompt_size("hello") - missing).open("memory", label="chunk 3")
    with pytest.raises(ContextFull, match=rf"chunk 3: {prompt_size('hello')} prompt tokens fill"):
        talk(chat, "hello")
    assert not policy.asked and not chat.context.turns and not chat.context.ids


def test_the_window_holds_the_whole_context():
    policy = ScriptedPolicy(TOKENIZER, replies(["x" * 100] * 99))
    window = 300
    chat = chats(policy, window=window).open("memory")
    with pytest.raises(ContextFull):
        talk(chat, *["go on"] * 99)
    assert len(chat.context.ids) <= window and len(chat.context.turns) > 1


def test_sampling_settings_reach_the_policy():
    policy = Recorder([completion([END])] * 2)
    default = Sampling(max_tokens=7, temperature=0.5, top_p=0.9, stop=("\n",))
    chat = chats(policy, sampling=default).open("memory")
    talk(chat, "a")
    talk(chat, "b", stop=("</tool>",))
    (_, first), (_, second) = policy.asked
    assert (first.temperature, first.top_p, first.stop, first.max_tokens) == (0.5, 0.9, ("\n",), 7)
    assert second.stop == ("</tool>",)


def test_one_text_may_end_a_reply():
    policy = Recorder([completion([END])] * 3)
    for stop in ("END", ["END", "."], ""):  # nothing does not end one at once
        talk(chats(policy).open("memory"), "a", stop=stop)
    assert [asked.stop for _, asked in policy.asked] == [("END",), ("END", "."), ()]


@pytest.mark.parametrize("given", [4.0, 9 / 2, "4"], ids=str)
def test_a_limit_that_is_no_whole_number_is_refused(given):
    chat = chats(Recorder([completion([END])])).open("memory")
    with pytest.raises(TypeError, match=r"max_tokens is .* not a whole number"):
        talk(chat, "a", max_tokens=given)
    talk(chat, "a", max_tokens=np.int64(4))


@pytest.mark.parametrize("question", [-1, 2, 9])
def test_a_question_that_is_not_asked_is_refused(question):
    own = Chats(chats(Recorder([])).models, (0,), questions=2)
    with pytest.raises(IndexError, match=f"question is {question}: the task has 2 questions"):
        own.open("memory", question=question)
    assert own.open("memory", question=1).context.question == 1


# --- errors ---------------------------------------------------------------------------------------


def test_a_failing_policy_leaves_the_context_as_it_was():
    def broken(_prompt: str) -> str:
        raise ConnectionError("refused")

    chat = chats(ScriptedPolicy(TOKENIZER, broken)).open("memory")
    with pytest.raises(BoundaryError) as caught:
        talk(chat, "x")
    assert caught.value.failure.boundary == "policy"
    assert chat.context.ids == () and chat.context.turns == []


def test_ids_outside_the_vocabulary_fail_at_rendering():
    chat = chats(Recorder([])).open("memory")
    with pytest.raises(BoundaryError) as caught:
        asyncio.run(chat.say(user([999])))
    assert caught.value.failure.boundary == "render"


def test_a_chat_says_one_thing_at_a_time():
    """Two replies at once would leave turns that do not match the context's tokens."""

    async def slow(_prompt: str) -> str:
        await asyncio.sleep(0)
        return "x"

    chat = chats(ScriptedPolicy(TOKENIZER, slow)).open("memory")

    async def both() -> None:
        await asyncio.gather(chat.say(user("a")), chat.say(user("b")))

    with pytest.raises(RuntimeError, match="twice at once"):
        asyncio.run(both())
    assert len(chat.context.turns) == 1
    turn = chat.context.turns[0]
    assert tuple(chat.context.ids[turn.start :]) == turn.token_ids


# --- the scripted policy --------------------------------------------------------------------------


def scripted(text: str, **sampling) -> Completion:
    policy = ScriptedPolicy(TOKENIZER, replies([text]), logprob=-2.0)
    return asyncio.run(policy.sample([97], Sampling(**sampling)))


def test_scripted_replies_end_like_sampled_ones():
    full = scripted("hi")
    assert full == Completion((104, 105, END), (-2.0,) * 3, "stop")
    assert scripted("hi", max_tokens=3) == full
    assert scripted("hi", max_tokens=2) == Completion((104, 105), (-2.0,) * 2, "length")
    stopped = scripted("one. two; three", stop=(";", "."))
    assert TOKENIZER.decode(stopped.token_ids) == "one." and stopped.stop_reason == "stop"
    assert END not in stopped.token_ids


def test_scripts_see_the_prompt_and_may_wait():
    async def echo(prompt: str) -> str:
        await asyncio.sleep(0)
        return prompt.upper()

    done = asyncio.run(ScriptedPolicy(TOKENIZER, echo).sample(list(b"abc"), Sampling()))
    assert TOKENIZER.decode(done.token_ids) == "ABC"


def test_a_script_that_has_run_out_says_so():
    policy = ScriptedPolicy(TOKENIZER, replies([]))
    with pytest.raises(ValueError, match="no reply left"):
        asyncio.run(policy.sample([97], Sampling()))
