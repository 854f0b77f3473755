"""Texts to tokens and back, away from the event loop and in bounds.

Short texts and long ones have a thread each, with a tokenizer of its own (transformers' tokenizers
change when they encode), so that a long text holds up long texts at most. A text that cannot fit
the window is refused before it is encoded, or after the first pieces of it are.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from recollect.foreign import readable_json
from recollect.models.tokenizer import HFTokenizer
from recollect.serve.prompts import render
from recollect.serve.refusal import too_long_text
from recollect.serve.requests import ChatMessage

T = TypeVar("T")
SHORT = 1 << 13
"""Characters that are encoded without waiting for long texts."""
PIECE = 1 << 13
USUAL = 8
"""Characters for a token above which a text is weighed before it is encoded whole."""
SEAM = 16
"""Tokens that a cut between two pieces may add at most."""


class Encoder:
    """One model's tokenizer, used by many requests."""

    def __init__(self, tokenizer: HFTokenizer, window: int) -> None:
        self.window = window
        longest = max((len(token.encode()) for token in tokenizer.hf.get_vocab()), default=1)
        self.most = window * longest
        """Characters that no text within the window exceeds."""
        self._lanes = [
            (ThreadPoolExecutor(1, f"{name} texts"), copied(tokenizer))
            for name in ("short", "long")
        ]

    def close(self) -> None:
        """End the threads; what has not begun is dropped."""
        for pool, _ in self._lanes:
            pool.shutdown(wait=False, cancel_futures=True)

    async def encode(self, text: str, special: bool, weigh: bool = True) -> list[int]:
        """Encode a raw text, in which control tokens are what they are.

        With `weigh`, one that does not fit the window is refused early.
        """
        await self._check([text], weigh)
        return await self._run(len(text), lambda tokenizer: _encoded(tokenizer, text, special))

    async def render(
        self, messages: Sequence[ChatMessage], schemas: Sequence[dict[str, Any]], weigh: bool = True
    ) -> list[int]:
        """Render a chat."""
        texts = [message.text for message in messages]
        called = (call.function.arguments for m in messages for call in m.tool_calls or ())
        texts += [*called, readable_json(list(schemas)) if schemas else ""]
        # Every message takes a token at least: where none is said, the template has one.
        if len(messages) > self.window:
            raise too_long_text(len(messages), "messages", self.window)
        await self._check(texts, weigh)
        size = sum(map(len, texts)) + 64 * len(messages)
        return await self._run(size, lambda tokenizer: render(tokenizer, messages, schemas))

    async def decode(self, ids: Sequence[int]) -> str:
        """Decode tokens; control tokens and spaces stay, so that this is the way back."""

        def work(tokenizer: HFTokenizer) -> str:
            return tokenizer.hf.decode(ids, clean_up_tokenization_spaces=False)

        return await self._run(4 * len(ids), work)

    async def _check(self, texts: Iterable[str], weigh: bool) -> None:
        size = sum(map(len, texts))
        if size > self.most:
            raise too_long_text(size, "characters", self.window)
        if not weigh or size <= max(SHORT, USUAL * self.window):
            return
        # One piece after another: others' texts come in between, and a client that has gone away
        # is noticed.
        found = 0
        for text in texts:
            for at in range(0, len(text), PIECE):
                piece = text[at : at + PIECE]
                found += max(0, await self._run(size, partial(_weight, text=piece)) - SEAM)
                if found > self.window:
                    raise too_long_text(size, "characters", self.window)

    async def _run(self, size: int, work: Callable[[HFTokenizer], T]) -> T:
        pool, tokenizer = self._lanes[size > SHORT]
        return await asyncio.get_running_loop().run_in_executor(pool, work, tokenizer)


def _weight(tokenizer: HFTokenizer, text: str) -> int:
    return len(_encoded(tokenizer, text, special=False))


def _encoded(tokenizer: HFTokenizer, text: str, special: bool) -> list[int]:
    made = tokenizer.hf(text, add_special_tokens=special, split_special_tokens=False)
    return list(made.input_ids)


class ShownTokenizer(HFTokenizer):
    """A tokenizer that remembers what every token looks like: logprobs show thousands of them."""

    def __init__(self, hf: Any, vocab_size: int, end_ids: Sequence[int]) -> None:
        super().__init__(hf, vocab_size, end_ids)
        self._looks: dict[int, str] = {}

    def decode_control(self, token_id: int) -> str:
        """Return the text of one token, a control token included."""
        if token_id not in self._looks:
            self._looks[token_id] = super().decode_control(token_id)
        return self._looks[token_id]


def copied(tokenizer: HFTokenizer) -> HFTokenizer:
    """Return a tokenizer that another thread may use."""
    return ShownTokenizer(copy.deepcopy(tokenizer.hf), tokenizer.vocab_size, tokenizer.end_ids)
