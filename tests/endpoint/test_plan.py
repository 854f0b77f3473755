"""What is shown and what is kept: nothing is lost, what is shown fits, and growth is cheap."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.endpoint.conversation import read_conversation
from recollect.endpoint.plan import make_plan
from recollect.endpoint.prompt import messages, within_budget

ROLES = st.sampled_from(["user", "assistant", "tool"])
TALKS = st.lists(st.tuples(ROLES, st.integers(1, 400)), min_size=1, max_size=40)


def conversation(roles):
    return read_conversation([{"role": role, "content": str(i)} for i, role in enumerate(roles)])


@given(TALKS, st.integers(64, 800))
def test_every_message_is_shown_whole_or_kept(talk, room):
    said = conversation([role for role, _ in talk]).said
    tokens = [size for _, size in talk]
    plan = make_plan(said, tokens, room, 2 * room)
    assert plan.shown == tuple(sorted(set(plan.shown))) and plan.shown[-1] == len(said) - 1
    used = sum(plan.limits.get(i, tokens[i]) for i in plan.shown)
    assert used <= room or len(plan.limits) == len(plan.shown)
    for i in range(len(said)):
        assert i < plan.kept or (i in plan.shown and i not in plan.limits)
    if any(one.role == "user" for one in said[: plan.shown[0] + 1]):
        assert said[plan.shown[0]].role == "user"


@given(TALKS, st.integers(64, 800))
def test_what_is_kept_only_grows_and_seldom(talk, room):
    tokens = [size for _, size in talk]
    said = conversation([role for role, _ in talk]).said
    kept = [make_plan(said[:n], tokens[:n], room, 2 * room).kept for n in range(1, len(said) + 1)]
    small = [make_plan(said[:n], [10] * n, 400, 800).kept for n in range(1, len(said) + 1)]
    assert len(set(small)) <= 2 + len(said) * 10 // 200
    assert all(0 <= k <= len(said) for k in kept)


def test_ids_name_a_message_by_all_before_it_but_the_system():
    talk = [{"role": "user", "content": "a"}, {"role": "user", "content": "a"}]
    first = read_conversation([{"role": "system", "content": "Monday"}, *talk])
    second = read_conversation([{"role": "system", "content": "Tuesday"}, *talk])
    assert [one.id for one in first.said] == [one.id for one in second.said]
    assert first.said[0].id != first.said[1].id and first.said[0].content == first.said[1].content


def test_a_short_text_with_large_pictures_stays_as_it_is():
    pictures = [{"type": "image_url"}] * 3
    content = [*pictures, {"type": "text", "text": "What is this?"}]
    (one,) = read_conversation([{"role": "user", "content": content}]).said
    assert messages([], [one], {one.id: 99}, "", len) == [one.message]
    [cut] = messages([], [one], {one.id: 20}, "", len)
    assert cut["content"][1:] == pictures


@pytest.mark.parametrize("question", ["iron", "", " ", "half a pair \ud800"])
def test_a_memory_over_its_budget_is_shown_in_part_whatever_is_asked(question):
    memory = "\n".join(f"{i} tin, half a pair \ud83d" for i in range(100)) + "\niron"
    shown = asyncio.run(within_budget(memory, 900, question, len))
    assert 400 < len(shown) <= 900 and ("iron" in shown or question != "iron")
    assert "\ud83d" not in shown
