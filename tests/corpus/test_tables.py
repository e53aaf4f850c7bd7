"""CSV and TSV against the csv module."""

from __future__ import annotations

import csv

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.errors import InputError

CELLS = st.text(st.sampled_from("ab\",\t\n\r'é\u2028 "), max_size=8)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELLS, CELLS), max_size=10), st.sampled_from(["csv", "tsv"]), st.booleans())
def test_equals_the_csv_module(tmp_path, read, rows, suffix, bom):
    path = tmp_path / f"x.{suffix}"
    with path.open("w", encoding="utf-8-sig" if bom else "utf-8", newline="") as file:
        csv.writer(file, delimiter="\t" if suffix == "tsv" else ",").writerows([("id", "text"), *rows])
    assert read(path).documents == [text for _, text in rows]


def test_faults(tmp_path, read):
    path = tmp_path / "x.csv"
    path.write_bytes(b'id,text\n1,a\n2,"two\nlines"\n3\n\n4,b,c\n5,caf\xe9\n\xe9,ok\n6,\n')
    result = read(path, on_error="skip")
    assert result.documents == ["a", "two\nlines", "ok", ""]
    assert result.faults == [
        ("line 5", "has 1 fields, but the header has 2"),
        ("line 7", "has 3 fields, but the header has 2"),
        ("line 8", "field text: invalid UTF-8; convert the file first, e.g. with iconv"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text\n"a"b\n', r"line 2: .*expected after .* \(the rows after it cannot be told apart\)"),
        ('text\nok\n"never closed\nmore\n', "line 3: unexpected end of data"),
        ("a,b\n1,2\n", "no known column; it has a, b; name the text's column with --text-field"),
        ("text,text\n1,2\n", "more than one column text"),
        ("text\n" + "x" * 200 + "\n", "line 2: line is above 100 bytes"),
        ('text\n"' + "x\n" * 100 + '"\n', "line 2: field larger than field limit"),
        ("chosen,rejected\nx,y\n", "the records are preference pairs"),
        ("input_ids\nx\n", "csv files hold no token ids; give JSON Lines or Parquet"),
    ],
)
def test_what_cannot_be_read(tmp_path, read, content, message):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "x.csv", on_error="skip", max_record_bytes=100)


def test_nothing_but_a_header(tmp_path, read):
    (tmp_path / "x.csv").write_text("text\n")
    (tmp_path / "y.csv").write_text("")
    assert read(tmp_path / "x.csv", tmp_path / "y.csv").records == [0, 0]
    with pytest.raises(InputError, match="no column input_ids; it has text"):
        read(tmp_path / "x.csv", schema="input_ids")
