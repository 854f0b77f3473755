"""The rows verl reads: which task, and nothing of its text. Knows nothing of verl itself.

verl copies every column of a row into every context that is trained, so a row names a task by
its split and its place in the store.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recollect import files as disk
from recollect.tasks.base import Split

AGENT_LOOP = "recollect"
"""The name under which verl knows our agent loop."""

_MESSAGE = pa.struct({"role": pa.string(), "content": pa.string()})
_PLACE = pa.struct({"split": pa.string(), "index": pa.int64()})
_SCHEMA = pa.schema(
    {
        "prompt": pa.list_(_MESSAGE),
        "data_source": pa.string(),
        "agent_name": pa.string(),
        "extra_info": _PLACE,
    }
)


def write_rows(path: Path, split: Split, count: int, source: str) -> Path:
    """Write one row for each of the first `count` tasks of a store, in their order."""
    # verl wants a message to tokenise; the agent writes its own prompts.
    prompt = [{"role": "user", "content": "-"}]
    table = pa.Table.from_pydict(
        {
            "prompt": [prompt] * count,
            "data_source": [source] * count,
            "agent_name": [AGENT_LOOP] * count,
            "extra_info": [{"split": split, "index": i} for i in range(count)],
        },
        schema=_SCHEMA,
    )
    with disk.replacing(path) as temporary:
        pq.write_table(table, temporary)
    return path
