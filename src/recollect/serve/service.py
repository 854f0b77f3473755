"""From a checked request to its reply: prompts are rendered, choices are made, texts are streamed.

What a request asks for is counted, and refused if it is too much, before any of it is made.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from recollect.seeds import derive
from recollect.serve.admission import Admission, Turns
from recollect.serve.bodies import Bodies
from recollect.serve.encoding import Encoder, copied
from recollect.serve.engine import Engine
from recollect.serve.refusal import Refusal, too_long
from recollect.serve.replies import Choice, Done, Form, Token
from recollect.serve.requests import SHOWN, ChatAsked, CompletionAsked, GenerationBody
from recollect.serve.settings import RequestLimits
from recollect.serve.text import Growing
from recollect.serve.toolreplies import ToolReader
from recollect.types import Completion, Sampling

Made = Callable[[Sequence[Done]], None]
"""Sees the choices of a request once all are made."""
TEXT_TOKENS = 16
"""The limit of a text completion that sets none: OpenAI's."""


@dataclass
class Service:
    """One served model."""

    name: str
    engine: Engine
    limits: RequestLimits = RequestLimits()
    root: str = ""
    """The folder of the tokenizer, for clients on this machine."""
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        own = self.engine.model.tokenizer
        self.window = min(self.engine.model.window, self.limits.window)
        self.tokenizer = copied(own)
        """The tokenizer for the thread of the event loop."""
        self.encoder = Encoder(own, self.window)
        self._writer = ThreadPoolExecutor(1, "writer")
        self.bodies = Bodies(self.limits, self.window)
        self.admission = Admission(self.limits.requests, self.engine.max_running)

    @property
    def in_flight(self) -> int:
        """Choices being made or waiting."""
        return self.admission.in_flight

    async def close(self) -> None:
        """End the threads."""
        self.encoder.close()
        self._writer.shutdown(wait=False, cancel_futures=True)
        await self.engine.close()

    # --- prompts ---------------------------------------------------------------------------------

    def check_model(self, name: str | None) -> None:
        """Refuse any other model's name; none means this one."""
        if name is not None and name != self.name:
            raise Refusal(
                f"there is no model {name[:SHOWN]!r} here, only {self.name!r}",
                404,
                param="model",
                code="model_not_found",
            )

    def check_ids(self, ids: Sequence[int]) -> None:
        """Refuse tokens that the model does not have."""
        size = self.tokenizer.vocab_size
        if ids and not 0 <= min(ids) <= max(ids) < size:
            bad = next(i for i in ids if not 0 <= i < size)
            raise Refusal(f"token id {bad} is outside the vocabulary of {size}", param="prompt")

    def _room(self, ids: Sequence[int]) -> int:
        if not ids:
            raise Refusal("the prompt is empty", param="prompt")
        self.check_ids(ids)
        if len(ids) >= self.window:
            raise too_long(len(ids), self.window)
        return self.window - len(ids)

    # --- jobs ------------------------------------------------------------------------------------

    async def chat(self, asked: ChatAsked) -> tuple[Form, list[Choice]]:
        """Turn a chat into choices to be made."""
        self.check_model(asked.model)
        if asked.max_tokens == 0:
            raise Refusal("max_tokens must be at least 1", param="max_tokens")
        schemas = asked.schemas if asked.tool_choice != "none" else []
        ids = tuple(await self.encoder.render(asked.messages, schemas))
        limit = asked.max_completion_tokens or asked.max_tokens or self.limits.max_tokens
        reader = None
        if schemas:
            single = asked.parallel_tool_calls is False
            reader = ToolReader(self.tokenizer, self.engine.policy, ids, schemas, single)
        form = Form(
            "chat",
            self.tokenizer,
            self.name,
            logprobs=bool(asked.logprobs),
            top=asked.top_logprobs or 0,
            keep_stop=asked.include_stop_str_in_output,
            token_ids=bool(asked.return_token_ids),
            usage=bool(asked.stream_options and asked.stream_options.include_usage),
        )
        if form.top and not form.logprobs:
            raise Refusal("top_logprobs needs logprobs: true", param="top_logprobs")
        return _streamable(form, asked), self._jobs(asked, [ids], limit, reader)

    async def text(self, asked: CompletionAsked) -> tuple[Form, list[Choice]]:
        """Turn a text completion into choices to be made."""
        self.check_model(asked.model)
        prompts, tokens = await self._prompts(asked)
        limit = TEXT_TOKENS if asked.max_tokens is None else asked.max_tokens
        if not limit and not asked.echo:
            raise Refusal("max_tokens must be at least 1 without echo", param="max_tokens")
        form = Form(
            "text",
            self.tokenizer,
            self.name,
            logprobs=asked.logprobs is not None,
            # Most clients that say 1 want no more than the token's own; the likeliest ones at
            # each place take a second pass over the whole sequence.
            top=asked.logprobs if asked.logprobs and asked.logprobs > 1 else 0,
            echo=bool(asked.echo),
            keep_stop=asked.include_stop_str_in_output,
            token_ids=tokens if asked.return_token_ids is None else asked.return_token_ids,
            usage=bool(asked.stream_options and asked.stream_options.include_usage),
        )
        return _streamable(form, asked), self._jobs(asked, prompts, limit)

    async def _prompts(self, asked: CompletionAsked) -> tuple[list[tuple[int, ...]], bool]:
        """Return the prompts as tokens, and whether they came as such."""
        if not (given := asked.prompts):
            raise Refusal("the prompt is empty", param="prompt")
        if not isinstance(given[0], str):
            return [tuple(ids) for ids in given], True
        special = asked.add_special_tokens
        return [tuple(await self.encoder.encode(text, special)) for text in given], False

    def _jobs(
        self,
        asked: GenerationBody,
        prompts: Sequence[tuple[int, ...]],
        limit: int,
        reader: ToolReader | None = None,
    ) -> list[Choice]:
        """Make n choices of every prompt; each prompt draws as if it were alone."""
        ends = self.tokenizer.end_ids
        if other := set(asked.stop_token_ids or ()).difference(ends):
            raise Refusal(
                f"only {list(ends)} end a reply, not token {min(other)}; use stop with a text",
                param="stop_token_ids",
            )
        seed = secrets.randbits(63) if asked.seed is None else asked.seed & ((1 << 63) - 1)
        n = asked.n or 1
        rooms = [min(limit, self._room(ids)) for ids in prompts]
        total = n * (sum(rooms) + sum(map(len, prompts)))
        if total > self.limits.tokens:
            most = self.limits.tokens
            raise Refusal(f"a request may ask for {most} tokens in all, not {total}", param="n")
        base = Sampling(
            temperature=1.0 if asked.temperature is None else asked.temperature,
            top_p=1.0 if asked.top_p is None else asked.top_p,
            stop=asked.stops,
            seed=seed,
        )
        jobs: list[Choice] = []
        for ids, room in zip(prompts, rooms, strict=True):
            for choice in range(n):
                own = derive(seed, choice) if choice else seed
                sampling = replace(base, max_tokens=room, seed=own)
                jobs.append(Choice(len(jobs), ids, sampling, reader))
        return jobs

    # --- replies ---------------------------------------------------------------------------------

    async def reply(
        self, form: Form, jobs: Sequence[Choice], made: Made = lambda _done: None
    ) -> bytes:
        """Make all choices and return the answer as JSON; `made` is shown them before."""
        turns = self.admission.turns(len(jobs))
        tasks = [asyncio.create_task(self._make(form, job, turns)) for job in jobs]
        try:
            done = await asyncio.gather(*tasks)
            made(done)
            # Logprobs of a whole window take a while to write.
            return await self.written(partial(_written, form, done))
        finally:
            for task in tasks:
                task.cancel()

    async def written(self, write: Callable[[], bytes]) -> bytes:
        """Write an answer away from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, write)

    async def _make(self, form: Form, job: Choice, turns: Turns) -> Done:
        completion = Completion((), (), "length")
        async with turns.turn(len(job.prompt_ids), job.sampling) as light:
            if job.sampling.max_tokens:
                completion = await self.engine.sample(job.prompt_ids, job.sampling, light=light)
            if not form.top and not (form.echo and form.logprobs):
                return Done(job, completion)
            ids = [*job.prompt_ids, *completion.token_ids]
            start = 1 if form.echo else len(job.prompt_ids)
            score = await self.engine.score(ids, start, job.sampling.temperature, form.top)
        return Done(job, completion, score)

    async def stream(
        self, form: Form, jobs: Sequence[Choice], made: Made = lambda _done: None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Make all choices and yield chunks as their tokens come; `made` is shown them all."""
        events: asyncio.Queue[_Event] = asyncio.Queue()
        states = [_Streamed.of(form, job) for job in jobs]
        turns = self.admission.turns(len(jobs))
        tasks = [asyncio.create_task(self._speak(state.job, events, turns)) for state in states]
        finished: list[Completion] = []
        try:
            while len(finished) < len(jobs):
                heard = [await events.get()]
                while not events.empty():
                    heard.append(events.get_nowait())
                fresh: dict[int, _Streamed] = {}
                for index, event in heard:
                    state = fresh.setdefault(index, states[index])
                    if isinstance(event, BaseException):
                        raise event
                    if isinstance(event, Completion):
                        finished.append(event)
                        state.done = event
                    else:
                        state.take(event)
                if len(finished) == len(jobs):
                    made([Done(state.job, state.done) for state in states if state.done])
                last = len(finished) == len(jobs) and not form.usage
                chunks = [chunk for state in fresh.values() for chunk in state.chunks()]
                if last and chunks:
                    chunks[-1] |= form.extra
                for chunk in chunks:
                    yield chunk
            if form.usage:
                yield form.ending(jobs, finished)
        finally:
            for task in tasks:
                task.cancel()

    async def _speak(self, job: Choice, events: asyncio.Queue[_Event], turns: Turns) -> None:
        def heard(token: int, logprob: float) -> None:
            events.put_nowait((job.index, (token, logprob)))

        try:
            async with turns.turn(len(job.prompt_ids), job.sampling) as light:
                done = await self.engine.sample(job.prompt_ids, job.sampling, heard, light)
            events.put_nowait((job.index, done))
        except Exception as error:  # the stream reports it
            events.put_nowait((job.index, error))


