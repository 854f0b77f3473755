"""The viewer as one HTML file: the page with the answers to what it can ask for inside of it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.files import write_text
from recollect.view.answers import Answers
from recollect.view.causes import RIGHT
from recollect.view.encoding import as_json
from recollect.view.rows import Row
from recollect.view.sources import Source

PAGE = Path(__file__).parent / "page"
SCRIPTS = ("parts.js", "charts.js", "view.js", "film.js")
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def export(answers: Answers, path: Path, episodes: int = 200) -> int:
    """Write the file; return its size in bytes."""
    text = page(collect(answers, episodes))
    try:
        write_text(path, text)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        raise UserError(message, "name a file in a folder that you may write to") from error
    return len(text.encode())


def collect(answers: Answers, episodes: int) -> dict[str, Any]:
    """Answer all that the page asks for, with the films of some episodes of every folder."""
    found: dict[str, Any] = {"state": answers.state()}
    ids = list(answers.sources)
    for id, source in answers.sources.items():
        answers.analyses[id].finish()
        for name in ("rows", "curves", "lengths", "causes"):
            found[f"s/{id}/{name}"] = answers.get(f"s/{id}/{name}", {})
        for n in _chosen(source, episodes):
            found[f"s/{id}/film/{n}"] = answers.get(f"s/{id}/film/{n}", {})
            found[f"s/{id}/siblings/{n}"] = answers.get(f"s/{id}/siblings/{n}", {})
    found[f"settings?of={','.join(ids)}"] = answers.get("settings", {"of": ",".join(ids)})
    for a in ids:
        for b in ids:
            try:
                words = f"compare?a={a}&b={b}&a_is=&b_is="
                found[words] = answers.get("compare", {"a": a, "b": b})
            except UserError:
                continue  # they have no task in common: the page says that it is not there
    return found


def _chosen(source: Source, most: int) -> list[int]:
    """Choose the episodes to keep: wrong answers first, the latest first."""
    rows = sorted(source.rows, key=lambda row: (not _wrong(row), -(row["step"] or 0), row["n"]))
    return list(dict.fromkeys(row["n"] for row in rows))[:most]


def _wrong(row: Row) -> bool:
    return row["score"] is not None and row["score"] < RIGHT


def page(data: dict[str, Any]) -> str:
    """Put data into the page; nothing in them can end the element that holds them."""
    text = as_json(data)
    for char, escape in ESCAPES.items():
        text = text.replace(char, escape)
    script = "\n".join((PAGE / name).read_text("utf-8") for name in SCRIPTS)
    style = (PAGE / "view.css").read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    html = (PAGE / "index.html").read_text("utf-8")
    head, _, rest = html.partition('<link rel="stylesheet" href="view.css">')
    body = rest.partition("<body>")[2].partition("</body>")[0]
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return (
        head.replace("<title>", f"{meta}\n<title>")
        + f"<style>{style}</style>\n</head>\n<body>{body}"
        + f'<script type="application/json" id="data">{text}</script>\n'
        + f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
