"""Split a SQuAD file by article: every fourth one is held out, from the second on.

    python scripts/split_squad.py dev-v1.1.json.gz --out squad

Every paragraph becomes an article of its own, under a title that says nothing about its place, and
has at most five questions. What `recollect data squad` puts around it are other such paragraphs:
neither a title, nor a length, nor a place tells the one that is asked about from them. Other
`--distractors` would give it away by their looks. docs/results/squad.md says what it is for.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any

MOST = 5
"""Questions of a paragraph."""


def read(path: Path) -> list[dict[str, Any]]:
    """Return a file's articles."""
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)["data"]


def by_paragraph(articles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give every paragraph a title of its own: its article's, and letters drawn from its text.

    Long paragraphs have more questions. With as many of each, length says nothing about evidence.
    """
    made = []
    for article in articles:
        for paragraph in article["paragraphs"]:
            drawn = Random(paragraph["context"])
            code = "".join(drawn.choices(ascii_lowercase, k=6))
            asked = drawn.sample(paragraph["qas"], min(MOST, len(paragraph["qas"])))
            own = {**paragraph, "qas": asked}
            made.append({"title": f"{article['title']} [{code}]", "paragraphs": [own]})
    return made


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
        paragraphs = by_paragraph(part)
        rows = {"version": "1.1", "data": paragraphs}
        (options.out / f"squad_{name}.json").write_text(json.dumps(rows))
        asked = sum(len(p["qas"]) for article in paragraphs for p in article["paragraphs"])
        print(f"squad_{name}.json: {len(part)} articles, {asked} questions")


if __name__ == "__main__":
    main()
