"""verl's token server as a Policy: what an agent's chats sample from on a cluster.

Tokens in, tokens out. Knows nothing of agents, and of verl only the client that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from recollect.errors import UserError
from recollect.types import Completion, Sampling, StopReason


class TokenServer(Protocol):
    """What is used of verl's `LLMServerClient`."""

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any:
        """Return token_ids, log_probs, stop_reason and extra_fields."""


class Interrupted(Exception):
    """The server gave a request up before it was done."""


@dataclass
class ServedPolicy:
    """Sample from the weights that verl trains."""

    server: TokenServer
    request_id: str
    """Requests of one name go to one replica, whose cache then holds what they share."""
    end_ids: tuple[int, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What verl itself asks for beside temperature, top-p and limit, such as top-k."""
    seeded: bool = False
    """Whether draws are made to depend on our seeds alone. vLLM then draws row by row, which costs
    a large batch more than its matrix products; our own engine always does."""
    unique: bool = False
    """Whether every request needs a name of its own: verl hands it on when it is deterministic."""
    versions: list[int] = field(default_factory=list)
    """The training steps whose weights have answered."""
    _asked: int = 0

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Continue a prompt on one of the replicas."""
        self._asked += 1
        name = f"{self.request_id}-{self._asked}" if self.unique else self.request_id
        output = await self.server.generate(
            name, prompt_ids=list(prompt_ids), sampling_params=self.parameters(sampling)
        )
        if output.stop_reason in ("abort", "aborted"):
            raise Interrupted("the server was stopped in the middle of a reply")
        version = output.extra_fields.get("global_steps")
        self.versions += [] if version is None else [int(version)]
        ids = tuple(int(token) for token in output.token_ids)
        if output.log_probs is None or len(output.log_probs) != len(ids):
            raise UserError(
                "the rollout engine returns no log-probabilities",
                "set actor_rollout_ref.rollout.calculate_log_probs=True",
            )
        return Completion(ids, tuple(map(float, output.log_probs)), self._reason(ids, sampling))

    def parameters(self, sampling: Sampling) -> dict[str, Any]:
        """Say in the server's words how to sample."""
        asked = {
            **self.defaults,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "logprobs": True,
        }
        if sampling.stop:
            asked |= {"stop": list(sampling.stop), "include_stop_str_in_output": True}
        if self.seeded:
            asked["seed"] = sampling.seed
        return asked

    def _reason(self, ids: tuple[int, ...], sampling: Sampling) -> StopReason:
        if ids and ids[-1] in self.end_ids:
            return "stop"
        return "length" if len(ids) >= sampling.max_tokens else "stop"
