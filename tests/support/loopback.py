"""JSON over HTTP on loopback, served in a thread: what the scripted servers of tests share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """Reads and sends JSON; says nothing to the terminal."""

    def request_json(self) -> dict[str, Any]:
        """Return the body of a request."""
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def send(self, status: int, body: Any) -> None:
        """Answer with JSON."""
        self.send_raw(json.dumps(body).encode(), status)

    def send_raw(self, data: bytes, status: int = 200) -> None:
        """Answer with bytes that claim to be JSON."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve until the block ends; yield the address."""
    http = _Server(("127.0.0.1", 0), handler)
    thread = Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}/v1"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    request_queue_size = 512
    """Connections that come at once: with the usual 5, others try again after whole seconds."""
    daemon_threads = True