_Event = tuple[int, Token | Completion | Exception]


@dataclass
class _Streamed:
    """One choice while it is streamed."""

    form: Form
    job: Choice
    growing: Growing
    early: bool
    """Whether text can be given before the reply has ended."""
    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    """Taken but not yet sent."""
    offset: int = 0
    opened: bool = False
    done: Completion | None = None

    @classmethod
    def of(cls, form: Form, job: Choice) -> _Streamed:
        stops = job.sampling.stop
        growing = job.reader.growing(stops) if job.reader else None
        return cls(
            form,
            job,
            growing or Growing(form.tokenizer.decode, stops),
            early=growing is not None or not job.reader,
        )

    def take(self, token: Token) -> None:
        self.tokens.append(token)
        if self.early and token[0] not in self.form.tokenizer.end_ids:
            self.text += self.growing.add(token[0])

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Yield what can be sent now."""
        if not self.opened:
            self.opened = True
            yield self.form.opening(self.job)
        if self.text:
            yield self.form.chunk(self.job, self.text, self.tokens, self.offset)
            if self.form.logprobs:
                decode = self.form.tokenizer.decode_control
                self.offset += sum(len(decode(token)) for token, _ in self.tokens)
            self.text, self.tokens = "", []
        if self.done:
            yield self.form.closing(
                Done(self.job, self.done), self.growing, self.tokens, self.offset
            )


def _written(form: Form, done: Sequence[Done]) -> bytes:
    body = form.body(done)
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _streamable(form: Form, asked: GenerationBody) -> Form:
    if asked.stream and (form.top or form.echo):
        raise Refusal("the logprobs of other tokens, and echo, cannot be streamed")
    return form
