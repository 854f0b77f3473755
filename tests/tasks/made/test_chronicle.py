"""Chronicles: answers follow from the text, nothing else gives them away, and any length works."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace

import pytest

from recollect.errors import UserError
from recollect.tasks.lengths import estimate_tokens
from recollect.tasks.made.chronicle import KINDS, Chronicle
from recollect.tasks.made.chronicle_plan import Plan
from recollect.tasks.made.chronicle_reader import Reader, solve, statements
from recollect.tasks.made.chronicle_text import draw_story
from recollect.tasks.named import open_family, parse_specs


def solved(family: Chronicle, n: int, split: str = "test") -> dict[str, list[bool]]:
    """Let the reader by rules answer; per kind."""
    found: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for i in range(n):
        task = family.task(i, 0, split)
        for question in task.questions:
            right = (solve(task.chunks, question.text),) == question.answers
            found[question.category].append(right)
    return found


@pytest.mark.parametrize(("tokens", "n"), [(4096, 40), (12_000, 8), (40_000, 4)])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_reader_by_rules_answers_everything(tokens, n, split):
    found = solved(Chronicle(tokens=tokens), n, split)
    assert all(right and all(right) for right in found.values())


def test_another_order_of_the_pages_hurts_what_depends_on_it_and_no_count():
    found = solved(Chronicle(tokens=8192, shuffled=True), 40)
    assert all(found["count"])
    for kind in ("overwrite", "two-hop", "blind"):
        assert sum(found[kind]) / len(found[kind]) < 0.8, kind


def test_the_evidence_is_enough_for_the_answer():
    family = Chronicle(tokens=4096)
    for i in range(60):
        task = family.task(i, 1)
        for question in task.questions:
            pages = [task.chunks[at] for at in question.evidence]
            found = solve(pages, question.text)
            if question.category != "two-hop":  # the keeper may have moved on an evidence page
                assert found == question.answers[0], question
            assert found


def test_the_last_towns_are_dealt_evenly_so_that_no_blind_rule_can_win():
    for tokens in (4096, 16384, 131072):
        plan = Plan.of(tokens, 256)
        story = draw_story(plan, "test", 0, tokens)
        assert set(Counter(story.towns).values()) == {plan.people // 8}
        kept = Counter(story.towns[keeper] for keeper in story.keepers)
        assert set(kept.values()) == {plan.things // 8}
        counts = [len(story.letters(p, sent)) for p in range(plan.people) for sent in (True, False)]
        assert max(counts) == plan.most <= 40 and min(counts) == 0
        spread = Counter(counts).values()
        assert max(spread) - min(spread) <= 2


def test_the_law_is_the_same_for_everybody():
    plan = Plan.of(16384, 256)
    mentions: Counter[str] = Counter()
    story = draw_story(plan, "train", "law")
    for page in story.pages:
        for statement in statements(page):
            mentions[statement.fields.get("a", "")] += statement.form in ("set", "refused")
    told = [mentions[name] for name in story.pages.names.people]
    assert min(told) > 0.5 * sum(told) / len(told)


def test_some_letters_are_told_of_twice_and_stale_towns_come_again():
    task = Chronicle(("count",), tokens=4096).task(0)
    told = [s for page in task.chunks for s in statements(page)]
    letters = [tuple(s.fields[f] for f in "abd") for s in told if s.form == "letter"]
    assert len(set(letters)) < len(letters)
    forms = Counter(s.form for s in told)
    assert {"set", "refused", "cancel", "exchange", "handover", "in vain"} < set(forms)
    towns = Counter(s.fields["x"] for s in told if s.form == "set")
    assert max(towns.values()) > 1


def test_the_bridge_of_two_hops_is_not_in_the_question_and_comes_first():
    family = Chronicle(("two-hop",), tokens=4096)
    for i in range(30):
        task = family.task(i)
        (question,) = task.questions
        thing = question.text.removeprefix("Where does the keeper of the ").removesuffix(
            " live now?"
        )
        reader = Reader()
        named = settled = -1
        order = [s for page in task.chunks for s in statements(page)]
        for at, statement in enumerate(order):
            before = dict(reader.keepers), dict(reader.towns)
            reader.take(statement)
            keeper = reader.keepers.get(thing, "")
            if before[0].get(thing) != keeper:
                named = at
            if keeper and before[1].get(keeper) != reader.towns.get(keeper):
                settled = at
        assert reader.keepers[thing] not in question.text
        assert 0 <= named < settled


def test_the_text_does_not_depend_on_what_is_asked():
    texts = [list(Chronicle((kind,)).task(3).chunks) for kind in KINDS]
    assert all(text == texts[0] for text in texts)
    assert [len(Chronicle((kind,)).task(3).questions) for kind in KINDS] == [1, 1, 1, 4]


def test_all_kinds_come_equally_often_and_the_same_task_comes_again():
    family = Chronicle()
    tasks = [family.task(i, 2) for i in range(16)]
    assert Counter(t.questions[0].category for t in tasks) == dict.fromkeys(KINDS, 4)
    assert tasks[5] == family.task(5, 2) and tasks[5] != family.task(5, 3)


def test_no_name_is_in_both_splits():
    named = {}
    for split in ("train", "test"):
        words: set[str] = set()
        for i in range(12):
            names = draw_story(Plan.of(8192, 256), split, i).pages.names
            words |= {*names.towns, *names.things, *(w for p in names.people for w in p.split())}
        named[split] = words
    assert not named["train"] & named["test"]


def test_a_million_tokens_take_little_memory():
    family = Chronicle(tokens=1_000_000)
    tracemalloc.start()
    task = family.task(0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
    pages = [task.chunks[i] for i in (0, len(task.chunks) // 2, -1)]
    assert 0.9 < sum(map(estimate_tokens, pages)) / (3 * 256) < 1.1


def test_a_spec_names_a_kind_a_length_and_the_control():
    specs = parse_specs("chronicle:overwrite,two-hop@8k,64k chronicle@8k#shuffled")
    found = [open_family(spec) for spec in specs]
    assert [(f.kinds, f.tokens) for f in found[:2]] == [
        (("overwrite",), 8192),
        (("overwrite",), 65536),
    ]
    assert found[4] == Chronicle(KINDS, 8192, shuffled=True)
    assert found[0].longer(4) == replace(found[0], tokens=32768)


@pytest.mark.parametrize("wrong", ["chronicle:three-hop", "chronicle@2k", "chronicle#first"])
def test_what_there_is_not_is_refused(wrong):
    with pytest.raises(UserError):
        open_family(*parse_specs(wrong))
