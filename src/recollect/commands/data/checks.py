"""What is checked of tasks: answers, evidence, repetitions, lengths, and where the evidence is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.display.numbers import p_value, share
from recollect.metrics import normalise, sub_exact_match
from recollect.tasks.base import Split, TaskFamily, copies, text_of
from recollect.tasks.documents.documents import DocumentTasks
from recollect.tasks.files.manifest import read_manifest, sha256
from recollect.tasks.haystacks.babi import STATED
from recollect.tasks.lengths import BYTES_PER_TOKEN, bytes_per_token, estimate_tokens, show_length
from recollect.tasks.named import TaskSpec
from recollect.tasks.uniformity import chi_square_p, histogram
from recollect.types import Question, Task

ANSWERED = 0.95
"""The least share of answers that are in their evidence; 2WikiMultihopQA only implies a few."""
MOST_COPIES = 0.01
"""The share of tasks that may be copies of others."""
UNLIKELY = 0.001
"""A histogram of positions that chance gives less often than this is not uniform."""
_MEASURED = 16
"""Texts that are read whole: a long one takes a while."""
_BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    found: str
    ok: bool | None = None
    """None where there is nothing to hold it against."""


def check_files(folder: Path) -> list[Check]:
    """Compare a folder's files with its manifest."""
    manifest = read_manifest(folder)
    spoilt = [f.name for f in manifest.outputs if sha256(folder / f.name) != f.sha256]
    found = f"not as written: {', '.join(spoilt)}" if spoilt else f"{len(manifest.outputs)} match"
    counts = ", ".join(f"{count:,} {name}" for name, count in manifest.counts.items())
    dropped = ", ".join(f"{count:,} {name}" for name, count in manifest.dropped.items())
    checks = [Check("checksums", found, not spoilt), Check("holds", counts)]
    return [*checks, Check("left out", dropped)] if dropped else checks


def check_tasks(
    family: TaskFamily, spec: TaskSpec, count: int, seed: int, split: Split
) -> list[Check]:
    """Look at the first tasks of a split."""
    tasks = [family.task(i, seed, split) for i in range(count)]
    asked = [(task, question) for task in tasks for question in task.questions]
    size = family.size(split)
    of = "" if size is None else f" of {size:,}"
    documents = isinstance(family, DocumentTasks)
    uniform = spec.name == "recall" or ((documents or spec.name == "ruler") and not spec.position)
    return [
        Check("tasks", f"{count:,}{of}, {len(asked):,} questions, split {split}"),
        _repeated(tasks, asked, documents),
        *_copied(tasks),
        _evidence(asked, documents and family.name != "memagent"),
        _answers(asked, documents),
        *_kinds(asked),
        _guesses(asked),
        *_texts(tasks[:_MEASURED], documents and _once(family)),
        _lengths(tasks[:_MEASURED], spec),
        *_positions(asked, uniform),
    ]


Asked = Sequence[tuple[Task, Question]]


def _repeated(tasks: Sequence[Task], asked: Asked, documents: bool) -> Check:
    ids = sum(n - 1 for n in Counter(task.id for task in tasks).values())
    same = sum(n - 1 for n in Counter(q.text.casefold() for _, q in asked).values())
    found = f"{ids:,} ids and {same:,} questions come again"
    # Made-up families may ask the same of another text.
    return Check("repetitions", found, ids == 0 and not (documents and same))


def _copied(tasks: Sequence[Task]) -> list[Check]:
    """Count tasks that are others again: an interval over them would be of one task."""
    texts = [text for task in tasks if (text := text_of(task)) is not None]
    if not texts:
        return []  # lazy ones
    again, about = copies(texts), len({task.cluster for task in tasks})
    found = f"{again:,} of {len(texts):,} tasks are copies of others, {about:,} clusters in all"
    # Where tasks are drawn, a few may be alike by chance.
    return [Check("copies", found, again <= MOST_COPIES * len(texts))]


def _evidence(asked: Asked, needed: bool) -> Check:
    lost = sum(not all(0 <= i < len(t.chunks) for i in q.evidence) for t, q in asked)
    double = sum(len(set(q.evidence)) < len(q.evidence) for _, q in asked)
    none = sum(not q.evidence for _, q in asked)
    found = f"{len(asked) - none:,} questions have it, {lost:,} point outside, {double:,} twice"
    return Check("evidence", found, not lost and not double and not (needed and none))


def _answers(asked: Asked, documents: bool) -> Check:
    spans = [(t, q) for t, q in asked if q.evidence and q.answers[0].lower() not in ("yes", "no")]
    empty = sum(not q.answers or not all(a.strip() for a in q.answers) for _, q in asked)
    held = sum(
        _holds([t.chunks[i] for i in q.evidence if i < len(t.chunks)], q.answers) for t, q in spans
    )
    part = held / len(spans) if spans else 1.0
    known = f"{held:,} of {len(spans):,} are in their evidence ({share(part)})"
    found = f"{known if spans else 'no evidence to find them in'}, {empty:,} are empty"
    if empty or documents:
        return Check("answers", found, not empty and part >= ANSWERED)
    return Check("answers", found)  # elsewhere an answer may have to be worked out


