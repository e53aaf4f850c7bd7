"""--embedding-field and --group-field, from every format whose records have fields; what is wrong, with its place."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.conversation import Rendered
from packer.corpus import PartitionReader, ReadOptions, find_sources, partition
from packer.corpus.traits import TraitReader
from packer.errors import InputError, RecordError, UsageError
from packer.similarity import Traits
from packer.similarity.traits import joined
from packer.similarity.vectors import compact

RECORDS: list[dict[str, Any]] = [
    {"text": "a", "topic": "x", "v": [1.0, 0.5, -2]},
    {"text": "b", "topic": "y", "v": [0, 0, 0]},
    {"text": "c", "topic": "x", "v": [3.5, 1e-20, 1e20]},
]
FORMATS = ("jsonl", "json", "csv", "parquet", "arrow", "ids.jsonl", "ids.parquet", "chat.jsonl", "chat.parquet")
BOTH = {"embedding_field": "v", "group_field": "topic"}


def contents(kind: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records with the content that the kind has in the place of the text."""
    if kind.startswith("ids"):
        return [{"input_ids": [1, 2], **{k: v for k, v in r.items() if k != "text"}} for r in records]
    if kind.startswith("chat"):
        said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
        return [{"messages": said, **{k: v for k, v in r.items() if k != "text"}} for r in records]
    return records


def save(folder: Path, kind: str, records: list[dict[str, Any]]) -> Path:
    path = folder / f"records.{kind}"
    found = contents(kind, records)
    if kind.endswith("jsonl"):
        path.write_text("".join(json.dumps(record) + "\n" for record in found))
    elif kind == "json":
        path.write_text(json.dumps(found))
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]))
            writer.writeheader()
            writer.writerows({**r, "v": json.dumps(r["v"])} if "v" in r else r for r in found)
    elif kind.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(found), path, row_group_size=2)
    else:
        table = pa.Table.from_pylist(found)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return path


def rendered(_: object) -> list[Rendered]:
    """Two documents of each chat."""
    return [Rendered(text, None, True, 1) for text in ("one", "two")]


def traits_of(path: Path, **options: Any) -> tuple[list[int], Traits | None, list[tuple[str, str]]]:
    """The ordinals of the documents of one partition, their traits, and what was skipped. A chat is two texts."""
    chosen = ReadOptions(**options)
    [part] = partition(find_sources([str(path)], chosen).sources, chosen)
    reader = PartitionReader(part, chosen, rendered)
    ordinals, parts = [], []
    for batch in reader:
        ordinals += batch.ordinals.tolist()
        parts.append(batch.traits)
    return ordinals, joined(parts), [(skipped.where, skipped.reason) for skipped in reader.tally.skipped_reasons]


@pytest.mark.parametrize("kind", FORMATS)
def test_traits_of_every_format(tmp_path: Path, kind: str) -> None:
    ordinals, traits, _ = traits_of(save(tmp_path, kind, RECORDS), **BOTH)
    each = 2 if kind.startswith("chat") else 1  # a record that is several documents gives its traits to all of them
    assert ordinals == list(range(3 * each))
    assert traits is not None
    assert traits.vectors is not None
    assert traits.groups is not None
    assert traits.groups.tolist() == np.repeat([0, 1, 0], each).tolist()
    values = np.array([record["v"] for record in RECORDS], np.float64)
    assert traits.vectors.tolist() == np.repeat(compact(values), each, axis=0).tolist()


