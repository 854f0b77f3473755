"""Tags: the parts of a reply, such as <update>...</update>.

A model may write anything: nothing here fails, and what it writes inside a part is text, whatever
tags it spells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Tagged:
    """The content of a tag, and what follows it."""

    text: str | None
    """Without space around it; None if there is no such tag."""
    closed: bool
    rest: str
    """All of the reply if there is no such tag."""


def spoken(reply: str) -> str:
    """Leave out the thought that a reply begins with, drafts and all; one without end is all."""
    if not reply.lstrip().startswith("<think>"):
        return reply
    return reply.partition("</think>")[2]


def part(reply: str, name: str, until: str = "") -> Tagged:
    """Return what is between the first <name> and the last </name>.

    A part that is never closed, as in a reply cut off by its limit, ends at `until` or at the end.
    """
    _before, opened, rest = reply.partition(f"<{name}>")
    if not opened:
        return Tagged(None, False, reply)
    inside, closed, after = rest.rpartition(f"</{name}>")
    if closed:
        return Tagged(inside.strip(), True, after)
    end = rest.find(until) if until else -1
    if end < 0:
        return Tagged(rest.strip(), False, "")
    return Tagged(rest[:end].strip(), False, rest[end:])


def choice(reply: str, name: str, words: tuple[str, ...]) -> Tagged:
    """Return the first <name> that holds nothing but one of the words, in any case."""
    found = re.search(rf"<{name}>\s*({'|'.join(words)})\s*</{name}>", reply, re.IGNORECASE)
    if found is None:
        return Tagged(None, False, reply)
    return Tagged(found[1].lower(), True, reply[found.end() :])
