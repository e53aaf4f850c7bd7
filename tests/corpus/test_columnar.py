"""Parquet and Arrow against to_pylist: every text and list type, faults row by row, damage, large batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.corpus import columns
from packer.errors import InputError, RecordError

FORMATS = ["parquet", "arrow", "stream", "feather"]


def save(path, table, kind, rows=3):
    """The table in row groups or record batches of some rows; returns the file's path."""
    path = path / f"{kind}.{'parquet' if kind == 'parquet' else 'arrow'}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=rows, write_page_checksum=True)
        return path
    options = pa.ipc.IpcWriteOptions(compression="zstd" if kind == "feather" else None)
    make = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, make(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
TEXT_TYPES += [pa.dictionary(pa.int32(), pa.large_string())]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("type_", TEXT_TYPES, ids=str)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.none() | st.text(max_size=20), min_size=1, max_size=12), limit=st.integers(1, 60))
def test_texts_equal_to_pylist(tmp_path, monkeypatch, read, kind, type_, texts, limit):
    monkeypatch.setattr(columns, "PIECE_BYTES", limit)
    monkeypatch.setattr(columns, "WINDOW_ROWS", 5)
    plain = pa.array(texts, type_.value_type if pa.types.is_dictionary(type_) else type_)
    array = plain.dictionary_encode().cast(type_) if pa.types.is_dictionary(type_) else plain
    path = save(tmp_path, pa.table({"id": range(len(texts)), "text": array}), kind)
    for size in (1, 1 << 20):
        result = read(path, on_error="skip", partition_bytes=size)
        assert result.documents == [text for text in texts if text is not None]
        nulls = [i for i, text in enumerate(texts) if text is None]
        assert result.faults == [(f"row {i}", "field text is null") for i in nulls]
        if size == 1 and kind != "stream":
            assert result.partitions == (len(texts) + 2) // 3


LIST_TYPES = [pa.list_(pa.int32()), pa.large_list(pa.uint64()), pa.list_(pa.int16()), pa.list_(pa.uint8())]
IDS = st.lists(st.none() | st.lists(st.integers(0, 127), max_size=5), min_size=1, max_size=12)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("type_", LIST_TYPES, ids=str)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lists=IDS, limit=st.integers(1, 60))
def test_ids_equal_to_pylist(tmp_path, monkeypatch, read, kind, type_, lists, limit):
    monkeypatch.setattr(columns, "PIECE_BYTES", limit)
    path = save(tmp_path, pa.table({"input_ids": pa.array(lists, type_), "text": ["x"] * len(lists)}), kind)
    result = read(path, on_error="skip")
    assert result.documents == [(ids, None) for ids in lists if ids is not None]
    assert result.faults == [(f"row {i}", "field input_ids is null") for i, ids in enumerate(lists) if ids is None]


@pytest.mark.parametrize("kind", FORMATS)
def test_masks_and_faults_of_ids(tmp_path, read, kind):
    ids = [[1, 2], [3], None, [], [4, -5], [6, 2**31], [7, None], [8, 9], [1], [2], [3, 4]]
    mask = [[0, 1], [1], [1], [], [1, 1], [1, 1], [1, 1], [1], None, [2], [1, 0]]
    path = save(tmp_path, pa.table({"input_ids": ids, "loss_mask": mask, "labels": ids}), kind)
    result = read(path, on_error="skip", partition_bytes=1)
    assert result.documents == [([1, 2], [False, True]), ([3], [True]), ([], []), ([3, 4], [True, False])]
    assert result.faults == [
        ("row 2", "field input_ids is null"),
        ("row 4", "field input_ids holds -5 at position 1, not a token id (0 to 2147483647)"),
        ("row 5", "field input_ids holds 2147483648 at position 1, not a token id (0 to 2147483647)"),
        ("row 6", "field input_ids holds null at position 1, not an integer"),
        ("row 7", "field loss_mask has 1 values for 2 token ids"),
        ("row 8", "field loss_mask is null"),
        ("row 9", "field loss_mask holds 2 at position 0, neither 0 nor 1"),
    ]
    with pytest.raises(RecordError, match="row 2: field input_ids is null"):
        read(path, partition_bytes=1)


