"""Run episodes in several processes, because one core makes some two thousand calls a second.

This process keeps the folder: it gives jobs to the others and writes down what they answer. An
episode's draws depend on its name alone, so that results do not depend on who runs it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from recollect.concurrency.many import concurrently
from recollect.errors import UserError
from recollect.evaluation.folder import EvaluationFolder
from recollect.evaluation.harness import OnEpisode, Started
from recollect.evaluation.jobs import Grid, Job
from recollect.evaluation.options import EvalOptions, plain_options
from recollect.evaluation.worker import LINE

PER_WORKER = 64
"""Episodes in flight that one process keeps busy."""
LAST_SECONDS = 2.0
"""Time in which a process that is stopped may pass on its last episodes."""


def count_workers(options: EvalOptions, facts: dict[str, Any], alike: bool) -> int:
    """Return how many processes run the agents: 1 is this one.

    Only models behind a server can be asked by several; `alike` says that another process can make
    the same agents and tasks from the options.
    """
    possible = alike and all("url" in fact for fact in facts.values())
    if options.workers > 1 and not possible:
        raise UserError(
            "several processes can only ask a server, with agents and tasks given by name",
            "leave --workers out, or name a server with --model http://...",
        )
    usual = min(len(os.sched_getaffinity(0)), options.concurrency // PER_WORKER)
    return max(1, options.workers or usual) if possible else 1


@dataclass
class Workers:
    """Processes that run what is missing in a folder."""

    options: EvalOptions
    facts: dict[str, Any]
    """Facts about the models: all processes must find the same."""
    grid: Grid
    store: EvaluationFolder
    count: int
    started: Started
    _left: Iterator[list[Job]] = field(init=False, repr=False)

    async def run(self, on_episode: OnEpisode = lambda _record: None) -> None:
        """Run what is missing; what another process had finished is not run again."""
        jobs = (job for job in self.grid.jobs() if job.id not in self.store.done)
        # All agents of a task in one process: they share its text.
        same = groupby(jobs, key=lambda job: (job.task, job.seed, job.index))
        self._left = (list(group) for _task, group in same)
        each, more = divmod(self.options.concurrency, self.count)
        shares = [each + (i < more) for i in range(self.count)]
        feeding = (self._feed(i, share, on_episode) for i, share in enumerate(shares) if share)
        await concurrently(feeding)

    async def _feed(self, number: int, share: int, on_episode: OnEpisode) -> None:
        """Keep one process busy with its share of episodes."""
        process = await _open(self.store.lock_file)
        assert process.stdin and process.stdout
        start = {
            "path": sys.path,
            "options": plain_options(self.options),
            "facts": self.facts,
            "started": [self.started.at, self.started.clock],
            "calls": str(self.store.call_log(number).resolve()),
        }
        process.stdin.write(json.dumps(start).encode() + b"\n")
        flying: set[str] = set()
        ready: deque[Job] = deque()
        try:
            while True:
                while len(flying) < share and (job := self._next(ready)):
                    sent = [job.task, job.agent, job.seed, job.index, self.store.known(job.id)]
                    process.stdin.write(json.dumps(sent).encode() + b"\n")
                    flying.add(job.id)
                if not flying:
                    return
                line = await process.stdout.readline()
                if not line:
                    raise _lost(await process.wait())
                flying.discard(self._take(line, on_episode))
        finally:
            await self._close(process, on_episode)

    def _next(self, ready: deque[Job]) -> Job | None:
        if not ready:
            ready.extend(next(self._left, ()))
        return ready.popleft() if ready else None

    def _take(self, line: bytes, on_episode: OnEpisode) -> str:
        """Keep what a process says; return the name of the episode that has ended."""
        text = line[1:].decode().rstrip("\n")
        said = json.loads(text)
        if line.startswith(b"X"):
            raise UserError(*said) if len(said) == 2 else RuntimeError(said[0])
        self.store.add(said, text)
        on_episode(said)
        return str(said["id"])

    async def _close(self, process: asyncio.subprocess.Process, on_episode: OnEpisode) -> None:
        """End a process; episodes that it had passed on are kept."""
        assert process.stdin and process.stdout
        process.stdin.close()
        try:
            async with asyncio.timeout(LAST_SECONDS):
                while line := await process.stdout.readline():
                    if line.startswith(b"E") and line.endswith(b"\n"):
                        self._take(line, on_episode)
                await process.wait()
        except (TimeoutError, asyncio.CancelledError) as error:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(error, asyncio.CancelledError):
                raise


async def _open(lock_file: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "recollect.evaluation.worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE,
        pass_fds=(lock_file,),  # the folder stays in use until all have ended
        start_new_session=True,  # Ctrl-C is for this process, which then ends the others
    )


def _lost(status: int) -> UserError:
    how = f"signal {-status} ended" if status < 0 else f"status {status} came from"
    return UserError(
        f"{how} a process that ran episodes",
        "run the same command again: it continues; with fewer --workers it needs less memory",
    )