def test_traits_through_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    lines = [*RECORDS, {"text": "d", "topic": None, "v": [1.0, 2.0, 3.0]}]
    (tmp_path / "set" / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    ordinals, traits, skipped = traits_of(Path(f"hf:{tmp_path / 'set'}"), **BOTH, on_error="skip")
    assert ordinals == [0, 1, 2]
    assert skipped == [("row 3", "field topic is null")]
    assert traits is not None
    assert traits.vectors is not None
    assert traits.groups is not None
    assert traits.groups.tolist() == [0, 1, 0]
    assert traits.vectors.tolist() == compact(np.array([record["v"] for record in RECORDS], np.float64)).tolist()


@pytest.mark.parametrize("kind", FORMATS)
def test_one_of_the_two(tmp_path: Path, kind: str) -> None:
    path = save(tmp_path, kind, RECORDS)
    for options, has in (({"embedding_field": "v"}, (True, False)), ({"group_field": "topic"}, (False, True))):
        _, traits, _ = traits_of(path, **options)
        assert traits is not None
        assert (traits.vectors is not None, traits.groups is not None) == has
    assert traits_of(path)[1] is None


VECTOR_FAULTS: list[tuple[Any, str]] = [
    (None, "field v is null"),
    ([1.0], "field v has 1 numbers, where the vectors before it have 2"),
    ([], "field v "),
    ([1.0, None], "position 1, no number"),
    ([float("nan"), 1.0], "field v holds nan at position 0, not a finite number"),
    ([1.0, float("inf")], "field v holds inf at position 1, not a finite number"),
    ([1.0, 1e300], "field v holds 1e+300 at position 1, not a finite number"),
]
PLACES = {"jsonl": "line 2", "json": "record 2", "parquet": "row 1", "arrow": "row 1", "csv": "line 3"}


@pytest.mark.parametrize("kind", [*PLACES, "ids.parquet", "chat.parquet"])
@pytest.mark.parametrize(("value", "reason"), VECTOR_FAULTS)
def test_a_bad_vector(tmp_path: Path, kind: str, value: Any, reason: str) -> None:
    records = [{"text": "a", "v": [1.0, 2.0]}, {"text": "b", "v": value}, {"text": "c", "v": [2.0, 1.0]}]
    path = save(tmp_path, kind, records)
    with pytest.raises(RecordError) as failed:
        traits_of(path, embedding_field="v")
    assert str(path) in str(failed.value)
    assert failed.value.where == PLACES.get(kind, "row 1")
    if kind != "csv" or value is not None:
        assert reason in failed.value.reason
    ordinals, traits, skipped = traits_of(path, embedding_field="v", on_error="skip")
    each = 2 if kind.startswith("chat") else 1
    assert len(ordinals) == 2 * each
    assert traits is not None
    assert traits.vectors is not None
    assert traits.vectors.tolist() == np.repeat([[64, 127], [127, 64]], each, axis=0).tolist()
    assert [where for where, _ in skipped] == [failed.value.where]
    limited = traits_of(path, embedding_field="v", on_error="skip", limit=each + 1)
    assert limited[2] == skipped
    assert len(limited[0]) == each


@pytest.mark.parametrize("value", ["text", "[1, 2", True, {"a": 1}, ["1", "2"], [True, 1.0], [[1.0], [2.0]], 10**400])
def test_a_vector_of_another_type(tmp_path: Path, value: Any) -> None:
    path = save(tmp_path, "jsonl", [{"text": "a", "v": value}])
    with pytest.raises(RecordError, match=r"line 1: field v (is|holds) .*(not an array of numbers|no number)"):
        traits_of(path, embedding_field="v")


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "arrow", "ids.parquet"])
@pytest.mark.parametrize(("value", "reason"), [(None, "is null"), ("", "is empty")])
def test_a_bad_group(tmp_path: Path, kind: str, value: Any, reason: str) -> None:
    path = save(tmp_path, kind, [{"text": "a", "topic": "x"}, {"text": "b", "topic": value}])
    with pytest.raises(RecordError, match=f"field topic {reason}"):
        traits_of(path, group_field="topic")
    ordinals, traits, skipped = traits_of(path, group_field="topic", on_error="skip")
    assert ordinals == [0]
    assert traits is not None
    assert skipped == [(PLACES.get(kind, "row 1"), f"field topic {reason}")]


@pytest.mark.parametrize("value", [1.5, True, ["x"], {"a": "x"}])
def test_a_group_of_another_type(tmp_path: Path, value: Any) -> None:
    path = save(tmp_path, "jsonl", [{"text": "a", "topic": value}])
    with pytest.raises(RecordError, match="line 1: field topic is neither a string nor an integer"):
        traits_of(path, group_field="topic")


def test_a_field_that_is_missing(tmp_path: Path) -> None:
    for kind in ("jsonl", "json", "csv"):
        with pytest.raises(RecordError, match=r"field topic is missing \(keys: text"):
            traits_of(save(tmp_path, kind, [{"text": "a"}]), group_field="topic")
    for kind in ("parquet", "arrow"):
        with pytest.raises(InputError, match="no column topic; it has text"):
            traits_of(save(tmp_path, kind, [{"text": "a"}]), group_field="topic")


