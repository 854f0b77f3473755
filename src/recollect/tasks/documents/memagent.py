"""MemAgent's rows: what its data look like in Parquet and in its evaluation's JSON, both ways.

A row has a question, one long text of documents that are numbered, and the accepted answers. What
is written here also says, in `extra_info.evidence`, which documents hold the evidence, unlike the
released files. A file that is read becomes a folder of passages like any other: each document is
stored once, however many rows show it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from recollect.errors import UserError
from recollect.files import replacing
from recollect.foreign import readable_json, storable_values
from recollect.tasks.base import Split
from recollect.tasks.documents.documents import DocumentTasks
from recollect.tasks.files.manifest import Manifest, building, checked, write_manifest
from recollect.tasks.files.records import SUFFIXES, read_records, refuse_empty, refuse_folder
from recollect.tasks.splits import split_of_file
from recollect.types import Task

if TYPE_CHECKING:
    from recollect.tasks.documents.passages import PassageWriter

OFFICIAL = (
    "hotpotqa_train_32k.parquet, hotpotqa_dev.parquet or eval_50.json to eval_6400.json of"
    " https://huggingface.co/datasets/BytedTsinghua-SIA/hotpotqa"
)
_NUMBER = re.compile(r"(?:^|\n\n)Document (\d+):\n")
_GROUP_BYTES = 8 << 20
"""Text in one row group: what a writer holds at a time."""


@dataclass(frozen=True)
class MemAgentRows(DocumentTasks):
    """Texts as somebody else made them; their length and their order are fixed."""

    name: ClassVar[str] = "memagent"
    folder: Path = Path("data/memagent")
    shuffle: bool = True
    """Whether training draws the rows in a new order every lap; without, as the files have them."""

    def shuffled(self, split: Split) -> bool:
        """Keep the order of the files where it is asked for."""
        return self.shuffle or split == "test"

    def longer(self, times: int) -> Self:
        """Refuse: the texts are as long as they are."""
        if times != 1:
            raise UserError("MemAgent's rows have one length", "use hotpotqa for other lengths")
        return self


# Writing


def write_rows(path: Path, tasks: Iterable[Task]) -> int:
    """Write tasks of one question each as Parquet, a few at a time, and count them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    count = 0
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as f:
        for rows in _groups(_row(i, task) for i, task in enumerate(tasks)):
            f.write_table(pa.Table.from_pylist(storable_values(rows), schema=schema))
            count += len(rows)
    return count


def write_eval(path: Path, tasks: Iterable[Task]) -> int:
    """Write tasks as the list of objects that MemAgent's evaluation reads, and count them."""
    count = 0
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for count, task in enumerate(tasks, start=1):
            question = task.questions[0]
            row = {
                "context": "\n\n".join(task.chunks),
                "input": question.text,
                "answers": list(question.answers),
                "num_docs": len(task.chunks),
                "index": count - 1,
                "evidence": list(question.evidence),
            }
            file.write(("[\n" if count == 1 else ",\n") + readable_json(row))
        file.write("\n]\n" if count else "[]\n")
    return count


def _schema() -> Any:
    import pyarrow as pa

    texts = pa.list_(pa.string())
    extra = {
        "index": pa.int64(),
        "question": pa.string(),
        "num_docs": pa.int64(),
        "evidence": pa.list_(pa.int32()),
    }
    return pa.schema(
        {
            "data_source": pa.string(),
            "prompt": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
            "context": pa.large_string(),
            "ability": pa.string(),
            "reward_model": pa.struct({"style": pa.string(), "ground_truth": texts}),
            "extra_info": pa.struct(extra),
        }
    )


def _row(index: int, task: Task) -> dict[str, Any]:
    (question,) = task.questions
    return {
        "data_source": task.source,
        "prompt": [{"role": "user", "content": question.text}],
        "context": "\n\n".join(task.chunks),
        "ability": "memory",
        "reward_model": {"style": "rule", "ground_truth": list(question.answers)},
        "extra_info": {
            "index": index,
            "question": question.text,
            "num_docs": len(task.chunks),
            "evidence": list(question.evidence),
        },
    }


def _groups(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    held: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row["context"])
        if size >= _GROUP_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


# Reading


def build_memagent(inputs: Mapping[Split, Sequence[Path]], output: Path) -> Manifest:
    """Turn files of rows into a folder of passages and questions with fixed texts.

    A training row whose question is also held out is left out.
    """
    fix = f"nothing is downloaded here: get {OFFICIAL}"
    for path in (path for files in inputs.values() for path in files):
        refuse_folder(path, fix, (*SUFFIXES, ".parquet"))
        if not path.is_file():
            raise UserError(f"there is no file {path}", fix)
    with building(output) as folder:
        return _build(inputs, folder)


def sort_rows(paths: Iterable[Path]) -> dict[Split, list[Path]]:
    """Tell training files from others by their names."""
    sorted_files: dict[Split, list[Path]] = {"train": [], "test": []}
    for path in paths:
        sorted_files[split_of_file(path.name)].append(path)
    return sorted_files


