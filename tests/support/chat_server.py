"""A server on loopback that speaks as much of OpenAI's protocol as reading and judging need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.loopback import JsonHandler, served

Respond = Callable[[str], str | int | None]
"""The reply to a user's text; a number is an HTTP status, None an empty reply."""


@dataclass
class ChatServer:
    """Where the server is, and what it was asked."""

    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [request["messages"][-1]["content"] for request in self.asked]


@contextmanager
def chat_server(
    respond: Respond, models: tuple[str, ...] = ("tiny",), no_tokens: int = 404
) -> Iterator[ChatServer]:
    """Serve until the block ends; prompts of tokens are answered with the status `no_tokens`."""

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            self.send(
                200, {"object": "list", "data": [{"id": m, "object": "model"} for m in models]}
            )

        def do_POST(self) -> None:
            request = self.request_json()
            server.asked.append(request)
            if "messages" not in request:
                self.send(no_tokens, {"error": {"message": "only chats are served"}})
                return
            reply = respond(request["messages"][-1]["content"])
            if isinstance(reply, int):
                self.send(reply, {"error": {"message": "no"}})
                return
            message = {"role": "assistant", "content": reply}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
            self.send(200, {**body, "choices": [choice]})

    server = ChatServer("")
    with served(Handler) as server.url:
        yield server
