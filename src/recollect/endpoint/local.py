"""The model of this process: it reads for the agent, and answers what was folded."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.endpoint.answers import Answer
from recollect.endpoint.folding import Folded
from recollect.serve.replies import Choice, Done, Form
from recollect.serve.requests import ChatAsked, ChatMessage, read
from recollect.serve.service import Service
from recollect.types import Completion, Sampling, Turn

STUB = [{"role": "user", "content": "?"}]


@dataclass(frozen=True)
class EnginePolicy:
    """Samples for an agent beside the requests of clients."""

    service: Service

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Continue a prompt when it is its turn."""
        turns = self.service.admission.turns(1)
        async with turns.turn(len(prompt_ids), sampling) as light:
            return await self.service.engine.sample(prompt_ids, sampling, light=light)


@dataclass(frozen=True)
class LocalAnswers:
    """Answers made in this process."""

    service: Service

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def alive(self) -> bool:
        return self.service.engine.alive

    def model(self, sampling: Sampling) -> Model:
        """Return the model that an agent reads with."""
        renderer = Renderer(self.service.tokenizer)
        return Model(EnginePolicy(self.service), renderer, False, sampling, self.service.window)

    def check(self, body: dict[str, Any]) -> None:
        """Refuse a request that the model could not answer, before anything is read."""
        asked = read(ChatAsked, _written({**body, "messages": STUB}))
        self.service.check_model(asked.model)
        for message in body.get("messages") or ():
            try:
                ChatMessage.model_validate(message)
            except ValidationError:
                read(ChatAsked, _written({"messages": [message]}))  # says what is wrong

    async def reply(self, body: dict[str, Any], folded: Folded, answer: Answer) -> bytes:
        """Return the whole answer as JSON."""
        form, jobs = await self._prepare(body, folded)
        return await self.service.reply(form, jobs, lambda done: _note(answer, form, done))

    async def stream(
        self, body: dict[str, Any], folded: Folded, answer: Answer
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the answer in chunks."""
        form, jobs = await self._prepare(body, folded)
        chunks = self.service.stream(form, jobs, lambda done: _note(answer, form, done))
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        """End the threads of the model."""
        await self.service.close()

    async def _prepare(self, body: dict[str, Any], folded: Folded) -> tuple[Form, list[Choice]]:
        asked = read(ChatAsked, _written({**body, "messages": folded.messages}))
        form, jobs = await self.service.chat(asked)
        return replace(form, extra=folded.receipt), jobs


def _written(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


def _note(answer: Answer, form: Form, done: Sequence[Done]) -> None:
    answer.texts = [form.text(one)[0] for one in done]
    answer.tokens = [(one.job.prompt_ids, _turn(one)) for one in done]


def _turn(done: Done) -> Turn:
    sampled = done.completion
    start = len(done.job.prompt_ids)
    return Turn(start, sampled.token_ids, sampled.logprobs, sampled.stop_reason)
