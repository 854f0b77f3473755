"""What can be wrong with a server's answer, by kind; knows nothing of retries or connections."""

from __future__ import annotations

import json
import time
from typing import Any

from recollect.foreign import one_line
from recollect.policies.http import Response


class EndpointError(Exception):
    """A call came back without a usable answer. The class's name is its kind."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds that the server asked to wait."""


class RateLimited(EndpointError):
    """The server answered 429."""


class ServerError(EndpointError):
    """The server answered 5xx."""


class Rejected(EndpointError):
    """The server answered with another status than 200: the request is at fault."""


class TimedOut(EndpointError):
    """No whole answer came in time."""


class NotJson(EndpointError):
    """The answer is no JSON object."""


class BadReply(EndpointError):
    """The answer lacks what it must have, or says something impossible."""


class WrongTokens(EndpointError):
    """The token ids that came back cannot be those of this call."""


class Filtered(EndpointError):
    """The server withheld what the model said."""


def checked(response: Response) -> dict[str, Any]:
    """Return the JSON of a good answer; anything else raises what it is."""
    if response.status != 200:
        raise _refused(response.status, response)
    try:
        # A byte that is no UTF-8 spoils a character, not the reply.
        answer = json.loads(response.body.decode("utf-8", "replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise NotJson(f"{error} in {response.body[:60]!r}") from None
    if not isinstance(answer, dict):
        raise NotJson(f"{response.body[:60]!r} is not an object")
    if answer.get("error") and not answer.get("choices"):
        # A gateway may have answered 200 before the server behind it failed.
        told = answer["error"]
        code = told.get("code") if isinstance(told, dict) else None
        raise _refused(code if type(code) is int and 400 <= code < 600 else 500, response)
    return answer


def _refused(status: int, response: Response) -> EndpointError:
    """Return what a status means."""
    shown = f"{status}: {_message(response.body)}"
    if status < 400 and "location" in response.headers:  # it is not followed: keys go to one server
        shown = f"{status}: it has moved to {one_line(response.headers['location'], 300)}"
    if status == 429:
        return RateLimited(shown, _retry_after(response.headers))
    if status >= 500:
        return ServerError(shown, _retry_after(response.headers))
    return Rejected(shown)


def _message(body: bytes) -> str:
    """Find the words in an error's body."""
    text = body.decode(errors="replace")
    try:
        found = json.loads(text)
        error = found.get("error", found)
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError, RecursionError):
        pass
    return one_line(text, 300) or "no message"


def _retry_after(headers: dict[str, str]) -> float:
    """Return the seconds that a server asks to wait: a number, or a date."""
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    import email.utils  # rarely needed

    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
