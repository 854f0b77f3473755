"""A server on loopback that speaks as much of OpenAI's protocol as reading and judging need."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

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


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    """Connections that come at once: with the usual 5, others try again after whole seconds."""


@contextmanager
def chat_server(
    respond: Respond, models: tuple[str, ...] = ("tiny",), no_tokens: int = 404
) -> Iterator[ChatServer]:
    """Serve until the block ends; prompts of tokens are answered with the status `no_tokens`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(
                200, {"object": "list", "data": [{"id": m, "object": "model"} for m in models]}
            )

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.asked.append(request)
            if "messages" not in request:
                self._send(no_tokens, {"error": {"message": "only chats are served"}})
                return
            reply = respond(request["messages"][-1]["content"])
            if isinstance(reply, int):
                self._send(reply, {"error": {"message": "no"}})
                return
            message = {"role": "assistant", "content": reply}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
            self._send(200, {**body, "choices": [choice]})

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    http = _Server(("127.0.0.1", 0), Handler)
    server = ChatServer(f"http://127.0.0.1:{http.server_address[1]}/v1")
    thread = Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
