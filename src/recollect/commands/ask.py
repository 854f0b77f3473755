"""`recollect ask`: read files with an agent, keep the memory, answer questions from it."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from recollect.chat.chat import ContextFull
from recollect.commands.ask_options import AskOptions
from recollect.commands.ask_screen import Watching, cited, price
from recollect.commands.ask_texts import FORMAT, Texts
from recollect.concurrency.stop import Stop
from recollect.display import open_console
from recollect.display.numbers import count, duration
from recollect.errors import BoundaryError, UserError
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.reader import Reader
from recollect.files import make_folder, plain, write_text
from recollect.foreign import one_line
from recollect.keeping.evidence import find_passages
from recollect.keeping.keeper import (
    Cost,
    Keeper,
    Kept,
    can_keep,
    memory_from,
    memory_hash,
    memory_record,
    memory_text,
)
from recollect.keeping.shelf import Shelf
from recollect.keeping.windows import digest
from recollect.memory.base import Memory
from recollect.rewards.base import Score
from recollect.rollout import Rollout
from recollect.types import Episode, Question, Task


def run_ask(texts: Texts) -> int:
    """Read, then answer; return the exit status."""
    console, options = open_console(), texts.options
    with console.status("loading the model"):
        reader = _open(options)
    asking = Asking(reader, texts, options, console)
    try:
        return Stop().run(asking.run(texts.questions))
    except BoundaryError as error:
        again = "run the same command again: it continues with the first window that was not read"
        fix = "give it a larger --window, or an agent that needs less room"
        raise UserError(
            f"the reading stopped: {one_line(str(error), 300)}",
            fix if isinstance(error.cause, ContextFull) else again,
        ) from error
    except KeyboardInterrupt:
        if not options.json:
            console.print("stopped; the same command continues from here", style="dim")
        raise


def _open(options: AskOptions) -> Reader:
    models = EvalOptions(
        (), options.model, temperature=options.temperature, served_model=options.served_model,
        tokenizer=options.tokenizer, window=options.window, device=options.device,
        threads=options.threads,
    )  # fmt: skip
    return Reader.open(models, options.agent, options.set)


def default_cache() -> Path:
    """Return where memories are kept if nothing else is said."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "recollect" / "memories"


@dataclass
class Asking:
    """One command: what it reads, what it asks, what it shows."""

    reader: Reader
    texts: Texts
    options: AskOptions
    console: Console
    cost: Cost = Cost()
    started: float = field(default_factory=time.monotonic)

    async def run(self, questions: Sequence[str]) -> int:
        """Read, save, answer."""
        if not can_keep(self.reader.agent):
            return await self._at_once(questions)
        keeper = self.reader.keeper(Shelf(self.options.cache or default_cache()))
        kept = await self._read(keeper, [Question(text, ()) for text in questions])
        if self.options.memory and self.texts.unread:
            self._save(kept)
        for text in questions or _typed(self.console):
            started = time.monotonic()
            answers, cost = await keeper.answer(kept, [Question(text, ())])
            spent = time.monotonic() - started
            await self._show(text, answers[0], cost, spent, kept)
        return 0

    async def _read(self, keeper: Keeper, questions: Sequence[Question]) -> Kept:
        before = self._before()
        if before and not self.texts.unread:
            return before
        with Watching(self.console, quiet=self.options.json) as watching:
            keeper.on_progress = watching
            items = [document.item for document in self.texts.unread]
            kept = await keeper.read(items, questions, before)
        self.cost = kept.cost
        if not self.options.json:
            self.console.print(self._reading(kept), style="dim", highlight=False)
        return kept

    def _reading(self, kept: Kept) -> str:
        known = kept.windows - kept.read
        line = f"read {count(kept.tokens)} tokens in {kept.windows} windows"
        if known:
            line += f", {known} of them before"
        spent = duration(time.monotonic() - self.started)
        return f"{line}; memory {kept.hash[:12]}; {price(kept.cost)}; {spent}"

    def _before(self) -> Kept | None:
        stored = self.texts.stored
        if not stored:
            return None
        same_model = stored.get("reader") == digest(self.reader.identity)
        memory = memory_from(stored["memory"], self.reader.agent, same_model)
        if memory_hash(memory) != stored.get("hash"):
            raise UserError(
                f"{self.options.memory} does not hold what its hash says",
                "restore it from a copy, or read the text again",
            )
        return Kept(memory, str(stored.get("state", "")), 0, 0)

    async def _at_once(self, questions: Sequence[str]) -> int:
        """Let an agent that keeps nothing read and answer in one go."""
        if self.options.memory:
            raise UserError(
                "this agent keeps no memory that could be saved", "leave --memory out, or use fold"
            )
        texts = list(questions or _typed(self.console))
        asked = tuple(Question(text, ()) for text in texts)
        task = Task(digest(*texts), [document.text for document in self.texts.documents], asked)
        rollout = Rollout(self.reader.agent, self.reader.opened.models, _unrewarded)
        with self.console.status("reading"):
            episode = await rollout.episode(task, 0, ("ask",))
        if episode.failure:
            raise UserError(
                f"the agent failed: {one_line(str(episode.failure.message), 300)}",
                "choose another agent with --agent, such as fold",
            )
        self.cost = Cost.of(c for c in episode.contexts if c.question is None)
        if self.cost.calls and not self.options.json:
            self.console.print(f"read with {price(self.cost)}", style="dim", highlight=False)
        for i, (text, answer) in enumerate(zip(texts, episode.answers, strict=True)):
            cost = Cost.of(c for c in episode.contexts if c.question == i)
            await self._show(text, answer, cost, episode.seconds, None)
        return 0

    async def _show(
        self, question: str, answer: str, cost: Cost, seconds: float, kept: Kept | None
    ) -> None:
        found = await find_passages(self.texts.documents, question, answer, self.options.passages)
        if self.options.json:
            record = {
                "question": question,
                "answer": answer,
                "passages": [asdict(passage) for passage in found],
                "memory": {"hash": kept.hash, "state": kept.state} if kept else None,
                "cost": {"reading": asdict(self.cost), "answer": asdict(cost), "seconds": seconds},
            }
            self.console.print(
                json.dumps(record), soft_wrap=True, markup=False, highlight=False, emoji=False
            )
            return
        self.console.print(Text(f"\n{question}", "bold"))
        self.console.print(Text(answer.strip() or "(no answer)"))
        for passage in found:
            self.console.print(Text(cited(passage), "dim"))
        self.console.print(f"{price(cost)}, {seconds:.1f} s", style="dim", highlight=False)

    def _save(self, kept: Kept) -> None:
        assert self.options.memory is not None
        names = [{"name": d.name, "sha256": d.item.id} for d in self.texts.unread]
        record = {
            "format": FORMAT,
            "model": self.options.model,
            "agent": self.options.agent,
            "set": list(self.options.set),
            "reader": digest(self.reader.identity),
            "state": kept.state,
            "hash": kept.hash,
            "sources": [*self.texts.read_before, *names],
            "text": memory_text(kept.memory),
            "memory": memory_record(kept.memory),
        }
        make_folder(self.options.memory.parent)
        write_text(self.options.memory, json.dumps(record, default=plain, indent=1) + "\n")


async def _unrewarded(episode: Episode, memory: Memory) -> Score:
    return Score(0.0)


def _typed(console: Console) -> Iterator[str]:
    """Ask the person for questions until a line is empty."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a byte that is no text spoils a character
    while True:
        if sys.stdin.isatty():
            console.print("question (empty ends): ", end="", style="bold")
        line = sys.stdin.readline()
        if not line.strip():
            return
        yield line.strip()
