"""Text files as one document, by lines, by paragraphs."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.corpus import streams
from packer.errors import RecordError

PIECES = st.lists(st.sampled_from(["a", "é", "\u2028", " ", "\t", "\r\n", "\n", "\n\n", "\x0b", "\r"]), max_size=40)


def paragraphs(text: str) -> list[str]:
    blocks: list[list[str]] = [[]]
    *lines, rest = text.split("\n")
    for line in [*lines, rest] if rest else lines:
        if line.strip():
            blocks[-1].append(line.removesuffix("\r"))
        else:
            blocks.append([])
    if not rest and blocks[-1]:
        blocks[-1].append("")  # the file's final line feed is text too
    return ["\n".join(block) for block in blocks if block]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PIECES, st.integers(3, 9), st.integers(1, 50), st.booleans())
def test_equals_the_obvious(tmp_path, monkeypatch, read, pieces, chunk, size, bom):
    text = "".join(pieces)
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbf" * bom + text.encode())
    monkeypatch.setattr(streams, "CHUNK", chunk)
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    assert read(path).documents == [text] * bool(text or bom)
    assert read(path, split_text="line", partition_bytes=size).documents == [line for line in lines if line]
    assert read(path, split_text="paragraph", partition_bytes=size).documents == paragraphs(text)


def test_what_is_not_utf8_is_a_bad_record(tmp_path, read):
    path = tmp_path / "x.txt"
    path.write_bytes(b"good\n\ncaf\xe9\nmore\n\nend\r\n")
    with pytest.raises(RecordError, match=r"x\.txt, the whole file: not UTF-8 at byte 9; convert it first"):
        read(path)
    result = read(path, split_text="line", on_error="skip", partition_bytes=4)
    assert result.documents == ["good", "more", "end"]
    assert [where for where, _ in result.faults] == ["line 3"]
    result = read(path, split_text="paragraph", on_error="skip")
    assert result.documents == ["good", "end\n"]
    assert result.faults == [("line 3", "not UTF-8 at byte 3; convert it first, e.g. with iconv")]


@pytest.mark.parametrize(("encoding", "name"), [("utf-16", "UTF-16"), ("utf-32", "UTF-32")])
def test_other_encodings_are_named(tmp_path, read, encoding, name):
    (tmp_path / "x.txt").write_text("hello", encoding=encoding)
    with pytest.raises(RecordError, match=f"{name}, not UTF-8"):
        read(tmp_path / "x.txt")


@pytest.mark.parametrize("chunk", [8, 1 << 20])
def test_bounds(tmp_path, monkeypatch, read, chunk):
    monkeypatch.setattr(streams, "CHUNK", chunk)
    path = tmp_path / "x.txt"
    path.write_text("abc\ndef\n\n" + "x" * 30 + "\nno\n\nabc\nde\nf\n\nok\n")
    reason = "record is above 7 bytes (--max-record-bytes)"
    result = read(path, split_text="paragraph", on_error="skip", max_record_bytes=7)
    assert result.documents == ["abc\ndef", "ok\n"]
    assert result.faults == [("line 4", reason), ("line 7", reason)]
    assert read(path, split_text="line", on_error="skip", max_record_bytes=7).faults == [("line 4", reason)]
    assert read(path, on_error="skip", max_record_bytes=7).faults == [("the whole file", reason)]


def test_a_file_of_a_mark_alone_is_an_empty_document(tmp_path, read):
    (tmp_path / "x.txt").write_bytes(b"\xef\xbb\xbf")
    assert read(tmp_path / "x.txt").documents == [""]
