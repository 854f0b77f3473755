"""Start the warm process of a run, and say what Ray and vLLM are given as their interpreter."""

from __future__ import annotations

import os
import resource
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
    folder = process = None
    try:
        try:
            folder = Path(tempfile.mkdtemp(prefix="recollect-"))  # for this user alone
            process = _start(folder, modules, defaults or {})
        except OSError as error:
            told = "recollect: there is no warm process, and others are started one by one"
            print(shown(f"{told}: {error}"), file=sys.stderr)
        yield folder / NAME if folder and process else None
    finally:
        if process:
            process.kill()
            process.wait()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _start(
    folder: Path, modules: Iterable[str], defaults: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most_files <= server.LOW + client.MOST:
        raise OSError(f"only {most_files} files may be open (ulimit -n)")
    where, script = folder / "socket", folder / NAME
    words = [sys.executable, "-IS", client.__file__, str(where)]
    script.write_bytes(os.fsencode(SCRIPT.format(shlex.join(words))))
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
