"""What parallel readers are asked, and how their notes are read."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.agents.fold import FoldPrompts
from recollect.agents.tags import choice, part, spoken
from recollect.agents.templates import check_fields


@dataclass(frozen=True)
class ParallelPrompts:
    """Texts with the fields {problem}, {memory}, {chunk} and {notes}."""

    read: str = (
        "A long text is read in sections, each by itself, to solve a problem later. Here are the"
        " problem, one section, and what is known from the whole text so far.\n\n"
        "<problem>\n{problem}\n</problem>\n\n<section>\n{chunk}\n</section>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "If the section says something that helps with the problem and is not in the memory yet,"
        " reply with <check>yes</check> and note it down between <note> and </note>. Otherwise"
        " reply with <check>no</check>."
    )
    merge: str = (
        "A long text was read in sections, each by itself, to solve a problem later. Here are the"
        " problem, what was known before, and new notes in the order of the text.\n\n"
        "<problem>\n{problem}\n</problem>\n\n<memory>\n{memory}\n</memory>\n\n"
        "<notes>\n{notes}\n</notes>\n\n"
        "Write one memory of all that helps with the problem, from the old memory and from the"
        " notes. Reply with the new memory only.\n\nNew memory:"
    )
    answer: str = FoldPrompts.answer

    def __post_init__(self) -> None:
        check_fields("read", self.read, {"chunk", "memory"}, {"problem"})
        check_fields("merge", self.merge, {"notes", "memory"}, {"problem"})
        check_fields("answer", self.answer, {"problem", "memory"})


@dataclass(frozen=True)
class SectionNote:
    """What a reader says of a section."""

    note: str | None
    """None: nothing to keep."""
    malformed: bool


def parse_note(reply: str) -> SectionNote:
    """Read a reply; one that does not say yes and then something is not kept.

    Well-formed are <check>no</check>, and <check>yes</check> with a closed <note> that holds text.
    A note cut off by the limit is kept as far as it goes.
    """
    check = choice(spoken(reply), "check", ("yes", "no"))
    if check.text != "yes":
        return SectionNote(None, check.text is None)
    note = part(check.rest, "note")
    return SectionNote(note.text or None, not (note.text and note.closed))
