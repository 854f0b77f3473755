"""What a person can set about a server. Plain data, importable without torch or a web server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from recollect.bounds import DRAFT, FROM_0, check_bounds
from recollect.errors import UserError


@dataclass(frozen=True)
class RequestLimits:
    """What requests may ask for."""

    max_tokens: int = 1024
    """Tokens of a chat reply if the request sets no limit of its own."""
    window: int = 1 << 30
    """Tokens of a prompt and its reply together; the model's own window if that is smaller."""
    requests: int = 1024
    """Choices being made or waited for at once; more are refused with status 429, to be retried."""
    tokens: int = 1 << 22
    """Tokens that all choices of one request may have together, their prompts included."""
    body_bytes: int = 16 << 20
    """Bytes of a request; less where the window is small."""
    values: int = 1 << 16
    """Values in the JSON of one request, such as token ids; a whole window of them at least."""
    connections: int = 2048
    """Connections open at once; beyond that, those without a request are closed, the idlest
    first."""
    head_seconds: float = 10.0
    """Seconds for a request's head."""
    body_seconds: float = 60.0
    """Seconds for a request's body."""
    write_seconds: float = 60.0
    """Seconds in which a client must read what it is sent."""


@dataclass(frozen=True)
class ServeConfig:
    """Serve a checkpoint to OpenAI's clients."""

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT")]
    """A run folder, a checkpoint inside one, an exported model, or any transformers folder."""
    name: str = ""
    """The model's id; empty takes the name of the folder."""
    host: str = "127.0.0.1"
    """The address to listen at; other machines require --api-key-env (or --insecure)."""
    port: int = 8000
    """The port to listen at; 0 takes a free one."""
    api_key_env: str = ""
    """The environment variable with the key that clients must send."""
    insecure: bool = False
    """Accept anyone who reaches the port, without a key."""
    device: str = "auto"
    """auto takes the first GPU if there is one, else the CPU."""
    threads: int = 0
    """CPU threads for torch; 0 leaves the choice to torch."""
    dtype: Literal["auto", "float32", "float64"] = "auto"
    """On a CPU, float64 draws the same tokens whatever else runs at the time; auto is float32, for
    which this is nearly true."""
    cache_gib: float = 4.0
    """Memory for keys and values."""
    drafts: int = 9
    """Tokens guessed for a sequence at one step on a GPU; 0 guesses none. No reply changes."""
    max_running: int = 256
    """Sequences computed at once; the others wait."""
    limits: RequestLimits = RequestLimits()
    drain: float = 10.0
    """Seconds that requests may still take once the server is asked to stop."""
    ready_file: Path | None = None
    """A file written when the server is ready: one line with its address."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise UserError(f"port {self.port} is out of range", "set --port to 0 .. 65535")
        check_bounds("", self, threads=FROM_0, drafts=DRAFT)
        positive = {
            "max-running": self.max_running,
            "cache-gib": self.cache_gib,
            "limits.max-tokens": self.limits.max_tokens,
            "limits.window": self.limits.window,
            "limits.requests": self.limits.requests,
            "limits.tokens": self.limits.tokens,
            "limits.body-bytes": self.limits.body_bytes,
            "limits.values": self.limits.values,
            "limits.connections": self.limits.connections,
            "limits.head-seconds": self.limits.head_seconds,
            "limits.body-seconds": self.limits.body_seconds,
            "limits.write-seconds": self.limits.write_seconds,
        }
        for name, value in positive.items():
            if value <= 0:
                raise UserError(f"{name} is {value}", f"set --{name} above 0")
