"""What a client did wrong, in the shape OpenAI's clients read."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": kind, "param": param, "code": code}

    @property
    def body(self) -> dict[str, Any]:
        return {"error": self.error}


def too_long(tokens: int, window: int) -> Refusal:
    """Refuse a prompt that leaves no room for a reply."""
    return Refusal(
        f"the prompt has {tokens} tokens, and the model's window is {window}, reply included",
        param="prompt",
        code="context_length_exceeded",
    )