def _kinds(asked: Asked) -> list[Check]:
    """Look at what only some families have: categories, ids of questions, answers as stated."""
    categories = Counter(question.category or "none" for _, question in asked)
    found = ", ".join(f"{n:,} {name}" for name, n in sorted(categories.items()))
    checks = [Check("categories", found)] if set(categories) != {"none"} else []
    tasks = {task.id: task for task, _ in asked}.values()
    ids = Counter(id for task in tasks for id in _question_ids(task))
    if ids:
        again = sum(n - 1 for n in ids.values())
        checks.append(Check("question ids", f"{len(ids):,}, {again:,} come again", not again))
    stated = [(task, question) for task, question in asked if _is_stated(task, question)]
    if stated:
        missing = sum(not _states(task, question) for task, question in stated)
        told = f"{len(stated) - missing:,} of {len(stated):,} are in the evidence word for word"
        checks.append(Check("stated answers", told, not missing))
    return checks


def _question_ids(task: Task) -> list[str]:
    """Return what a task's meta calls its questions; a user's own may say anything there."""
    about = task.meta.get("questions")
    held = about if isinstance(about, list) else []
    return [str(said["id"]) for said in held if isinstance(said, Mapping) and "id" in said]


def _is_stated(task: Task, question: Question) -> bool:
    """Say whether this kind of question is answered by words of its evidence."""
    return task.source == "ruler" or (task.source == "babilong" and question.category in STATED)


def _states(task: Task, question: Question) -> bool:
    text = "\n".join(task.chunks[i] for i in question.evidence if i < len(task.chunks)).lower()
    needed = any if task.source == "babilong" or question.category.startswith("qa_") else all
    # HotpotQA's yes and no are conclusions, whatever else it asks.
    concluded = question.answers[0].lower() in ("yes", "no")
    return concluded or needed(answer.lower() in text for answer in question.answers)


def _guesses(asked: Asked) -> Check:
    """Say what two policies that read nothing would score."""
    echo = sum(sub_exact_match(q.text, q.answers) for _, q in asked) / len(asked)
    yes = sum(sub_exact_match("yes", q.answers) for _, q in asked) / len(asked)
    return Check("without reading", f"the question itself scores {share(echo)}, yes {share(yes)}")


def _holds(texts: Sequence[str], answers: Sequence[str]) -> bool:
    text = normalise("\n".join(texts))
    return any(normalise(answer) in text for answer in answers)


def _once(family: TaskFamily) -> bool:
    return isinstance(family, DocumentTasks) and not family.repeats


def _texts(tasks: Sequence[Task], once: bool) -> list[Check]:
    """Read some texts whole: does a chunk come twice, and how often do others hold the answer?"""
    double = elsewhere = 0
    for task in tasks:
        evidence = {i for q in task.questions for i in q.evidence}
        answers = [a.casefold() for q in task.questions[:1] for a in q.answers if len(a) > 3]
        seen: set[int] = set()
        held = False
        for i, chunk in enumerate(task.chunks):
            # The first line of a document is its number: the rest tells whether it came before.
            seen.add(hash(chunk.partition("\n")[2] or chunk))
            if i not in evidence and not held and answers:
                text = chunk.casefold()
                held = any(answer in text for answer in answers)
        double += len(task.chunks) - len(seen)
        elsewhere += held
    few = f"in {len(tasks)} texts"
    return [
        Check("chunks", f"{double:,} come again {few}", not double if once else None),
        Check("answer elsewhere", f"{elsewhere} of {len(tasks)} texts also have it outside"),
    ]


def _lengths(tasks: Sequence[Task], spec: TaskSpec) -> Check:
    # Lists of codes and numbers are denser than prose: their families say by how much.
    dense = [BYTES_PER_TOKEN / bytes_per_token(t.meta, f"task {t.id[:40]!r}") for t in tasks]
    sizes = [sum(estimate_tokens(c) + 1 for c in task.chunks) for task in tasks]
    tokens = [round(size * times) for size, times in zip(sizes, dense, strict=True)]
    mean = sum(tokens) / len(tokens)
    found = f"{min(tokens):,} to {max(tokens):,} estimated, mean {mean:,.0f}"
    if spec.length is None:
        return Check("tokens", found)
    wanted = f", {show_length(spec.length)} wanted"
    return Check("tokens", found + wanted, 0.75 * spec.length <= mean <= 1.25 * spec.length)


def _positions(asked: Asked, uniform: bool) -> list[Check]:
    places = [(i, len(t.chunks)) for t, q in asked for i in q.evidence if i < len(t.chunks)]
    if not places:
        return []
    found, expected = histogram(places)
    p = chi_square_p(found, expected)
    most = max(found) or 1
    bars = "".join(_BARS[round(n / most * (len(_BARS) - 1))] for n in found)
    shares = " ".join(share(n / len(places)) for n in found)
    return [
        Check("positions", f"{bars}  {shares}"),
        Check("uniform", f"chi-square p {p_value(p)}", p >= UNLIKELY if uniform else None),
    ]