@pytest.mark.parametrize("kind", FORMATS)
def test_labels_and_fixed_size_lists(tmp_path, read, kind):
    two = pa.list_(pa.int64(), 2)
    table = pa.table(
        {"labels": pa.array([[-100, 2], [3, 5], [5, 6]], two), "input_ids": pa.array([[1, 2], [3, 4], [5, 6]], two)}
    )
    result = read(save(tmp_path, table, kind), on_error="skip")
    assert result.documents == [([1, 2], [False, True]), ([5, 6], [True, True])]
    expected = "field labels holds 5 at position 1, neither -100 nor the token id 4 there"
    assert result.faults == [("row 1", expected + " (labels must be aligned, not shifted)")]
    booleans = pa.table({"input_ids": [[1, 2]], "completion_mask": [[True, False]]})
    assert read(save(tmp_path, booleans, kind)).documents == [([1, 2], [True, False])]


@pytest.mark.parametrize("kind", FORMATS)
def test_text_that_is_not_utf8_is_that_rows_fault(tmp_path, read, kind):
    offsets = np.array([0, 2, 5, 6], np.int32)
    broken = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"okca\xe9x")])
    result = read(save(tmp_path, pa.table({"text": broken}), kind, rows=2), on_error="skip")
    assert result.documents == ["ok", "x"]
    assert result.faults == [("row 1", "field text is not UTF-8 at byte 2; convert it first, e.g. with iconv")]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"text": [1]}, "column text is int64, not text"),
        ({"text": [b"x"]}, "column text is binary, not text"),
        ({"a": ["x"], "b": [1]}, "no known column; it has a, b; name the text's column with --text-field"),
        ({"input_ids": ["x"]}, "column input_ids is string, not a list of integers"),
        ({"input_ids": [[1.5]]}, r"column input_ids is list<\w+: double>, not a list of integers"),
        ({"input_ids": [[1]], "labels": [[True]]}, r"column labels is list<\w+: bool>, not a list of integers"),
        ({"input_ids": [[1]], "seq_lengths": [[1]]}, r"is another tool's packed row \(it has seq_lengths\)"),
        ({"messages": [1]}, "column messages is int64, not a text or a list of messages"),
        ({"instruction": [["a"]], "output": ["b"]}, r"column instruction is list<\w+: string>, not text"),
        ({"prompt": ["a"], "chosen": ["b"], "rejected": ["c"]}, "the records are preference pairs"),
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_that_do_not_serve(tmp_path, read, kind, table, message):
    with pytest.raises(InputError, match=message):
        read(save(tmp_path, pa.table(table), kind), on_error="skip")


@pytest.mark.parametrize("kind", FORMATS)
def test_other_cases(tmp_path, read, kind):
    assert read(save(tmp_path, pa.table({"text": pa.array([], pa.string())}), kind)).records == [0]
    path = save(tmp_path, pa.table({"a.b": ["x"], "text": pa.nulls(1)}), kind)
    assert read(path, text_field="a.b").documents == ["x"]
    assert read(path, on_error="skip").faults == [("row 0", "field text is null")]
    with pytest.raises(InputError, match=r"no column other; it has a\.b, text"):
        read(path, text_field="other")
    renamed = path.rename(tmp_path / "misleading.jsonl")
    assert read(renamed, text_field="a.b").documents == ["x"]
    assert read(
        save(tmp_path, pa.table({"text": ["x" * 9, "y"]}), kind), on_error="skip", max_record_bytes=8
    ).faults == [("row 0", "record is above 8 bytes (--max-record-bytes)")]


def test_a_damaged_parquet_page_is_found(tmp_path, read):
    path = tmp_path / "x.parquet"
    table = pa.table({"text": [f"text number {i} " * 50 for i in range(30)]})
    pq.write_table(table, path, row_group_size=10, write_page_checksum=True, write_statistics=False, compression="none")
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"x\.parquet, row group 1: Parquet cannot be read \(.*CRC"):
        read(path, on_error="skip")


@pytest.mark.parametrize("kind", FORMATS)
def test_cut_files(tmp_path, read, kind):
    path = save(tmp_path, pa.table({"text": ["x" * 5000] * 9}), kind)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(InputError, match=r"cannot be read \(.*\); fetch the file again"):
        read(path, on_error="skip")


def test_offsets_that_point_outside_are_refused(tmp_path, read):
    offsets = np.array([0, 2, 900_000], np.int32)
    path = save(tmp_path, pa.table({"text": ["ok", "ay"]}), "arrow")
    path.write_bytes(path.read_bytes().replace(np.array([0, 2, 4], np.int32).tobytes(), offsets.tobytes()))
    with pytest.raises(InputError, match="Arrow cannot be read"):
        read(path)


def test_pieces_are_cut_by_size():
    assert list(columns.cut(np.array([3, 1, 9, 1, 1]), 4)) == [(0, 2), (2, 3), (3, 5)]
    assert list(columns.cut(np.array([0, 0, 0]), 4)) == [(0, 3)]
    assert list(columns.cut(np.array([], np.int64), 4)) == []
