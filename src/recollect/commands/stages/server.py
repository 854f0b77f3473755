"""A `recollect serve` of our own: started, checked, and gone when it is no longer needed."""

from __future__ import annotations

import dataclasses
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recollect.errors import UserError
from recollect.serve.settings import ServeConfig

START = 600.0
"""Seconds a server may take until it answers: a large model is read from a slow disk."""
END = 20.0
"""Seconds it may take to end before it is killed."""


@contextmanager
def served(config: ServeConfig, log: Path) -> Iterator[str]:
    """Serve a model while the block runs; yield the server's address."""
    ready = log.with_suffix(".ready")
    ready.unlink(missing_ok=True)
    command = arguments(dataclasses.replace(config, port=0, ready_file=ready))
    with running(["recollect.cli", "serve", *command], ready, log) as url:
        yield url


@contextmanager
def running(
    command: Sequence[str], ready: Path, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a module that serves, until the block ends; `ready` is to hold its address."""
    reading, writing = os.pipe()  # its writing end is ours alone: see runs.child
    try:
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "recollect.runs.child", str(reading), *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": _import_path()} | dict(environment or {}),
                pass_fds=(reading,),
                start_new_session=True,  # Ctrl-C is for us: we still need it to end the step
            )
        os.close(reading)
        try:
            yield _answering(process, ready, log)
        finally:
            _stop(process)
            ready.unlink(missing_ok=True)
    finally:
        os.close(writing)


def arguments(config: ServeConfig) -> list[str]:
    """Write as command line arguments what differs from the defaults."""
    return [config.checkpoint, *_flags(config, ServeConfig(config.checkpoint))]


def _flags(config: Any, default: Any, prefix: str = "--") -> Iterator[str]:
    for field in dataclasses.fields(config):
        value, usual = getattr(config, field.name), getattr(default, field.name)
        name = prefix + field.name.replace("_", "-")
        if value == usual:
            continue
        if dataclasses.is_dataclass(value):
            yield from _flags(value, usual, f"{name}.")
        elif isinstance(value, bool):
            yield name if value else f"{prefix}no-{field.name.replace('_', '-')}"
        else:
            yield from (name, str(value))


def _import_path() -> str:
    """Let the child import what we imported, installed or not."""
    here = str(Path(__file__).parents[3])
    return os.pathsep.join(dict.fromkeys([here, *os.environ.get("PYTHONPATH", "").split(":")]))


def _answering(process: subprocess.Popen[bytes], ready: Path, log: Path) -> str:
    """Wait until the server says that it is well; return its address."""
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()[-5:]
            raise UserError(
                "\n  ".join([f"the server of the fixed model ended ({log}):", *said]),
                "fix what it says, then run the same command again",
            )
        if ready.exists() and (url := ready.read_text().strip()) and healthy(url):
            return url
        time.sleep(0.02)
    raise UserError(
        f"the server of the fixed model did not answer in {START:.0f} s",
        f"look into {log}, then run the same command again",
    )


def healthy(url: str) -> bool:
    """Ask a server whether it is well."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):  # children that it left behind
        os.killpg(process.pid, signal.SIGKILL)
