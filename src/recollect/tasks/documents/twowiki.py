"""2WikiMultihopQA: questions over two to four Wikipedia paragraphs, made long as HotpotQA is.

Items without a context of their own take the paragraphs of their evidence from a file of
paragraphs ({"title", "text"}) that is given with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from recollect.tasks.documents.documents import DocumentTasks
from recollect.tasks.documents.hotpotqa import read_supported
from recollect.tasks.documents.paragraphs import DocumentSource, DroppedRecord, Item

OFFICIAL = (
    "train.json and dev.json of data_ids_april7.zip from"
    " https://github.com/Alab-NII/2wikimultihop (Apache-2.0)"
)


@dataclass(frozen=True)
class TwoWiki(DocumentTasks):
    """2WikiMultihopQA's questions among as many documents as one likes."""

    name: ClassVar[str] = "2wikimultihopqa"
    published: ClassVar[bool] = True
    folder: Path = Path("data/2wikimultihopqa")


def read_twowiki(paths: Sequence[Path]) -> Iterator[Item | DroppedRecord]:
    """Read the data set's files, whose sentences bring no spaces of their own."""
    return read_supported(paths, join=" ")


TWOWIKI = DocumentSource("2wikimultihopqa", read_twowiki, OFFICIAL)
