"""Start the warm process of a run, and say what Ray and vLLM are given as their interpreter."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from recollect.engines.verl.warm import client, server

SCRIPT = '#!/bin/sh\nexec {} "$@"\n'


@contextmanager
def warmed(modules: Iterable[str]) -> Iterator[Path]:
    """Start a warm process that imports modules; yield what takes the place of an interpreter.

    Clients that ask before it is done wait. It ends with this, or with this process.
    """
    folder = Path(tempfile.mkdtemp(prefix="recollect-"))  # for this user alone
    where, script = folder / "socket", folder / "python"
    words = [sys.executable, "-IS", client.__file__, str(where)]
    script.write_text(SCRIPT.format(shlex.join(words)))
    script.chmod(0o700)
    command = [sys.executable, "-P", "-m", server.__name__]
    # Ray gives every process one thread, unless it is told otherwise, before torch is imported.
    given = {"OMP_NUM_THREADS": "1", **os.environ, **server.ENVIRONMENT}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(where))
        listening.listen(128)
        number = listening.fileno()
        process = subprocess.Popen(
            [*command, str(number), str(script), *modules],
            stdin=subprocess.PIPE,
            env=given,
            pass_fds=(number,),
            start_new_session=True,
        )
    try:
        yield script
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
