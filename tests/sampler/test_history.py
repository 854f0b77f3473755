"""Where drafts come from, and whether they pay: the search, recent replies, the pace."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.sampler.history import LEAST, LOOKED, NO_TOKEN, History, follow
from recollect.sampler.pace import Pace
from recollect.sampler.recent import RecentReplies


def by_hand(context: list[int], last: list[int], ahead: int) -> tuple[int, list[int]]:
    """Search as `follow` should, place by place; `last` is in the order of the text."""
    best: tuple[int, bool, int] | None = None
    for at in range(LOOKED - 1, len(context) - ahead):
        agree = 0
        while agree < len(last) and context[at - agree] == last[-1 - agree]:
            agree += 1
        if agree >= LEAST and context[at + 1] != NO_TOKEN:
            rank = (agree, context[at + ahead] != NO_TOKEN, at)
            best = rank if best is None or rank > best else best
    if best is None:
        return 0, []
    after = context[best[2] + 1 : best[2] + 1 + ahead]
    return best[0], after[: after.index(NO_TOKEN)] if NO_TOKEN in after else after


@given(
    st.lists(st.integers(0, 3), min_size=0, max_size=40),
    st.lists(st.integers(-1, 3), max_size=25),
    st.integers(1, 9),
)
@settings(max_examples=150, deadline=None)
def test_the_longest_and_latest_repetition_is_found(own, others, ahead):
    shared = [NO_TOKEN] * LOOKED + others + [NO_TOKEN]
    context = [*shared, *own, *[NO_TOKEN] * (ahead + 1)]
    last = own[-LOOKED:]
    newest_first = [*last[::-1], *[NO_TOKEN - 1] * (LOOKED - len(last))]
    found, count, agree = follow(torch.tensor([context]), torch.tensor([newest_first]), ahead)
    assert (int(agree), found[0, : int(count)].tolist()) == by_hand(context, last, ahead)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_the_history_is_what_was_entered_and_appended(data):
    width, ahead, slots = 24, 3, 4
    history = History(slots, width, ahead, torch.device("cpu"))
    token = st.integers(0, 50)
    expected: dict[int, list[int]] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        chosen = data.draw(st.lists(st.integers(0, slots - 1), unique=True, min_size=1))
        prompts = [data.draw(st.lists(token, min_size=1, max_size=40)) for _ in chosen]
        first = data.draw(st.lists(token, min_size=len(chosen), max_size=len(chosen)))
        limits = [5] * len(chosen)
        arrays = [np.array(prompt) for prompt in prompts]
        history.enter(np.array(chosen), arrays, limits, torch.tensor(first))
        for slot, prompt, one in zip(chosen, prompts, first, strict=True):
            expected[slot] = [*prompt[-(width - 5) :], one]
        new = torch.tensor(data.draw(st.lists(token, min_size=2, max_size=2)))
        count = data.draw(st.integers(0, 2))
        history.append(torch.tensor(chosen[:1]), new[None], torch.tensor([count]))
        expected[chosen[0]] += new[:count].tolist()
    for slot, tokens in expected.items():
        assert history.filled[slot] == len(tokens)
        assert history.table[slot, : len(tokens)].tolist() == tokens
        assert (history.table[slot, len(tokens) :] == NO_TOKEN).all()


def test_a_reply_longer_than_the_history_gets_no_more_guesses():
    history = History(1, 8, 2, torch.device("cpu"))
    slot, nothing = torch.tensor([0]), torch.full((8,), NO_TOKEN, dtype=torch.int32)
    history.enter(np.array([0]), [np.array([1, 2, 1, 2])], [9], torch.tensor([1]))
    assert history.guess(slot, nothing)[1] > 0
    history.append(slot, torch.tensor([[2, 1, 2]]), torch.tensor([3]))
    assert history.guess(slot, nothing)[1] > 0  # full
    history.append(slot, torch.tensor([[1, 2, 1]]), torch.tensor([3]))
    assert history.guess(slot, nothing)[1] == 0


def test_recent_replies_keep_their_two_ends_and_drop_the_oldest():
    recent = RecentReplies(64)
    prompt = np.arange(100, 110)
    recent.add(prompt, [1, 2, 3])
    recent.add(prompt, [4, 5, 6])
    recent.add(prompt, [1, 2, 3])  # again: it is now the latest
    array = recent.array()
    assert not recent.changed
    assert array[-5:].tolist() == [109, 1, 2, 3, NO_TOKEN]
    assert (array == 1).sum() == 1 and array.shape == (64,)
    recent.add(prompt, list(range(200, 290)))
    array = recent.array().tolist()
    assert 6 not in array and 200 in array and 289 in array and 240 not in array
    assert array[0] == array[LOOKED - 1] == NO_TOKEN
    recent.clear()
    assert set(recent.array().tolist()) == {NO_TOKEN}


# --- whether drafts pay --------------------------------------------------------------------------


def drafted_share(pace: Pace, bursts: int, gain: float, seconds: tuple[float, float]) -> float:
    """Work through bursts in which drafts give `gain` tokens a step; return how many had them."""
    times = 0
    for _ in range(bursts):
        if pace.drafts(100):
            times += 1
            pace.drafted(100, 3, 3 * seconds[1], int(300 * gain), 300, 900)
        else:
            pace.plain(100, 8, 8 * seconds[0])
    return times / bursts


def test_drafts_that_do_not_pay_are_tried_rarely_and_come_back():
    pace = Pace()
    assert drafted_share(pace, 50, 4.0, (1.0, 1.2)) == 1
    assert drafted_share(pace, 200, 1.02, (1.0, 1.2)) < 0.15
    assert drafted_share(pace, 100, 2.0, (1.0, 1.2)) > 0.8
    assert drafted_share(Pace(gain=2.0), 50, 2.0, (1.0, 1.2)) == 48 / 50  # two to compare with


def test_what_a_step_costs_decides():
    assert drafted_share(Pace(), 200, 2.0, (1.0, 3.0)) < 0.15
    assert drafted_share(Pace(), 200, 2.0, (1.0, 1.3)) > 0.9
    assert drafted_share(Pace(), 200, 1.2, (0.0, 0.0)) < 0.15  # where nothing is measured
