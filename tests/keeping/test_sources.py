"""Texts to read: odd, damaged and hostile files are one message each, in bounded time."""

from __future__ import annotations

import io
import os
import time
import zlib
from pathlib import Path

import pytest

from recollect.commands.ask_options import AskOptions
from recollect.commands.ask_texts import read_texts
from recollect.errors import UserError
from recollect.keeping import sources
from recollect.keeping.pdf import pdf_text
from recollect.keeping.sources import is_source, read_sources

TEXT = b"BT /F1 12 Tf 72 700 Td (Anna keeps the key.) Tj ET"


def pdf(*bodies: bytes) -> bytes:
    """Return a PDF of objects, the first of which is its catalog."""
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(bodies, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1)
    for place in places:
        out += b"%010d 00000 n \n" % place
    tail = b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n"
    return bytes(out + tail % (len(bodies) + 1, start))


def one_page(stream: bytes, more: bytes = b"") -> bytes:
    font = b"<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources %s>>" % font,
        b"<</Length %d%s>>stream\n%s\nendstream" % (len(stream), more, stream),
    )


def many_pages(levels: int = 12, each: int = 64) -> bytes:
    """Return a few kilobytes that claim a number of pages with twenty digits."""
    page = b"<</Type/Page/MediaBox[0 0 9 9]/Resources<<>>>>"
    kids = [b" ".join([b"%d 0 R" % (3 + level)] * each) for level in range(levels)]
    nodes = [b"<</Type/Pages/Kids[%s]/Count %d>>" % (kid, each**levels) for kid in kids]
    return pdf(b"<</Type/Catalog/Pages 2 0 R>>", *nodes, page)


def encrypted(folder: Path) -> Path:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(PdfReader(io.BytesIO(one_page(TEXT))))
    writer.encrypt("secret", algorithm="RC4-128")
    with open(folder / "locked.pdf", "wb") as file:
        writer.write(file)
    return folder / "locked.pdf"


def refusal(path: Path, **limits: int) -> str:
    began = time.monotonic()
    with pytest.raises(UserError) as raised:
        pdf_text(path, **limits)
    assert time.monotonic() - began < 30
    said = str(raised.value)
    assert str(path) in said and "Traceback" not in said and len(said) < 500
    return said


def test_a_pdf_is_read_and_what_cannot_be_read_is_one_message(tmp_path):
    pytest.importorskip("pypdf", reason="the extra pdf is not installed")
    whole = one_page(TEXT)
    path = tmp_path / "a.pdf"
    path.write_bytes(whole)
    assert read_sources([str(path)]).documents[0].text.strip() == "Anna keeps the key."
    for damaged in (b"", b"%PDF-1.4\n", whole[:90], os.urandom(3000), b"plain text"):
        path.write_bytes(damaged)
        refusal(path)
    assert "encrypted" in refusal(encrypted(tmp_path))


def test_a_pdf_of_kilobytes_cannot_take_hours_or_all_memory(tmp_path):
    pytest.importorskip("pypdf", reason="the extra pdf is not installed")
    path = tmp_path / "pages.pdf"
    path.write_bytes(many_pages())
    refusal(path, seconds=2)
    packed = zlib.compress(b"(x) Tj " * (1 << 25), 9)
    path.write_bytes(one_page(zlib.compress(packed, 9), b"/Filter[/FlateDecode/FlateDecode]"))
    assert path.stat().st_size < 10_000
    refusal(path, seconds=2)


def test_standard_input_and_files_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LARGEST", 1 << 10)
    for size in (1 << 10, (1 << 10) + 1):
        fed = io.TextIOWrapper(io.BytesIO(b"x" * size))
        monkeypatch.setattr("sys.stdin", fed)
        (tmp_path / "x.txt").write_bytes(b"x" * size)
        for name in ("-", str(tmp_path / "x.txt")):
            if size == 1 << 10:
                assert len(read_sources([name]).documents[0].text) == size
            else:
                with pytest.raises(UserError, match="more than"):
                    read_sources([name])


