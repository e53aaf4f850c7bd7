"""Compression by content, members and frames, cut and damaged streams; lines from chunks."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.corpus import streams
from packer.corpus.streams import zstd
from packer.errors import InputError

COMPRESS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd.compress}
SUFFIXES = {"gzip": "gz", "bzip2": "bz2", "xz": "xz", "zstd": "zst"}
LINE = b'{"text": "hello"}\n'
ALL = pytest.mark.parametrize("name", list(COMPRESS))


@ALL
def test_several_members_padding_and_names(tmp_path, read, name):
    compress = COMPRESS[name]
    data = compress(LINE * 3) + compress(b"") + compress(LINE * 2) + b"\0" * 8
    (tmp_path / f"x.jsonl.{SUFFIXES[name]}").write_bytes(data)
    (tmp_path / "y.jsonl").write_bytes(data)
    (tmp_path / "z.jsonl.gz").write_bytes(LINE)  # not compressed at all
    assert read(tmp_path).documents == ["hello"] * 11
    (tmp_path / "t.txt").write_bytes(compress("é".encode() * 9))
    assert read(tmp_path / "t.txt").documents == ["é" * 9]


@ALL
def test_large(tmp_path, monkeypatch, read, name):
    monkeypatch.setattr(streams, "CHUNK", 1000)
    (tmp_path / "x.jsonl").write_bytes(COMPRESS[name](LINE * 20_000) + COMPRESS[name](LINE))
    assert read(tmp_path / "x.jsonl").records == [20_001]


@ALL
def test_cut_and_damaged(tmp_path, read, name):
    lines = b"".join(b'{"text": "number %d"}\n' % (i * 7919 % 10007) for i in range(3000))
    whole = COMPRESS[name](lines)
    path = tmp_path / "x.jsonl"
    for kept in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(InputError, match=f"x.jsonl: {name} stream is cut off; fetch the file again"):
            read(path, on_error="skip")
    path.write_bytes(whole + b"garbage that is no member")
    with pytest.raises(InputError, match=f"{name} stream is corrupt"):
        read(path, on_error="skip")
    path.write_bytes(whole + COMPRESS[name](lines)[:-30])
    with pytest.raises(InputError, match=r"cut off|corrupt"):
        read(path, on_error="skip")
    damaged = bytearray(
        zstd.compress(lines, options={zstd.CompressionParameter.checksum_flag: 1}) if name == "zstd" else whole
    )
    damaged[len(damaged) // 2] ^= 64
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"corrupt|cut off"):
        read(path, on_error="skip")


def test_skippable_frames(tmp_path, read):
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0meta"
    (tmp_path / "x.jsonl").write_bytes(skippable + zstd.compress(LINE) + skippable + zstd.compress(LINE))
    assert read(tmp_path / "x.jsonl").documents == ["hello"] * 2


def test_a_text_that_begins_like_bzip2(tmp_path, read):
    (tmp_path / "x.txt").write_text("BZh9 is how it starts")
    assert read(tmp_path / "x.txt").documents == ["BZh9 is how it starts"]


@given(st.lists(st.binary(max_size=6) | st.just(b"\n") | st.just(b"abc"), max_size=20), st.integers(0, 8))
def test_lines(parts, limit):
    data = b"".join(parts)
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    found = [line for group in streams.lines(iter(parts), limit) for line in group]
    assert found == [line if len(line) <= limit else None for line in expected]
