"""The text of a PDF, read by a process of its own: `python -m recollect.keeping.pdf FILE`.

A file of a few kilobytes can make any parser run for hours or fill all memory. The process has
limits to both, and whatever happens in it is one message here.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from signal import SIGXCPU, Signals
from typing import Any

from recollect.errors import UserError
from recollect.foreign import one_line, storable
from recollect.packaging import install

LONGEST = 1 << 26
"""Characters of the text."""
SECONDS, SECONDS_EACH = 30, 30
"""CPU time for any file, and for each of its megabytes."""
MEMORY = 2 << 30
"""Bytes of memory beside the file's own."""
FIX = "convert it to text"


class BadPdf(UserError):
    """A file that is no PDF, or one that cannot be read."""


def pdf_text(path: Path, seconds: int = SECONDS) -> str:
    """Return the text of all pages."""
    if find_spec("pypdf") is None:
        raise UserError("reading a PDF needs pypdf", install("pdf"))
    size = path.stat().st_size
    limits = [str(seconds + SECONDS_EACH * (size >> 20)), str(MEMORY + 3 * size)]
    command = [sys.executable, "-P", "-m", "recollect.keeping.pdf", str(path.absolute()), *limits]
    read = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    said = read.stdout.decode(errors="replace")
    if read.returncode == 0:
        return said
    if read.returncode == -SIGXCPU:
        said = f"it takes more than {limits[0]} s"
    elif read.returncode < 0:
        said = f"the parser was ended by {Signals(-read.returncode).name}"
    why = one_line(said, 200) or "the parser failed"
    raise BadPdf(f"{path} cannot be read as a PDF: {why}", FIX)


def main(path: str, seconds: str, memory: str) -> int:
    """Write the text to standard output, or the reason why it cannot be read."""
    # Without a hard limit beyond the soft one, the system sends SIGKILL, which says nothing.
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    try:
        said, status = "\n\n".join(_pages(path)), 0
    except MemoryError:
        said, status = "it needs too much memory", 1
    except Exception as error:  # a damaged one fails anywhere in the parser, with any error
        said, status = f"{type(error).__name__}: {error}"[:2000], 1
    sys.stdout.buffer.write(storable(said).encode())
    return status


def _pages(path: str) -> Iterator[str]:
    """Yield the text of every page; a file of kilobytes may say that it has any number of them."""
    from pypdf import PdfReader

    reader: Any = PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it is encrypted")
    size = 0
    for page in reader.pages:
        text = page.extract_text()
        size += len(text) + 2
        if size > LONGEST:
            raise ValueError(f"its text has more than {LONGEST} characters")
        yield text


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
