"""`recollect mcp`: a user's memory as an MCP server over standard input and output."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recollect.bounds import FROM_0, FROM_1, check_bounds
from recollect.concurrency.stop import Stop
from recollect.errors import UserError
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.reader import Reader
from recollect.keeping.users import Users
from recollect.sharing.mcp import check_installed, serve_tools
from recollect.sharing.tools import memory_tools

INSTRUCTIONS = (
    "A long-term memory that a memory agent keeps: remember what will matter later, recall before"
    " you answer from what was said earlier, forget what should be gone."
)


@dataclass(frozen=True)
class McpOptions:
    """Let an MCP client remember, recall and forget, over standard input and output."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|MODEL")]
    """A run, a model folder, or the address of a server such as http://localhost:8000/v1."""
    memories: Path
    """The folder in which memories are kept; one process uses it at a time."""
    user: str = "me"
    """Whose memory it is."""
    agent: str = ""
    """fold, gated, rolling, bank, module:Name or file.py:Name; the run's own by default, else
    fold."""
    set: tuple[str, ...] = ()
    """Settings of the agent: FIELD=VALUE, such as chunk_size=2000."""
    passages: int = 3
    """How many passages are shown beside an answer."""
    temperature: float = 0.0
    served_model: str = ""
    """Which model to ask, if the server has several."""
    tokenizer: str = ""
    """A folder with the served model's tokenizer."""
    window: int | None = None
    """Tokens a context may hold; by default what the model or the server says."""
    device: str = "auto"
    threads: int = 0
    """CPU threads for a model folder; 0 leaves torch's choice."""

    def __post_init__(self) -> None:
        check_bounds("", self, passages=FROM_0, temperature=FROM_0, window=FROM_1, threads=FROM_0)
        if not self.user:
            raise UserError("a memory needs the name of its user", "name one with --user")


def run_mcp(options: McpOptions) -> int:
    """Serve until the client closes our input; return the exit status."""
    check_installed()
    models = EvalOptions(
        (), options.model, temperature=options.temperature, served_model=options.served_model,
        tokenizer=options.tokenizer, window=options.window, device=options.device,
        threads=options.threads,
    )  # fmt: skip
    with redirect_stdout(sys.stderr):  # a client reads the protocol there, and nothing else
        reader = Reader.open(models, options.agent, options.set)
        users = Users(options.memories.expanduser(), reader.keeper)
        users[options.user]  # what is wrong with this memory or this agent is said now
    try:
        tools = memory_tools(users, options.user, options.passages)
        Stop().run(serve_tools("recollect", tools, INSTRUCTIONS))
        return 0
    finally:
        users.close()
