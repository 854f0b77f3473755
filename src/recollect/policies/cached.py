"""A fixed model behind an OpenAI-compatible endpoint, for reading and judging: text in, text out.

Answers are kept on disk under (model, prompt, text), so that nothing is asked, or paid, twice. For
sampling token by token there is `policies.served`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from recollect.concurrency.many import Once
from recollect.errors import UserError
from recollect.files import make_folder
from recollect.foreign import one_line, storable
from recollect.policies.client import RETRIED, Client, Endpoint
from recollect.policies.failures import BadReply, Filtered, TimedOut


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
    """On connection errors, timeouts, 429 and 5xx, with back-off."""
    concurrency: int = 64
    """Requests in flight at once."""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; servers without keys need none."""
    _answers: Once[str, str] = field(default_factory=Once, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._endpoint  # refuses an address that is none  # noqa: B018

    async def __call__(
        self, prompt: str, text: str, check: Callable[[str], object] | None = None
    ) -> str:
        """Have a prompt followed on a text; the same three always give the same answer.

        An answer for which `check` raises is not kept. One that was cut off is refused if there is
        a check: it may only repeat the prompt.
        """
        model = await self.name()
        packed = json.dumps([model, prompt, text]).encode()
        key = hashlib.sha256(packed).hexdigest()

        async def compute() -> str:
            kept = self._disk.get(key) if self._disk else None
            if kept is not None:
                return kept
            answer = await self._ask(model, prompt, text, whole=check is not None)
            if check is not None:
                check(answer)
            if self._disk:
                self._disk.put(key, model, answer)
            return answer

        return await self._answers.get(key, compute)

    async def name(self) -> str:
        """Return the model's name, which the server is asked for if need be."""
        return self.model or await self._answers.get("model", self._client.first_model)

    async def _ask(self, model: str, prompt: str, text: str, whole: bool) -> str:
        def read(answer: dict[str, Any]) -> str:
            return _said(answer, model, whole)

        body = {
            "model": model,
            "messages": [{"role": "user", "content": f"{prompt}\n\n{text}"}],
            "max_tokens": self.max_tokens,
            "temperature": 0.0,
        }
        return await self._client.post("/chat/completions", body, read)

    @cached_property
    def _client(self) -> Client:
        return Client(self._endpoint, (*RETRIED, TimedOut))

    @property
    def _endpoint(self) -> Endpoint:
        return Endpoint(
            self.url,
            api_key_env=self.api_key_env,
            timeout=self.timeout,
            retries=self.retries,
            concurrency=self.concurrency,
        )

    @cached_property
    def _disk(self) -> Kept | None:
        return Kept(self.cache) if self.cache else None


def _said(answer: dict[str, Any], model: str, whole: bool) -> str:
    """Take what a model said out of an answer, without what it thought before."""
    match answer.get("choices"):
        case [{"message": {"content": str() | None as content}} as choice, *_]:
            ended = one_line(str(choice.get("finish_reason")), 60)
            if ended == "content_filter":
                raise Filtered("the server withheld the reply (content_filter)")
            if ended == "length" and whole:
                raise BadReply(f"{model} was cut off before it had ended")
            thought, _, said = (content or "").rpartition("</think>")
            if said.strip() and (thought or not said.lstrip().startswith("<think>")):
                # SQLite keeps it, and what is kept must be what was said.
                return storable(said.strip())
            raise ValueError(f"{model} answered nothing (it ended with {ended})")
    raise BadReply("there is no message")


class Kept:
    """Answers in one SQLite file, which several processes may share."""

    def __init__(self, path: Path) -> None:
        make_folder(path.parent)
        self.path = path
        with self._refusals():
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, model TEXT, answer TEXT)"
            )

    def get(self, key: str) -> str | None:
        """Return a kept answer."""
        with self._refusals():
            row = self._db.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, model: str, answer: str) -> None:
        """Keep an answer."""
        with self._refusals():
            row = (key, model, answer)
            self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", row)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Say what is wrong with the file: it is full, damaged, or no file of answers."""
        try:
            yield
        except sqlite3.Error as error:
            room = "free some space" if "full" in str(error) else "delete the file, or name another"
            raise UserError(
                f"cannot store answers in {self.path}: {error}",
                f"{room}; then run the same command again",
            ) from None