def _build(inputs: Mapping[Split, Sequence[Path]], output: Path) -> Manifest:
    from recollect.tasks.documents.document_files import FILES, write_items
    from recollect.tasks.documents.passages import SPLITS, PassageWriter

    files = [path for paths in inputs.values() for path in paths]
    names = [path.name for path in files]
    counts: dict[str, int] = {}
    dropped: Counter[str] = Counter()
    held_out: set[str] = set()
    numbered = all(_NUMBER.match(row["context"]) for path in files[:1] for row in _first(path))

    def kept(split: Split) -> Iterator[tuple[str, dict[str, Any]]]:
        for path in inputs.get(split, ()):
            # Files of one name in two folders: their rows are different ones.
            before = f"{files.index(path) + 1}/" if names.count(path.name) > 1 else ""
            for place, row in read_rows(path):
                key = " ".join(row["question"].casefold().split())
                if split == "test":
                    held_out.add(key)
                elif key in held_out:
                    dropped["question held out too"] += 1
                    continue
                yield before + place, row

    with PassageWriter(output) as writer:
        splits: tuple[Split, ...] = ("test", "train")  # what is held out must be known first
        for split in splits:
            rows = (_item(p, row, writer, SPLITS[split], numbered) for p, row in kept(split))
            counts[split] = write_items(output / f"{split}.parquet", rows)
        refuse_empty(counts["train"] + counts["test"], files, "row", f"get {OFFICIAL}")
        counts["passages"] = len(writer)
        if shared := writer.shared:
            # The texts are as they came, so this can be counted and not mended.
            counts["documents of the test split that training texts show too"] = shared
    settings = {"numbered": numbered, "one_per_title": False, "repeat": False}
    outputs = checked(output / name for name in FILES)
    manifest = Manifest("memagent", settings, counts, dict(dropped), (), checked(files), outputs)
    write_manifest(output, manifest)
    return manifest


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield context, question, answers and evidence of every row of a Parquet or a JSON file."""
    found = _parquet(path) if path.suffix == ".parquet" else read_records(path)
    for place, row in found:
        if _is_numbers(row.get("context")):
            raise UserError(
                f"{place} holds the numbers of its documents and not their text: they count in a"
                " list of all dev documents that is not in the file",
                "make this length from HotpotQA's own files: recollect data hotpotqa --input"
                " hotpot_dev_distractor_v1.json --output data/hotpotqa --documents 12800",
            )
        try:
            yield place, _plain(row)
        except (KeyError, TypeError, IndexError):
            raise UserError(
                f"{place} is not a row of MemAgent's: it has {', '.join(map(str, row))}",
                f"nothing is downloaded here: get {OFFICIAL}",
            ) from None


def _is_numbers(context: Any) -> bool:
    """Tell whether a row names its documents by number, as released from 12,800 documents on."""
    if isinstance(context, str):
        return re.fullmatch(r"\s*\[?\s*\d+(?:[\s,]+\d+)+\s*\]?\s*", context) is not None
    listed = isinstance(context, list | tuple) and len(context) > 0
    return listed and all(isinstance(i, int) or str(i).isdigit() for i in context)


def _first(path: Path) -> Iterator[dict[str, Any]]:
    for _, row in read_rows(path):
        yield row
        return


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    extra = row.get("extra_info") or row
    if "reward_model" in row:
        answers, question = row["reward_model"]["ground_truth"], row["prompt"][-1]["content"]
    else:
        answers, question = row["answers"], row["input"]
    if not isinstance(row["context"], str):
        raise TypeError
    return {
        "question": question,
        "answers": [answers] if isinstance(answers, str) else [str(a) for a in answers],
        "context": row["context"],
        "category": str(row.get("data_source", "")),
        "evidence": list(extra.get("evidence") or ()),
    }


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa

    from recollect.memory.parquet import open_parquet, read_batches

    number = 0
    try:
        with open_parquet(path) as file:
            for batch in read_batches(file, path):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path.name} row {number}", row
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read: {error}", "check that the file is whole") from None


def _item(
    place: str, row: Mapping[str, Any], writer: PassageWriter, split: int, numbered: bool
) -> dict[str, Any]:
    documents = split_documents(row["context"]) if numbered else [row["context"]]
    fixed = [writer.add_whole(document, split) for document in documents]
    if any(not 0 <= i < len(fixed) for i in row["evidence"]):
        raise UserError(f"{place}: the evidence is not in the text", "write the file again")
    gold = [fixed[i] for i in row["evidence"]]
    keys = ("question", "answers", "category")
    return {"id": place, **{k: row[k] for k in keys}, "own": gold, "gold": gold, "fixed": fixed}


def split_documents(context: str) -> list[str]:
    """Cut a text at the next number; a number out of turn belongs to its document."""
    starts: list[int] = []
    ends: list[int] = []
    for found in _NUMBER.finditer(context):
        if int(found[1]) == len(starts) + 1:
            starts.append(found.end())
            ends.append(found.start())
    if not starts:
        raise UserError("a text has no documents", "check that all rows are of one kind")
    return [context[a:b] for a, b in zip(starts, [*ends[1:], len(context)], strict=True)]
