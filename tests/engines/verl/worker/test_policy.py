"""verl's token server as a policy."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from recollect.engines.verl.worker.policy import Interrupted, ServedPolicy
from recollect.errors import UserError
from recollect.types import Sampling


class Server:
    """A server that says the same to everyone."""

    def __init__(self, ids=(5, 6), log_probs=(-0.5, -0.25), stop_reason="completed", step=3):
        self.output = SimpleNamespace(
            token_ids=list(ids),
            log_probs=None if log_probs is None else list(log_probs),
            stop_reason=stop_reason,
            extra_fields={"global_steps": step},
        )
        self.asked = []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.asked.append((request_id, prompt_ids, dict(sampling_params)))
        sampling_params.clear()  # vLLM's server takes things out of it
        return self.output


def sample(server, sampling=Sampling(max_tokens=4, seed=11), times=1, **settings):
    policy = ServedPolicy(server, "task", (6,), {"top_k": -1}, **settings)
    for _ in range(times):
        sampled = asyncio.run(policy.sample([1, 2], sampling))
    return policy, sampled


def test_tokens_and_logprobs_are_the_servers_own():
    server = Server()
    policy, sampled = sample(server)
    assert sampled.token_ids == (5, 6) and sampled.logprobs == (-0.5, -0.25)
    assert sampled.stop_reason == "stop"
    assert policy.versions == [3]
    assert server.asked == [
        ("task", [1, 2],
         {"top_k": -1, "temperature": 1.0, "top_p": 1.0, "max_tokens": 4, "logprobs": True}),
    ]  # fmt: skip


def test_a_reply_without_end_token_met_its_limit_or_a_stop_text():
    assert sample(Server([5, 5]), Sampling(max_tokens=2))[1].stop_reason == "length"
    stopped = Sampling(max_tokens=9, stop=("x",))
    server = Server([5, 5])
    assert sample(server, stopped)[1].stop_reason == "stop"
    assert server.asked[0][2]["stop"] == ["x"]
    assert server.asked[0][2]["include_stop_str_in_output"] is True


def test_seeds_and_names_are_for_engines_that_want_them():
    server = Server()
    sample(server, times=2, seeded=True, unique=True)
    assert [name for name, *_ in server.asked] == ["task-1", "task-2"]
    assert [asked["seed"] for *_, asked in server.asked] == [11, 11]


def test_an_interrupted_reply_is_not_trained_on():
    with pytest.raises(Interrupted):
        sample(Server(stop_reason="aborted"))


@pytest.mark.parametrize("log_probs", [None, (-0.5,)])
def test_tokens_without_logprobs_are_refused(log_probs):
    with pytest.raises(UserError, match="calculate_log_probs=True"):
        sample(Server(log_probs=log_probs))
