"""An evaluation's folder as a source: episodes by their place in the file, texts made again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.config.modules import is_named
from recollect.config.sources import import_stored
from recollect.errors import UserError
from recollect.evaluation.folder import EPISODES, read_config
from recollect.evaluation.scoring import UNJUDGED, first_metric, score_record
from recollect.evaluation.setup import open_set
from recollect.evaluation.stored import wrong_episode
from recollect.evaluation.texts import TaskText, measure
from recollect.foreign import one_line
from recollect.metrics import SCORES
from recollect.tasks.base import TaskFamily
from recollect.tasks.named import OPENERS, parse_specs
from recollect.view.rows import Row, evaluation_heads, rows_of_evaluation
from recollect.view.sources import checked
from recollect.view.stored import Stored, of_evaluation

_DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError)


@dataclass
class EvaluationSource:
    """A folder that `recollect eval` wrote."""

    id: str
    folder: Path
    kind: str = "evaluation"
    trust: bool = False
    """Whether the modules that came with it may be imported: its own metrics and tasks."""
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    generation: int = 0
    _places: list[tuple[int, int]] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)
    _end: int = 0
    _config: dict[str, Any] = field(default_factory=dict)
    _families: dict[str, TaskFamily | None] = field(default_factory=dict)
    _texts: dict[tuple[str, int, int], TaskText] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def name(self) -> str:
        """What people call it."""
        return one_line(self.folder.resolve().name)

    def config(self) -> dict[str, Any]:
        """Return the settings."""
        return read_config(self.folder) or {}

    def stamp(self) -> str:
        """Return a text that changes when the folder does."""
        path = self.folder / EPISODES
        return f"{self.generation}-{path.stat().st_size if path.exists() else 0}"

    def refresh(self) -> None:
        """List the episodes that are new; of one that was run again the last counts."""
        with self._lock:
            path = self.folder / EPISODES
            size = path.stat().st_size if path.exists() else 0
            if size < self._end:
                self.rows, self._places, self._ids, self._end = [], [], {}, 0
                self.generation += 1
            if size == self._end:
                return
            self._open()
            try:
                for start, end, head in evaluation_heads(path, self._end):
                    self._add(start, end, head)
            except _DAMAGE as error:
                self.notes.append(one_line(f"{path.name} cannot be read: {error}", 300))
                self._end = size

    def _open(self) -> None:
        self._config = self.config()
        code = {n: e for n, e in self._config.get("code", {}).items() if n not in sys.modules}
        if code and self.trust:
            import_stored(code, self.folder)
        elif code and not self.notes:
            self.notes.append(
                f"{self.name} came with modules of its own ({', '.join(sorted(code))}), which are"
                " not imported without --trust: its own metrics and texts are missing"
            )

    def _add(self, start: int, end: int, head: Mapping[str, Any]) -> None:
        self._end = end
        metric = self.metric(head["task"])
        scores = tuple(answer.scores[0] for answer in score_record(dict(head), [metric]))
        old = self._ids.get(head["id"])
        n = len(self._places) if old is None else old
        new = rows_of_evaluation(n, head, scores)
        if old is None:
            self._ids[head["id"]] = n
            self._places.append((start, end))
            self.rows += new
            return
        self._places[n] = (start, end)
        at = next(i for i, row in enumerate(self.rows) if row["n"] == n)
        self.rows[at : at + len(new)] = new
        self.generation += 1

    def metric(self, task: str) -> str:
        """Return the metric that counts first for a task set; without a judge, what can be had."""
        primary = self._config["sets"][task]["primary"]
        found = first_metric(primary, judged=False)
        if found in SCORES or (self.trust and is_named(found)):
            return str(found)
        return UNJUDGED

    def record(self, n: int) -> dict[str, Any]:
        """Return an episode as it is stored."""
        with self._lock:
            if not 0 <= n < len(self._places):
                raise UserError(f"{self.name} has no episode {n}", "choose one from the list")
            start, end = self._places[n]
            with open(self.folder / EPISODES, "rb") as file:
                file.seek(start)
                where = f"{self.folder / EPISODES}, byte {start}"
                return checked(file.read(end - start), wrong_episode, where)

    def stored(self, n: int) -> Stored:
        """Return an episode, with its task's text if that can be made again."""
        record = self.record(n)
        metric = self.metric(record["task"])
        scores = [answer.scores[0] for answer in score_record(record, [metric])]
        return of_evaluation(record, scores, self._text(record))

    def _text(self, record: Mapping[str, Any]) -> Sequence[str] | None:
        """Make a task's text again; None if its data are not here, or are others by now."""
        key = (record["task"], record["seed"], record["index"])
        with self._lock:
            if key not in self._texts:
                family = self._family(record["task"])
                if family is None:
                    return None
                split = self._config["identity"].get("split", "test")
                if len(self._texts) > 64:
                    self._texts.clear()
                try:
                    self._texts[key] = measure(family.task(record["index"], record["seed"], split))
                except (UserError, OSError, ValueError, IndexError) as error:
                    self._say(f"the text of {record['task_id']} cannot be made again: {error}")
                    return None
            text = self._texts[key]
            return text.task.chunks if text.hash == record["hash"] else None

    def _family(self, name: str) -> TaskFamily | None:
        if name not in self._families:
            settings = self._config["settings"]
            data = settings.get("data")
            try:
                [spec] = parse_specs(name)
                self._families[name] = None
                if self.trust or spec.name in OPENERS:
                    where = Path(data) if data else None
                    self._families[name] = open_set(spec, where, settings.get("columns", ""))
            except (UserError, OSError, ValueError) as error:
                self._families[name] = None
                self._say(f"the texts of {name} cannot be made again: {error}")
        return self._families[name]

    def _say(self, note: str) -> None:
        note = one_line(note, 300)
        if note not in self.notes and len(self.notes) < 20:
            self.notes.append(note)

    def group(self, n: int) -> list[int]:
        """Return the episodes of the same task, by every agent and seed that read it."""
        with self._lock:
            own = next(row for row in self.rows if row["n"] == n)
            return sorted({r["n"] for r in self.rows
                           if (r["task"], r["set"]) == (own["task"], own["set"])})  # fmt: skip
