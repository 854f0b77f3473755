"""Who speaks in which role, as a person sets it: the model that learns, or a fixed one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recollect.bounds import ABOVE_0, FROM_0, FROM_1, NUCLEUS, check_bounds
from recollect.errors import UserError
from recollect.policies.client import Endpoint, Speech

TRAINABLE = "trainable"
ROLES = ("memory", "answer")


@dataclass(frozen=True)
class ModelsConfig:
    """Who speaks in a role: `trainable`, a server's address, or the folder of a model."""

    memory: str = TRAINABLE
    answer: str = TRAINABLE
    memory_id: str = ""
    """The name of the model behind the address; empty takes the only one that is served."""
    answer_id: str = ""
    memory_tokenizer: Path | None = None
    """The folder of a served model's tokenizer, if it is neither the trained model's nor in a
    folder on this machine that the server names."""
    answer_tokenizer: Path | None = None
    memory_window: int | None = None
    """Tokens that a served model's context holds, if the server does not report it."""
    answer_window: int | None = None
    speech: Speech = "auto"
    """How servers are called: with token ids if they accept and return them, otherwise with
    messages."""
    temperature: float | None = None
    """Temperature of fixed models; None samples them like the one that learns."""
    top_p: float | None = None
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the servers' key; servers without keys need none."""
    timeout: float = 300.0
    """Seconds for one attempt of a call."""
    retries: int = 5
    """Retries after connection errors, 429 and 5xx; anything else fails its episode at once."""
    backoff: float = 0.5
    """Seconds before the first retry, doubled for each further one."""
    concurrency: int = 256
    """Calls to one server in flight at once."""
    grace: float = 30.0
    """Seconds to wait for a lost server before the run stops."""

    def __post_init__(self) -> None:
        check_bounds("models", self, memory_window=FROM_1, answer_window=FROM_1)
        check_bounds("models", self, temperature=FROM_0, top_p=NUCLEUS, timeout=ABOVE_0)
        check_bounds("models", self, retries=FROM_0, backoff=FROM_0, concurrency=FROM_1)
        check_bounds("models", self, grace=FROM_0)
        for role in self.fixed:
            if self.is_served(role):
                self.endpoint(role)  # refuses what cannot be
            elif not Path(getattr(self, role)).expanduser().is_dir():
                raise UserError(
                    f"models.{role} is {getattr(self, role)!r}: neither {TRAINABLE}, nor an"
                    " address, nor a model folder",
                    f"set --models.{role} to {TRAINABLE}, to an address such as"
                    " http://localhost:8000/v1, or to a folder",
                )

    @property
    def learning(self) -> tuple[str, ...]:
        """The roles whose turns are trained."""
        return tuple(role for role in ROLES if getattr(self, role) == TRAINABLE)

    @property
    def fixed(self) -> tuple[str, ...]:
        """The roles of models that stay as they are."""
        return tuple(role for role in ROLES if role not in self.learning)

    def is_served(self, role: str) -> bool:
        """Tell whether a role's model is behind a server."""
        return str(getattr(self, role)).startswith(("http://", "https://"))

    def endpoint(self, role: str) -> Endpoint:
        """Return where a role's model is served."""
        return Endpoint(
            getattr(self, role),
            getattr(self, f"{role}_id"),
            self.api_key_env,
            self.timeout,
            retries=self.retries,
            backoff=self.backoff,
            concurrency=self.concurrency,
            grace=self.grace,
        )