def test_columns_that_cannot_serve(tmp_path: Path) -> None:
    path = save(tmp_path, "parquet", [{"text": "a", "topic": 1.5, "v": "x"}])
    with pytest.raises(InputError, match="column topic is double, neither text nor integers"):
        traits_of(path, group_field="topic")
    with pytest.raises(InputError, match="column v is string, not a list of numbers"):
        traits_of(path, embedding_field="v")


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16()), pa.list_(pa.int32(), 2)],
    ids=str,
)
def test_types_of_vectors(tmp_path: Path, kind: pa.DataType) -> None:
    rows = [np.array([1, 2], np.float16), np.array([3, 4], np.float16), np.array([-1, 4], np.float16)]
    if pa.types.is_integer(kind.value_type):
        rows = [row.astype(int) for row in rows]
    table = pa.table({"text": ["a", "b", "c"], "v": pa.array(rows, kind)})
    with pa.OSFile(str(tmp_path / "v.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    _, traits, _ = traits_of(tmp_path / "v.arrow", embedding_field="v")
    assert traits is not None
    assert traits.vectors is not None
    assert traits.vectors.tolist() == compact(np.array([[1.0, 2], [3, 4], [-1, 4]])).tolist()


@pytest.mark.parametrize(
    "kind",
    [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.int16(), pa.uint64()],
    ids=str,
)
def test_types_of_groups(kind: pa.DataType) -> None:
    """With a slice of a batch, for offsets; numbers are given in the order in which groups come."""
    values: list[Any] = ["z", "b", None, "a", "b", "z", "a"]
    if pa.types.is_integer(kind):
        values = [{"a": 7, "b": 0, "z": 9, None: None}[value] for value in values]
    reader = TraitReader(ReadOptions(group_field="topic"))
    batch = pa.RecordBatch.from_arrays([pa.array(values).cast(kind)], ["topic"])
    traits, faults = reader.of_columns(batch.slice(1))
    assert faults == {1: "field topic is null"}
    assert traits.groups is not None
    numbers = traits.groups[[0, 2, 3, 4, 5]].tolist()
    assert [numbers[i] == numbers[j] for i, j in ((0, 2), (1, 4), (0, 1), (3, 0), (3, 1))] == [True, True] + [False] * 3
    again, _ = reader.of_columns(batch.slice(0, 1))
    assert again.groups is not None
    assert again.groups.tolist() == [numbers[3]]


def test_integers_and_strings_are_groups_of_their_own(tmp_path: Path) -> None:
    path = save(tmp_path, "jsonl", [{"text": "a", "topic": 1}, {"text": "b", "topic": "1"}, {"text": "c", "topic": 1}])
    _, traits, _ = traits_of(path, group_field="topic")
    assert traits is not None
    assert traits.groups is not None
    assert traits.groups.tolist() == [0, 1, 0]


lists = st.none() | st.lists(st.none() | st.floats(width=32) | st.integers(-5, 5).map(float), max_size=3)


@given(st.lists(lists, min_size=1, max_size=8))
def test_columns_and_records_agree(values: list[list[float | None] | None]) -> None:
    """The same rows are good, for the same reasons, with the same vectors."""
    options = ReadOptions(embedding_field="v")
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.list_(pa.float64()))], ["v"])
    found, faults = TraitReader(options).of_columns(batch)
    reader, made, bad = TraitReader(options), [], {}
    for row, value in enumerate(values):
        try:
            made.append(reader.of_record({"v": value}, row))
        except ValueError as error:
            bad[row] = str(error)
    assert faults.keys() == bad.keys()
    assert found.vectors is not None
    good = found.vectors[[row for row in range(len(values)) if row not in bad]]
    if made:
        assert good.tolist() == reader.gathered(made, [1] * len(made)).vectors.tolist()  # type: ignore[union-attr]


def test_texts_and_data_sets_have_no_fields(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    for options in ({"embedding_field": "v"}, {"group_field": "v"}):
        with pytest.raises(UsageError, match=r"-field v: .*a\.txt is a text file; only records have fields"):
            traits_of(tmp_path / "a.txt", **options)
