"""A scripted model behind an OpenAI server on loopback: it reads for a fold agent, and chats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any

from tests.support.loopback import JsonHandler, served

FACT = re.compile(r"\bfact\w+")
Reply = Callable[[dict[str, Any]], dict[str, Any]]
"""From a request to the message that answers it."""


@dataclass
class Upstream:
    """Where it is, and what it was asked."""

    url: str
    readings: list[str] = field(default_factory=list)
    """Prompts of an agent that reads."""
    chats: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    fault: str = ""
    """How it misbehaves, if it does."""
    ended: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def body(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request."""
        prompt = request["messages"][-1]["content"]
        if isinstance(prompt, str) and "<section>" in prompt:
            with self.lock:
                self.readings.append(prompt)
            return {"role": "assistant", "content": remembered(prompt)}
        with self.lock:
            self.chats.append(request)
        if request.get("tools"):
            function = {"name": "look", "arguments": '{"at": 1}'}
            call = {"id": "call_1", "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        seen = FACT.findall(" ".join(str(m.get("content")) for m in request["messages"]))
        return {"role": "assistant", "content": "I know " + " ".join(dict.fromkeys(seen))}


def remembered(prompt: str) -> str:
    """Return a memory of every fact in the old one and in the section, the newest last."""
    return " ".join(dict.fromkeys(FACT.findall(prompt)))[-3000:]


@contextmanager
def upstream(window: int = 2048) -> Iterator[Upstream]:
    """Serve until the block ends."""

    class Handler(JsonHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            entry = {"id": "scripted", "object": "model", "max_model_len": window}
            self.send(200, {"object": "list", "data": [entry]})

        def do_POST(self) -> None:
            request = self.request_json()
            server.keys.add(self.headers.get("Authorization", ""))
            if "messages" not in request:
                return self.send(404, {"error": {"message": "only chats are served"}})
            if server.fault and "<section>" not in str(request["messages"][-1]["content"]):
                return self._fail(server.fault)
            message = server.body(request)
            if request.get("stream"):
                return self._stream(request, message)
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {"message": message, "finish_reason": reason}
            n = request.get("n") or 1
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            head = {"id": "1", "object": "chat.completion", "created": 0, "model": "scripted"}
            choices = [{"index": i, **choice} for i in range(n)]
            self.send(200, {**head, "choices": choices, "usage": usage})

        def _stream(self, request: dict[str, Any], message: dict[str, Any]) -> None:
            head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
            self._events()
            words = (message["content"] or "").split(" ")
            deltas: list[dict[str, Any]] = [{"content": word + " "} for word in words if word]
            if calls := message.get("tool_calls"):
                deltas = [{"tool_calls": [{"index": 0, **calls[0]}]}]
            for delta in deltas:
                choice = {"index": 0, "delta": delta, "finish_reason": None}
                self._event({**head, "choices": [choice]})
            reason = "tool_calls" if calls else "stop"
            choice = {"index": 0, "delta": {}, "finish_reason": reason}
            self._event({**head, "choices": [choice]})
            if (request.get("stream_options") or {}).get("include_usage"):
                usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
                self._event({**head, "choices": [], "usage": usage})
            self._piece(b"data: [DONE]\n\n")
            self._piece(b"")

        def _fail(self, fault: str) -> None:
            if fault.isdecimal():
                return self.send(int(fault), {"error": {"message": "no", "code": "because"}})
            if fault == "hang":
                server.ended.wait(20)
                self.close_connection = True
                return
            if fault == "drop":
                self.close_connection = True
                return
            if fault == "html":
                return self.send_raw(b"<html>busy</html>")
            self._events()
            if fault == "garbage":
                self._piece(b"\x00\xff not an event\n")
            elif fault == "cut":
                choice = {"index": 0, "delta": {"content": "half"}, "finish_reason": None}
                self._event({"id": "1", "choices": [choice]})
            self._piece(b"")

        def _events(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def _event(self, body: Any) -> None:
            self._piece(b"data: " + json.dumps(body).encode() + b"\n\n")

        def _piece(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    server = Upstream("")
    with served(Handler) as server.url:
        try:
            yield server
        finally:
            server.ended.set()
