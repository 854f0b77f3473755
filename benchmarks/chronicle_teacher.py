"""A teacher that reads chronicles by rules: it shows benchmarks/chronicle.py the form of a memory.

A memory holds lines, each a name and what is known of it. Towns name the one before, which a move
that is undone leads back to. The home of a keeper has one line whoever keeps the thing, so that
those who had it are forgotten. A day is a line of its own: written twice, it is there once, so that
nobody has to look whether it is new; days are counted when the question is answered. Before it
decides whether a page changes the memory, it says whom it looks for and quotes what the page says
of them, until there is no more; then it writes the lines that change. A name always follows a
space, as in the text: the first word of a line has other tokens, and a small model cannot spell a
new name with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from benchmarks.chronicle_plan import SENTENCES, WIDE
from recollect.agents.base import Agent
from recollect.agents.baselines import FullContextAgent
from recollect.agents.fold import FoldAgent
from recollect.agents.gated import GatedAgent
from recollect.agents.rag import RagAgent
from recollect.tasks.made.chronicle import Kind
from recollect.tasks.made.chronicle_reader import (
    Reader,
    Statement,
    found_statements,
    statements,
)

NOTHING = "Nothing yet."
FIELDS = {
    name: re.compile(rf"<{name}>\n(.*?)\n</{name}>", re.DOTALL)
    for name in ("problem", "section", "memory")
}
_TOWN = re.compile(r"(\w+)(?: \(before (\w+)\))?")
HOME, KEEPER, LETTER = "home of ", "keeper of the ", "letter"
THE_KEEPER, UNKNOWN = "the keeper", "unknown"
NO_MORE = re.compile(r"Of [^:.]+: no more\. ?")
KNOWN: tuple[Kind, ...] = ("overwrite", "count", "two-hop", "count", "two-hop")
"""What the teacher is asked; the harder kinds twice as often."""


def agents(
    memory: int, blind_memory: int, answer: int
) -> dict[str, tuple[Agent, tuple[Kind, ...]]]:
    """Return what is trained, and on which kinds of question."""
    fold = FoldAgent(None, memory, answer)
    room = 256 + memory  # a page and a memory: for the passages, and for words before an answer
    rag = replace(RagAgent("bm25", None, 20, room, room), **SENTENCES)
    return {
        "fold": (fold, KNOWN),
        "fold_blind": (replace(fold, max_memory_tokens=blind_memory), ("blind",)),
        "gated": (GatedAgent(None, memory, answer, exit_gate=False, lines=True), KNOWN),
        "gated_blind": (
            GatedAgent(None, blind_memory, answer, exit_gate=False, lines=True),
            ("blind",),
        ),
        "full_context": (FullContextAgent(max_answer_tokens=room), KNOWN),
        "rag": (rag, KNOWN),
        "rag_window": (replace(rag, **WIDE), KNOWN),
    }


def asked_about(question: str) -> tuple[str, str]:
    """Return the kind of a question (place, sent, received, kept) and whom or what it names."""
    if found := re.fullmatch(r"Where does the keeper of the (.+) live now\?", question):
        return "kept", found[1]
    if found := re.fullmatch(r"Where does (.+) live now\?", question):
        return "place", found[1]
    found = re.fullmatch(r"On how many different days did (.+) (send|receive) a letter\?", question)
    if not found:
        return "all", ""
    return ("sent" if found[2] == "send" else "received"), found[1]


def recall(memory: str, question: str) -> Reader:
    """Take a memory back into a reader."""
    reader, (kind, name) = Reader(), asked_about(question)
    lines = dict(line.split(": ", 1) for line in memory.splitlines() if ": " in line)
    keeper = lines.get(f"{KEEPER}{name}")
    if kind == "kept" and keeper:
        reader.keepers[name] = keeper
    for subject, said in lines.items():
        person = subject.removeprefix(HOME)
        if said == LETTER and kind in ("sent", "received"):
            days = reader.sent if kind == "sent" else reader.received
            days[name][subject] = None
        elif person != subject and said != UNKNOWN and (found := _TOWN.fullmatch(said)):
            person = keeper if keeper and person == THE_KEEPER else person
            reader.towns[person] = found[1]
            reader.before |= {person: found[2]} if found[2] else {}
    return reader


def noted(reader: Reader, question: str) -> str:
    """Write what a reader should keep for a question, or for any."""
    kind, name = asked_about(question)
    lines = [f"{day}: {LETTER}" for day in days(reader, question)]
    people = [name] if kind == "place" else []
    if kind == "kept" and (keeper := reader.keepers.get(name)):
        lines = [f"{KEEPER}{name}: {keeper}", f"{HOME}{THE_KEEPER}: {town(reader, keeper)}"]
    if kind == "all":
        people = sorted(reader.towns)
    lines += [f"{HOME}{own}: {town(reader, own)}" for own in people if own in reader.towns]
    return "\n".join(lines) or NOTHING


def town(reader: Reader, person: str) -> str:
    """Write where somebody lives, and lived before."""
    before = f" (before {old})" if (old := reader.before.get(person)) else ""
    return f"{reader.towns[person]}{before}" if person in reader.towns else UNKNOWN


def days(reader: Reader, question: str) -> list[str]:
    """Return the days that a question counts."""
    kind, name = asked_about(question)
    known = {"sent": reader.sent, "received": reader.received}.get(kind, {})
    return list(known.get(name, {}))


PLACES = ("set", "refused", "cancel", "exchange")


@dataclass(frozen=True)
class Quote:
    """What a text says word for word, and of whom or what."""

    of: str
    text: str


def follow(told: Iterable[Statement], reader: Reader, question: str) -> list[Quote]:
    """Take in what a text says about those who matter, and return it.

    Whoever has a thing matters from then on: what a chronicle asks about comes later.
    """
    kind, name = asked_about(question)
    quotes: list[Quote] = []
    for statement in told:
        said = statement.fields
        person = reader.keepers.get(name) if kind == "kept" else name
        forms = ("letter",) if kind in ("sent", "received") else PLACES
        of = f"the {name}" if kind == "kept" and said.get("t") == name else ""
        if statement.form in forms and not of:
            people = [str(said[role]) for role in ("a", "b") if said.get(role)]
            of = people[0] if kind == "all" else next((own for own in people if own == person), "")
        if of:
            reader.take(statement)
            if statement.form == "handover" and said["a"] != person:
                reader.towns.pop(said["a"], None)
                reader.before.pop(said["a"], None)
                quotes = [quote for quote in quotes if quote.of != said["a"]]
            quotes.append(Quote(of, statement.text))
    return quotes


def counted(quotes: Sequence[Quote], question: str) -> tuple[str, list[str]]:
    """Say of every quoted letter whether it was sent or received; return the days that count too.

    In two steps, the first of which does not depend on the question: whether a letter counts is
    then no riddle about two things at once, but the same word found again.
    """
    kind, name = asked_about(question)
    if kind not in ("sent", "received") or not quotes:
        return "", []
    text = "\n" + " ".join(quote.text for quote in quotes)
    letters = [(own.fields["a"] == name, own.fields["d"]) for own in statements(text)]
    told = ", ".join(f"{'sent' if sent else 'received'} {day}" for sent, day in letters)
    own = list(dict.fromkeys(day for sent, day in letters if sent == (kind == "sent")))
    return f"So {told}. Those {kind} {', '.join(own) or 'none'}.", own


def gates(memory: str, new: str) -> str:
    """Write the lines of a new memory that are not in the old one, or say that there are none."""
    known = (*memory.splitlines(), NOTHING)
    return update([line for line in new.splitlines() if line not in known])


def update(lines: Sequence[str]) -> str:
    """Write lines into a memory, or say that there are none to write."""
    written = "\n".join(lines)
    return f"<check>yes</check><update>{written}</update>" if lines else "<check>no</check>"


@dataclass(frozen=True)
class Teacher:
    """Reply as one who reads by rules, and knows nothing but what a prompt shows."""

    gated: bool = False
    slips: float = 0.0
    """How often a gated teacher notes something of a page where nothing matters."""

    def reply(self, prompt: str) -> str:
        """Write the next memory, or the answer."""
        question = shown(prompt, "problem")
        if "<memory>" not in prompt:
            reader = Reader()
            quotes = follow(found_statements(prompt), reader, question)
            aloud = read_aloud(quotes, reader, question)
            words = [*aloud, noted(reader, question)] if quotes else []
            return " ".join([*words, boxed(reader, question, guess(prompt))])
        memory = shown(prompt, "memory")
        reader = recall(memory, question)
        if "<section>" not in prompt:
            return boxed(reader, question)
        told = list(statements(shown(prompt, "section")))
        quotes = follow(told, reader, question)
        new, rng = noted(reader, question), Random(prompt)
        if not self.gated:
            return new
        if not quotes and rng.random() < self.slips and (line := slip(told, reader, question, rng)):
            return update([line])
        _, own = counted(quotes, question)
        written = update([f"{day}: {LETTER}" for day in own]) if own else gates(memory, new)
        return " ".join([*read_aloud(quotes, reader, question), written])


def slip(told: Sequence[Statement], reader: Reader, question: str, rng: Random) -> str:
    """Write a line about somebody who does not matter, if a text names one."""
    _, name = asked_about(question)
    mattering = {name, reader.keepers.get(name), None}
    lines = []
    for said in (own.fields for own in told):
        if said.get("a") not in mattering and (what := said.get("x") or said.get("d")):
            lines.append(f"{HOME}{said['a']}: {what}" if "x" in said else f"{what}: {said['a']}")
    return rng.choice(lines) if lines else ""


def read_aloud(quotes: Sequence[Quote], reader: Reader, question: str) -> list[str]:
    """Say whom one looks for and what a text says of them, one by one, and which letters count.

    A name that was just written is found again by its letters; one that was read long ago is not.
    """
    kind, name = asked_about(question)
    if kind == "all":
        sought = list(dict.fromkeys(quote.of for quote in quotes))
    elif kind == "kept":
        sought = [f"the {name}", *([reader.keepers[name]] if name in reader.keepers else [])]
    else:
        sought = [name]
    words = []
    for of in sought:
        words += [f"Of {of}: {quote.text}" for quote in quotes if quote.of == of]
        words.append(f"Of {of}: no more.")
    said, _ = counted(quotes, question)
    return [*words, said] if said else words


def boxed(reader: Reader, question: str, otherwise: str = "") -> str:
    """Answer as a reader would, after counting days aloud."""
    known = [f"{i}: {day}" for i, day in enumerate(days(reader, question), 1)]
    aloud = f"{', '.join(known)} " if known else ""
    return f"{aloud}\\boxed{{{reader.answer(question) or otherwise}}}"


def guess(prompt: str) -> str:
    """Name a town of a text, for where nothing that was found gives the answer."""
    towns = sorted({str(own.fields["x"]) for own in found_statements(prompt) if "x" in own.fields})
    return Random(prompt).choice(towns) if towns else ""


def shown(prompt: str, name: str) -> str:
    """Return a part of a prompt."""
    found = FIELDS[name].search(prompt)
    if found is None:
        raise ValueError(f"the prompt shows no {name}")
    return found[1].strip("\n")
