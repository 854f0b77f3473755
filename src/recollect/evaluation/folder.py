"""The folder of one evaluation: its settings, its episodes, and the calls of those under way.

config.json     what was asked for, and everything that decides an episode
episodes.jsonl  one line per episode, only appended to; the last line of an id counts
calls.jsonl     replies to episodes that have not ended; empty once all have. While several
                processes run episodes, each has its own: calls-0.jsonl, ...
results.json    scores, intervals, comparisons, costs; the report is made from it
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.evaluation.calls import CallLog, Calls, forget, log_of
from recollect.evaluation.records import Record
from recollect.evaluation.stored import wrong_config, wrong_episode
from recollect.files import (
    Lines,
    line_of,
    lock,
    make_folder,
    plain,
    read_json,
    read_lines,
    write_text,
)

CONFIG, EPISODES, CALLS = "config.json", "episodes.jsonl", "calls.jsonl"
REPAIR = "delete that line and type the same `recollect eval`: its episode is run again"
TORN = "{}: the last line was cut short; its episode is run again"


class EvaluationFolder:
    """An evaluation's folder, held by this process and open for more."""

    def __init__(self, folder: Path, retry_failed: bool = False) -> None:
        """Open or make the folder; episodes that failed are wanted again if so asked."""
        make_folder(folder, private=True)
        self.folder = folder
        self._lock = lock(folder)
        try:
            self._episodes = Lines(folder / EPISODES)
            self.notes = [TORN.format(folder / EPISODES)] if self._episodes.torn else []
            """What a person should know before more is run."""
            ended = {r["id"]: r["failure"] is None for r in _records(folder / EPISODES)}
            self._well = {id for id, well in ended.items() if well}
            """Ids of the episodes that did not fail."""
            self.done = self._well.copy() if retry_failed else set(ended)
            """Ids of the episodes that are not run again."""
            # A failed episode may be wanted again, and what it was told must not be asked twice.
            self._calls = CallLog(folder / CALLS, self._well)
        except BaseException:
            self._lock.close()
            raise

    def calls(self, episode: str) -> Calls:
        """Return the replies that an episode got before it was cut short."""
        return self._calls.of(episode)

    def tried(self, episode: str) -> Calls:
        """Return the calls of an episode that will be run again, then with the same replies."""
        return self._calls.tried(episode)

    def known(self, episode: str) -> dict[str, Any]:
        """Hand over the replies that an episode got, for another process to run it."""
        return self._calls.known(episode)

    def call_log(self, worker: int) -> Path:
        """Name the file in which a process that runs episodes keeps their calls."""
        return log_of(self.folder / CALLS, worker)

    @property
    def lock_file(self) -> int:
        """The open file that holds the folder: a process that inherits it holds it, too."""
        return self._lock.fileno()

    def add(self, record: Record, line: str = "") -> None:
        """Keep an episode; `line` is the same as another process wrote it."""
        self._episodes.write(line or line_of(record))
        self.done.add(record["id"])
        if record["failure"] is None:
            self._well.add(record["id"])

    def close(self) -> None:
        """Write down what the system still holds, and release the folder."""
        try:
            self._episodes.close()  # on disk before their calls are forgotten
            self._calls.close()
            forget(self.folder / CALLS, self._well)
        finally:
            self._lock.close()


def read_episodes(folder: Path) -> Iterator[Record]:
    """Yield the stored episodes, each once: the last one where it was run again."""
    path = folder / EPISODES
    if not path.exists():
        raise UserError(
            f"{folder} holds no {EPISODES}", "name a folder that `recollect eval` wrote"
        )
    last = {record["id"]: number for number, record in enumerate(_records(path))}
    for number, record in enumerate(_records(path)):
        if last[record["id"]] == number:
            yield record


def read_texts(folder: Path) -> dict[str, dict[tuple[int, int], tuple[str, int]]]:
    """Return what the stored episodes read: by set, seed and index its hash and its characters."""
    found: dict[str, dict[tuple[int, int], tuple[str, int]]] = {}
    for record in _records(folder / EPISODES):
        place = record["seed"], record["index"]
        found.setdefault(record["task"], {})[place] = record["hash"], record["chars"]
    return found


def _records(path: Path) -> Iterator[Record]:
    for number, record in read_lines(path, REPAIR):
        if wrong := wrong_episode(record):
            raise UserError(f"{path}, line {number} is damaged: {wrong}", REPAIR)
        yield record


def read_config(folder: Path) -> dict[str, Any] | None:
    """Return the settings of an evaluation, or None where there is none yet."""
    path = folder / CONFIG
    if not path.exists():
        return None
    fix = "restore it from a copy, or choose another folder with --out"
    config = read_json(path, fix)
    if wrong := wrong_config(config):
        raise UserError(f"{path} is damaged: {wrong}", fix)
    config.setdefault("bounds", ["oracle"])  # its episodes did not say it before
    return config


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Store the settings."""
    write_text(folder / CONFIG, json.dumps(config, indent=1, default=plain) + "\n")
