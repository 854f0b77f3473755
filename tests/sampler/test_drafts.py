"""Drafts of the paged sampler: the same tokens in fewer steps."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.evaluation.options import EvalOptions
from recollect.models.model import LoadedModel, ModelConfig, load_model
from recollect.sampler.dense_cache import keys_of
from recollect.sampler.paged import DRAFTS, PAGE, PagedPolicy
from recollect.serve.settings import ServeConfig
from recollect.train.metrics import sampler_metrics
from recollect.types import Completion, Sampling
from tests.sampler.test_paged import assert_alike
from tests.support.tiny import tiny_model

RING = 64
"""Tokens that the copier goes round."""


@pytest.fixture(scope="module")
def copier(tmp_path_factory) -> LoadedModel:
    """Make a model that knows what follows a token: the next one of a ring, most of the time."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("copier")
    model = load_model(
        ModelConfig(path=str(tiny_model(folder, "llama", tie_word_embeddings=False)))
    )
    network = model.network
    with torch.no_grad():
        for layer in network.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.1)  # its past still counts, a little
            layer.mlp.down_proj.weight.zero_()
        embedded = network.get_input_embeddings().weight
        head = network.get_output_embeddings().weight
        head.zero_()
        head[:RING] = 1.6 * embedded[:RING].roll(1, 0)
    return model


def policy_of(model: LoadedModel, drafts: int = DRAFTS, narrow: bool = False, **given):
    policy = PagedPolicy(model, **{"cache_bytes": 1 << 22, **given}, drafts=drafts)
    pace = policy._extender.pace
    pace.drafts = lambda rows: True  # whatever they give
    if narrow:
        pace.wanted = -1e9
    return policy


