"""Tokens by estimate: every text comes back, and three bytes are a token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recollect.foreign import storable
from recollect.policies.bytes import END
from recollect.policies.estimated import EstimatedTokenizer

TOKENIZER = EstimatedTokenizer()


@given(st.text())
def test_every_text_comes_back(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == storable(text)
    assert all(0 < i < TOKENIZER.vocab_size < 1 << 31 for i in ids)
    size = len(storable(text).encode())
    assert size / 3 <= len(ids) <= size


def test_tokens_are_not_bytes():
    text = "Ann moved to the red house near the harbour. " * 100
    assert len(TOKENIZER.encode(text)) == len(text) / 3
    assert TOKENIZER.encode(f"a{END}b", control=True)[1] == TOKENIZER.end_ids[0]
    assert TOKENIZER.decode_control(0) == END


def test_a_server_without_a_tokenizer_keeps_its_window_in_tokens(tmp_path, capsys):
    """What is counted is said in the terminal and in the report."""
    from recollect.cli import main
    from tests.support.chat_server import chat_server

    with chat_server(lambda _text: "Oslo") as server:
        command = ["eval", "--tasks", "recall@200", "--agents", "fold", "--model", server.url]
        main([*command, "--n", "1", "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    note = "tokens are estimated, at three bytes each"
    assert note in said and "--tokenizer" in said
    assert "okens are estimated, at three bytes each" in (tmp_path / "out/report.md").read_text()
    assert "estimated" in (tmp_path / "out/report.html").read_text()