def test_odd_files_are_read_or_refused_in_one_message(tmp_path):
    def refused(name: str, says: str) -> None:
        with pytest.raises(UserError, match=says):
            read_sources([str(tmp_path / name)])

    os.mkfifo(tmp_path / "pipe")
    refused("pipe", "is not a file")
    (tmp_path / "loop").symlink_to("loop")
    refused("loop", "is not a file|cannot be read")
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    refused("binary", "not a text file")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    refused("sparse", "more than 1 GiB")
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbfOne\r\nTwo\rThree \xff")
    [document] = read_sources([str(tmp_path / "bom.txt")]).documents
    assert document.text == "One\nTwo\nThree \ufffd" and not document.whole


def test_what_could_not_be_read_is_named(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("All of it.")
    (tmp_path / "b.txt").write_bytes(b"x" * 5000 + " Café".encode("latin-1"))
    (tmp_path / "c.txt").write_bytes("Café".encode("latin-1") * 9)
    (tmp_path / "d.png").write_bytes(b"\x89PNG\0")
    (tmp_path / ".hidden").write_bytes(b"\0")
    found = read_sources([str(tmp_path)])
    assert [(d.name, d.whole) for d in found.documents] == [("a.txt", True), ("b.txt", False)]
    assert found.left_out == ["c.txt", "d.png"]
    read_texts(AskOptions((str(tmp_path), "What is it?"), model="x"))
    assert capsys.readouterr().out.splitlines() == [
        "a.txt, b.txt: 5 words",
        "left out, as it is no text in UTF-8: c.txt, d.png",
        "read with gaps, as not all of it is in UTF-8: b.txt",
    ]


def test_one_bad_pdf_does_not_stop_a_folder_and_is_named(tmp_path, capsys):
    pytest.importorskip("pypdf", reason="the extra pdf is not installed")
    (tmp_path / "a.pdf").write_bytes(one_page(TEXT))
    (tmp_path / "half.pdf").write_bytes(one_page(TEXT)[:90])
    (tmp_path / "scan.pdf").write_bytes(one_page(b""))
    encrypted(tmp_path)
    read_texts(AskOptions((str(tmp_path), "What is it?"), model="x"))
    assert capsys.readouterr().out.splitlines() == [
        "a.pdf: 4 words",
        "left out, as no text could be found in it: half.pdf, locked.pdf, scan.pdf",
    ]
    with pytest.raises(UserError, match=r"half\.pdf cannot be read as a PDF"):
        read_sources([str(tmp_path), str(tmp_path / "half.pdf")])


@pytest.mark.parametrize("text", ["他来了", "é", "a🫠", "ab🫠", "🫠a", "\ufeffhi"])
@pytest.mark.parametrize("times", [1, 3000])
def test_a_text_in_a_folder_is_one_wherever_its_beginning_is_cut(tmp_path, text, times):
    (tmp_path / "a.txt").write_text(text * times, encoding="utf-8")
    found = read_sources([str(tmp_path)])
    assert not found.left_out
    assert found.documents[0].text == (text * times).removeprefix("\ufeff")


def test_an_empty_question_does_not_read_the_current_folder():
    for word in ("", " \n"):
        with pytest.raises(UserError, match="a question is empty"):
            is_source(word)


def test_a_folder_with_odd_names_and_loops_is_read(tmp_path):
    names = [
        b"new\nline.txt",
        b"esc\x1b[31m.txt",
        b"half\xed\xa0\x80.txt",
        b"-x.txt",
        b"[/red].txt",
    ]
    (tmp_path / "[").mkdir()
    for name in names:
        with open(os.fsencode(tmp_path) + b"/" + name, "w") as file:
            file.write("text")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    os.mkfifo(tmp_path / "pipe")
    found = read_sources([str(tmp_path)]).documents
    assert len(found) == len(names) and {document.text for document in found} == {"text"}
