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
        retry_after: int = 0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}
        self.error = {"message": message, "type": kind, "param": param, "code": code}

    @property
    def body(self) -> dict[str, Any]:
        return {"error": self.error}


def busy(what: str) -> Refusal:
    """Refuse for now: the client may try again."""
    return Refusal(
        f"{what}; try again soon",
        429,
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        retry_after=1,
    )


def too_long_text(size: int, what: str, window: int) -> Refusal:
    """Refuse a text that is too long whatever its tokens are."""
    return Refusal(
        f"the prompt has {size} {what}, which do not fit the model's window of {window} tokens",
        param="prompt",
        code="context_length_exceeded",
    )


def too_long(tokens: int, window: int) -> Refusal:
    """Refuse a prompt that leaves no room for a reply."""
    return Refusal(
        f"the prompt has {tokens} tokens, and the model's window is {window}, reply included",
        param="prompt",
        code="context_length_exceeded",
    )