def prompts_of(count: int, seed: int = 0) -> list[list[int]]:
    """Make prompts that say the ring once, from anywhere, and then begin it again."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        first, again, noise = rng.integers(0, RING, 3)
        said = [int((first + i) % RING) for i in range(RING)]
        found.append([*rng.integers(0, 250, noise).tolist(), *said, 200, int(again)])
    return found


def ask(policy: PagedPolicy, asked: list[tuple[list[int], Sampling]]) -> list[Completion]:
    async def all_at_once() -> list[Completion]:
        return await asyncio.gather(*(policy.sample(*one) for one in asked))

    found = asyncio.run(all_at_once())
    assert policy._pages.room == policy._pages.count - 1  # every page came back
    return found


def both(model: LoadedModel, asked, **given) -> PagedPolicy:
    """Draw with and without drafts; return the policy with them."""
    drafting = policy_of(model, **given)
    plain = policy_of(model, **given | {"drafts": 0, "narrow": False})
    assert_alike(ask(drafting, asked), ask(plain, asked))
    return drafting


SETTINGS = [
    (0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (1.5, 1.0), (1.0, 0.9), (0.7, 0.5), (2.0, 0.95),
]  # fmt: skip


@pytest.mark.parametrize("narrow", [False, True])
def test_the_tokens_are_those_without_drafts(copier, narrow):
    """Requests of all settings at once, each with its own seed and limit."""
    asked = [
        (prompt, Sampling(1 + 7 * i % 40, *SETTINGS[i % len(SETTINGS)], seed=1000 * i))
        for i, prompt in enumerate(prompts_of(21))
    ]
    policy = both(copier, asked, narrow=narrow)
    totals = policy._extender.totals
    assert 0 < totals["accepted"] < totals["drafted"]


@pytest.mark.parametrize("temperature, top_p", [(0.0, 1.0), (1.0, 1.0), (0.8, 0.9)])
def test_each_way_of_picking_gives_the_tokens_without_drafts(copier, temperature, top_p):
    asked = [
        (prompt, Sampling(30, temperature, top_p, seed=i))
        for i, prompt in enumerate(prompts_of(7, seed=1))
    ]
    policy = both(copier, asked, max_running=5, prefill_tokens=50)
    assert policy._extender.totals["accepted"]


def test_a_copy_takes_few_steps(copier):
    """Greedy, with the whole ring in the prompt: every guess is right once two tokens are known."""
    count = 31
    prompt = [*range(RING), 200, 10]
    policy = both(copier, [(prompt, Sampling(count, 0.0))])
    (reply,) = ask(policy, [(prompt, Sampling(count, 0.0))])
    assert list(reply.token_ids) == [11 + i for i in range(count)]
    totals = policy._extender.totals
    # Twice: a token from the prompt, then 30 more by tens, in one burst of three steps.
    assert totals["steps"] == 2 * 3
    assert totals["accepted"] == totals["drafted"] == 2 * 27
    assert totals["tokens"] == 2 * count


def test_what_others_said_is_guessed_where_the_own_text_says_nothing(copier):
    prompt = [201, 202, 203, 30]
    policy = policy_of(copier)
    ask(policy, [(prompt, Sampling(20, 0.0))])
    assert policy._extender.totals["drafted"] == 0
    ask(policy, [(prompt, Sampling(20, 0.0))])
    assert policy._extender.totals["accepted"] >= 15
    policy.reset()
    policy._extender.totals.clear()
    ask(policy, [(prompt, Sampling(20, 0.0))])
    assert policy._extender.totals["drafted"] == 0  # forgotten


def test_end_tokens_and_stop_texts_end_a_reply_within_a_draft(copier):
    head = copier.network.get_output_embeddings().weight
    (end,) = copier.tokenizer.end_ids
    embedded = copier.network.get_input_embeddings().weight
    with torch.no_grad():
        head[end] = 1.7 * embedded[40]  # after 40 comes the end
    try:
        text = copier.tokenizer.decode([25, 26])
        loop = [*range(RING), 200]
        asked = [([*loop, first], Sampling(60, 0.0)) for first in (3, 20, 38, 39)]
        asked += [([*loop, first], Sampling(60, 0.0, stop=(text,))) for first in (3, 20, 24, 30)]
        replies = ask(both(copier, asked), asked)
    finally:
        with torch.no_grad():
            head[end] = 0
    assert [reply.stop_reason for reply in replies] == ["stop"] * 8
    assert [reply.token_ids[-1] for reply in replies] == [end] * 4 + [26, 26, 26, end]


def test_every_token_is_heard_once_and_in_order(copier):
    heard: list[tuple[int, float]] = []
    policy = policy_of(copier)
    prompt = [*range(RING), 200, 10]

    async def listen() -> Completion:
        return await policy.sample(
            prompt, Sampling(33, 0.0), lambda token, logprob: heard.append((token, logprob))
        )

    reply = asyncio.run(listen())
    assert heard == list(zip(reply.token_ids, reply.logprobs, strict=True))
    assert policy._extender.totals["accepted"]


def test_a_full_cache_makes_the_latest_wait_and_changes_nothing(copier):
    one = 2 * sum(value.nbytes for _key, value in keys_of(copier))
    asked = [(prompt, Sampling(90, 1.0, seed=i)) for i, prompt in enumerate(prompts_of(4, seed=2))]
    longest = max(len(prompt) for prompt, _ in asked) + 90
    policy = policy_of(copier, cache_bytes=one * 2 * longest)
    evicted = []
    evict = policy._evict
    policy._evict = lambda request: (evicted.append(request), evict(request))
    assert_alike(ask(policy, asked), ask(policy_of(copier, 0), asked))
    assert evicted and policy._extender.totals["accepted"]


def test_a_cache_with_room_for_one_request_and_no_more_is_enough(copier):
    one = 2 * sum(value.nbytes for _key, value in keys_of(copier))
    prompt = [*range(RING), 200, 10]
    for limit in (PAGE - 2, 3 * PAGE - 2):  # prompt and reply fill whole pages
        pages = (len(prompt) + limit) // PAGE
        policy = policy_of(copier, cache_bytes=one * PAGE * (pages + 1))
        (reply,) = ask(policy, [(prompt, Sampling(limit, 0.0))])
        assert list(reply.token_ids) == [(11 + i) % RING for i in range(limit)]


def test_who_is_cancelled_within_a_draft_leaves_no_page(copier):
    policy = policy_of(copier)
    prompts = prompts_of(6, seed=3)
    asked = [(prompt, Sampling(30, 1.0, seed=i)) for i, prompt in enumerate(prompts)]
    expected = ask(policy_of(copier, 0), asked)

    async def some_leave() -> list[Completion]:
        jobs = [asyncio.create_task(policy.sample(*one)) for one in asked]
        doomed = [asyncio.create_task(policy.sample(p, Sampling(500, 1.0))) for p in prompts]
        for _ in range(3):
            await asyncio.sleep(0)
        for job in doomed:
            job.cancel()
        return await asyncio.gather(*jobs)

    assert_alike(asyncio.run(some_leave()), expected)
    assert policy._pages.room == policy._pages.count - 1


def test_pages_of_a_reply_with_drafts_hold_what_the_next_turn_finds(copier):
    """Keys of rejected guesses must be overwritten before a page is shared."""
    policy, plain = policy_of(copier), policy_of(copier, 0)
    prompt, other = prompts_of(1, seed=4)[0], prompts_of(1, seed=5)[0]
    for turn in range(2):
        asked = [(prompt, Sampling(PAGE + 9, 1.2, seed=turn))]
        found, expected = ask(policy, asked), ask(plain, asked)
        assert_alike(found, expected)
        prompt = [*prompt, *found[0].token_ids, *other[:5]]
    assert policy._extender.totals["accepted"]


def test_wrong_drafts_become_short_and_then_stop(copier):
    """Each pair of tokens was followed by another one before: no guess is ever right."""
    pairs = [(i, i + 1, 230) for i in range(RING - 1)]
    prompt = [token for pair in pairs for token in pair] + [200, 3]
    policy = both(copier, [(prompt, Sampling(40, 0.0))])
    totals = policy._extender.totals
    assert totals["accepted"] == 0
    assert totals["drafted"] <= 3 * (1 + 9 + 4 + 2 + 1)  # whatever the prompt has three times


@pytest.mark.parametrize("recorded", [0, 2])
def test_steps_that_cannot_be_recorded_leave_plain_ones_and_the_same_tokens(copier, recorded):
    """At once or later, while sequences have any number of tokens left, and with few free pages."""
    asked = [
        (prompt, Sampling(1 + 6 * i, 1.0, seed=i)) for i, prompt in enumerate(prompts_of(7, seed=6))
    ]
    said: list[str] = []
    policy = policy_of(copier, max_running=4, say=said.append)
    drafter = policy._extender.drafter
    record, names = drafter.record, []

    def fail(*name):
        names.append(name)
        if len(names) > 2 * recorded:  # each burst asks twice
            raise RuntimeError("no memory")
        return record(*name)

    drafter.record = fail
    assert_alike(ask(policy, asked), ask(policy_of(copier, 0, max_running=4), asked))
    assert policy._extender.drafter is None
    assert bool(policy._extender.totals["drafted"]) == bool(recorded)
    assert said == ["no tokens are guessed: such steps cannot be recorded (no memory)"]


def test_a_plain_step_in_place_of_drafts_writes_into_its_own_pages_alone(copier):
    """Every other sequence ends with its page: one token more would be in its neighbour's."""
    prompts = np.random.default_rng(7).integers(0, 250, (6, 2 * PAGE - 2)).tolist()
    asked = [(prompt, Sampling((2, 20)[i % 2], 1.0, seed=i)) for i, prompt in enumerate(prompts)]
    policy = policy_of(copier)

    def fail(*_name):
        raise RuntimeError("no memory")

    policy._extender.drafter.record = fail
    assert_alike(ask(policy, asked), ask(policy_of(copier, 0), asked))


