"""Model calls that are made once: a resumed episode gets the replies it got before.

A call is known by its episode, its seed (which names context and turn) and a hash of its prompt.
Knows nothing of agents, tasks or scores.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from recollect.chat.chat import Model
from recollect.chat.policy import Policy, Speaker, Spoken, SpokenCall
from recollect.errors import UserError
from recollect.files import Lines, read_lines, replacing
from recollect.types import Completion, Sampling


class CallLog:
    """Every reply of the episodes that have not ended, on disk as soon as it is there.

    Processes that run episodes for this one have a log each, beside this one's.
    """

    def __init__(self, path: Path, ended: Collection[str]) -> None:
        """Read the replies that an earlier process got; calls of finished episodes are dropped."""
        forget(path, ended)
        self._kept: dict[str, dict[str, Any]] = {}
        for episode, key, reply, seconds in _read(path):
            self._kept.setdefault(episode, {})[key] = (reply, seconds)
        self._lines = Lines(path)

    def of(self, episode: str) -> Calls:
        """Return an episode's calls; what was kept of them is handed over."""
        return Calls(episode, self._lines, self.known(episode))

    def tried(self, episode: str) -> Calls:
        """Return the calls of an episode that will be run again, then with the same replies."""
        return TriedCalls(episode, self._lines, self._kept.setdefault(episode, {}))

    def known(self, episode: str) -> dict[str, Any]:
        """Hand over what was kept of an episode's calls."""
        return self._kept.pop(episode, {})

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def log_of(path: Path, worker: int) -> Path:
    """Name the log of a process that runs episodes for the one with the log `path`."""
    return path.with_name(f"{path.stem}-{worker}{path.suffix}")


def forget(path: Path, ended: Collection[str]) -> None:
    """Leave one log, with only the calls of episodes that have not ended."""
    others = sorted(path.parent.glob(f"{path.stem}-*{path.suffix}"))
    logs = [path, *others]
    for log in logs:
        Lines(log).close()  # takes away a line that a kill cut short
    with replacing(path) as temporary:
        temporary.unlink(missing_ok=True)  # a kill may have left half of one
        file = Lines(temporary)
        try:
            for line in (line for log in logs for line in _read(log)):
                if line[0] not in ended:
                    file.append(line)
        finally:
            file.close()
    for log in others:
        log.unlink()


def _read(path: Path) -> Iterator[tuple[str, str, Any, float]]:
    fix = "delete that line: its call is made again"
    for number, line in read_lines(path, fix):
        match line:
            case [str(episode), str(key), reply, int() | float() as seconds]:
                yield episode, key, reply, seconds
            case _:
                raise UserError(f"{path}, line {number} is damaged: it is not a call", fix)


@dataclass
class Calls:
    """The calls of one episode."""

    episode: str
    lines: Lines
    kept: dict[str, tuple[Any, float]]
    replayed: int = 0
    """Calls that an earlier process had made."""
    seconds: float = 0.0
    """How long these took then."""
    told: dict[str, list[int]] = field(default_factory=dict)
    """By role: tokens read and written as a server counted them, whose tokenizer is not ours."""
    uncounted: set[str] = field(default_factory=set)
    """Roles with a call for which there is no such count, or one that cannot be true."""
    _ended: float = field(default=0.0, init=False, repr=False)
    """When the last call ended."""

    @property
    def counted(self) -> dict[str, list[int]]:
        """What a server counted, of the roles for which it counted every call."""
        return {role: both for role, both in self.told.items() if role not in self.uncounted}

    def recall(self, key: str) -> Any | None:
        """Return what was said to a call before, as plain data."""
        if key not in self.kept:
            return None
        reply, seconds = self.kept.pop(key)
        self.replayed += 1
        self.seconds += seconds
        return reply

    def keep(self, key: str, reply: Any, seconds: float) -> None:
        """Write down what was said to a call that has just ended.

        Time that several calls took at once counts once: together it is the episode's.
        """
        now = time.perf_counter()
        alone, self._ended = min(seconds, now - self._ended), now
        self.write(key, reply, round(alone, 4))

    def write(self, key: str, reply: Any, seconds: float) -> None:
        """Put a call into the log."""
        self.lines.append((self.episode, key, reply, seconds))


class TriedCalls(Calls):
    """The calls of a trial: its episode, which is run again, makes none of them twice."""

    def recall(self, key: str) -> Any | None:
        """Return what was said to a call before, and keep it."""
        return self.kept[key][0] if key in self.kept else None

    def write(self, key: str, reply: Any, seconds: float) -> None:
        """Put a call into the log, and remember it."""
        super().write(key, reply, seconds)
        self.kept[key] = (reply, seconds)


@dataclass(frozen=True)
class RecordedPolicy:
    """A policy whose calls are made once."""

    policy: Policy
    calls: Calls = field(repr=False)

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Return what was said before, or ask and write it down."""
        key = call_key(array("q", prompt_ids).tobytes(), sampling)
        kept = self.calls.recall(key)
        if kept is not None:
            ids, stop_reason = kept
            # Nobody who measures answers asks how likely they were: these are not kept.
            return Completion(tuple(ids), (math.nan,) * len(ids), stop_reason)
        started = time.perf_counter()
        completion = await self.policy.sample(prompt_ids, sampling)
        said = (completion.token_ids, completion.stop_reason)
        self.calls.keep(key, said, time.perf_counter() - started)
        return completion


@dataclass(frozen=True)
class RecordedSpeaker(Speaker):
    """A speaker whose calls are made once."""

    speaker: Speaker
    role: str
    calls: Calls = field(repr=False)

    async def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], sampling: Sampling
    ) -> Spoken:
        """Return what was said before, or ask and write it down."""
        key = call_key(_spelled(messages, tools), sampling)
        kept = self.calls.recall(key)
        if kept is not None:
            calls = tuple(SpokenCall(**call) for call in kept["calls"])
            spoken = Spoken(**{**kept, "calls": calls})
        else:
            started = time.perf_counter()
            spoken = await self.speaker.reply(messages, tools, sampling)
            said = {**vars(spoken), "calls": [vars(call) for call in spoken.calls]}
            self.calls.keep(key, said, time.perf_counter() - started)
        if spoken.prompt_tokens or spoken.sampled_tokens:
            told = self.calls.told.setdefault(self.role, [0, 0])
            told[0] += spoken.prompt_tokens
            told[1] += spoken.sampled_tokens
        else:
            self.calls.uncounted.add(self.role)
        return spoken


def _spelled(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> bytes:
    """Write out what is sent; contents are long, so they are not quoted but counted."""
    parts: list[str] = []
    for message in messages:
        content = str(message["content"])
        rest = {k: v for k, v in message.items() if k != "content"}
        parts.append(f"{rest}{len(content)}:{content}")
    return f"{''.join(parts)}{list(tools)}".encode("utf-8", "surrogatepass")


def recorded(model: Model, role: str, calls: Calls) -> Model:
    """Return a model in a role of one episode, all of whose calls are written down."""
    policy = model.policy
    if isinstance(policy, Speaker):
        return replace(model, policy=RecordedSpeaker(policy, role, calls))
    return replace(model, policy=RecordedPolicy(policy, calls))


def call_key(prompt: bytes, sampling: Sampling) -> str:
    """Name a call: its seed stands for context and turn, the rest must be the same as well."""
    digest = blake2b(prompt, digest_size=12)
    settings = (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.stop)
    digest.update(repr(settings).encode())
    return f"{sampling.seed:x}-{digest.hexdigest()}"
