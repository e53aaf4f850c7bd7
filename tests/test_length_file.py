"""Files of lengths: all forms, and every way in which one can be wrong."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer import length_file
from packer.errors import InputError
from packer.lengths import Histogram
from packer.pricing import Terms
from packer.stats import Stats, stats_of_lengths

LONGEST = 2**31 - 1


def as_lines(path: Path, content: bytes) -> tuple[list[int], int]:
    """Lengths in order, and how many were 0."""
    path.write_bytes(content)
    parts: list[np.ndarray] = []
    found = length_file.read(path, parts.append)
    assert found.histogram is None
    assert all(part.dtype == np.int32 for part in parts)
    return [n for part in parts for n in part.tolist()], found.empty


def as_counts(path: Path, content: object) -> tuple[dict[int, int], int]:
    """Documents by length, and how many were 0."""
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())

    def none_in_order(_: np.ndarray) -> None:
        raise AssertionError

    found = length_file.read(path, none_in_order)
    assert found.histogram is not None
    return dict(zip(found.histogram.lengths.tolist(), found.histogram.counts.tolist(), strict=True)), found.empty


def refused(path: Path) -> str:
    """The one line that says why, after the file's name."""
    with pytest.raises(InputError) as caught:
        length_file.read(path, lambda _: None)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"--lengths {path}")
    return message.removeprefix(f"--lengths {path}").lstrip(":, ")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lengths"


# --- one length a line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "lengths", "empty"),
    [
        (b"5\n7\n", [5, 7], 0),
        (b"7\n5", [7, 5], 0),
        (b"5", [5], 0),
        (b"5\r\n7\r\n", [5, 7], 0),
        (b"5\r\n7", [5, 7], 0),
        (b"\xef\xbb\xbf5\n7\n", [5, 7], 0),
        (b"\xef\xbb\xbf5\r\n7\r\n", [5, 7], 0),
        (b"\n\n5\n\n\n7\n\n", [5, 7], 0),
        (b"5\r\n\r\n7\r\n", [5, 7], 0),
        (b" 5\n7 \n\t6\n", [5, 7, 6], 0),
        (b"0\n5\n0\n0\n", [5], 3),
        (b"0\n", [], 1),
        (b"007\n", [7], 0),
        (b"2147483647\n1\n", [LONGEST, 1], 0),
        (b"\n\n", [], 0),
    ],
)
def test_lines(path: Path, content: bytes, lengths: list[int], empty: int) -> None:
    assert as_lines(path, content) == (lengths, empty)


@given(st.lists(st.integers(0, 9) | st.integers(0, LONGEST), min_size=1), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_lines_keep_their_order(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], end: str) -> None:
    path = tmp_path_factory.getbasetemp() / "given.txt"
    expected = [n for n in lengths if n], lengths.count(0)
    assert as_lines(path, end.join(map(str, lengths)).encode()) == expected