def test_a_recorded_step_has_no_more_rows_than_may_run(copier):
    for rows, size in ((3, 3), (100, 8)):
        drafter = policy_of(copier, max_running=rows)._extender.drafter
        assert drafter.record(1, "drawn", False) == (size, size * drafter.width)


@given(st.integers(0, 2**32), st.integers(1, 45), st.sampled_from(SETTINGS), st.integers(1, 15))
@settings(max_examples=6, deadline=None)
def test_no_draft_of_any_length_changes_a_token(copier, seed, limit, setting, drafts):
    asked = [
        (prompt, Sampling(limit, *setting, seed=seed + i))
        for i, prompt in enumerate(prompts_of(3, seed % 1000))
    ]
    both(copier, asked, drafts=drafts)


# --- settings and metrics ------------------------------------------------------------------------


def test_the_metrics_say_what_drafts_gave(copier):
    policy = policy_of(copier)
    ask(policy, [([*range(RING), 200, 10], Sampling(31, 0.0))])
    found = sampler_metrics(policy.counts())
    assert found == {
        "sampler/steps": 3,
        "sampler/tokens_per_step": 31 / 3,
        "sampler/drafted_per_step": 9.0,
        "sampler/accepted_per_step": 9.0,
        "sampler/accepted_share": 1.0,
    }
    assert not policy.counts() and sampler_metrics({}) == {}
    ask(plain := policy_of(copier, 0), [([1, 2], Sampling(8, 0.0))])
    assert set(sampler_metrics(plain.counts())) == {"sampler/steps", "sampler/tokens_per_step"}


def test_a_draft_longer_than_a_tile_is_refused():
    with pytest.raises(UserError, match=r"model\.drafts is 16"):
        ModelConfig(drafts=16)
    assert ModelConfig(drafts=0).drafts == 0


def test_the_settings_have_the_samplers_default():
    for settings_of in (ModelConfig, EvalOptions, ServeConfig):
        defaults = {field.name: field.default for field in dataclasses.fields(settings_of)}
        assert defaults["drafts"] == DRAFTS
