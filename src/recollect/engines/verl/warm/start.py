"""Start the warm process of a run, and say what Ray and vLLM are given as their interpreter."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from recollect.engines.verl.warm import client, server
from recollect.foreign import shown

NAME = "python"
SCRIPT = '#!/bin/sh\nexec {} "$@"\n'


@contextmanager
def warmed(
    modules: Iterable[str], defaults: Mapping[str, str] | None = None
) -> Iterator[Path | None]:
    """Start a warm process that imports modules; yield what takes the place of an interpreter.

    `defaults` are variables of its environment that may be set already. Clients that ask before it
    is done wait. It ends with this, or with this process. Yield None where there can be none.
    """
    folder = Path(tempfile.mkdtemp(prefix="recollect-"))  # for this user alone
    process = None
    try:
        try:
            process = _start(folder, modules, defaults or {})
        except OSError as error:
            told = "recollect: there is no warm process, and others are started one by one"
            print(shown(f"{told}: {error}"), file=sys.stderr)
        yield folder / NAME if process else None
    finally:
        if process:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _start(
    folder: Path, modules: Iterable[str], defaults: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    where, script = folder / "socket", folder / NAME
    words = [sys.executable, "-IS", client.__file__, str(where)]
    script.write_text(SCRIPT.format(shlex.join(words)))
    script.chmod(0o700)
    if not os.access(script, os.X_OK):
        raise PermissionError(f"nothing in {folder.parent} may be run: set TMPDIR")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(where))
        listening.listen(128)
        number = listening.fileno()
        return subprocess.Popen(
            [sys.executable, "-P", "-m", server.__name__, str(number), str(script), *modules],
            stdin=subprocess.PIPE,
            env={**defaults, **os.environ, **server.ENVIRONMENT},
            pass_fds=(number,),
            start_new_session=True,
        )
