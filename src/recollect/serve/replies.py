"""What clients are answered: choices, chunks, logprobs and usage in OpenAI's shapes.

Text is derived from tokens here and nowhere else; with `return_token_ids` the tokens come along,
as with vLLM. Knows nothing of HTTP or of engines.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from recollect.chat.tools import Call
from recollect.models.tokenizer import HFTokenizer
from recollect.serve.engine import Likelihoods
from recollect.serve.text import Growing, cut
from recollect.serve.toolreplies import ToolReader, call_shape
from recollect.types import Completion, Sampling

Token = tuple[int, float]
"""A token and its logprob."""


@dataclass(frozen=True)
class Choice:
    """One choice to be made."""

    index: int
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    reader: ToolReader | None = None


@dataclass(frozen=True)
class Done:
    """A choice that has been made."""

    job: Choice
    completion: Completion
    score: Likelihoods | None = None
    """Log-probabilities of the reply, and of the prompt before it if that is echoed."""


@dataclass(frozen=True)
class Form:
    """How one request is answered."""

    kind: Literal["chat", "text"]
    tokenizer: HFTokenizer
    model: str
    logprobs: bool = False
    top: int = 0
    """Other tokens shown beside each."""
    echo: bool = False
    keep_stop: bool = False
    token_ids: bool = False
    usage: bool = False
    """Whether a stream ends with the usage."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of our own, in the body and in the last chunk of a stream."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    # --- whole replies ---------------------------------------------------------------------------

    def body(self, done: Sequence[Done]) -> dict[str, Any]:
        """Return the answer to a request that does not stream."""
        choice = self._chat_choice if self.kind == "chat" else self._text_choice
        body = self._head(chunk=False)
        body["choices"] = [choice(one) for one in done]
        body["usage"] = usage([one.job for one in done], [one.completion for one in done])
        if self.token_ids and self.kind == "chat":
            body["prompt_token_ids"] = list(done[0].job.prompt_ids)
        return body | self.extra

    def _head(self, chunk: bool) -> dict[str, Any]:
        if self.kind == "chat":
            name, prefix = "chat.completion" + ".chunk" * chunk, "chatcmpl"
        else:
            name, prefix = "text_completion", "cmpl"
        return {
            "id": f"{prefix}-{self.id}",
            "object": name,
            "created": self.created,
            "model": self.model,
        }

    def text(self, done: Done) -> tuple[str, str | None]:
        """Return a reply's text up to its stop text, and that stop text."""
        ids = done.completion.token_ids
        while ids and ids[-1] in self.tokenizer.end_ids:
            ids = ids[:-1]
        return cut(self.tokenizer.decode(ids), done.job.sampling.stop, self.keep_stop)

    def said(self, done: Done) -> tuple[str, list[Call], str | None]:
        """Return a reply's text, its calls and the text that stopped it."""
        text, stop = self.text(done)
        calls: list[Call] = []
        if done.job.reader:
            text, calls = done.job.reader.read(text, done.completion)
        return text, calls, stop

    def _chat_choice(self, done: Done) -> dict[str, Any]:
        text, calls, stop = self.said(done)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["content"] = text or None
            message["tool_calls"] = self._calls(calls, done.job)
        logprobs = self._chat_logprobs(_tokens(done.completion), done.score)
        choice = {"index": done.job.index, "message": message, "logprobs": logprobs}
        return choice | self._ending(done, calls, stop) | self._ids(done.completion.token_ids)

    def _text_choice(self, done: Done) -> dict[str, Any]:
        text, stop = self.text(done)
        prompt = done.job.prompt_ids
        tokens: list[tuple[int, float | None]] = [*_tokens(done.completion)]
        if self.echo:
            text = self.tokenizer.decode(prompt) + text
            before = done.score.logprobs[: len(prompt) - 1] if done.score else []
            tokens = [*zip(prompt, [None, *before], strict=False), *tokens]
        choice = {
            "index": done.job.index,
            "text": text,
            "logprobs": self._text_logprobs(tokens, done.score),
        }
        ids = self._ids(done.completion.token_ids)
        if self.token_ids:
            ids["prompt_token_ids"] = list(prompt)
        return choice | self._ending(done, [], stop) | ids

    def _calls(self, calls: list[Call], job: Choice) -> list[dict[str, Any]]:
        return [call_shape(call, f"call_{self.id}_{job.index}_{i}") for i, call in enumerate(calls)]

    def _ending(self, done: Done, calls: list[Call], stop: str | None) -> dict[str, Any]:
        reason = "tool_calls" if calls else done.completion.stop_reason
        return {"finish_reason": reason, "stop_reason": stop}

    def _ids(self, ids: Sequence[int]) -> dict[str, Any]:
        return {"token_ids": list(ids)} if self.token_ids else {}

    # --- logprobs --------------------------------------------------------------------------------

    def _chat_logprobs(
        self, tokens: Sequence[Token], score: Likelihoods | None = None
    ) -> dict[str, Any] | None:
        if not self.logprobs:
            return None
        content = []
        for i, (token, logprob) in enumerate(tokens):
            others = score.top[i] if score else []
            top = [self._token(*other) for other in others]
            content.append({**self._token(token, logprob), "top_logprobs": top})
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        text = self.tokenizer.decode_control(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def _text_logprobs(
        self,
        tokens: Sequence[tuple[int, float | None]],
        score: Likelihoods | None = None,
        offset: int = 0,
    ) -> dict[str, Any] | None:
        if not self.logprobs:
            return None
        texts = [self.tokenizer.decode_control(token) for token, _ in tokens]
        offsets = []
        for text in texts:
            offsets.append(offset)
            offset += len(text)
        top: list[dict[str, float] | None] | None = None
        if score and self.top:
            shown = [self._others(others) for others in score.top]
            top = [*[None] * (len(tokens) - len(shown)), *shown]
        return {
            "tokens": texts,
            "token_logprobs": [logprob for _, logprob in tokens],
            "top_logprobs": top,
            "text_offset": offsets,
        }

    def _others(self, others: list[Token]) -> dict[str, float]:
        shown: dict[str, float] = {}
        for token, logprob in others:  # two tokens may have one text: the likelier keeps it
            shown.setdefault(self.tokenizer.decode_control(token), logprob)
        return shown

    # --- streams ---------------------------------------------------------------------------------

    def chunk(
        self,
        job: Choice,
        text: str,
        tokens: Sequence[Token],
        offset: int = 0,
        **more: Any,
    ) -> dict[str, Any]:
        """Return a chunk: new text and the tokens that came with it."""
        choice: dict[str, Any] = {"index": job.index}
        if self.kind == "chat":
            choice["delta"] = {"content": text} if text else {}
            choice["logprobs"] = self._chat_logprobs(tokens) if tokens else None
        else:
            choice["text"] = text
            choice["logprobs"] = self._text_logprobs(tokens, offset=offset) if tokens else None
        choice |= {"finish_reason": None, **self._ids([token for token, _ in tokens])}
        return {**self._head(chunk=True), "choices": [choice | more]}

    def opening(self, job: Choice) -> dict[str, Any]:
        """Return the first chunk of a choice."""
        chunk = self.chunk(job, "", ())
        if self.kind == "chat":
            chunk["choices"][0]["delta"] = {"role": "assistant", "content": ""}
            if self.token_ids:
                chunk["prompt_token_ids"] = list(job.prompt_ids)
        elif self.token_ids:
            chunk["choices"][0]["prompt_token_ids"] = list(job.prompt_ids)
        return chunk

    def closing(
        self, done: Done, growing: Growing, tokens: Sequence[Token], offset: int
    ) -> dict[str, Any]:
        """Return the last chunk of a choice: what was held back, its calls, why it ended."""
        text, calls, stop = self.said(done)
        chunk = self.chunk(done.job, growing.end(text), tokens, offset)
        choice = chunk["choices"][0]
        if calls:
            shapes = self._calls(calls, done.job)
            numbered = [{"index": i, **shape} for i, shape in enumerate(shapes)]
            choice["delta"]["tool_calls"] = numbered
        choice |= self._ending(done, calls, stop)
        return chunk

    def ending(self, jobs: Sequence[Choice], completions: Sequence[Completion]) -> dict[str, Any]:
        """Return the chunk with the usage."""
        body = {**self._head(chunk=True), "choices": [], "usage": usage(jobs, completions)}
        return body | self.extra


def usage(jobs: Sequence[Choice], completions: Sequence[Completion]) -> dict[str, int]:
    """Count tokens; a prompt that several choices continue counts once."""
    prompts = {id(job.prompt_ids): len(job.prompt_ids) for job in jobs}
    prompt = sum(prompts.values())
    sampled = sum(len(completion.token_ids) for completion in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def _tokens(completion: Completion) -> list[Token]:
    return list(zip(completion.token_ids, completion.logprobs, strict=True))
