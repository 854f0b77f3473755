"""Contexts as rows: every token, mask and log-probability as it was sampled."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.engines.verl.worker.training_rows import compact, make_row, trained_contexts
from recollect.runs.episodes import episode_record
from recollect.samples import make_sample
from recollect.types import Failure
from tests.support.verl_rows import context, episode

tokens = st.lists(st.integers(0, 99), min_size=1, max_size=6)


@given(tokens, st.lists(tokens, min_size=1, max_size=4), tokens)
def test_a_row_is_the_embedded_engines_sample(prompt, said, between):
    own = context(prompt, *said, between=between)
    row, sample = make_row(own, 1000), make_sample(own, 0.5, 0, 0)
    assert row.prompt_ids + row.response_ids == sample.token_ids.tolist()
    first = len(row.prompt_ids)
    assert not sample.trained[:first].any()
    assert row.response_mask == sample.trained[first:].astype(int).tolist()
    assert np.allclose(row.response_logprobs, sample.logprobs[first:])
    assert row.turns == len(said)


def test_what_follows_the_last_reply_is_left_out():
    own = context([1, 2], [3])
    own.ids += [4, 5]  # such as what a tool said after the last turn
    assert make_row(own, 100).response_ids == [3]


def test_fixed_models_and_failures_give_no_rows_and_the_last_is_one_that_learns():
    learns, fixed = context([1], [2]), context([1], [3], role="answer", trainable=False)
    silent = context([1])
    assert trained_contexts(episode(learns, silent, fixed)) == [learns]
    for fault in ("environment", "measurement"):
        failed = episode(learns, failure=Failure("endpoint", "ValueError", "no", fault))
        assert trained_contexts(failed) == []


def test_what_the_agent_failed_itself_is_trained():
    learns, fixed = context([1], [2]), context([1], [3], role="answer", trainable=False)
    failed = episode(learns, fixed, failure=Failure("agent", "ValueError", "no", "agent"))
    assert trained_contexts(failed) == [learns]


def test_a_context_beyond_the_window_is_a_bug_and_never_cut():
    with pytest.raises(ValueError, match=r"4 tokens .* window of 3"):
        make_row(context([1, 2], [3, 4]), 3)
    with pytest.raises(ValueError, match="not those of its model"):
        make_row(context([1], [2], exact=False), 100)


def test_an_episode_travels_compact_and_reads_the_same():
    long = episode(context(range(5000), [7, 8], between=[9]), context([1], [2], [3], between=[4]))
    sent = pickle.dumps(compact(long))
    assert len(sent) < 5000 * 4 + 2000
    back = pickle.loads(sent)
    there, here = episode_record(back), episode_record(long)
    for a, b in zip(there.pop("contexts"), here.pop("contexts"), strict=True):
        assert np.asarray(a.pop("ids")).tolist() == b.pop("ids")
        for turn, own in zip(a.pop("turns"), b.pop("turns"), strict=True):
            assert np.allclose(turn.pop("logprobs"), own.pop("logprobs"))
            assert turn == own
        assert a == b
    assert there["task"].pop("meta") == {"cluster": here["task"]["cluster"]}  # its text stayed
    assert here["task"].pop("meta") == {}
    assert there == here
    assert back.task.chunks == ()  # a book does not travel
