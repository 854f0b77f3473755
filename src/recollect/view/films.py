"""The memory film: an episode turn by turn, with the answer followed through every memory.

Pure functions of a stored episode. `trace` finds where answers are read, written and lost; `film`
adds all that a page shows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.agents.recursive_prompts import program_of
from recollect.view.causes import Life, life
from recollect.view.differences import changes, marked, marked_changes
from recollect.view.evidence import Text, Trail, read, trail
from recollect.view.memories import Edit, Memory, created_in, placed, results_in
from recollect.view.stored import Part, Said, Stored

CALL, TURN = " call ", " turn "
"""Joins the label of a chat and the number of a call that it made: together they are a tree. Turns
that are chats of their own are numbered, too."""
RESULT = re.compile(r"<result>\n(.*?)\n</result>", re.DOTALL)
LONG = 40
"""Characters of a memory that is found in a prompt wherever it is; a shorter one may be a part of
the text, and is looked for after the word memory or state."""


@dataclass(frozen=True)
class Frame:
    """One turn, and the memory after it."""

    context: int
    turn: int
    part: Part
    said: Said
    before: str
    memory: str
    edits: tuple[Edit, ...]
    results: tuple[tuple[str, str, str], ...]
    """What a search showed at the start of the turn: name, text, and which write made it."""
    shown: Text
    """What the turn read, without the memory and the questions in it."""


@dataclass(frozen=True)
class Trace:
    """An episode with every answer followed through it."""

    stored: Stored
    frames: tuple[Frame, ...]
    trails: tuple[Trail, ...]
    lives: tuple[Life, ...]
    """One per question."""


def trace(stored: Stored) -> Trace:
    """Replay an episode and follow its answers."""
    frames = _frames(stored)
    trails = tuple(_trail(stored, i, frames) for i in range(len(stored.questions)))
    lives = []
    memories = [read(frame.memory) for frame in frames]
    for number, follow in enumerate(trails):
        reads = [follow.holds(frame.shown) for frame in frames]
        holds: list[bool] = []
        for i, text in enumerate(memories):  # a memory that stays the same is searched once
            same = i > 0 and text.text == memories[i - 1].text
            holds.append(holds[-1] if same else follow.holds(text))
        said = [follow.holds(read(f.said.text)) if f.part.role != "answer" else False
                for f in frames]  # fmt: skip
        lives.append(life(stored, number, [f.part for f in frames], reads, holds, said))
    return Trace(stored, frames, trails, tuple(lives))


def _frames(stored: Stored) -> tuple[Frame, ...]:
    memory, ops = Memory(), placed(stored)
    frames: list[Frame] = []
    for context, turn in _order(stored):
        part = stored.parts[context]
        said = part.turns[turn]
        following = part.turns[turn + 1].prompt if turn + 1 < len(part.turns) else None
        names = created_in(following)
        results = tuple(
            (name, text, memory.origin.get(name, "there before the episode"))
            for name, text in results_in(said.prompt)
        )
        before, edits = memory.text, []
        for op in ops.get((context, turn), ()):
            made = names.pop(0) if names and op.kind in ("add", "merge", "split") else ()
            edits.append(memory.apply(op, made))
        shown = _shown(stored, part, said, turn, before)
        frames.append(
            Frame(context, turn, part, said, before, memory.text, tuple(edits), results, shown)
        )
    return tuple(frames)


def _order(stored: Stored) -> list[tuple[int, int]]:
    return [(c, t) for c, part in enumerate(stored.parts) for t in range(len(part.turns))]


def _shown(stored: Stored, part: Part, said: Said, turn: int, memory: str) -> Text:
    """Return what a turn read; in an evaluation, the chunks that its context showed."""
    prompt = said.prompt
    if prompt is None:
        if stored.chunks is None or part.chunks is None or turn:
            return read("")
        first, last = part.chunks
        return read("\n\n".join(stored.chunks[first : last + 1]))
    hidden = _spans(prompt, [q.text for q in stored.questions])
    if len(memory) >= LONG:
        hidden += _spans(prompt, [memory])
    elif memory:
        pattern = rf"(?:memory|state)\W{{0,24}}({re.escape(memory)})"
        hidden += [match.span(1) for match in re.finditer(pattern, prompt, re.IGNORECASE)]
    return read(prompt, tuple(hidden))


def _spans(text: str, parts: Sequence[str]) -> list[tuple[int, int]]:
    """Return where parts are in a text, one after the other."""
    found: list[tuple[int, int]] = []
    for part in filter(None, parts):
        at = text.find(part)
        while at >= 0:
            found.append((at, at + len(part)))
            at = text.find(part, at + len(part))
    return found


def _trail(stored: Stored, number: int, frames: Sequence[Frame]) -> Trail:
    question = stored.questions[number]
    shown = [f.shown for f in frames if f.shown.text and f.part.role != "answer"]
    if not shown:  # an agent without a memory reads where it answers
        shown = [f.shown for f in frames if f.shown.text]
    chunks = stored.chunks or ()
    evidence = [read(chunks[i]) for i in question.evidence if 0 <= i < len(chunks)]
    if not evidence:
        evidence = [
            f.shown
            for f in frames
            if f.part.chunks and f.part.chunks[0] == f.part.chunks[1] in question.evidence
        ]
    if not shown and chunks:
        shown = [read(chunk) for chunk in chunks]
    return trail(question, shown, evidence)


def film(stored: Stored) -> dict[str, Any]:
    """Return an episode as the page shows it."""
    found = trace(stored)
    return {
        "task": stored.task,
        "source": stored.source,
        "rollout": stored.rollout,
        "forked": stored.forked,
        "reward": stored.reward,
        "measures": dict(stored.measures),
        "failure": stored.failure,
        "questions": [_question(found, i) for i in range(len(stored.questions))],
        "frames": [_frame(found, frame) for frame in found.frames],
        "prompts": any(f.said.prompt is not None for f in found.frames),
        "text": stored.chunks is not None or any(f.said.prompt for f in found.frames),
    }


def _question(found: Trace, number: int) -> dict[str, Any]:
    stored, own = found.stored, found.lives[number]
    question = stored.questions[number]
    return {
        "text": question.text,
        "answers": list(question.answers),
        "category": question.category,
        "answer": stored.answers[number] if number < len(stored.answers) else None,
        "score": stored.scores[number],
        "literal": found.trails[number].literal,
        **own.plain(),
    }


def _frame(found: Trace, frame: Frame) -> dict[str, Any]:
    part, said = frame.part, frame.said
    text = read(frame.memory)
    at = found.frames.index(frame)
    source = frame.shown
    return {
        "context": frame.context,
        "turn": frame.turn,
        "role": part.role,
        "label": part.label,
        "depth": part.label.count(CALL),
        "caller": part.label.rpartition(CALL)[0],
        **_programs(found, frame),
        "question": part.question,
        "trainable": part.trainable,
        "stop": said.stop,
        "tokens": [said.read, said.written],
        "reward": part.reward,
        "steps": dict(part.steps),
        "read": marked(source.text, _every(found, source)),
        "sent": said.prompt is not None,
        "reply": marked(said.text, _every(found, read(said.text))),
        "memory": marked_changes(changes(frame.before, frame.memory), _every(found, text)),
        "changed": frame.before != frame.memory,
        "holds": [own.holds[at] for own in found.lives],
        "reads": [own.reads[at] for own in found.lives],
        "edits": [
            {"kind": e.op.kind, "label": e.op.label, "made": list(e.made), "gone": list(e.gone),
             "data": dict(e.op.data)}
            for e in frame.edits
        ],
        "results": [
            {"name": name, "text": marked(own, _every(found, read(own))), "origin": origin}
            for name, own, origin in frame.results
        ],
    }  # fmt: skip


def _programs(found: Trace, frame: Frame) -> dict[str, Any]:
    """Return a turn's program, what its result showed to the next turn, and the chat's calls."""
    if "programs" not in frame.part.counts:
        return {"program": None, "result": None, "calls": []}
    own, turn, number = frame.part.label.partition(TURN)
    following = f"{own}{TURN}{int(number) + 1}" if number.isdecimal() else ""
    after = (
        other.said.prompt or ""
        for other in found.frames
        if (other.context, other.turn) == (frame.context, frame.turn + 1)
        or (turn and other.part.label == following)
    )
    results = RESULT.findall(next(after, ""))
    calls = [
        at
        for at, other in enumerate(found.frames)
        if other.part.label.rpartition(CALL)[0] == own and other.turn == 0
    ]
    program = program_of(frame.said.text)
    return {"program": program, "result": results[-1] if results else None, "calls": calls}


def _every(found: Trace, text: Text) -> list[tuple[int, int]]:
    return [span for follow in found.trails for span in follow.places(text)]
