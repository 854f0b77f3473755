"""A fixed model behind an OpenAI-compatible endpoint, for reading and judging: text in, text out.

Answers are kept on disk under (model, prompt, text), so that nothing is asked, or paid, twice. For
sampling token by token there is `policies.endpoint`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from recollect.concurrency import Once
from recollect.errors import UserError


@dataclass(frozen=True)
class RemoteModel:
    """Who is asked, and how patiently. Greedy, so that an answer can be kept."""

    url: str
    """Such as http://localhost:8000/v1"""
    model: str = ""
    """Empty takes the first model that the server lists."""
    cache: Path | None = None
    """A file that keeps every answer; None keeps them as long as the process lives."""
    max_tokens: int = 1024
    timeout: float = 120.0
    retries: int = 4
    """On connection errors, 429 and 5xx, with back-off."""
    concurrency: int = 64
    """Requests in flight at once."""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; servers without keys need none."""
    _answers: Once[str, str] = field(default_factory=Once, init=False, repr=False, compare=False)
    _live: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    async def __call__(
        self, prompt: str, text: str, check: Callable[[str], object] = lambda _answer: None
    ) -> str:
        """Have a prompt followed on a text; the same three always give the same answer.

        An answer for which `check` raises is not kept.
        """
        model = await self.name()
        packed = json.dumps([model, prompt, text]).encode()
        key = hashlib.sha256(packed).hexdigest()

        async def compute() -> str:
            kept = self._disk.get(key) if self._disk else None
            if kept is not None:
                return kept
            answer = await self._ask(model, prompt, text)
            check(answer)
            if self._disk:
                self._disk.put(key, model, answer)
            return answer

        return await self._answers.get(key, compute)

    async def name(self) -> str:
        """Return the model's name, which the server is asked for if need be."""
        return self.model or await self._discovered()

    async def _ask(self, model: str, prompt: str, text: str) -> str:
        client, slots = self._connection()
        messages = [{"role": "user", "content": f"{prompt}\n\n{text}"}]
        async with slots:
            reply = await client.chat.completions.create(
                model=model, messages=messages, max_tokens=self.max_tokens, temperature=0.0
            )
        choice = reply.choices[0]
        answer = (choice.message.content or "").rpartition("</think>")[2].strip()
        if not answer:
            raise ValueError(f"{model} answered nothing (it ended with {choice.finish_reason})")
        return answer

    async def _discovered(self) -> str:
        async def compute() -> str:
            client, _ = self._connection()
            listed = await client.models.list()
            if not listed.data:
                raise UserError(f"{self.url} serves no model", "start the server with a model")
            return listed.data[0].id

        return await self._answers.get("model", compute)

    def _connection(self) -> tuple[Any, asyncio.Semaphore]:
        """Return the client of the running loop: its connections cannot be used in another."""
        loop = asyncio.get_running_loop()
        if self._live.get("loop") is not loop:
            from openai import AsyncOpenAI  # takes a second to import

            client = AsyncOpenAI(
                base_url=self.url,
                api_key=os.environ.get(self.api_key_env) or "none",
                timeout=self.timeout,
                max_retries=self.retries,
            )
            self._live.update(loop=loop, client=client, slots=asyncio.Semaphore(self.concurrency))
        return self._live["client"], self._live["slots"]

    @cached_property
    def _disk(self) -> Kept | None:
        return Kept(self.cache) if self.cache else None


class Kept:
    """Answers in one SQLite file, which several processes may share."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, model TEXT, answer TEXT)"
            )
        except sqlite3.Error as error:
            raise UserError(
                f"{path} cannot keep answers: {error}", "delete the file, or name another"
            ) from None

    def get(self, key: str) -> str | None:
        """Return a kept answer."""
        row = self._db.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, model: str, answer: str) -> None:
        """Keep an answer."""
        self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, model, answer))