def test_many_lines_come_in_several_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length_file, "BLOCK_BYTES", 1000)
    lengths = np.random.default_rng(0).integers(1, 100_000, 5000).tolist()
    assert as_lines(path, "".join(f"{n}\n" for n in lengths).encode()) == (lengths, 0)
    path.write_text("".join(f"{n}\n" for n in lengths) + "x\n")
    assert refused(path).startswith("line 5001: 'x' ")


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"5\nseven\n", "line 2: 'seven'"),
        (b"length\n5\n", "line 1: 'length'"),
        (b"5\n\n-6\n", "line 3: '-6'"),
        (b"5\n6.5\n", "line 2: '6.5'"),
        (b"5\n6.0\n", "line 2: '6.0'"),
        (b"5\n1e3\n", "line 2: '1e3'"),
        (b"5\n+6\n", "line 2: '+6'"),
        (b"5\n1_000\n", "line 2: '1_000'"),
        (b"5\n1,000\n", "line 2: '1,000'"),
        (b"5\n6 7\n", "line 2: '6 7'"),
        (b"5\n6,\n", "line 2: '6,'"),
        (b'"5"\n', "line 1: '\"5\"'"),
        (b"5\nnan\n", "line 2: 'nan'"),
        (b"5\nNULL\n", "line 2: 'NULL'"),
        (b"5\ntrue\n", "line 2: 'true'"),
        (b"5\r\nx\r\n", "line 2: 'x'"),
        (b"\xef\xbb\xbfx\n", "line 1: 'x'"),
        (b"5\n2147483648\n", "line 2: '2147483648'"),
        (b"5\n99999999999999999999\n", "line 2: '99999999999999999999'"),
        (b"5\n-99999999999999999999\n", "line 2: '-99999999999999999999'"),
        (b"5\n\0\n", "line 2: '\\x00'"),
        ("5\n\N{ARABIC-INDIC DIGIT FIVE}\n".encode(), "line 2: '\N{ARABIC-INDIC DIGIT FIVE}'"),
        ("5\n".encode("utf-16"), "line 1: '\\\\xff\\\\xfe5\\x00'"),
        (b"5\n" + b"9" * 5000, "line 2: '" + "9" * 40 + "'"),
        (b"5\n  \n6\n", "line 2: ''"),
        (b"5\n\xff\n", "line 2: '\\\\xff'"),
        (gzip.compress(b"5\n", mtime=0), "line 1: "),
        (b"5\n" + b"x" * 10_000, "line 2: '" + "x" * 40 + "'"),
        (b'"a": 5\n', "line 1: "),
    ],
)
def test_a_wrong_line_is_named(path: Path, content: bytes, where: str) -> None:
    path.write_bytes(content)
    line = refused(path)
    assert line.startswith(where)
    assert line.endswith("is no length (a whole number up to 2147483647, one a line)")


def test_nothing_to_read(path: Path) -> None:
    assert refused(path) == "No such file or directory"
    path.mkdir()
    assert refused(path) == "Is a directory"
    path.rmdir()
    path.write_bytes(b"")
    assert refused(path)


@pytest.mark.parametrize("content", [b"0\n0\n", b"\n", b"{}", b'{"0": 4}', b'{"5": 0}'])
def test_no_length_above_zero(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"^--lengths [^\n]*lengths holds no length above 0$"):
        stats_of_lengths(path, [8], Terms())


# --- histograms as JSON -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "counts", "empty"),
    [
        ({"12": 3, "5": 1}, {5: 1, 12: 3}, 0),
        ({"count_of_length": {"12": 3, "5": 1}, "source": "somewhere"}, {5: 1, 12: 3}, 0),
        ({"length": {"histogram": {"12": 3}, "min": 12}, "tokens": 36}, {12: 3}, 0),
        ({"0": 7, "5": 1}, {5: 1}, 7),
        ({"5": 0, "6": 1}, {6: 1}, 0),
        ({"5": 1, "05": 2}, {5: 3}, 0),
        ({str(LONGEST): (1 << 40) - 1}, {LONGEST: (1 << 40) - 1}, 0),
        (b'\xef\xbb\xbf\r\n {"5": 1}\r\n', {5: 1}, 0),
        ({}, {}, 0),
    ],
)
def test_histograms(path: Path, content: object, counts: dict[int, int], empty: int) -> None:
    assert as_counts(path, content) == (counts, empty)


@given(st.lists(st.integers(1, 9) | st.integers(1, LONGEST)))
def test_a_histogram_of_any_lengths(tmp_path_factory: pytest.TempPathFactory, lengths: list[int]) -> None:
    path = tmp_path_factory.getbasetemp() / "given.json"
    assert as_counts(path, Counter(lengths)) == (dict(sorted(Counter(lengths).items())), 0)


