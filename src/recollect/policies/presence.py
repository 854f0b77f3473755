"""Whether servers are there, asked before a run starts: a mistyped address then costs nothing.

Knows nothing of who asks; a server is named by the setting that holds its address.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from recollect.concurrency.stop import Stop
from recollect.errors import UserError, on_stderr
from recollect.foreign import one_line
from recollect.policies.client import Client, Endpoint
from recollect.policies.failures import EndpointError, RateLimited, Rejected, ServerError, TimedOut
from recollect.policies.http import WireError

T = TypeVar("T")

LONGEST_NAME = 1024
SILENCE = 5.0
"""Seconds without an answer from which on it is said on the screen who is waited for."""


def check_servers(servers: Mapping[str, Endpoint], strict: bool = False) -> None:
    """Ask every server for its models; refuse the first that does not answer, by its setting.

    If `strict`, a server without a model's name must serve exactly one. Otherwise the model may be
    missing from a server's list and still answer.
    """

    async def ask_all() -> None:
        for setting, endpoint in servers.items():
            await _check(setting, endpoint, strict)

    if servers:
        ask(ask_all())


def ask(questions: Coroutine[Any, Any, T]) -> T:
    """Ask servers inside a running event loop, too; an interrupt waits for no answer."""
    stop = Stop()
    with ThreadPoolExecutor(1) as pool:  # a thread of its own can have a loop of its own
        try:
            return pool.submit(stop.run, questions).result()
        except BaseException:
            stop.now()  # the block would wait for the thread, and that for the server
            raise


@contextmanager
def patience(endpoint: Endpoint) -> Iterator[None]:
    """Say which server is waited for, if the block takes long."""
    text = f"waiting for an answer from {endpoint.url}"
    said = asyncio.get_running_loop().call_later(SILENCE, on_stderr, text)
    try:
        yield
    finally:
        said.cancel()


async def _check(setting: str, endpoint: Endpoint, strict: bool) -> None:
    client = Client(dataclasses.replace(endpoint, retries=min(endpoint.retries, 1)))
    try:
        if strict:
            await find_entry(client)
        else:
            await _speak(client)
    except UserError as error:
        flag = f"--{setting.replace('_', '-')}"
        raise UserError(f"{setting}: {error.what}", f"{error.fix}; the setting is {flag}") from None
    finally:
        client.close()


async def _speak(client: Client) -> None:
    """Look for the model in the list; if it is missing there, ask it for one word."""
    wanted = client.endpoint.model
    try:
        names = [entry["id"] for entry in await list_models(client)]
    except (WireError, EndpointError) as error:
        if not wanted or not isinstance(error, Rejected):
            raise no_answer(client.endpoint, error) from None
        names = []
    if not wanted and not names:
        raise UserError(f"{client.endpoint.url} serves no model", "start the server with a model")
    if not wanted or wanted in names:
        return
    message = {"role": "user", "content": "Say OK."}
    body = {"model": wanted, "messages": [message], "max_tokens": 1, "temperature": 0.0}
    try:
        with patience(client.endpoint):
            await client.post("/chat/completions", body, lambda answer: answer)
    except (WireError, EndpointError) as error:
        if names and isinstance(error, Rejected):
            raise _not_served(client.endpoint, names) from None
        raise no_answer(client.endpoint, error, names) from None


async def find_entry(client: Client) -> dict[str, Any]:
    """Return what a server says about the model that it is asked for, or about its only one."""
    try:
        entries = await list_models(client)
    except (WireError, EndpointError) as error:
        raise no_answer(client.endpoint, error) from None
    if not entries:
        raise UserError(f"{client.endpoint.url} serves no model", "start the server with a model")
    wanted = client.endpoint.model
    if not wanted and len(entries) == 1:
        return entries[0]
    names: list[str] = [entry["id"] for entry in entries]
    if wanted not in names:
        raise _not_served(client.endpoint, names)
    return entries[names.index(wanted)]


async def list_models(client: Client) -> list[dict[str, Any]]:
    """Return what a server says about its models."""
    with patience(client.endpoint):
        listed = (await client.get("/models", 30.0)).get("data")
    entries = listed if isinstance(listed, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and _is_name(entry.get("id"))]


def no_answer(endpoint: Endpoint, error: BaseException, listed: Sequence[str] = ()) -> UserError:
    """Say what is wrong with a server that gives no good answer.

    One that has `listed` models was asked to say something.
    """
    if isinstance(error, Rejected) and str(error)[:3] in ("401", "403"):
        return UserError(
            f"{endpoint.url} refuses the key ({error})",
            f"put the server's key into the environment variable {endpoint.api_key_env}",
        )
    answers = isinstance(error, EndpointError) and not isinstance(error, ServerError)
    if answers and listed:
        return UserError(
            f"{endpoint.url} lists {_first(listed)}, but to a short message it gives no reply that"
            f" can be used ({error})",
            _remedy(error),
        )
    if answers and not isinstance(error, TimedOut):
        return UserError(
            f"{endpoint.url} answers, but lists no models ({error})",
            "give the address up to and with /v1, such as http://localhost:8000/v1",
        )
    return UserError(
        f"no model answers at {endpoint.url} ({error})",
        "start its server and wait until it is ready (recollect serve FOLDER, or vllm serve"
        " MODEL), and check the address: it ends in /v1",
    )


def _not_served(endpoint: Endpoint, names: list[str]) -> UserError:
    wanted = endpoint.model
    what = f"does not serve {wanted!r}" if wanted else f"serves {len(names)} models"
    return UserError(f"{endpoint.url} {what}", f"name one that it serves: {_first(names)}")


def _remedy(error: BaseException) -> str:
    """Return what to do about a server that lists models and gives no good reply."""
    if isinstance(error, RateLimited):
        return "wait until it takes requests again, then run the same command"
    if isinstance(error, Rejected):
        return "start its server with settings that allow this, or name another model"
    return "look into its server's log, or name another model"


def _first(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(name, 100) for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if names[8:] else "")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME
