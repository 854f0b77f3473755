"""An agent over HTTP: the engine gets what was rendered, and what it drew is stored, id for id."""

from __future__ import annotations

import asyncio
import dataclasses

from openai import AsyncOpenAI

from recollect.agents.fold import FoldAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.metrics import exact_match
from recollect.models.connect import connect
from recollect.policies.served import EndpointPolicy, EndpointSpeaker
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Rollout
from recollect.sampler.dense import LocalPolicy
from recollect.serve.server import Serving
from recollect.types import Completion, Episode, Question, Sampling, Task
from tests.support.served import served

TASKS = [
    Task(
        f"t{i}",
        tuple(f"chunk {j} of {i}: <|end|> naïve 船 " * 3 for j in range(3)),
        (Question("which?", ("x",)), Question("and then?", ("y",))),
    )
    for i in range(2)
]
AGENT = FoldAgent(chunk_size=None, max_memory_tokens=40, max_answer_tokens=24)
SAMPLING = Sampling(temperature=0.9, top_p=0.95)


@dataclasses.dataclass
class Witness:
    """The engine's own policy, and what it was asked and drew."""

    policy: LocalPolicy
    seen: list[tuple[tuple[int, ...], Completion]] = dataclasses.field(default_factory=list)

    async def sample(self, prompt_ids, sampling, heard=None) -> Completion:
        drawn = await self.policy.sample(prompt_ids, sampling, heard)
        self.seen.append((tuple(prompt_ids), drawn))
        return drawn


def fold(model: Model):
    models = {"memory": model, "answer": model}
    return Rollout(AGENT, models, AnswerReward(exact_match)).groups(TASKS, 2, (7,))


def turns(episodes: list[Episode]) -> list[tuple[tuple[int, ...], Completion]]:
    return [
        (
            tuple(context.ids[: turn.start]),
            Completion(turn.token_ids, turn.logprobs, turn.stop_reason),
        )
        for episode in episodes
        for context in episode.contexts
        for turn in context.turns
    ]


def test_an_agent_over_http_has_the_engine_s_tokens_on_both_sides(model):
    async def work(_client: AsyncOpenAI, server: Serving):
        remote = await asyncio.to_thread(
            connect, server.url, tokenizer=model.tokenizer, sampling=SAMPLING
        )
        witness = Witness(server.service.engine.policy)
        server.service.engine.policy = witness  # type: ignore[assignment]
        return remote, await fold(remote), witness.seen

    remote, groups, seen = served(model, work)
    assert isinstance(remote.policy, EndpointPolicy) and remote.window == model.window
    episodes = [episode for group in groups for episode in group]
    assert all(episode.ok for episode in episodes)
    stored = turns(episodes)
    # 2 tasks, 2 rollouts, 3 chunks and 2 questions each
    assert len(stored) == 20 and sorted(stored, key=repr) == sorted(seen, key=repr)

    local = Model(LocalPolicy(model), Renderer(model.tokenizer), False, SAMPLING, model.window)
    alike = [episode for group in asyncio.run(fold(local)) for episode in group]
    assert [ids.token_ids for _, ids in turns(alike)] == [ids.token_ids for _, ids in stored]
    assert [e.answers for e in alike] == [e.answers for e in episodes]


def test_in_messages_the_server_renders_what_the_agent_would(model):
    async def work(_client: AsyncOpenAI, server: Serving):
        remote = await asyncio.to_thread(
            connect, server.url, tokenizer=model.tokenizer, sampling=SAMPLING, speech="messages"
        )
        witness = Witness(server.service.engine.policy)
        server.service.engine.policy = witness  # type: ignore[assignment]
        return remote, await fold(remote), witness.seen

    remote, groups, seen = served(model, work)
    assert isinstance(remote.policy, EndpointSpeaker)
    assert all(episode.ok for group in groups for episode in group)
    end = model.tokenizer.encode("<|end|>", control=True)
    for prompt, _ in seen:
        # One message: its own end token, whatever the chunk spells.
        assert sum(1 for i in prompt if i in end) == 1
