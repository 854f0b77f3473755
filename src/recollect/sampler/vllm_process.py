"""The other end of `vllm_child`: start vLLM, ask it, and end it. Knows nothing of models."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.files import temporary_files
from recollect.foreign import one_line
from recollect.packaging import VLLM

CHILD = "recollect.sampler.vllm_child"
QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
LAST = 4
"""Lines of what vLLM printed that are shown when it has failed."""


class RefusedRequest(Exception):
    """vLLM refused one request; it still answers others."""


class VllmProcess:
    """vLLM as a child that ends with this process, however that ends.

    It imports vLLM, which takes a while, until `open` says what to start.
    """

    def __init__(self) -> None:
        check_installed()
        self.seconds: dict[str, float] = {}
        """How long the start took, by part."""
        with temporary_files():
            self._log = tempfile.NamedTemporaryFile(prefix="recollect-vllm-", suffix=".log")  # noqa: SIM115
        theirs_in, self._writing = os.pipe()
        reading, theirs_out = os.pipe()
        follows, self._held = os.pipe()  # its writing end is ours alone: see runs.child
        given = [str(theirs_in), str(theirs_out)]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "recollect.runs.child", str(follows), CHILD, *given],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(follows, theirs_in, theirs_out),
                process_group=0,
                env=_environment(),
            )
        finally:
            for fd in (theirs_in, theirs_out, follows):
                os.close(fd)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {0: Future()}
        self._closed = False
        self._ready = self._waiting[0]
        threading.Thread(target=self._listen, args=(reading,), daemon=True).start()

    def open(self, settings: Mapping[str, Any]) -> None:
        """Start the engine, and wait until it answers."""
        self._write(dict(settings))
        try:
            self.seconds = self._ready.result()["seconds"]
        except BaseException:
            self.close()
            raise

    async def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer; a caller that stops waiting cancels it."""
        number, future = self._send(do, request)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            with self._lock:
                self._waiting.pop(number, None)
            self._write({"id": number, "do": "cancel"})
            raise

    def tell(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer, outside of any event loop."""
        return self._send(do, request)[1].result()

    def close(self) -> None:
        """End vLLM and all that it started."""
        if self._closed:
            return
        self._closed = True
        for fd in (self._writing, self._held):
            os.close(fd)
        with suppress(ProcessLookupError):  # all of the group: an engine outlives who started it
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def _send(self, do: str, request: dict[str, Any]) -> tuple[int, Future[dict[str, Any]]]:
        number, future = next(self._numbers), Future[dict[str, Any]]()
        with self._lock:
            self._waiting[number] = future
        if self.process.poll() is not None:
            self._give_up()
        else:
            self._write({"id": number, "do": do, **request})
        return number, future

    def _write(self, request: dict[str, Any]) -> None:
        data = json.dumps(request).encode() + b"\n"
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._writing, data) :]
            except BrokenPipeError:
                return  # the listening thread notices the end as well

    def _listen(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                answer = json.loads(line)
                with self._lock:
                    future = self._waiting.pop(answer["id"], None)
                if future is not None and future.set_running_or_notify_cancel():
                    if "error" in answer:
                        future.set_exception(RefusedRequest(one_line(answer["error"], 300)))
                    else:
                        future.set_result(answer)
        if not self._closed:
            self.process.wait()
            self._give_up()

    def _give_up(self) -> None:
        """Raise, for all who wait, what vLLM said last."""
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
        error = self._ended()
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def _ended(self) -> UserError:
        text = Path(self._log.name).read_text(errors="replace")
        errors = [line for line in text.splitlines() if "Error" in line]
        said = " / ".join(one_line(line.strip(), 200) for line in (errors or [text])[-LAST:])
        return UserError(
            f"vLLM ended with status {self.process.returncode}: {said}",
            "correct what it says, or set --rollout.sampler embedded",
        )


def check_installed() -> None:
    """Refuse to start where vLLM is missing."""
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "--rollout.sampler vllm needs vllm, which this environment does not have",
            f"pip install {VLLM} in an environment whose torch it accepts, or set"
            " --rollout.sampler embedded",
        )


def _environment() -> dict[str, str]:
    """Let the child import what we imported, installed or not."""
    here = str(Path(__file__).parents[2])
    path = dict.fromkeys([here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    return QUIET | os.environ | {"PYTHONPATH": os.pathsep.join(path)}
