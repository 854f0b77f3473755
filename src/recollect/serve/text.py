"""A reply's text while it grows: only what can no longer change is given out.

Some tokens end inside a character, and what looks like the start of a stop text or of a tool call
may turn out to be one. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Decode = Callable[[Sequence[int]], str]
BROKEN = "\ufffd"
"""What decoders write for bytes that are no character, or not yet."""


@dataclass
class Growing:
    """The text of tokens that come one by one."""

    decode: Decode
    stops: tuple[str, ...] = ()
    held: str = ""
    """From this text on nothing is given out before the end ..."""
    begin: Callable[[str], int] = lambda _text: 0
    """... unless it comes before this place."""
    ids: list[int] = field(default_factory=list)
    text: str = ""
    given: int = 0
    """Characters given out."""
    _context: int = 0
    """The last whole piece starts here: some decoders treat the first token of all differently."""
    _done: int = 0
    """Tokens whose text is in `text`."""

    def add(self, token_id: int) -> str:
        """Take a token; return the text that is now certain."""
        self.ids.append(token_id)
        window = self.decode(self.ids[self._context :])
        if not window.endswith(BROKEN):
            self.text += window[len(self.decode(self.ids[self._context : self._done])) :]
            self._context, self._done = self._done, len(self.ids)
        return self._give(self._certain())

    def end(self, text: str) -> str:
        """Return what is still to be given of the whole text."""
        self.text = text
        return self._give(len(text))

    def _give(self, upto: int) -> str:
        piece = self.text[self.given : upto]
        self.given = max(self.given, upto)
        return piece

    def _certain(self) -> int:
        """Return how many characters stay as they are, whatever comes."""
        text = self.text
        # Nothing before what was given can begin a stop text: it would have been found then.
        given = self.given
        certain = min((_start_of(stop, text, given) for stop in self.stops), default=len(text))
        if self.held:
            start = self.begin(text)
            at = _start_of(self.held, text, start)
            # What is said before a call loses the white space at its end.
            certain = min(certain, max(start, len(text[:at].rstrip())))
        return max(certain, self.given)


def _start_of(mark: str, text: str, start: int = 0) -> int:
    """Return where `mark` begins in the text from `start` on, if only in part at its end."""
    found = text.find(mark, start)
    if found >= 0:
        return found
    for size in range(min(len(mark) - 1, len(text) - start), 0, -1):
        if text.endswith(mark[:size]):
            return len(text) - size
    return len(text)


def cut(text: str, stops: Sequence[str], keep: bool = False) -> tuple[str, str | None]:
    """Return the text up to the first stop text (with it, if it is kept), and that stop text."""
    found = [(at, stop) for stop in stops if (at := text.find(stop)) >= 0]
    if not found:
        return text, None
    at, stop = min(found)
    return text[: at + len(stop) * keep], stop
