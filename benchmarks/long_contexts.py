"""How fast long texts are made of documents, and how much memory that takes.

    python benchmarks/long_contexts.py [--data DIR] [--lengths 50 25600]

Without --data it makes up a data set of the size of HotpotQA's dev split (66,635 documents of 560
bytes). Whole texts: every document is drawn, read and put together; seconds are those of the one
core that does it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from random import Random

from recollect.tasks.documents.document_files import build_documents, sort_inputs
from recollect.tasks.documents.hotpotqa import HOTPOTQA, HotpotQA

DOCUMENTS = 66_635
WORDS = tuple(
    f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "re") for b in ("ba", "der", "sil", "ton")
)


def main() -> None:
    """Measure every length for about two seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--lengths", type=int, nargs="+", default=[50 * 2**i for i in range(10)])
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = given.data or made_up(Path(folder))
        HotpotQA(data, 50).task(0, 0, "test")
        heads = ("texts", "documents/s", "MB/s", "own MB", "RSS MB")
        print(f"{'documents':>10} " + " ".join(f"{head:>11}" for head in heads))
        for documents in given.lengths:
            measure(HotpotQA(data, documents), given.seconds)


def measure(family: HotpotQA, seconds: float) -> None:
    """Make and read whole texts, and print a line."""
    family.task(0, 0, "test")  # maps the files
    start = time.process_time()  # others may have the core meanwhile
    texts = size = 0
    while time.process_time() - start < seconds:
        task = family.task(texts % family.size("test"), texts, "test")
        size += sum(len(text) for text in task.chunks)
        texts += 1
    took = time.process_time() - start
    rate = texts * family.documents / took
    own, rss = memory()
    print(
        f"{family.documents:>10,} {texts:>11,} {rate:>11,.0f} {size / took / 1e6:>11.1f}"
        f" {own:>11.1f} {rss:>11.1f}"
    )


def memory() -> tuple[float, float]:
    """Return this process's own megabytes, and those with the mapped files that happen to be in."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS"))  # type: ignore[return-value]


def made_up(folder: Path) -> Path:
    """Make up a data set in HotpotQA's shape."""
    rng = Random(0)
    text = " ".join(rng.choice(WORDS) for _ in range(90))
    items = []
    for n in range(DOCUMENTS // 10):
        context = [[f"Title {n}-{i}", [f"{n} {i} {text}"]] for i in range(10)]
        facts = [[context[0][0], 0], [context[1][0], 0]]
        asked = {"_id": str(n), "question": f"What is {n}?", "answer": str(n)}
        items.append(asked | {"supporting_facts": facts, "context": context})
    source = folder / "dev.jsonl"
    source.write_text("".join(json.dumps(item) + "\n" for item in items))
    start = time.perf_counter()
    manifest = build_documents(HOTPOTQA, sort_inputs(HOTPOTQA, [source]), folder / "built")
    took = time.perf_counter() - start
    print(f"{manifest.counts['passages']:,} documents built in {took:.1f} s")
    return folder / "built"


if __name__ == "__main__":
    main()
