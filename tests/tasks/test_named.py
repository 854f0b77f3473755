"""Families by name: the grammar, the table, and the mistakes it names."""

from __future__ import annotations

import pytest

from recollect.errors import UserError
from recollect.tasks.lengths import estimate_tokens
from recollect.tasks.named import TaskSpec, open_family, parse_specs


def test_variants_and_lengths_multiply():
    specs = parse_specs("ruler:vt,fwe@8k,64k recall")
    assert specs == [
        TaskSpec("ruler", "vt", 8192),
        TaskSpec("ruler", "vt", 65536),
        TaskSpec("ruler", "fwe", 8192),
        TaskSpec("ruler", "fwe", 65536),
        TaskSpec("recall"),
    ]
    assert parse_specs("hotpotqa@50docs#first,last") == [
        TaskSpec("hotpotqa", documents=50, position="first"),
        TaskSpec("hotpotqa", documents=50, position="last"),
    ]


@pytest.mark.parametrize(
    "text", ["recall", "ruler:vt@8k", "hotpotqa@50docs#first", "hotpotqa@1.75m", "a:b@5001#c"]
)
def test_a_spec_is_written_as_it_was_read(text):
    (spec,) = parse_specs(text)
    assert str(spec) == text


@pytest.mark.parametrize(
    "text", ["@8k", ":x", "ruler:", "ruler:vt,", "ruler@", "ruler@8k,,9k", "#"]
)
def test_other_words_are_refused(text):
    with pytest.raises(UserError):
        parse_specs(text)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UserError, match="recall"):
        open_family(TaskSpec("recal"))


def test_a_file_that_is_no_family_is_told_how_it_is_named():
    for name, fix in (("t.parquet", "write parquet:t.parquet"), ("t.csv", "a Parquet file")):
        [spec] = parse_specs(name)
        with pytest.raises(UserError, match=f"(?s)no task {name!r}.*{fix}"):
            open_family(spec)


@pytest.mark.parametrize("name", ["recall", "ledger", "chronicle"])
@pytest.mark.parametrize("tokens", [4_500, 20_000])
def test_made_up_families_fill_a_length(name, tokens):
    family = open_family(TaskSpec(name, length=tokens))
    assert family.size("test") is None and family.name == name
    found = sum(map(estimate_tokens, family.task(0, 3, "test").chunks))
    assert 0.7 * tokens < found < 1.4 * tokens


def test_what_a_family_does_not_have_is_refused():
    with pytest.raises(UserError, match="recall has no position"):
        open_family(TaskSpec("recall", position="first"))


def test_a_ledger_of_so_many_sessions():
    (spec,) = parse_specs("ledger:ss5")
    task = open_family(spec).task(0, 0, "test")
    assert len(task.chunks) == 5 and len(task.questions) > 20
    for text in ("ledger:5", "ledger:ss5@8k"):
        with pytest.raises(UserError, match="ledger:ss10 for ten sessions"):
            open_family(parse_specs(text)[0])
