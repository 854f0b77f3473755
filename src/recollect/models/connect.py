"""`connect`: a fixed model behind a server, found out about and ready to speak in a chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.chat.chat import Model
from recollect.chat.policy import Policy, Speaker
from recollect.chat.rendering import Renderer, Tokenizer, user
from recollect.errors import BoundaryError, UserError
from recollect.foreign import one_line
from recollect.packaging import install
from recollect.policies.client import Client, Endpoint, Speech
from recollect.policies.estimated import EstimatedTokenizer
from recollect.policies.failures import BadReply, EndpointError, Rejected, ServerError, WrongTokens
from recollect.policies.http import WireError
from recollect.policies.presence import ask, find_entry, no_answer, patience
from recollect.policies.served import EndpointPolicy, EndpointSpeaker, read_completion
from recollect.types import Sampling

PROBE = "The quick brown fox jumps over the lazy dog. 1, 2, 3,"
PROBE_TOKENS = 8


def connect(
    endpoint: Endpoint | str,
    *,
    tokenizer: Tokenizer | Path | str | None = None,
    known: Sequence[Tokenizer] = (),
    sampling: Sampling = Sampling(),
    window: int | None = None,
    speech: Speech = "auto",
) -> Model:
    """Find out what a server serves and how it is spoken to; return it as a model that is fixed.

    Its tokenizer is the one given (or in the folder given), else that of the folder which the
    server names, if it is on this machine, else the first of the `known` ones if the server's
    tokens turn out to be the same. One that equals a known one becomes it, so that agents can pass
    tokens from one model to the other. Without any, tokens are estimated.

    Blocks for as long as the server takes to answer two short requests. The client, with its
    counts of calls, failures and tokens, is `model.policy.client`.
    """
    endpoint = Endpoint(endpoint) if isinstance(endpoint, str) else endpoint
    named = load(tokenizer) if isinstance(tokenizer, str | Path) else tokenizer
    search = _Search(Client(endpoint), named, tuple(known), sampling, window, speech)
    return ask(search.model())


def load(folder: str | Path) -> Tokenizer:
    """Load the tokenizer of a model folder."""
    try:
        from recollect.models.tokenizer import check_folder, load_tokenizer
    except ImportError:
        raise UserError(
            "a tokenizer folder needs transformers and torch", install("local")
        ) from None
    return load_tokenizer(check_folder(str(folder)))


def share(own: Tokenizer, known: Sequence[Tokenizer]) -> Tokenizer:
    """Return the known tokenizer that does the same in every respect, or the own one."""
    others = [] if any(t is own for t in known) else known
    mine = _identity(own) if others else None  # imports torch
    return next((t for t in others if mine and _identity(t) == mine), own)


def _identity(tokenizer: Tokenizer) -> tuple[Any, ...] | None:
    """Return all that decides what a tokenizer does, if it is one of transformers' fast ones."""
    try:
        from recollect.models.tokenizer import HFTokenizer
    except ImportError:
        return None
    if not isinstance(tokenizer, HFTokenizer) or not tokenizer.hf.is_fast:
        return None
    core = tokenizer.hf.backend_tokenizer
    return core.to_str(), tokenizer.hf.chat_template, tokenizer.end_ids, tokenizer.vocab_size


