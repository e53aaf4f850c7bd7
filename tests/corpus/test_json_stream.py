"""Arrays, single objects and objects one after the other, through windows of any size; how they are told from lines."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.corpus import ReadOptions, find_sources, json_stream
from packer.corpus.records import BadRecordError
from packer.errors import InputError, RecordError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def values(data: bytes, window: int, limit: int = 1 << 30) -> list[object]:
    return list(json_stream.values(io.BytesIO(data), "x.json", ReadOptions(max_record_bytes=limit), window))


@settings(max_examples=200)
@given(st.lists(VALUES, max_size=8), st.integers(1, 40), st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_array_equals_json_load(items, window, indent, ascii_only, bom):
    data = b"\xef\xbb\xbf" * bom + json.dumps(items, indent=indent, ensure_ascii=ascii_only).encode(errors="replace")
    assert values(data, window) == json.loads(data.removeprefix(b"\xef\xbb\xbf"))


@given(st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), min_size=1, max_size=5), st.integers(1, 40))
def test_objects_one_after_the_other(items, window):
    assert values(b"\n ".join(json.dumps(item, indent=1).encode() for item in items), window) == items


@given(st.lists(VALUES, max_size=5), st.integers(1, 40), st.data())
def test_a_cut_array_is_an_error_whatever_the_cut(items, window, data):
    whole = json.dumps(items).encode()
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(InputError, match=r"x\.json, record"):
        values(whole[:cut], window)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1} {"a": 2}]', "record 1: not valid JSON: '{' where ',' was expected"),
        ('[{"a": 1}, {"a" 2}]', "record 2: not valid JSON: Expecting ':' delimiter"),
        ('[{"a": 1}, ]', "record 2: not valid JSON: Expecting value"),
        ('[{"a": 1}] x', "record 1: there is more after the array's closing bracket"),
        ("[" * 100_000, "record 1: not valid JSON: nested too deeply"),
    ],
)
def test_broken_arrays(text, message):
    with pytest.raises(InputError) as caught:
        values(text.encode(), 1 << 18)
    assert message in str(caught.value)


def test_a_broken_array_is_found_at_once():
    stream = io.BytesIO(b"[{} oops," + b"{}," * 100_000)
    with pytest.raises(InputError, match="'o' where ',' was expected"):
        list(json_stream.values(stream, "x.json", ReadOptions(), 64))
    assert stream.tell() <= 128


def test_a_record_above_the_bound():
    small, large = {"text": "a"}, {"text": "x" * 500}
    records = values(json.dumps([small, large, small]).encode(), 4096, limit=100)
    assert records[0] == records[2] == small
    assert isinstance(records[1], BadRecordError)
    with pytest.raises(InputError, match="record 2: record is above 100 bytes"):
        values(json.dumps([small, large, small]).encode(), 32, limit=100)


def test_faults_of_elements(tmp_path, read):
    path = tmp_path / "x.json"
    path.write_bytes(
        b'[{"text": "a"}, "b", {"text": "\\ud83d"}, {"text": "caf\xe9"}, {"x": 1}, [], {"text": "\\ud83d\\ude00"}]\n'
    )
    result = read(path, on_error="skip")
    assert result.documents == ["a", "\U0001f600"]
    assert result.faults == [
        ("record 2", "is a string, not an object"),
        ("record 3", "field text holds a lone surrogate \\ud83d at character 0"),
        ("record 4", "not UTF-8; convert the file first, e.g. with iconv"),
        ("record 5", "field text is missing (keys: x)"),
        ("record 6", "is an array, not an object"),
    ]
    with pytest.raises(RecordError, match=r"x\.json, record 2: is a string"):
        read(path)


A, B = {"text": "a"}, {"text": "b"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps([A, B]), "json"),
        (json.dumps([A, B]) + "\n\n", "json"),
        (json.dumps([A, B], indent=2), "json"),
        ("\ufeff" + json.dumps([A, B], indent=2), "json"),
        ('[{"text": "a"},\n{"text": "b"}]', "json"),
        ('[{"text": "a"},\n{"text": "b"}\n]', "json"),
        ('{"text":\n"a"\n}', "json"),
        ('{"text":\n{"a": 1}\n}', "json"),
        ('{"text": "a",\n"x" oops', "json"),
        ("[", "json"),
        ("{", "jsonl"),
        ("{\nnull", "jsonl"),
        ("[\n" + json.dumps(A) + "\n" + json.dumps(B) + "\n]", "json"),  # a comma is missing: no lines though
        (json.dumps(A, indent=2), "json"),
        (json.dumps(A, indent=2) + "\n" + json.dumps(B, indent=2), "json"),
        ("[]", "json"),
        ("[\n]\n", "json"),
        (json.dumps(A), "jsonl"),
        (json.dumps(A) + "\n" + json.dumps(B), "jsonl"),
        ("\n\n" + json.dumps(A) + "\n" + json.dumps(B), "jsonl"),
        ("[1]\n[2]\n", "jsonl"),
        ('{"text": "a",\n' + json.dumps(B), "jsonl"),
        ('{"text": "a\n' + json.dumps(B), "jsonl"),
        ("# comment\n" + json.dumps(B), "jsonl"),
        ("[" + ", ".join([json.dumps({"text": "x" * 1000})] * 1200) + "]", "json"),
        (json.dumps({"text": "x" * 1_200_000}) + "\n" + json.dumps(B), "jsonl"),
    ],
)
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_content_decides_between_lines_and_arrays(tmp_path, content, expected, suffix):
    path = tmp_path / f"x.{suffix}"
    path.write_text(content, encoding="utf-8")
    [source] = find_sources([str(path)], ReadOptions(text_field="text")).sources
    assert source.format == expected


def test_arrays_are_read(tmp_path, read):
    path = tmp_path / "x.json"
    for content in (json.dumps([A, B]), json.dumps([A, B], indent=1), json.dumps(A) + "\n" + json.dumps(B)):
        path.write_text(content)
        assert read(path).documents == ["a", "b"]
    path.write_text(json.dumps([{"input_ids": [1, 2], "labels": [-100, 2]}]))
    assert read(path).documents == [([1, 2], [False, True])]
