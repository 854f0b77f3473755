"""`recollect data longmemeval`, `beam` and `locomo`, from the command to validated tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recollect.cli import main
from tests.tasks.conversations.test_beam import item as beam_item
from tests.tasks.conversations.test_locomo import QA, conversation
from tests.tasks.conversations.test_longmemeval import item


def validate(name: str, data: Path) -> int:
    return main(["data", "validate", name, "--data", str(data)])


def test_longmemeval(tmp_path, capsys):
    path = tmp_path / "longmemeval_s_cleaned.json"
    path.write_text(json.dumps([item("a"), item("b_abs", question_date=None)]))
    output = str(tmp_path / "longmemeval")
    assert main(["data", "longmemeval", "--input", str(path), "--output", output]) == 0
    said = capsys.readouterr().out
    assert "s abstention" in said and "s b_abs: has no date of the question" in said
    assert validate("longmemeval", tmp_path) == 0
    assert "1 abstention, 1 multi-session" in capsys.readouterr().out
    again = ["data", "longmemeval", "--input", str(path), "--output", output, "--variant", "oracle"]
    assert main(again) == 0
    assert validate("longmemeval:s,oracle", tmp_path) == 0


def test_a_variant_that_the_name_does_not_say(tmp_path, capsys):
    path = tmp_path / "file.json"
    path.write_text(json.dumps([item("a")]))
    assert main(["data", "longmemeval", "--input", str(path), "--output", str(tmp_path)]) != 0
    assert "--variant oracle, s, m" in capsys.readouterr().err
    lost = ["data", "longmemeval", "--input", str(tmp_path / "x_s.json")]
    assert main([*lost, "--output", str(tmp_path / "out")]) != 0
    assert "there is no file" in capsys.readouterr().err


def test_beam(tmp_path, capsys):
    path = tmp_path / "chats.jsonl"
    lines = [json.dumps(beam_item(n)).replace("I run 5 km", f"I run {n} km") for n in range(3)]
    path.write_text("\n".join(lines))
    output = str(tmp_path / "beam")
    assert main(["data", "beam", "--input", str(path), "--output", output]) == 0
    assert "100k knowledge_update" in capsys.readouterr().out
    assert validate("beam", tmp_path) == 0
    said = capsys.readouterr().out
    assert "6 abstention, 3 knowledge_update" in said and "9, 0 come again" in said
    assert main(["data", "beam", "--input", str(path), "--variant", "9k"]) != 0


@pytest.mark.parametrize("name", ["locomo", "locomo:questions"])
def test_locomo(name, tmp_path, capsys):
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([conversation(f"conv-{n}", QA) for n in range(3)]))
    output = tmp_path / "locomo"
    assert main(["data", "locomo", "--input", str(path), "--output", str(output)]) == 0
    assert validate(name, tmp_path) == 0
    said = capsys.readouterr().out
    assert "6 adversarial, 3 open-domain, 3 single-hop, 3 temporal" in said
    spoilt = output / "conversations.parquet"
    raw = bytearray(spoilt.read_bytes())
    raw[10] ^= 1
    spoilt.write_bytes(raw)
    assert validate(name, tmp_path) != 0
    assert "conversations.parquet cannot be read" in capsys.readouterr().err