@dataclass(frozen=True)
class _Search:
    """What is known before the server has been asked."""

    client: Client
    tokenizer: Tokenizer | None
    known: tuple[Tokenizer, ...]
    sampling: Sampling
    window: int | None
    speech: Speech

    @property
    def url(self) -> str:
        return self.client.endpoint.url

    async def model(self) -> Model:
        """Ask, decide, and let go of the connections: they belong to this event loop."""
        try:
            entry = await find_entry(self.client)
            name: str = entry["id"]
            tokenizer, guessed = self._tokenizer(entry)
            window = self.window or _whole(entry.get("max_model_len")) or 1 << 30
            policy: Policy | Speaker | None = None
            if tokenizer is not None and self.speech != "messages":
                policy = await self._by_tokens(name, tokenizer, guessed)
            policy = policy or await self._by_messages(name)
            renderer = Renderer(tokenizer or EstimatedTokenizer())
            return Model(policy, renderer, False, self.sampling, window)
        finally:
            self.client.close()

    def _tokenizer(self, entry: dict[str, Any]) -> tuple[Tokenizer | None, bool]:
        """Return a tokenizer, and whether it is only a guess."""
        if self.tokenizer is not None:
            return share(self.tokenizer, self.known), False
        root = Path(str(entry.get("root") or ""))
        if root.is_absolute() and (root / "tokenizer_config.json").is_file():
            return share(load(root), self.known), False
        return (self.known[0], True) if self.known else (None, True)

    async def _by_tokens(
        self, name: str, tokenizer: Tokenizer, guessed: bool
    ) -> EndpointPolicy | None:
        """Try a few tokens; None if the server does not take them, or has others."""
        policy = EndpointPolicy(self.client, name, tokenizer.vocab_size, tokenizer.end_ids)
        ids: list[int] = []
        text = ""
        try:
            # A model that has nothing to say to a message may go on with a text.
            for prompt in (Renderer(tokenizer).opening([user(PROBE)]), tokenizer.encode(PROBE)):
                if prompt and not text.strip():
                    ids, text = await self._try(policy, prompt)
        except (Rejected, ServerError, BadReply, WrongTokens) as error:
            # Some servers fail on tokens instead of refusing them; one that fails anyway will do
            # so on messages, too, and is then named for what it is.
            if self.speech == "tokens":
                raise UserError(
                    f"{_shown(name)} at {self.url} does not take and return token ids ({error})",
                    "serve it with `recollect serve` or vLLM, or use it by messages",
                ) from None
            return None
        except (WireError, EndpointError) as error:
            raise no_answer(self.client.endpoint, error, [name]) from None
        said = bool(text.strip())  # without a word nothing tells a guess from another tokenizer
        if _agree(tokenizer, ids, text) and (said or not guessed):
            return policy
        if guessed and self.speech == "auto":
            return None
        if not said:
            raise UserError(
                f"{_shown(name)} at {self.url} gives no sign of which tokenizer it has",
                "name the folder of the served model's own tokenizer",
            )
        raise UserError(
            f"the tokenizer is not that of {_shown(name)} at {self.url}: what it wrote as"
            f" {text[:200]!r} reads {tokenizer.decode(ids)!r}",
            "name the folder of the served model's own tokenizer",
        )

    async def _try(self, policy: EndpointPolicy, prompt: list[int]) -> tuple[list[int], str]:
        """Return a few tokens that follow a prompt, and what they mean to the server."""

        def read(answer: dict[str, Any]) -> tuple[list[int], str]:
            sampled = read_completion(answer, prompt, PROBE_TOKENS, 1 << 31)
            return list(sampled.token_ids), str(answer["choices"][0].get("text") or "")

        sampling = Sampling(max_tokens=PROBE_TOKENS, temperature=0.0)
        with patience(self.client.endpoint):
            return await self.client.post("/completions", policy.body(prompt, sampling), read)

    async def _by_messages(self, name: str) -> EndpointSpeaker:
        """Say something short, to learn what the server calls the limit of a reply."""
        speaker = EndpointSpeaker(self.client, name)
        sampling = Sampling(max_tokens=16, temperature=self.sampling.temperature)
        for limit in ("max_tokens", "max_completion_tokens"):
            speaker = EndpointSpeaker(self.client, name, limit)
            try:
                with patience(self.client.endpoint):
                    await speaker.reply([{"role": "user", "content": "Say OK."}], (), sampling)
                return speaker
            except BoundaryError as error:
                if isinstance(error.cause, Rejected) and "max_completion_tokens" in str(error):
                    continue
                raise no_answer(self.client.endpoint, error.cause, [name]) from None
        raise UserError(
            f"{_shown(name)} at {self.url} accepts no token limit", "serve another model"
        )


def _shown(name: str) -> str:
    return one_line(name, 100)


def _whole(value: Any) -> int:
    return min(value, 1 << 30) if type(value) is int and value > 0 else 0


def _agree(tokenizer: Tokenizer, ids: list[int], text: str) -> bool:
    """Tell whether the ids that a server sampled mean to us what they mean to it."""
    if any(not 0 <= i < tokenizer.vocab_size for i in ids):
        return False
    # Servers differ in how they show white space and half a character at the edges.
    ours, theirs = ("".join(t.replace("\ufffd", "").split()) for t in (tokenizer.decode(ids), text))
    return ours.startswith(theirs) or theirs.startswith(ours)
