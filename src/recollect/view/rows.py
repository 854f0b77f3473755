"""The list of answers: one row for every question of every stored episode.

Only the head of a stored line is parsed, so that ten thousand episodes are listed in a second.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recollect.files import loads
from recollect.foreign import inert, one_line
from recollect.view.stored import scores_of

Row = dict[str, Any]
SHOWN = 160
"""Characters of a question or an answer in a list."""
_RUN_TAIL = b', "ops": ['
_EVALUATION_TAIL = (b',"ops":[', b',"contexts":[')
NAME = re.compile(r"(\w+)-(\d+)\.jsonl\.gz")


def run_heads(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (line, head) of a run's file of episodes."""
    if path.exists() and not path.is_file():
        raise OSError("it is not a file")  # a pipe would be waited for
    with gzip.open(path, "rb") as packed, io.BufferedReader(packed, 1 << 20) as file:
        for number, line in enumerate(file):
            yield number, _head(line, (_RUN_TAIL,))


def evaluation_heads(path: Path, start: int = 0) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yield (start, end, head) of an evaluation's episodes; a line half written ends the file."""
    with open(path, "rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield start, start + len(line), _head(line, _EVALUATION_TAIL)
            start += len(line)


def _head(line: bytes, tails: tuple[bytes, ...]) -> Mapping[str, Any]:
    """Parse a line up to where its long part begins.

    The mark cannot be inside of a text, where its quotes would be escaped. Should a name in a
    task's remarks look like it, what is before it is no JSON, and all of the line is parsed.
    """
    for tail in tails:
        at = line.find(tail)
        if at > 0:
            try:
                return dict(loads(line[:at] + b"}"))
            except ValueError:
                break
    return dict(loads(line))


def rows_of_run(n: int, path: Path, head: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a run's episode."""
    found = NAME.fullmatch(path.name)
    split, step = (found[1], int(found[2])) if found else (path.stem, 0)
    task = head["task"]
    common = {
        "n": n,
        "step": step,
        "split": _line(split),
        "set": _line(str(task["source"])),
        "task": _line(str(task["id"])),
        "rollout": head["rollout"],
        "forked": head.get("forked", 0),
        "reward": head["reward"],
        "failure": _failure(head["failure"]),
        "hash": "",
        "cluster": _cluster(task, task["id"]),
    }
    return _by_question(common, task["questions"], head["answers"], scores_of(head))


def rows_of_evaluation(n: int, head: Mapping[str, Any], scores: tuple[float, ...]) -> list[Row]:
    """Return the rows of an evaluation's episode."""
    common = {
        "n": n,
        "step": None,
        "split": _line(head["agent"]),
        "set": _line(head["task"]),
        "task": _line(head["task_id"]),
        "rollout": head["seed"],
        "forked": 0,
        "reward": None,
        "failure": _failure(head["failure"]),
        "length": head["tokens"],
        "hash": head["hash"],
        "cluster": _cluster(head, head["task_id"]),
    }
    return _by_question(common, head["questions"], head["answers"], scores)


def _cluster(stored: Mapping[str, Any], id: str) -> str:
    """Return the cluster that was stored; older episodes kept none but what their meta says."""
    meta = stored["meta"]
    return str(stored.get("cluster", meta.get("cluster", meta.get("item", id))))


def _by_question(
    common: Row, questions: Any, answers: Any, scores: tuple[float | None, ...]
) -> list[Row]:
    return [
        {
            **common,
            "q": i,
            "question": _line(question["text"]),
            "gold": _line(", ".join(question["answers"][: 20 if question.get("every") else 1])),
            "category": _line(question.get("category", "")),
            "evidence": list(question.get("evidence", ()))[:20],
            "answer": _line(answers[i]) if i < len(answers) else "",
            "score": scores[i],
        }
        for i, question in enumerate(questions)
    ]


def _failure(failure: Mapping[str, Any] | None) -> str:
    if not failure:
        return ""
    return _line(f"{failure['boundary']}: {failure['kind']}: {failure['message']}")


def _line(text: str) -> str:
    """Return text for a list; secrets were taken out of our files as they were written."""
    if len(text) <= SHOWN and text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    return one_line(text, SHOWN, inert)
