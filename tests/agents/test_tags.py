"""Tags: whatever a model writes can be read, and what it writes inside a part stays text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.agents.callback import Written, parse_written
from recollect.agents.gated import Gates, parse_gates
from recollect.agents.parallel_prompts import SectionNote, parse_note

TAGS = [f"<{slash}{n}>" for n in ("check", "update", "next", "recall", "note") for slash in "/_"]
pieces = st.sampled_from([t.replace("_", "") for t in TAGS] + ["yes", "no", "end", "continue", " "])
texts = st.lists(pieces | st.text(max_size=8), max_size=12).map("".join)


@given(texts)
def test_anything_can_be_read(reply):
    gates = parse_gates(reply)
    assert gates.update is None or gates.update == gates.update.strip() != ""
    if gates == Gates(gates.update, gates.end, False):  # well-formed has all of its parts
        assert "<check>" in reply.lower() and "<next>" in reply.lower()
    written = parse_written(reply)
    assert (written.memory or "") in reply and written.query in reply
    noted = parse_note(reply)
    assert noted.note is None or noted.note in reply
    assert noted.note != ""


@given(texts.filter(str.strip), st.booleans())
def test_what_is_written_inside_is_text(text, end):
    """Also if it spells tags: a text that was read cannot end the reading."""
    said = "end" if end else "continue"
    reply = f"<check>yes</check><update>{text}</update><next>{said}</next>"
    assert parse_gates(reply) == Gates(text.strip(), end, False)
    assert parse_written(f"<update>{text}</update>") == Written(text.strip(), "", False)
    assert parse_note(f"<check>yes</check><note>{text}</note>") == SectionNote(text.strip(), False)


@pytest.mark.parametrize(
    ("reply", "gates"),
    [
        ("<check>no</check><update></update><next>continue</next>", Gates(None, False, False)),
        ("<check>no</check><next>end</next>", Gates(None, True, False)),
        ("Hm. <check> YES </check>\n<update>\na\n</update>\n<next>End</next>.", Gates("a", 1, 0)),
        ("<check>no</check><update>a</update><next>continue</next>", Gates(None, False, False)),
        ("<check>yes</check><update> </update><next>end</next>", Gates(None, True, True)),
        ("<check>yes</check><next>end</next>", Gates(None, True, True)),
        ("<check>yes</check><update>a, and b", Gates("a, and b", False, True)),  # cut off
        ("<check>yes</check><update>a<next>end</next>", Gates("a", True, True)),
        ("<check>yes</check><update>a</update>", Gates("a", False, True)),
        ("<check>yes</check><update>a</update><next>stop</next>", Gates("a", False, True)),
        ("<check>maybe</check><update>a</update><next>end</next>", Gates(None, False, True)),
        ("<update>a</update><next>end</next>", Gates(None, False, True)),
        ("", Gates(None, False, True)),
        ("<think><check>yes</check></think><check>no</check><next>end</next>", Gates(None, 1, 0)),
        ("<think><check>no</check><next>end</next>", Gates(None, False, True)),
    ],
)
def test_gates(reply, gates):
    assert parse_gates(reply) == gates


@pytest.mark.parametrize(
    ("reply", "written"),
    [
        ("<update>a</update>", Written("a", "", False)),
        ("So: <update>\na\n</update> <recall> b c </recall> ok", Written("a", "b c", False)),
        ("<update>a</update><recall></recall>", Written("a", "", False)),
        ("<update>a</update><recall>b", Written("a", "b", False)),
        ("<update></update><recall>b</recall>", Written("", "b", False)),
        ("<update>a<recall>b</recall>", Written("a", "b", True)),
        ("<update>a and", Written("a and", "", True)),
        ("<recall>b</recall>", Written("<recall>b</recall>", "", True)),
        (" plain ", Written("plain", "", True)),
        ("", Written(None, "", True)),
        ("<think>Perhaps <update>x</update>?</think><update>a</update>", Written("a", "", False)),
        ("<think>It goes on and on", Written(None, "", True)),
    ],
)
def test_memories_and_queries(reply, written):
    assert parse_written(reply) == written


@pytest.mark.parametrize(
    ("reply", "noted"),
    [
        ("<check>no</check>", SectionNote(None, False)),
        ("<check>no</check><note>a</note>", SectionNote(None, False)),
        ("<check>yes</check><note> a </note>", SectionNote("a", False)),
        ("<check>yes</check><note>a", SectionNote("a", True)),
        ("<check>yes</check><note></note>", SectionNote(None, True)),
        ("<check>yes</check> a", SectionNote(None, True)),
        ("<note>a</note>", SectionNote(None, True)),
        ("", SectionNote(None, True)),
        (" <think>yes, <check>yes</check></think>\n<check>no</check>", SectionNote(None, False)),
    ],
)
def test_notes(reply, noted):
    assert parse_note(reply) == noted
