"""JSON Lines against a slow reference, line by line; faults; byte ranges; stdin."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.corpus import batches, streams
from packer.errors import InputError, RecordError


def reference(data: bytes, field: str = "text") -> tuple[list[str], list[int]]:
    """Texts, and the numbers of the bad lines."""
    texts, bad = [], []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip(b" \t\r\n"):
            continue
        try:
            text = json.loads(line.decode())[field]
            text.encode()
            texts.append(text)
        except (ValueError, LookupError, TypeError, AttributeError):
            bad.append(number)
    return texts, bad


LINES = st.one_of(
    st.text(max_size=20).map(lambda text: json.dumps({"text": text}).encode()),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(
        lambda text: json.dumps({"text": text, "score": float("nan")}, ensure_ascii=False).encode() + b"\r"
    ),
    st.sampled_from(
        [b"", b" \t", b"\r", b"{", b"null", b"[1]", b'{"text": 1}', b'{"text": "\xe9"}', b'{"text": null}']
    ),
    st.binary(max_size=12).filter(lambda data: b"\n" not in data),
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(LINES, max_size=30),
    size=st.integers(1, 400) | st.just(1 << 20),
    chunk=st.integers(3, 70),
    bom=st.booleans(),
    last=st.booleans(),
)
def test_equals_the_reference_for_any_partition_and_chunk_size(
    tmp_path, monkeypatch, read, lines, size, chunk, bom, last
):
    data = b"\xef\xbb\xbf" * bom + b'{"text": "head"}\n' + b"\n".join(lines) + b"\n" * last
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    texts, bad = reference(data)
    monkeypatch.setattr(streams, "CHUNK", chunk)
    result = read(path, on_error="skip", schema="text", text_field="text", partition_bytes=size)
    assert result.documents == texts
    assert [where for where, _ in result.faults] == [f"line {number}" for number in bad][:100]


FAULTS = [
    (b'{"text": 5}', "field text is a number"),
    (b'{"content": "x", "k": 1}', "field text is missing (keys: content, k)"),
    (b'{"text": null}', "field text is null"),
    (b'{"text": ["a"]}', "field text is an array"),
    (b'{"text": {"a": 1}}', "field text is an object"),
    (b'{"text": true}', "field text is a boolean"),
    (b'{"text": "caf\xe9 au lait"}', "not UTF-8 at byte 13; convert it first, e.g. with iconv"),
    (b'\xff\xfe{\x00"\x00', "UTF-16, not UTF-8; convert it first, e.g. with iconv"),
    (b'{"text": "\\ud83d!"}', "field text holds a lone surrogate \\ud83d at character 0"),
    (b'{"text": "a",}', "not valid JSON: Expecting property name enclosed in double quotes at character 13"),
    (b"# comment", "not valid JSON: Expecting value at character 0"),
    (b'{"text": "a"} {"text": "b"}', "not valid JSON: Extra data at character 14"),
    (b'{"text": "a', "not valid JSON: Unterminated string starting at at character 9"),
    (b"[" * 100_000, "not valid JSON: nested too deeply"),
    (b'{"n": ' + b"1" * 5000 + b"}", "not valid JSON: Exceeds the limit"),
    (b"null", "is null, not an object"),
    (b'"text"', "is a string, not an object"),
    (b'[{"text": "a"}]', "is an array, not an object"),
    (b"{'text': 'a'}", "not valid JSON"),
    (b'\xef\xbb\xbf{"text": "a"}', "not valid JSON: Unexpected UTF-8 BOM"),
]
GOOD = [
    (b'{"text": "a", "score": NaN, "big": 123456789012345678901234567890}', "a"),
    (b'{"text": "a", "other": "\\ud83d"}', "a"),
    (b'{"text": "\\ud83d\\ude00"}', "\U0001f600"),
    (b'{"text": "first", "text": "last"}', "last"),
    (b'{"text": "a\\u0000b"}', "a\0b"),
    ('{"text": "a\u2028b\u0085c"}'.encode(), "a\u2028b\u0085c"),
    (b'  {"text": "  \\n"}\t\r', "  \n"),
    (b'{"text": ""}', ""),
]


def test_faults_in_the_middle_of_good_lines_are_named_and_nothing_else_is_lost(tmp_path, read):
    lines = [line for pair in zip([bad for bad, _ in FAULTS], [b""] * len(FAULTS), strict=True) for line in pair]
    lines += [good for good, _ in GOOD]
    path = tmp_path / "faults.jsonl"
    path.write_bytes(b'{"text": "head"}\n' + b"\n".join(lines))
    result = read(path, on_error="skip")
    assert result.documents == ["head", *(text for _, text in GOOD)]
    assert [where for where, _ in result.faults] == [f"line {2 + 2 * i}" for i in range(len(FAULTS))]
    for (_, reason), (_, expected) in zip(result.faults, FAULTS, strict=True):
        assert reason.startswith(expected)
        assert len(reason) < 200
    with pytest.raises(RecordError, match=r"faults.jsonl, line 2: field text is a number \(--on-error skip"):
        read(path)


@pytest.mark.parametrize("data", [b"", b"\n\n \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_nothing(tmp_path, read, data):
    (tmp_path / "x.jsonl").write_bytes(data)
    assert read(tmp_path / "x.jsonl").records == [0]


def test_a_record_above_the_bound_is_skipped_to_its_end(tmp_path, monkeypatch, read):
    monkeypatch.setattr(streams, "CHUNK", 64)
    path = tmp_path / "x.jsonl"
    long = json.dumps({"text": "x" * 1000})
    path.write_text(f'{{"text": "a"}}\n{long}\n{{"text": "b"}}\n{{"text": "{"y" * 60}"}}\n{long}')
    result = read(path, on_error="skip", max_record_bytes=50)
    assert result.documents == ["a", "b"]
    reason = "record is above 50 bytes (--max-record-bytes)"
    assert result.faults == [("line 2", reason), ("line 4", reason), ("line 5", reason)]
    assert result.ordinals == [0, 2]
    exact = len(long)
    assert len(read(path, max_record_bytes=exact).documents) == 5


def test_a_broken_first_line_does_not_hide(tmp_path, read):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a",\n{"text": "b"}\n')
    with pytest.raises(RecordError, match=r"line 1: not valid JSON"):
        read(path)
    path.write_text("oops\nnever mind\n")
    with pytest.raises(RecordError, match=r"line 1: not valid JSON"):
        read(path)


def test_batches_are_of_a_size_for_tokenizers_and_number_the_records(tmp_path, monkeypatch, lines_of, read):
    monkeypatch.setattr(batches, "BATCH_DOCUMENTS", 7)
    monkeypatch.setattr(batches, "TEXT_BATCH_CHARS", 50)
    records = [{"text": "x" * (i % 23)} for i in range(200)]
    lines_of(tmp_path / "a" / "1.jsonl", records[:90])
    lines_of(tmp_path / "a" / "2.jsonl", records[90:])
    result = read(tmp_path / "a")
    assert result.documents == [record["text"] for record in records]
    assert result.ordinals == list(range(200))
    assert result.records == [90, 110]


@pytest.mark.parametrize("chunk", [3, 1 << 20])
def test_stdin_is_read_once_and_its_schema_is_found_while_reading(monkeypatch, read, chunk):
    monkeypatch.setattr(streams, "CHUNK", chunk)

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    give(b'\xef\xbb\xbf{"content": "a"}\n\n{"content": "b"}')
    assert read("-").documents == ["a", "b"]
    give(b'{"input_ids": [1, 2]}\n{"input_ids": []}\n')
    assert read("-").documents == [([1, 2], None), ([], None)]
    give(b"")
    assert read("-").records == [0]
    give(b'{"a": 1}\n')
    with pytest.raises(InputError, match="no known field in -, line 1: it has the keys a;"):
        read("-")
    give(b'{"a": "x"}\n{"a": 1}\n')
    with pytest.raises(RecordError, match="-, line 2: field a is a number"):
        read("-", text_field="a")


IDS_FAULTS = [
    ({"input_ids": [1, True]}, "field input_ids holds a boolean at position 1, not an integer"),
    ({"input_ids": [1.0]}, "field input_ids holds a float at position 0, not an integer"),
    ({"input_ids": ["1"]}, "field input_ids holds a string at position 0, not an integer"),
    ({"input_ids": [[1]]}, "field input_ids holds an array at position 0, not an integer"),
    ({"input_ids": "1 2"}, "field input_ids is a string, not an array of integers"),
    ({"input_ids": [3, -1]}, "field input_ids holds -1 at position 1, not a token id (0 to 2147483647)"),
    ({"input_ids": [2**31]}, "field input_ids holds 2147483648 at position 0, not a token id (0 to 2147483647)"),
    ({"input_ids": None}, "field input_ids is null"),
    ({"text": "a"}, "field input_ids is missing (keys: text)"),
    ({"input_ids": [1, 2], "cu_seqlens": [0, 2]}, "is another tool's packed row (it has cu_seqlens)"),
    ({"input_ids": [1, 2], "loss_mask": [1]}, "field loss_mask has 1 values for 2 token ids"),
    ({"input_ids": [1, 2], "loss_mask": [1, 2]}, "field loss_mask holds 2 at position 1, neither 0 nor 1"),
    ({"input_ids": [1, 2], "loss_mask": None}, "field loss_mask is null"),
    ({"input_ids": [1, 2], "labels": [-100, 3]}, "field labels holds 3 at position 1, neither -100 nor the token id 2"),
]


def test_ready_made_ids(tmp_path, lines_of, read):
    good = [
        ({"input_ids": [5, 6, 2**31 - 1]}, ([5, 6, 2**31 - 1], [True] * 3)),
        ({"input_ids": []}, ([], [])),
        ({"input_ids": [1, 2], "loss_mask": [0, 1], "labels": [7, 7]}, ([1, 2], [False, True])),
        ({"input_ids": [1, 2], "assistant_masks": [True, False]}, ([1, 2], [True, False])),
        ({"input_ids": [1, 2], "completion_mask": [0, 1], "labels": [1, 2]}, ([1, 2], [False, True])),
        ({"input_ids": [1, 2], "labels": [-100, 2]}, ([1, 2], [False, True])),
    ]
    path = lines_of(tmp_path / "x.jsonl", [record for record, _ in good] + [record for record, _ in IDS_FAULTS])
    result = read(path, on_error="skip")
    assert result.documents == [document for _, document in good]
    assert [where for where, _ in result.faults] == [f"line {i + 7}" for i in range(len(IDS_FAULTS))]
    for (_, reason), (_, expected) in zip(result.faults, IDS_FAULTS, strict=True):
        assert reason.startswith(expected)
    assert read(lines_of(tmp_path / "y.jsonl", [{"input_ids": [1]}])).documents == [([1], None)]


def test_texts_and_ids_alternate_in_order(tmp_path, lines_of, read):
    files = [lines_of(tmp_path / f"{i}.jsonl", [{"input_ids": [i]}] if i % 2 else [{"text": str(i)}]) for i in range(6)]
    result = read(*files)
    assert result.documents == ["0", ([1], None), "2", ([3], None), "4", ([5], None)]
    assert result.ordinals == list(range(6))
    assert result.partitions == 1