@pytest.mark.parametrize(
    ("content", "key", "value"),
    [
        ({"5": 1, "x": 2}, "'x'", "'2'"),
        ({"5": "1"}, "'5'", "'1'"),
        ({"5": 1.5}, "'5'", "'1.5'"),
        ({"5": 1.0}, "'5'", "'1.0'"),
        ({"5": -1}, "'5'", "'-1'"),
        ({"5": None}, "'5'", "'None'"),
        ({"5": True}, "'5'", "'True'"),
        ({"5": [1]}, "'5'", "'[1]'"),
        ({"5": 1 << 40}, "'5'", "'1099511627776'"),
        ({"5": 10**30}, "'5'", "'1" + "0" * 30 + "'"),
        ({"-5": 1}, "'-5'", "'1'"),
        ({"5.0": 1}, "'5.0'", "'1'"),
        ({"": 1}, "''", "'1'"),
        ({" 5": 1}, "' 5'", "'1'"),
        ({"\N{ARABIC-INDIC DIGIT FIVE}": 1}, "'\N{ARABIC-INDIC DIGIT FIVE}'", "'1'"),
        ({"²": 1}, "'²'", "'1'"),
        ({"9" * 5000: 1}, "'" + "9" * 40 + "'", "'1'"),
        ({"2147483648": 1}, "'2147483648'", "'1'"),
        ({"count_of_length": [5, 6]}, "'count_of_length'", "'[5, 6]'"),
        ({"count_of_length": {"5": "many"}}, "'5'", "'many'"),
        ({"length": {"min": 5}}, "'length'", "\"{'min': 5}\""),
        ({"documents": 5}, "'documents'", "'5'"),
    ],
)
def test_a_wrong_entry_is_named(path: Path, content: object, key: str, value: str) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False))
    assert refused(path).startswith(f"{key}: {value} is not a length")


@pytest.mark.parametrize(
    "content",
    [
        b'{"5": 1',
        b'{"5": 1}\n{"6": 1}\n',
        b'{"5": 1} x',
        b"{5: 1}",
        b"{'5': 1}",
        b'{"5": \xff}',
        b'{"5": 1,}',
        b"{",
        b'{"5": ' + b"9" * 5000 + b"}",
    ],
)
def test_invalid_json(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert refused(path).startswith("is not valid JSON: ")


def test_json_too_deep(path: Path) -> None:
    path.write_text('{"5": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert refused(path).startswith("is not valid JSON: ")


def test_json_lists_are_answered(path: Path) -> None:
    path.write_text("[5, 6]")
    assert "one length a line" in refused(path)


# --- both ways --------------------------------------------------------------------------------------------------------


def priced(path: Path, content: str) -> Stats:
    path.write_text(content)
    return stats_of_lengths(path, [64, 256], Terms(batch_size=4))


def test_all_forms_tell_the_same(path: Path) -> None:
    lengths = [0, *np.random.default_rng(0).integers(1, 400, 500).tolist(), 0]
    counts = {str(n): count for n, count in Counter(lengths).items()}
    lines = priced(path, "".join(f"{n}\n" for n in lengths))
    forms = [
        priced(path, json.dumps(counts)),
        priced(path, json.dumps({"count_of_length": counts})),
        priced(path, json.dumps(lines.to_json())),
    ]
    assert (lines.documents, lines.empty, lines.skipped, lines.tokens) == (500, 2, 0, sum(lengths))
    for found in forms:
        assert (asdict(found.length), found.truncation) == (asdict(lines.length), lines.truncation)
        for price, exact in zip(found.strategies, lines.strategies, strict=True):
            if price.strategy in ("static", "bfd", "ffd"):
                assert price == exact
    assert forms[0].strategies == forms[1].strategies == forms[2].strategies
    assert [found.empty for found in forms] == [2, 2, 0], "what stats wrote names no zeros"


def test_reading_changes_no_file(path: Path) -> None:
    path.write_bytes(b"5\r\n6")
    length_file.read(path, lambda _: None)
    assert path.read_bytes() == b"5\r\n6"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_lengths_are_counted_over_chunks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the order of training, drawn for each chunk, may depend on how many lengths are held at once."""
    from packer import measuring

    lengths = np.random.default_rng(0).integers(1, 400, 3000).tolist()
    whole = priced(path, "".join(f"{n}\n" for n in lengths))
    monkeypatch.setattr(measuring, "CHUNK", 256)
    pieces = priced(path, "".join(f"{n}\n" for n in lengths))
    assert (whole.length, whole.truncation) == (pieces.length, pieces.truncation)
    assert whole.length.histogram == {n: lengths.count(n) for n in sorted(set(lengths))}
    for price, other in zip(whole.strategies, pieces.strategies, strict=True):
        if price.strategy in ("static", "bfd", "ffd", "first-fit", "wrapped"):
            assert price == other
    assert Histogram.of(np.array(lengths)).percentiles([50, 99]) == [whole.length.p50, whole.length.p99]
