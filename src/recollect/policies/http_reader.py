"""Read one HTTP/1.1 response, strictly, from bytes that anyone may have sent.

What the standard leaves open to guesses is refused, and everything is bounded: the head, the number
of its lines, the announcements before it, the body, and what frames the body's chunks. Knows
nothing of sockets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_HEAD = 1 << 16
MAX_LINES = 128
MAX_BODY = 1 << 26
MAX_ANNOUNCED = 8
"""Responses such as "100 Continue" before the one that counts."""
MAX_CHUNK_LINE = 256
MAX_FRAMING = 1 << 20
"""Bytes beside the body's own that chunks may take; beyond it, eight for one of the body."""

_STATUS = re.compile(r"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")


class WireError(Exception):
    """A response did not come, or not whole."""


class NotHttp(WireError):
    """What came is no HTTP response, or more than was allowed."""


@dataclass(frozen=True)
class Response:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class ResponseReader:
    """Takes the bytes of one response as they come."""

    def __init__(self, limit: int = MAX_BODY) -> None:
        self.limit = limit
        self.begun = False
        self.reusable = False
        """Whether another request may follow on the connection, once the response is whole."""
        self._data = bytearray()
        self._searched = 0
        """Where the search for the head's end continues."""
        self._announced = 0
        self._status = 0
        self._headers: dict[str, str] | None = None
        self._kept_open = False
        self._length: int | None = None
        """Bytes of the body, or None if it comes in chunks or ends with the connection."""
        self._chunked = False
        self._last = False
        """Whether the last chunk has come: trailers and an empty line follow."""
        self._framing = 0
        self._body = bytearray()

    def feed(self, data: bytes) -> Response | None:
        """Take some bytes; return the response if it is whole now."""
        self.begun = True
        self._data += data
        if self._headers is None and not self._read_head():
            return None
        if self._chunked:
            return self._read_chunks()
        if self._length is None:
            if len(self._data) > self.limit:
                raise _too_long(self.limit)
            return None
        if len(self._data) < self._length:
            return None
        return self._whole(bytes(self._data[: self._length]), len(self._data) - self._length)

    def end(self) -> Response | None:
        """Take the connection's end; return the response if that ends it."""
        if self._headers is None or self._chunked or self._length is not None:
            return None
        return Response(self._status, self._headers, bytes(self._data))

    def _whole(self, body: bytes, beyond: int) -> Response:
        assert self._headers is not None
        self.reusable = self._kept_open and not beyond
        return Response(self._status, self._headers, body)

    # --- the head --------------------------------------------------------------------------------

    def _read_head(self) -> bool:
        while True:
            end = self._data.find(b"\r\n\r\n", self._searched)
            if end > MAX_HEAD or (end < 0 and len(self._data) > MAX_HEAD):
                raise NotHttp(f"the head of the response has more than {MAX_HEAD} bytes")
            if end < 0:
                self._searched = max(0, len(self._data) - 3)
                return False
            first, *lines = self._data[:end].decode("latin-1").split("\r\n")
            del self._data[: end + 4]
            self._searched = 0
            if self._take_head(first, lines):
                return True

    def _take_head(self, first: str, lines: list[str]) -> bool:
        """Take status and headers; False if they only announce the response."""
        found = _STATUS.fullmatch(first)
        if not found:
            raise NotHttp(f"the response begins with {first[:40]!r}")
        if len(lines) > MAX_LINES:
            raise NotHttp(f"the head of the response has more than {MAX_LINES} lines")
        status = int(found[2])
        if status == 101:
            raise NotHttp("the server wants to speak another protocol")
        if status < 200:
            self._announced += 1
            if self._announced > MAX_ANNOUNCED:
                raise NotHttp("the server announces a response again and again")
            return False
        headers = _headers(lines)
        self._status, self._headers = status, headers
        self._length, self._chunked = self._framed(status, headers)
        options = {part.strip() for part in headers.get("connection", "").lower().split(",")}
        self._kept_open = "close" not in options and (found[1] == "1" or "keep-alive" in options)
        return True

    def _framed(self, status: int, headers: dict[str, str]) -> tuple[int | None, bool]:
        """Return the body's length, if it is known, and whether the body comes in chunks."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise NotHttp(f"the body is encoded as {headers['content-encoding'][:40]!r}")
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise NotHttp("the response is framed in a way that is not supported")
            return None, True
        if status in (204, 304):
            return 0, False
        if length is None:
            return None, False
        if not _LENGTH.fullmatch(length):
            raise NotHttp(f"the length of the body is {length[:40]!r}")
        if int(length) > self.limit:
            raise _too_long(self.limit)
        return int(length), False

    # --- chunks ----------------------------------------------------------------------------------

    def _read_chunks(self) -> Response | None:
        at = 0
        try:
            while not self._last:
                start = self._chunk_line(at)
                if start is None:
                    return None
                line, size = start
                if len(self._body) + size > self.limit:
                    raise _too_long(self.limit)
                if not size:
                    self._last, at = True, line
                    break
                end = line + size
                if len(self._data) < end + 2:
                    return None
                if self._data[end : end + 2] != b"\r\n":
                    raise NotHttp("a chunk does not end where it says")
                self._body += self._data[line:end]
                self._framing += line - at + 2
                if self._framing > MAX_FRAMING + 8 * len(self._body):
                    raise NotHttp("the chunks take more room than the body")
                at = end + 2
        finally:
            del self._data[:at]
        return self._read_trailers()

    def _chunk_line(self, at: int) -> tuple[int, int] | None:
        """Return where a chunk's bytes begin and how many there are; None if more must come."""
        end = self._data.find(b"\r\n", at, at + MAX_CHUNK_LINE)
        if end < 0:
            if len(self._data) - at >= MAX_CHUNK_LINE:
                raise NotHttp("the size of a chunk does not end")
            return None
        found = _CHUNK.fullmatch(self._data, at, end)
        if not found:
            raise NotHttp(f"the size of a chunk is {bytes(self._data[at:end])[:40]!r}")
        return end + 2, int(found[1], 16)

    def _read_trailers(self) -> Response | None:
        """Skip what may follow the last chunk: fields that are of no use here."""
        if self._data.startswith(b"\r\n"):
            return self._whole(bytes(self._body), len(self._data) - 2)
        end = self._data.find(b"\r\n\r\n")
        if end > MAX_HEAD or (end < 0 and len(self._data) > MAX_HEAD):
            raise NotHttp("the response does not end")
        if end < 0:
            return None
        _headers(self._data[:end].decode("latin-1").split("\r\n"))
        return self._whole(bytes(self._body), len(self._data) - end - 4)


def _headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > MAX_LINES:
        raise NotHttp(f"the response has more than {MAX_LINES} header lines")
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if not found:
            raise NotHttp(f"a header line is {line[:40]!r}")
        name, value = found[1].lower(), found[2].rstrip(" \t")
        if name in ("content-length", "transfer-encoding") and headers.get(name, value) != value:
            raise NotHttp(f"the response has more than one {name}")
        headers[name] = value
    return headers


def _too_long(limit: int) -> NotHttp:
    return NotHttp(f"the body has more than {limit} bytes")
