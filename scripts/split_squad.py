"""Split a SQuAD file by article: every fourth one is held out, from the second on.

    python scripts/split_squad.py dev-v1.1.json.gz --out squad

Every paragraph becomes an article of its own, so that what `recollect data squad` puts around it
comes from everywhere, not from its neighbours. docs/results/squad.md was measured on this.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """Return a file's articles."""
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)["data"]


def by_paragraph(articles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give every paragraph a title of its own."""
    return [
        {"title": f"{article['title']} ({number})", "paragraphs": [paragraph]}
        for article in articles
        for number, paragraph in enumerate(article["paragraphs"], start=1)
    ]


def main() -> None:
    """Write squad_train.json and squad_dev.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    articles = read(options.file)
    held_out = articles[1::4]
    parts = {"train": [a for a in articles if a not in held_out], "dev": held_out}
    options.out.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        rows = {"version": "1.1", "data": by_paragraph(part)}
        (options.out / f"squad_{name}.json").write_text(json.dumps(rows))
        asked = sum(len(p["qas"]) for article in part for p in article["paragraphs"])
        print(f"squad_{name}.json: {len(part)} articles, {asked} questions")


if __name__ == "__main__":
    main()
