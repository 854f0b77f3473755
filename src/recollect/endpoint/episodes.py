"""Requests as episodes: every token that was read and written, in the format of a run.

Each request is a file of its own, whole or not there. What a user has forgotten leaves no episode:
all episodes of that user are deleted with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.chat.chat import Model
from recollect.concurrency.many import apart
from recollect.endpoint.answers import Answer
from recollect.endpoint.folding import Folded
from recollect.errors import UserError
from recollect.files import Lines, lock, make_folder, read_lines, remove, replacing, write_text
from recollect.keeping.windows import digest
from recollect.runs.episodes import write_episodes
from recollect.types import Context, Episode, Question, Task, Turn

INDEX = "users.jsonl"
"""Whose each file is, so that forgetting finds it."""
_FIX = "restore it from a copy, or choose another folder with --keep-episodes"


@dataclass
class Episodes:
    """A folder that grows with every request."""

    folder: Path
    model: Model
    about: dict[str, Any]
    """What the settings of a run say: its name, its agent."""
    _next: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        make_folder(self.folder / "episodes", private=True)
        config = self.folder / "config.json"
        if any(self.folder.glob("checkpoints")):
            raise UserError(f"{self.folder} is the folder of a run", "choose another folder")
        self._lock = lock(self.folder)
        if not config.exists():
            write_text(config, json.dumps(self.about, indent=1) + "\n")
        Lines(self.folder / "metrics.jsonl").close()
        self._index = Lines(self.folder / INDEX)
        stored = [int(path.name[4:10]) for path in (self.folder / "episodes").glob("val-*")]
        self._next = max(stored, default=0) + 1

    async def store(self, user: str, folded: Folded, answer: Answer, seconds: float) -> None:
        """Write down one request."""
        number, self._next = self._next, self._next + 1
        made = self._episodes(user, folded, answer, seconds)
        self._index.append({"episode": number, "user": digest(user) if user else ""})
        await apart(lambda: self._write(number, made))

    async def forget(self, user: str) -> None:
        """Delete the episodes of a user."""
        await apart(lambda: self._delete(digest(user)))

    def close(self) -> None:
        """Let another process have the folder."""
        self._index.close()
        self._lock.close()

    def _write(self, number: int, episodes: Sequence[Episode]) -> None:
        tokenizer = self.model.renderer.tokenizer
        with replacing(self._path(number)) as temporary:
            write_episodes(temporary, episodes, lambda _role, ids: tokenizer.decode(ids))

    def _delete(self, user: str) -> None:
        for _, row in read_lines(self.folder / INDEX, _FIX):
            if row.get("user") == user:
                remove(self._path(int(row["episode"])))

    def _path(self, number: int) -> Path:
        return self.folder / "episodes" / f"val-{number:06d}.jsonl.gz"

    def _episodes(self, user: str, folded: Folded, answer: Answer, seconds: float) -> list[Episode]:
        """Return an episode for every choice; the reading belongs to the first of them."""
        kept = folded.kept
        asked = Question(folded.question, ("",))
        name = digest(user, folded.question, str(time.time_ns()))
        task = Task(name, (), (asked,), "endpoint", {"user": digest(user) if user else ""})
        contexts = self._contexts(folded, answer)
        found = []
        for i, (context, text) in enumerate(zip(contexts, answer.texts, strict=True)):
            read = [*kept.contexts] if kept and not i else []
            ops = [*kept.ops] if kept and not i else []
            found.append(Episode(task, i, [*read, context], ops, [text], seconds=seconds))
        return found

    def _contexts(self, folded: Folded, answer: Answer) -> list[Context]:
        if answer.tokens:
            return [_exact(prompt, turn) for prompt, turn in answer.tokens]
        encode = self.model.renderer.tokenizer.encode
        prompt = encode(json.dumps(folded.messages, ensure_ascii=False))
        return [_counted(prompt, encode(text)) for text in answer.texts]


def _exact(prompt: Sequence[int], turn: Turn) -> Context:
    return _answering([*prompt, *turn.token_ids], turn, True)


def _counted(prompt: list[int], reply: list[int]) -> Context:
    """Return a context of a server that returns no tokens: for reading, not for training."""
    return _answering([*prompt, *reply], Turn(len(prompt), tuple(reply), (), "stop"), False)


def _answering(ids: list[int], turn: Turn, exact: bool) -> Context:
    name = "question 1"
    return Context("answer", name, False, ids, [turn], question=0, label=name, exact=exact)
