"""Models behind a server: by tokens where it takes and returns them, by messages otherwise.

The fields are those of OpenAI's API and vLLM's additions to it, which `recollect serve` speaks too.
`/completions` takes `prompt` as a list of token ids and, with `return_token_ids`, gives back
`token_ids` and `prompt_token_ids` in each choice, with `logprobs.token_logprobs` of one length with
`token_ids`. An end token is among them, because it was sampled. llama.cpp's server gives the ids in
`logprobs.content`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.chat.policy import Speaker, Spoken, SpokenCall
from recollect.errors import boundary
from recollect.foreign import one_line
from recollect.policies.client import Client
from recollect.policies.failures import BadReply, Filtered, WrongTokens
from recollect.types import Completion, Sampling, StopReason

STOPPED: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "length": "length",
}

REPLY_BYTES, TOKEN_BYTES = 1 << 20, 1 << 10
"""What an answer may have, and so much more for each token that was asked for."""
PROMPT_TOKEN_BYTES = 16
LEAST_LOGPROB, MOST_LOGPROB = -1e6, 1e-3
TEMPLATE_TOKENS, MESSAGE_TOKENS = 4096, 64
"""What a server may add to a chat, and to each of its messages."""


@dataclass(frozen=True)
class EndpointPolicy:
    """A served model that continues token ids. Nothing is ever tokenised again.

    Log-probabilities are the server's: vLLM's are those before temperature unless it was started
    with `--logprobs-mode processed_logprobs`. A model behind a server is not trained on, so that
    nothing here depends on them.
    """

    client: Client
    model: str
    """As the server lists it."""
    vocab_size: int
    end_ids: tuple[int, ...]

    @property
    def name(self) -> str:
        """The model and where it is, for people."""
        return f"{one_line(self.model, 100)} at {self.client.endpoint.url}"

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Send token ids and return those that came back, checked."""
        prompt = list(prompt_ids)

        def read(answer: dict[str, Any]) -> Completion:
            completion = read_completion(answer, prompt, sampling.max_tokens, self.vocab_size)
            # Both are known here; nothing depends on the server's own count.
            self.client.tokens.update(prompt=len(prompt), sampled=len(completion.token_ids))
            return completion

        body = self.body(prompt, sampling)
        limit = _answer_limit(sampling.max_tokens, len(prompt))
        with boundary("endpoint"):
            return await self.client.post("/completions", body, read, sampling.seed, limit)

    def body(self, prompt: list[int], sampling: Sampling) -> dict[str, Any]:
        """Return what is sent."""
        return {
            **_settings(self.model, sampling),
            "prompt": prompt,
            "logprobs": 1,
            "return_token_ids": True,
            "stop_token_ids": list(self.end_ids),
            "include_stop_str_in_output": True,
        }


@dataclass(frozen=True)
class EndpointSpeaker(Speaker):
    """A served model that answers messages; the server applies its own template."""

    client: Client
    model: str
    limit_name: str = "max_tokens"
    """What the server calls the limit: OpenAI's newer models want max_completion_tokens."""

    @property
    def name(self) -> str:
        """The model and where it is, for people."""
        return f"{one_line(self.model, 100)} at {self.client.endpoint.url}"

    async def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], sampling: Sampling
    ) -> Spoken:
        """Send messages and return what was said, with calls as the server found them."""

        most = _most_tokens(messages, tools), sampling.max_tokens

        def read(answer: dict[str, Any]) -> Spoken:
            counts = read_counts(answer, *most)
            if counts is None:
                self.client.failures["WrongCounts"] += 1
            else:
                self.client.tokens["prompt"] += counts[0]
                self.client.tokens["sampled"] += counts[1]
            spoken = read_spoken(answer, counts or (0, 0))
            _check_limit(spoken, sampling.max_tokens)
            return spoken

        body = {**_settings(self.model, sampling), "messages": list(messages)}
        body[self.limit_name] = body.pop("max_tokens")
        if tools:
            body["tools"] = list(tools)
        limit = _answer_limit(sampling.max_tokens)
        with boundary("endpoint"):
            return await self.client.post("/chat/completions", body, read, sampling.seed, limit)


def _answer_limit(max_tokens: int, prompt: int = 0) -> int:
    """Return the bytes that an honest answer stays below; some servers return the prompt's ids."""
    return REPLY_BYTES + TOKEN_BYTES * max_tokens + PROMPT_TOKEN_BYTES * prompt


