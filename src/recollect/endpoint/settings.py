"""What a person can set about `recollect serve` with an agent in front of the model. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recollect.bounds import ABOVE_0, FROM_0, check_bounds
from recollect.errors import UserError
from recollect.serve.settings import ServeConfig


@dataclass(frozen=True)
class EndpointConfig(ServeConfig):
    """Serve a checkpoint to OpenAI's clients; with --agent, conversations may have any length.

    The agent then reads what does not fit the window into a memory, of each user their own, and
    the model answers with that memory before it.
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT")] = ""
    """A run folder, a checkpoint inside one, an exported model, or any transformers folder."""
    agent: str = ""
    """Who reads what does not fit: fold, gated, rolling, bank, module:Name or file.py:Name."""
    set: tuple[str, ...] = ()
    """Settings of the agent: FIELD=VALUE, such as chunk_size=2000."""
    upstream: str = ""
    """The address of a server that answers in place of a checkpoint: http://localhost:8001/v1."""
    upstream_key_env: str = ""
    """The environment variable with the key for that server."""
    upstream_model: str = ""
    """Which of its models to ask, if it has several."""
    upstream_window: int = 0
    """Tokens of its window; 0 takes what the server says."""
    upstream_seconds: float = 300.0
    """Seconds that it may take for an answer, or for the next piece of a stream."""
    tokenizer: str = ""
    """A folder with its tokenizer, to count in its tokens; otherwise they are estimated."""
    memories: Path | None = None
    """Where memories are kept; by default in memories-NAME, in the current folder."""
    memory_tokens: int = 0
    """Tokens of a memory; 0 leaves the agent's own limit, as far as the window has room."""
    know_question: bool = False
    """Let the agent know the user's last message while it reads, in requests that name no user: a
    document is then read for its question, and read again for another one."""
    keep_episodes: Path | None = None
    """A folder for every token read and written, as the episodes of a run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            "", self, memory_tokens=FROM_0, upstream_window=FROM_0, upstream_seconds=ABOVE_0
        )
        if self.checkpoint and self.upstream:
            raise UserError(
                "both a checkpoint and --upstream are named", "choose who answers: leave one out"
            )
        if not self.checkpoint and not self.upstream:
            raise UserError(
                "there is nothing to serve", "name a run or a model folder, or --upstream URL"
            )
        if self.agent:
            return
        if self.upstream:
            raise UserError("--upstream needs an agent that reads for it", "add --agent fold")
        alone = {
            "set": self.set, "memories": self.memories, "memory-tokens": self.memory_tokens,
            "keep-episodes": self.keep_episodes, "upstream-model": self.upstream_model,
            "know-question": self.know_question,
        }  # fmt: skip
        if given := [name for name, value in alone.items() if value]:
            raise UserError(f"--{given[0]} needs an agent", "add --agent fold")