def _most_tokens(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> int:
    """Return the tokens that messages cannot exceed: one a byte, and what a template adds."""
    chars = sum(len(str(value)) for message in messages for value in message.values())
    chars += len(str(list(tools))) if tools else 0
    return 4 * chars + MESSAGE_TOKENS * len(messages) + TEMPLATE_TOKENS


def _settings(model: str, sampling: Sampling) -> dict[str, Any]:
    return {
        "model": model,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        **({"stop": list(sampling.stop)} if sampling.stop else {}),
    }


def read_completion(
    answer: Mapping[str, Any], prompt: list[int], max_tokens: int, vocab_size: int
) -> Completion:
    """Take the sampled tokens out of an answer; whatever does not fit together is refused."""
    choice = _choice(answer)
    reason = _stop_reason(choice)
    ids, logprobs = _sampled(choice)
    if not set(map(type, ids)) <= {int}:
        raise BadReply("a token id is no whole number")
    if not set(map(type, logprobs)) <= {int, float} or any(x != x for x in logprobs):
        raise BadReply("a log-probability is no number")
    if not LEAST_LOGPROB <= min(logprobs, default=0.0) <= max(logprobs, default=0.0):
        raise BadReply(f"a log-probability is below {LEAST_LOGPROB:g}")
    if max(logprobs, default=0.0) > MOST_LOGPROB:
        raise BadReply("a log-probability is above 0")
    if len(ids) != len(logprobs):
        raise WrongTokens(f"{len(ids)} tokens but {len(logprobs)} log-probabilities")
    if len(ids) > max_tokens:
        raise WrongTokens(f"{len(ids)} tokens, though at most {max_tokens} were asked for")
    if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
        bad = next(i for i in ids if not 0 <= i < vocab_size)
        raise WrongTokens(f"token id {str(bad)[:24]} is outside the vocabulary of {vocab_size}")
    told = choice.get("prompt_token_ids", answer.get("prompt_token_ids"))
    if told is not None and told != prompt:
        raise WrongTokens("the server read other tokens than it was sent")
    return Completion(tuple(ids), tuple(map(float, logprobs)), reason)


def _sampled(choice: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Find ids and log-probabilities where vLLM and we put them, or where llama.cpp does."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        raise BadReply("there are no log-probabilities")
    content = logprobs.get("content")
    if "token_ids" not in choice and isinstance(content, list):
        if not all(isinstance(c, dict) and {"id", "logprob"} <= c.keys() for c in content):
            raise BadReply("there are no token ids")
        return [c["id"] for c in content], [c["logprob"] for c in content]
    ids, own = choice.get("token_ids"), logprobs.get("token_logprobs")
    if not isinstance(ids, list):
        raise BadReply("there are no token ids")
    if not isinstance(own, list):
        raise BadReply("there are no log-probabilities")
    return ids, own


def read_spoken(answer: Mapping[str, Any], counts: tuple[int, int] = (0, 0)) -> Spoken:
    """Take what was said out of an answer; `counts` are the tokens read and written for it."""
    choice = _choice(answer)
    reason = _stop_reason(choice)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise BadReply("there is no message")
    content = message.get("content")
    content = message.get("refusal") if content is None else content
    if not isinstance(content, str | None):
        raise BadReply("the message's content is no text")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise BadReply("the tool calls are no list")
    return Spoken(content or "", reason, tuple(map(_call, calls)), *counts)


def _check_limit(spoken: Spoken, max_tokens: int) -> None:
    """Refuse a reply of a server that ignores the limit: a memory would have more room than others.

    A token is at most a word, unless the server's own count says that it is more.
    """
    words = len(spoken.text.split())
    if words > max_tokens and not spoken.sampled_tokens:
        raise BadReply(
            f"the reply has {words} words, though at most {max_tokens} tokens were asked for: the"
            " server does not keep the limit"
        )


def _call(call: Any) -> SpokenCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadReply("a tool call names no function")
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):
        raise BadReply("a tool call's arguments are no text")
    return SpokenCall(str(call.get("id", "")), function["name"], arguments)


def _choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BadReply("there is not exactly one choice")
    return choices[0]


def _stop_reason(choice: Mapping[str, Any]) -> StopReason:
    reason = choice.get("finish_reason")
    if reason == "content_filter":
        raise Filtered("the server withheld the reply (content_filter)")
    if not isinstance(reason, str) or reason not in STOPPED:
        raise BadReply(f"finish_reason is {str(reason)[:60]!r}")
    return STOPPED[reason]


def read_counts(
    answer: Mapping[str, Any], most_read: int, most_written: int
) -> tuple[int, int] | None:
    """Return the tokens that a server says it read and wrote: zeros if it does not say.

    None if it cannot be true of what was sent and asked for.
    """
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return 0, 0
    read, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    if type(read) is not int or type(written) is not int:
        return None
    if not 0 <= read <= most_read or not 0 <= written <= most_written:
        return None
    return read, written
