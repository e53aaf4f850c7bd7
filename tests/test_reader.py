"""What the reader gives: the same batches from every way of storing, padding against slow references, damage that is
named, and folders that it leaves as they are.

The faults that users of other readers reported are cited by project and number.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import resource
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer import finish
from packer import manifest as manifests
from packer.cli import main
from packer.errors import DatasetError, UsageError
from packer.reader import Epochs, PackedDataset
from packer.reader import batch as batches
from packer.reader.batch import Batch, as_rectangle, filler, in_convention, joined, padded_to, with_multiple
from packer.reader.checks import first_wrong
from packer.reader.dataset import batch_of
from packer.reader.epochs import read
from packer.sampling import Sampling
from packer.schema import Layout
from packer.shards import ShardWriter, read_shard, shard_schema

IGNORED = -100
MAX_LENGTH = 12
LENGTHS = [5, 30, 3, 0, 4, 2, 6, 1, 7, 12, 13, 4, 3, 5, 2, 9, 41, 6, 5, 3, 8, 4, 2, 7, 6, 5, 1, 3, 24, 4] * 2
Row = dict[str, Any]
MakeData = Callable[..., Path]


def source(folder: Path, *, masked: bool, only_ones: bool = False) -> Path:
    draw, path = random.Random(1), folder / ("masked.jsonl" if masked else "plain.jsonl")
    with path.open("w") as file:
        for length in LENGTHS:
            record = {"input_ids": [draw.randrange(1, 1000) for _ in range(length)]}
            if masked:
                record["loss_mask"] = [int(only_ones or draw.random() < 0.6) for _ in range(length)]
            file.write(json.dumps(record) + "\n")
    return path


def pack(out: Path, *arguments: object) -> Path:
    with pytest.raises(SystemExit) as ended:
        main(["pack", "--quiet", "--out", str(out), *map(str, arguments)])
    assert ended.value.code == 0
    return out


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeData]:
    """Data sets by their options, made once: about 40 rows in shards of 15 and groups of 4 or so."""
    folder = tmp_path_factory.mktemp("data")

    @cache
    def made(masked: bool, *options: object) -> Path:
        out = folder / f"out-{len(list(folder.iterdir()))}"
        return pack(out, source(folder, masked=masked), "--max-length", MAX_LENGTH, "--rows-per-shard", 15, *options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # durability is not what is tested here
        patch.setattr(finish, "GROUP_TOKENS", 48)
        yield lambda *options, masked=False: made(masked, *options)


def stored(out: Path) -> list[Row]:
    facts = manifests.load(out)
    return [
        row
        for shard in facts.shards
        for batch in read_shard(out / shard.path, facts.file_format)
        for row in batch.to_pylist()
    ]


# --- every way of storing gives the same rows ------------------------------------------------------------------------

CONTENTS: dict[str, tuple[list[object], bool]] = {  # options that determine rows, and whether records have loss masks
    "split": ([], False),
    "truncate": (["--overlong", "truncate"], False),
    "truncate-left": (["--overlong", "truncate-left"], False),
    "one document a row": (["--strategy", "none"], False),
    "wrapped": (["--strategy", "wrapped"], False),
    "a row is one sequence": (["--boundaries", "row"], False),
    "wrapped, a row is one sequence": (["--boundaries", "row", "--strategy", "wrapped"], False),
    "positions of rows": (["--positions", "row"], False),
    "positions of documents": (["--positions", "document", "--strategy", "wrapped"], False),
    "positions of documents in rows of one sequence": (["--positions", "document", "--boundaries", "row"], False),
    "positions of truncated documents": (["--positions", "document", "--boundaries", "row", "--overlong", "truncate"],
                                         False),
    "masked": ([], True),
    "masked, split": (["--overlong", "split", "--strategy", "wrapped"], True),
    "masked, a row is one sequence": (["--boundaries", "row", "--overlong", "split"], True),
    "masked, truncate-left": (["--overlong", "truncate-left", "--positions", "document"], True),
}  # fmt: skip
STORAGE: dict[str, list[object]] = {
    "parquet": ["--format", "parquet"],
    "parquet, uncompressed": ["--format", "parquet", "--compression", "none"],
    "arrow": ["--format", "arrow"],
    "arrow, zstd": ["--format", "arrow", "--compression", "zstd"],
    "arrow, lz4": ["--format", "arrow", "--compression", "lz4"],
    "arrow-stream": ["--format", "arrow-stream"],
    "arrow-stream, zstd": ["--format", "arrow-stream", "--compression", "zstd"],
}
COLUMNS = ("full", "compact")
CONVENTIONS = ("aligned", "shifted")


def assert_row(row: Row, expected: Row) -> None:
    for name in ("input_ids", "labels", "position_ids", "cu_seqlens", "seq_lengths"):
        assert row[name].tolist() == expected[name], name
        assert row[name].dtype == (np.int32 if name == "cu_seqlens" else np.int64)
    for name in ("loss_tokens", "max_seqlen"):
        assert row[name] == expected[name]
        assert type(row[name]) is int


def end_to_end(rows: list[Row]) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {name: [] for name in ("input_ids", "labels", "position_ids")}
    ends = [0]
    for row in rows:
        ends += [ends[-1] + end for end in row["cu_seqlens"][1:]]
        for name, values in result.items():
            values += row[name]
    return result | {"sequences": ends, "rows": np.cumsum([0, *(len(row["input_ids"]) for row in rows)]).tolist()}


def assert_batch(batch: Batch, expected: dict[str, list[int]]) -> None:
    for name, values in expected.items():
        found = getattr(batch, name)
        assert found.dtype == np.int64
        assert found.tolist() == values, name
    assert batch.cu_seqlens().dtype == np.int32
    assert batch.cu_seqlens().tolist() == batch.cu_seqlens_real().tolist() == expected["sequences"]
    assert batch.max_seqlen == max(b - a for a, b in pairwise(expected["sequences"]))
    assert batch.loss_tokens == sum(label != IGNORED for label in expected["labels"])
    assert batch.seq_idx().tolist() == [
        i for i, (a, b) in enumerate(pairwise(expected["sequences"])) for _ in range(a, b)
    ]


def assert_reads_as(out: Path, expected: dict[str, list[Row]]) -> None:
    """expected: the rows as they are stored, of each label convention."""
    draw = np.random.default_rng(5)
    for wanted in (None, *CONVENTIONS):
        dataset = PackedDataset(out, labels=wanted)
        rows = expected[wanted or manifests.load(out).layout.labels]
        assert len(dataset) == len(rows)
        for found, row in zip(dataset, rows, strict=True):
            assert_row(found, row)
        assert dataset[-1]["input_ids"].tolist() == rows[-1]["input_ids"]
        for size in (1, 2, 7, len(rows)):
            numbers = draw.integers(0, len(rows), size)  # any order, also twice
            assert_batch(dataset.batch(numbers), end_to_end([rows[number] for number in numbers]))


def cases() -> list[Any]:
    """Each content in few ways of storing, together all of them; the whole grid is slow."""
    ways = list(product(STORAGE, COLUMNS, CONVENTIONS))
    result = []
    for number, content in enumerate(CONTENTS):
        quick = {("parquet", "compact", "aligned"), ("arrow", "compact", "shifted"), ways[(5 * number) % len(ways)]}
        result += [
            pytest.param(content, *way, marks=[] if way in quick else pytest.mark.slow, id=", ".join((content, *way)))
            for way in ways
        ]
    return result


@pytest.mark.parametrize(("content", "storage", "columns", "convention"), cases())
def test_every_way_of_storing_gives_the_same_rows(
    make: MakeData, content: str, storage: str, columns: str, convention: str
) -> None:
    """And `labels=` gives what `pack --labels` would have stored."""
    options, masked = CONTENTS[content]
    expected = {labels: stored(make(*options, "--labels", labels, masked=masked)) for labels in CONVENTIONS}
    assert [row["input_ids"] for row in expected["aligned"]] == [row["input_ids"] for row in expected["shifted"]]
    storing = [*STORAGE[storage], "--columns", columns, "--labels", convention]
    out = make(*options, *storing, masked=masked)
    assert manifests.load(out).layout.masked == masked
    assert_reads_as(out, expected)


def test_llm_recipes_5_labels_are_shifted_once(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"input_ids": [1, 2, 3]}\n')
    for convention in CONVENTIONS:
        out = pack(tmp_path / convention, path, "--max-length", 3, "--labels", convention)
        assert PackedDataset(out, labels="aligned")[0]["labels"].tolist() == [IGNORED, 2, 3]
        assert PackedDataset(out, labels="shifted")[0]["labels"].tolist() == [2, 3, IGNORED]


def test_a_mask_of_ones_alone_reads_as_no_mask(tmp_path: Path) -> None:
    masked, plain = (
        [row["labels"].tolist() for row in PackedDataset(out)]
        for out in (
            pack(tmp_path / name, path, "--max-length", MAX_LENGTH, *options)
            for name, path, options in (
                ("masked", source(tmp_path, masked=True, only_ones=True), ["--columns", "compact"]),
                ("plain", source(tmp_path, masked=False), ["--overlong", "truncate", "--min-tokens", "2"]),
            )
        )
    )
    assert masked == plain  # a masked document of one token has nothing to train on


def test_transformers_33268_boundaries_follow_from_positions(make: MakeData) -> None:
    for columns, strategy in product(COLUMNS, ("bfd", "wrapped", "none")):
        for row in PackedDataset(make("--columns", columns, "--strategy", strategy)):
            starts = np.flatnonzero(row["position_ids"] == 0)
            assert [*starts.tolist(), len(row["position_ids"])] == row["cu_seqlens"].tolist()


def test_a_name_of_a_convention_that_is_none(make: MakeData) -> None:
    with pytest.raises(UsageError, match="aligned or shifted"):
        PackedDataset(make(), labels="other")[0]


def test_row_numbers(make: MakeData) -> None:
    dataset = PackedDataset(make())
    for number in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError):
            dataset[number]
    assert dataset[np.int64(3)]["input_ids"].tolist() == dataset[3]["input_ids"].tolist()
    found = dataset.__getitems__([5, 0, 5])
    assert [row["input_ids"].tolist() for row in found] == [dataset[i]["input_ids"].tolist() for i in (5, 0, 5)]


def test_ids_beyond_the_vocabulary_are_refused(make: MakeData) -> None:
    largest = manifests.load(make()).totals.max_token_id
    PackedDataset(make(), vocab_size=largest + 1)
    with pytest.raises(UsageError, match=f"token id {largest}, but vocab_size is {largest}"):
        PackedDataset(make(), vocab_size=largest)


def test_work_of_rows(make: MakeData) -> None:
    for storage, columns in product(STORAGE.values(), COLUMNS):
        out = make(*storage, "--columns", columns)
        work, rows = PackedDataset(out).work(), stored(out)
        assert work.tokens.tolist() == [len(row["input_ids"]) for row in rows]
        assert work.attention.tolist() == [sum((b - a) ** 2 for a, b in pairwise(row["cu_seqlens"])) for row in rows]


# --- padding and shapes, against lists -------------------------------------------------------------------------------


@st.composite
def any_batch(draw: st.DrawFn) -> Batch:
    """Rows of sequences with any labels; positions go on from any number."""
    rows = draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=4))
    lengths = [length for row in rows for length in row]
    total = sum(lengths)
    token = st.integers(0, 99)
    label = st.one_of(token, st.just(IGNORED))
    ids, labels = (np.array(draw(st.lists(of, min_size=total, max_size=total)), np.int64) for of in (token, label))
    nexts = np.array(draw(st.lists(label, min_size=len(lengths), max_size=len(lengths))), np.int64)
    starts = draw(st.lists(st.integers(0, 20), min_size=len(lengths), max_size=len(lengths)))
    positions = [first + i for first, length in zip(starts, lengths, strict=True) for i in range(length)]
    return Batch(
        ids,
        labels,
        np.array(positions),
        np.cumsum([0, *map(sum, rows)]),
        np.cumsum([0, *lengths]),
        np.array(lengths),
        nexts,
        draw(st.sampled_from(CONVENTIONS)),
    )


FLAT = ("input_ids", "labels", "position_ids")


def parts(batch: Batch, name: str) -> list[list[int]]:
    """A flat array by attention sequence."""
    return [getattr(batch, name)[a:b].tolist() for a, b in pairwise(batch.sequences.tolist())]


def assert_whole(batch: Batch) -> None:
    """The end of cu_seqlens is the token count; nothing is empty; all columns are equally long."""
    assert {len(getattr(batch, name)) for name in FLAT} == {batch.sequences[-1]}
    assert batch.cu_seqlens()[-1] == len(batch.input_ids) == len(batch.seq_idx())
    assert (np.diff(batch.sequences) > 0).all()
    assert len(batch.real) == len(batch.next_tokens) == len(batch.sequences) - 1


@given(any_batch(), st.integers(1, 8), st.integers(0, 3))
def test_bridge_2610_each_sequence_padded_to_a_multiple(batch: Batch, multiple: int, pad: int) -> None:
    """Every column is padded, and what was there stays where its sequence begins."""
    padded = with_multiple(batch, multiple, pad)
    assert_whole(padded)
    for name, fill in (("input_ids", pad), ("labels", IGNORED), ("position_ids", None)):
        for before, after in zip(parts(batch, name), parts(padded, name), strict=True):
            assert len(after) == -(-len(before) // multiple) * multiple
            tail = [fill] * (len(after) - len(before))
            if fill is None:
                tail = list(range(before[-1] + 1, before[-1] + 1 + len(after) - len(before)))
            assert after == before + tail
    assert padded.real.tolist() == [len(part) for part in parts(batch, "input_ids")]
    assert padded.cu_seqlens_real().tolist() == batch.cu_seqlens().tolist()
    assert padded.loss_tokens == batch.loss_tokens
    assert set(padded.rows.tolist()) <= set(padded.sequences.tolist())
    assert (
        np.searchsorted(padded.sequences, padded.rows).tolist() == np.searchsorted(batch.sequences, batch.rows).tolist()
    )


def test_bridge_2610_lengths_5_and_6_to_a_multiple_of_8() -> None:
    ids = np.arange(11)
    ends = np.array([0, 5, 11])
    batch = Batch(ids, ids.copy(), ids.copy(), ends, ends, np.diff(ends), np.array([IGNORED] * 2), "shifted")
    padded = with_multiple(batch, 8, 0)
    assert padded.cu_seqlens().tolist() == [0, 8, 16]
    assert padded.cu_seqlens_real().tolist() == [0, 5, 11]
    assert padded.labels.tolist() == [0, 1, 2, 3, 4, *[IGNORED] * 3, 5, 6, 7, 8, 9, 10, *[IGNORED] * 2]


@given(any_batch(), st.integers(-3, 12), st.one_of(st.none(), st.integers(-2, 8)), st.integers(0, 3))
def test_padded_to_exact_shapes_or_refused(batch: Batch, tail: int, more: int | None, pad: int) -> None:
    tokens, present = len(batch.input_ids) + tail, len(batch.sequences) - 1
    fits = tail >= 0 if more is None else tail >= max(more, 0) and more >= 0 and bool(more) == bool(tail)
    segments = None if more is None else present + more
    if not fits:
        with pytest.raises(UsageError, match=r"does not fit|cannot become"):
            padded_to(batch, tokens, segments, pad)
        return
    padded = padded_to(batch, tokens, segments, pad)
    assert_whole(padded)
    assert len(padded.input_ids) == tokens
    assert len(padded.sequences) - 1 == (segments if segments is not None else present + bool(tail))
    for name, fill in (("input_ids", pad), ("labels", IGNORED)):
        assert parts(padded, name)[:present] == parts(batch, name)
        assert all(value == fill for part in parts(padded, name)[present:] for value in part)
    for part in parts(padded, "position_ids")[present:]:
        assert part == list(range(len(part)))
    tails = np.diff(padded.sequences)[present:]
    assert not len(tails) or np.ptp(tails) <= 1, "cut evenly, so that no tail is longer than need be"
    assert padded.loss_tokens == batch.loss_tokens


@given(any_batch(), st.integers(1, 8), st.integers(0, 3))
def test_rectangle_of_rows_of_one_sequence(batch: Batch, multiple: int, pad: int) -> None:
    if len(batch.rows) != len(batch.sequences):
        with pytest.raises(UsageError, match="one document a row"):
            as_rectangle(batch, multiple, pad)
        return
    arrays, mask = as_rectangle(batch, multiple, pad)
    longest = max(np.diff(batch.rows).tolist())
    width = -(-longest // multiple) * multiple
    for name, fill in (("input_ids", pad), ("labels", IGNORED), ("position_ids", 0)):
        rows = [getattr(batch, name)[a:b].tolist() for a, b in pairwise(batch.rows.tolist())]
        assert arrays[name].tolist() == [row + [fill] * (width - len(row)) for row in rows]
    assert mask.tolist() == [[1] * n + [0] * (width - n) for n in np.diff(batch.rows).tolist()]


@given(any_batch())
def test_conventions_there_and_back(batch: Batch) -> None:
    """Shifted to aligned loses what crosses a cut, which next_tokens brings back."""
    first = batch.sequences[:-1]
    batch.labels[first if batch.convention == "aligned" else batch.sequences[1:] - 1] = (
        IGNORED if batch.convention == "aligned" else batch.next_tokens
    )
    other = CONVENTIONS[1 - CONVENTIONS.index(batch.convention)]
    there = in_convention(batch, other)
    assert there.convention == other
    for before, after, following in zip(
        parts(batch, "labels"), parts(there, "labels"), batch.next_tokens.tolist(), strict=True
    ):
        assert after == ([*before[1:], following] if other == "shifted" else [IGNORED, *before[:-1]])
    back = in_convention(there, batch.convention)
    assert back.labels.tolist() == batch.labels.tolist()
    assert in_convention(batch, batch.convention) is batch


@given(st.lists(any_batch(), min_size=1, max_size=4))
def test_joined_end_to_end(given_batches: list[Batch]) -> None:
    whole = joined(given_batches)
    assert_whole(whole)
    for name in FLAT:
        assert getattr(whole, name).tolist() == [v for one in given_batches for v in getattr(one, name).tolist()]
        assert parts(whole, name) == [part for one in given_batches for part in parts(one, name)]
    assert np.diff(whole.rows).tolist() == [n for one in given_batches for n in np.diff(one.rows).tolist()]


def test_filler_is_one_token_that_is_not_trained(make: MakeData) -> None:
    for columns, convention in product(COLUMNS, CONVENTIONS):
        out = make("--columns", columns, "--labels", convention)
        batch = PackedDataset(out).batch(np.array([], np.int64))
        assert_whole(batch)
        assert (batch.input_ids.tolist(), batch.labels.tolist(), batch.position_ids.tolist()) == ([0], [IGNORED], [0])
        assert (batch.loss_tokens, batch.max_seqlen, batch.cu_seqlens().tolist()) == (0, 1, [0, 1])
        for wanted in CONVENTIONS:
            assert in_convention(batch, wanted).labels.tolist() == [IGNORED]
        assert with_multiple(batch, 4, 7).input_ids.tolist() == [0, 7, 7, 7]
        assert padded_to(batch, 6, 3, 7).cu_seqlens().tolist() == [0, 1, 3, 6]
        rectangle, mask = as_rectangle(batch, 4, 7)
        assert (rectangle["input_ids"].shape, mask.tolist()) == ((1, 4), [[1, 0, 0, 0]])


def test_fillers_share_nothing() -> None:
    one, other = filler("aligned"), filler("aligned")
    for name in (*FLAT, "rows", "sequences", "real", "next_tokens"):
        getattr(one, name)[...] = 77
        assert 77 not in getattr(other, name)


def test_flashdeberta_11_offsets_are_checked_before_they_become_int32() -> None:
    ends = np.array([0, 40, 100])
    assert batches._int32(ends, limit=100).dtype == np.int32
    with pytest.raises(UsageError, match="100 tokens: cu_seqlens is int32 and ends at 99"):
        batches._int32(ends, limit=99)
    beyond = np.array([0, 2**31 - 1, 2**31])
    assert batches._int32(beyond[:2]).tolist() == beyond[:2].tolist()
    with pytest.raises(UsageError, match="int32"):
        batches._int32(beyond)


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("columns", COLUMNS)
def test_pyarrow_to_torch_every_array_is_fresh_and_writable(make: MakeData, storage: str, columns: str) -> None:
    """Writing into a view of a memory map ends the process; into a kept group, it changes the next epoch."""
    out = make(*STORAGE[storage], "--columns", columns)
    before = {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    for wanted in CONVENTIONS:
        dataset = PackedDataset(out, labels=wanted)
        expected = [{name: np.copy(value) for name, value in row.items()} for row in dataset]
        for _ in range(2):
            for row, was in zip(dataset, expected, strict=True):
                for name, value in row.items():
                    assert np.array_equal(value, was[name])
                    if isinstance(value, np.ndarray):
                        assert value.flags.owndata or value.base.flags.writeable
                        value[...] = 12345
        batch = dataset.batch(np.arange(len(dataset)))
        for name in (*FLAT, "rows", "sequences", "real", "next_tokens"):
            getattr(batch, name)[...] = 0
    assert {path: path.read_bytes() for path in before} == before


def test_batch_of_rows_as_they_come(make: MakeData) -> None:
    for convention in CONVENTIONS:
        dataset = PackedDataset(make(), labels=convention)
        numbers = [3, 0, 17]
        expected, found = dataset.batch(np.array(numbers)), batch_of([dataset[i] for i in numbers])
        for name in (*FLAT, "rows", "sequences", "real", "next_tokens", "convention"):
            assert np.array_equal(getattr(found, name), getattr(expected, name))


def test_a_batch_of_several_data_sets(make: MakeData) -> None:
    datasets = [PackedDataset(make(*options)) for options in ([], ["--strategy", "none"], ["--format", "arrow"])]
    first = np.cumsum([0, *map(len, datasets)])
    rows = np.random.default_rng(0).permutation(first[-1])[:30]
    expected = joined(
        [
            datasets[source].batch(np.array([row - first[source]]))
            for row, source in zip(rows, np.searchsorted(first, rows, side="right") - 1, strict=True)
        ]
    )
    found = read(datasets, rows)
    for name in (*FLAT, "rows", "sequences", "real", "next_tokens"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(make: MakeData, tmp_path: Path) -> MakeData:
    """A data set of its own to spoil."""

    def get(*options: object, masked: bool = False) -> Path:
        return Path(shutil.copytree(make(*options, masked=masked), tmp_path / f"copy-{len(list(tmp_path.iterdir()))}"))

    return get


def edit_manifest(out: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = out / "manifest.json"
    body = json.loads(path.read_bytes())
    change(body)
    path.write_text(json.dumps(body))


def rewrite(out: Path, change: Callable[[list[Row]], int], shard: int = 1) -> tuple[str, int]:
    """Changes a shard's rows and mends the manifest, so that only the rule in question can notice. The shard's path and
    the row in it that `change` says it spoiled."""
    facts = manifests.load(out)
    name = facts.shards[shard].path
    rows = [row for batch in read_shard(out / name, facts.file_format) for row in batch.to_pylist()]
    wrong = change(rows)
    schema = shard_schema(out / name, facts.file_format)
    with ShardWriter(out / "new", schema, facts.file_format, facts.compression) as writer:
        for start in range(0, len(rows), 4):
            writer.write(pa.RecordBatch.from_pylist(rows[start : start + 4], schema=schema))
    shutil.move(writer.path, out / name)
    edit_manifest(out, lambda body: body["shards"].__setitem__(shard, asdict(writer.result(name))))
    return str(out / name), wrong


def read_all(out: Path) -> list[Row]:
    return list(PackedDataset(out))


def contents(out: Path) -> list[list[int]]:
    dataset = PackedDataset(out)
    batch = dataset.batch(np.arange(len(dataset)))
    return [getattr(batch, name).tolist() for name in (*FLAT, "rows", "sequences", "next_tokens")]


def contents_or_error(out: Path) -> list[list[int]] | str:
    try:
        return contents(out)
    except DatasetError as error:
        return str(error)


def failure(out: Path, act: Callable[[Path], object] = read_all) -> str:
    with pytest.raises(DatasetError) as caught:
        act(out)
    return str(caught.value)


@pytest.mark.parametrize("storage", STORAGE)
def test_rewriting_alone_breaks_nothing(copy: MakeData, storage: str) -> None:
    """So what the tests below find is what they put in."""
    out = copy(*STORAGE[storage])
    before = stored(out)
    rewrite(out, lambda rows: len(rows))
    assert_reads_as(out, {"aligned": before, "shifted": stored(copy(*STORAGE[storage], "--labels", "shifted"))})


def spoil(column: str, value: Callable[[Row], list[int]], number: int = 6) -> Callable[[list[Row]], int]:
    def change(rows: list[Row]) -> int:
        while len(rows[number % len(rows)]["cu_seqlens"]) < 3:
            rows.append(rows.pop(number))  # one of several sequences in its place
        rows[number][column] = value(rows[number])
        return number

    return change


BAD_BOUNDARIES: dict[str, Callable[[list[int]], list[int]]] = {
    "ends before T": lambda ends: [*ends[:-1], ends[-1] - 1],
    "ends after T": lambda ends: [*ends[:-1], ends[-1] + 1],
    "has no end": lambda ends: ends[:-1],
    "does not start at 0": lambda ends: [1, *ends[1:]],
    "has no start": lambda ends: ends[1:],
    "does not rise": lambda ends: [*ends[:-1], ends[-2], ends[-1]],
    "falls": lambda ends: [0, ends[-1] + 3, *ends[1:]],
    "starts twice at 0": lambda ends: [0, *ends],
    "is negative": lambda ends: [0, -1, *ends[1:]],
    "is empty": lambda _: [],
    "has no sequence": lambda _: [0],
}


@pytest.mark.parametrize("storage", ["parquet", "arrow", "arrow-stream"])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("how", BAD_BOUNDARIES)
def test_transformers_44911_bad_cu_seqlens_name_shard_and_row(
    copy: MakeData, storage: str, columns: str, how: str
) -> None:
    out = copy(*STORAGE[storage], "--columns", columns)
    path, row = rewrite(out, spoil("cu_seqlens", lambda row: BAD_BOUNDARIES[how](row["cu_seqlens"])))
    expected = f"{path}, row {row}: cu_seqlens must begin at 0, rise, and end at the row's tokens"
    assert failure(out) == expected
    dataset = PackedDataset(out)
    at = manifests.load(out).shards[0].rows + row
    for numbers in ([at], [at, 0], [0, at], [3, at, at], list(range(len(dataset)))):
        assert failure(out, lambda _, numbers=numbers: dataset.batch(np.array(numbers))) == expected
    others = np.delete(np.arange(len(dataset)), at)  # a damaged group is not read at all
    assert failure(out, lambda _: dataset.batch(others)) == expected


SIDE_DAMAGE = {
    "next_tokens": (lambda values: values[:-1], [], "next_tokens are not as many as the row's segments"),
    "doc_starts": (lambda values: [*values, 0], ["--columns", "compact", "--positions", "document"], "doc_starts are"),
}


@pytest.mark.parametrize("storage", ["parquet", "arrow"])
@pytest.mark.parametrize("column", SIDE_DAMAGE)
def test_side_columns_of_another_length_name_shard_and_row(copy: MakeData, storage: str, column: str) -> None:
    change, options, rule = SIDE_DAMAGE[column]
    out = copy(*STORAGE[storage], *options)
    path, row = rewrite(out, spoil(column, lambda row: change(row[column])))
    assert failure(out).startswith(f"{path}, row {row}: {rule}")


@pytest.mark.parametrize("storage", ["parquet", "arrow"])
@pytest.mark.parametrize("column", ["labels", "position_ids"])
@pytest.mark.parametrize("by", [-1, 1])
def test_columns_of_another_length_than_input_ids(copy: MakeData, storage: str, column: str, by: int) -> None:
    out = copy(*STORAGE[storage])
    path, row = rewrite(out, spoil(column, lambda row: row[column][:-1] if by < 0 else [*row[column], 5]))
    assert failure(out) == f"{path}, row {row}: {column} are not as many as input_ids"
    dataset = PackedDataset(out)
    at = manifests.load(out).shards[0].rows + row
    assert f"row {row}: " in failure(out, lambda _: dataset.batch(np.array([2, at, 1])))


def test_streaming_399_a_truncated_shard_is_named(copy: MakeData) -> None:
    for storage in STORAGE.values():
        out = copy(*storage)
        path = out / manifests.load(out).shards[1].path
        whole = path.read_bytes()
        for size in (0, 1, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            assert failure(out) == f"shard {path} has {size} bytes; the manifest says {len(whole)}"


@pytest.mark.parametrize("storage", STORAGE)
def test_a_truncated_shard_whose_manifest_agrees_is_named(copy: MakeData, storage: str) -> None:
    """An Arrow stream that ends early reads as fewer rows without an error of its own."""
    out = copy(*STORAGE[storage])
    expected, path = contents(out), out / manifests.load(out).shards[1].path
    whole = path.read_bytes()
    for size in (0, 1, 8, *range(16, len(whole) - 16, len(whole) // 8), len(whole) - 1):
        path.write_bytes(whole[:size])
        edit_manifest(out, lambda body, size=size: body["shards"][1].__setitem__("bytes", size))
        found = contents_or_error(out)
        if isinstance(found, str):
            assert str(path) in found
        else:  # only the mark that ends a stream is missing
            assert storage.startswith("arrow-stream")
            assert size >= len(whole) - 8
            assert found == expected


def test_a_missing_shard_is_named(copy: MakeData) -> None:
    out = copy()
    path = out / manifests.load(out).shards[1].path
    path.unlink()
    assert failure(out) == f"shard {path} is missing"
    path.mkdir()
    assert failure(out) == f"shard {path} is missing"


def test_a_shard_of_other_rows_than_said(copy: MakeData) -> None:
    for storage in STORAGE.values():
        out = copy(*storage)
        path, rows = rewrite(out, lambda rows: rows.pop() and len(rows))
        edit_manifest(out, lambda body, rows=rows: body["shards"][1].__setitem__("rows", rows + 1))
        assert failure(out) == f"shard {path} has {rows} rows; the manifest says {rows + 1}"


def test_shards_that_were_exchanged_are_noticed(copy: MakeData) -> None:
    """By their convention at least: what a shard says of itself."""
    aligned, shifted = copy("--format", "arrow"), copy("--format", "arrow", "--labels", "shifted")
    name = manifests.load(aligned).shards[1].path
    shutil.copy(shifted / name, aligned / name)
    edit_manifest(aligned, lambda body: body["shards"][1].__setitem__("bytes", (aligned / name).stat().st_size))
    assert failure(aligned) == f"shard {aligned / name} says labels 'shifted'; the manifest says another convention"


@pytest.mark.parametrize(("masked", "column"), [(False, "next_tokens"), (True, "loss_spans"), (False, "num_tokens")])
def test_a_missing_column_is_named(copy: MakeData, masked: bool, column: str) -> None:
    out = copy("--columns", "compact", masked=masked)
    facts = manifests.load(out)
    path = out / facts.shards[1].path
    schema = shard_schema(path, "parquet")
    kept = pa.schema([field for field in schema if field.name != column], metadata=schema.metadata)
    rows = [batch.select(kept.names) for batch in read_shard(path, "parquet")]
    with ShardWriter(out / "new", kept, "parquet", "zstd") as writer:
        for batch in rows:
            writer.write(pa.RecordBatch.from_arrays(batch.columns, schema=kept))
    shutil.move(out / "new", path)
    edit_manifest(out, lambda body: body["shards"].__setitem__(1, asdict(writer.result(facts.shards[1].path))))
    assert str(path) in failure(out, lambda out: PackedDataset(out).work() if column == "num_tokens" else read_all(out))


def test_without_a_manifest_there_is_no_data_set(copy: MakeData) -> None:
    out = copy()
    (out / "manifest.json").unlink()
    assert "is no packer data set: it has no manifest.json" in failure(out)
    assert "is no packer data set" in failure(out / "nowhere")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": "packer", "format_version": 1}'])
def test_a_manifest_that_is_none(copy: MakeData, content: str) -> None:
    out = copy()
    (out / "manifest.json").write_text(content)
    assert str(out / "manifest.json") in failure(out)


@pytest.mark.parametrize("path", ["/data/x.parquet", "../x.parquet", "data/../../x.parquet"])
def test_shards_outside_the_folder_are_refused(copy: MakeData, path: str) -> None:
    out = copy()
    edit_manifest(out, lambda body: body["shards"][0].__setitem__("path", path))
    assert "leaves the data set" in failure(out)


def flips(data: bytes, count: int, seed: str) -> Iterator[bytes]:
    """The file with one bit changed: at each end, and at places by chance."""
    draw = random.Random(seed)
    for at in [0, 4, len(data) - 1, len(data) - 9, *(draw.randrange(len(data)) for _ in range(count))]:
        spoiled = bytearray(data)
        spoiled[at] ^= 1 << draw.randrange(8)
        yield bytes(spoiled)


FLIPS = [pytest.param(25, id="few"), pytest.param(400, id="many", marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", FLIPS)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_one_flipped_bit_in_a_parquet_shard_never_gives_other_rows(
    copy: MakeData, columns: str, compression: str, count: int
) -> None:
    """It is an error that names the shard, or lies where nothing is read."""
    out = copy("--columns", columns, "--compression", compression)
    expected, path = contents(out), out / manifests.load(out).shards[1].path
    caught = 0
    for spoiled in flips(path.read_bytes(), count, columns + compression):
        path.write_bytes(spoiled)
        found = contents_or_error(out)
        assert found == expected or str(path) in found
        caught += isinstance(found, str)
    assert caught > count / 5


def test_one_flipped_bit_in_a_page_names_shard_and_group(copy: MakeData) -> None:
    out = copy("--compression", "none")
    path = out / manifests.load(out).shards[1].path
    rows = [row for batch in read_shard(path, "parquet") for row in batch.to_pylist()]
    ids = np.array(rows[-1]["input_ids"], np.int32).tobytes()
    spoiled = bytearray(path.read_bytes())
    spoiled[spoiled.index(ids) + len(ids) // 2] ^= 4  # tokens of the last row, so in the last group
    path.write_bytes(bytes(spoiled))
    shards = PackedDataset(out).shards
    groups = int(np.count_nonzero(shards._group_shard == 1))
    assert f"shard {path}, group {groups - 1} cannot be read" in failure(out)
    assert "CRC checksum" in failure(out)


# --- memory, processes, read-only folders ----------------------------------------------------------------------------


def listing(out: Path) -> dict[str, tuple[int, int, int]]:
    found = [out, *sorted(out.rglob("*"))]
    return {str(path): (stat_.st_mtime_ns, stat_.st_size, stat_.st_mode) for path in found for stat_ in [path.stat()]}


ONE_READER = """
import sys
from packer.reader import Epochs, PackedDataset
from packer.sampling import Sampling
dataset, seed = PackedDataset(sys.argv[1]), int(sys.argv[2])
epochs = Epochs([dataset], [1.0], Sampling(rows_per_batch=3), rank=0, seed=seed, shuffle=True, buffer_groups=2)
print(sum(int(dataset.batch(rows).input_ids.sum()) for rows in epochs.rows(0)))
"""


@pytest.mark.parametrize("storage", ["parquet", pytest.param("arrow", marks=pytest.mark.slow)])
def test_megatron_907_olmo_651_eight_readers_of_a_read_only_folder(copy: MakeData, storage: str) -> None:
    out = copy(*STORAGE[storage])
    expected = sum(sum(row["input_ids"]) for row in stored(out))
    for path in [*out.rglob("*"), out]:
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    before = listing(out)
    readers = [
        subprocess.Popen([sys.executable, "-c", ONE_READER, str(out), str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in range(8)
    ]
    found = [reader.communicate(timeout=120)[0].strip() for reader in readers]
    after = listing(out)
    for path in [out, *out.rglob("*")]:
        path.chmod(0o755)
    assert [reader.returncode for reader in readers] == [0] * 8
    assert found == [str(expected)] * 8
    assert after == before


@pytest.mark.parametrize("storage", STORAGE)
def test_the_reader_writes_nothing(copy: MakeData, storage: str) -> None:
    out = copy(*STORAGE[storage])
    before = listing(out.parent)
    dataset = PackedDataset(out, labels="shifted")
    dataset.work()
    list(dataset)
    assert listing(out.parent) == before


def test_handles_are_opened_anew_in_a_forked_process(make: MakeData) -> None:
    """Parquet handles share a file position; so a child reads through its own."""
    dataset = PackedDataset(make())
    dataset[0]
    files = dict(dataset.shards._files)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        found = dataset[0]["input_ids"].tolist() and all(
            file is not files.get(shard) for shard, file in dataset.shards._files.items()
        )
        os.write(writer, b"y" if found else b"n")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1) == b"y"


def test_a_pickled_data_set_reads_the_same(make: MakeData) -> None:
    for storage in STORAGE.values():
        dataset = PackedDataset(make(*storage))
        dataset[0]
        again = pickle.loads(pickle.dumps(dataset))
        assert len(pickle.dumps(dataset)) < 20_000, "handles and views stay behind"
        assert [row["labels"].tolist() for row in again] == [row["labels"].tolist() for row in dataset]


def test_each_parquet_group_is_decoded_once_an_epoch(make: MakeData) -> None:
    """Random access within the buffer only."""
    dataset = PackedDataset(make("--strategy", "none"))
    decoded: list[int] = []
    original = dataset.shards._read
    dataset.shards._read = lambda index: decoded.append(index) or original(index)  # type: ignore[method-assign]
    for buffer_groups in (1, 2, 8):
        decoded.clear()
        dataset.shards._groups.clear()
        epochs = Epochs(
            [dataset], [1.0], Sampling(rows_per_batch=3), rank=0, seed=0, shuffle=True, buffer_groups=buffer_groups
        )
        for rows in epochs.rows(0):
            dataset.batch(rows)
        assert sorted(decoded) == list(range(len(dataset.shards.group_rows)))
        assert len(decoded) > 10


LARGE_TOKENS = 24_000_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One shard of 24 M tokens, 400 MB once decoded."""
    folder = tmp_path_factory.mktemp("large")
    path = folder / "in.jsonl"
    line = json.dumps({"input_ids": [7] * 20_000}) + "\n"
    path.write_text(line * (LARGE_TOKENS // 20_000))
    return pack(folder / "out", path, "--max-length", 20_000, "--rows-per-shard", 100_000)


@pytest.mark.slow
@pytest.mark.parametrize("act", ["rows", "shuffled", "work"])
def test_polars_25307_a_large_shard_under_a_memory_cap(large: Path, act: str) -> None:
    """160 MB beyond what is imported: ten groups decoded, never the shard, which is 400 MB."""
    code = f"""
import resource, pyarrow, pyarrow.parquet
from packer.reader import Epochs, PackedDataset
from packer.sampling import Sampling
pyarrow.array([1]).to_numpy()  # what this imports is not counted
held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
dataset = PackedDataset({str(large)!r})
total = 0
if {act!r} == "rows":
    for row in dataset:
        total += len(row["input_ids"])
elif {act!r} == "work":
    total = int(dataset.work().tokens.sum())
else:
    epochs = Epochs([dataset], [1.0], Sampling(rows_per_batch=2), rank=0, seed=0, shuffle=True, buffer_groups=8)
    for rows in epochs.rows(0):
        total += len(dataset.batch(rows).input_ids)
print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held)
"""
    total, grown = map(int, run(code).split())
    assert total == LARGE_TOKENS
    assert grown < 160 << 10  # KiB


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_reader_loads_only_numpy_and_pyarrow(make: MakeData) -> None:
    code = f"""
import sys
import packer.reader, packer.sampling
packer.reader.PackedDataset({str(make())!r})[0]
heavy = {{"tokenizers", "datasets", "torch", "orjson", "click", "rich", "tqdm", "transformers"}}
print(sorted(heavy & set(sys.modules)))
"""
    assert run(code) == "[]"


def test_litdata_823_importing_the_reader_leaves_the_environment_and_threads_alone() -> None:
    code = """
import os, threading
before = dict(os.environ), os.getcwd(), threading.active_count()
import packer, packer.reader, packer.sampling
print((dict(os.environ), os.getcwd(), threading.active_count()) == before)
"""
    assert run(code) == "True"


def test_qpx_288_what_a_killed_run_left_is_no_data_set(tmp_path: Path) -> None:
    """Killed while it writes; the next run gives the bytes of a clean one. (test_commit kills everywhere.)"""
    path = source(tmp_path, masked=False)
    path.write_text(path.read_text() * 60)
    arguments = [str(path), "--max-length", str(MAX_LENGTH), "--rows-per-shard", "500"]
    code = "import sys; from packer.cli import main; main(sys.argv[1:])"
    out = tmp_path / "out"
    command = [sys.executable, "-c", code, "pack", "--quiet", *arguments, "--out", str(out)]
    process = subprocess.Popen(command)
    while process.poll() is None and not (out / ".tmp").exists():
        pass
    time.sleep(0.02)
    process.kill()
    process.wait(60)
    if not (out / "manifest.json").exists():
        assert "is no packer data set" in failure(out)
    subprocess.run([*command, "--overwrite"], check=True, timeout=120)
    clean = tmp_path / "clean"
    subprocess.run([*command[:-1], str(clean)], check=True, timeout=120)
    assert {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()} == {
        p.name: p.read_bytes() for p in clean.rglob("*") if p.is_file()
    }
    assert len(PackedDataset(out)) == manifests.load(out).totals.rows


def test_file_handles_do_not_pile_up(tmp_path: Path) -> None:
    """More shards than may be open at once."""
    out = pack(tmp_path / "out", source(tmp_path, masked=False), "--max-length", 4, "--rows-per-shard", 1)
    assert len(manifests.load(out).shards) > 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = len(os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (held + 90, hard))
        dataset = PackedDataset(out)
        assert sum(len(row["input_ids"]) for row in dataset) == sum(LENGTHS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_places_of_rows_in_errors(make: MakeData) -> None:
    out = make()
    dataset, number = PackedDataset(out), 0
    for shard in manifests.load(out).shards:
        for row in range(shard.rows):
            assert re.fullmatch(re.escape(f"{out / shard.path}, row {row}"), dataset.shards.place(number))
            number += 1


@pytest.mark.parametrize("count", FLIPS)
@pytest.mark.parametrize("storage", [name for name in STORAGE if name.startswith("arrow")])
def test_one_flipped_bit_in_an_arrow_shard_is_no_error_of_another_kind(
    copy: MakeData, storage: str, count: int
) -> None:
    out = copy(*STORAGE[storage])
    path = out / manifests.load(out).shards[1].path
    for spoiled in flips(path.read_bytes(), count, storage):
        path.write_bytes(spoiled)
        found = contents_or_error(out)
        assert str(path) in found if isinstance(found, str) else len(found[0]) == len(found[1]) == found[4][-1]


@pytest.mark.parametrize(("spans", "good"), [([], True), ([0, 3], True), ([0, 1, 2, 5], True), ([0], False)])
@pytest.mark.parametrize(("more", "fine"), [([], True), ([1, 9], False), ([-1, 2], False), ([2, 1], False)])
def test_loss_spans_rise_in_pairs_within_the_row(spans: list[int], good: bool, more: list[int], fine: bool) -> None:
    """Two rows of 5 tokens; `more` are the second's."""
    columns = {"input_ids": [1] * 10, "cu_seqlens": [0, 5, 0, 5], "next_tokens": [7, 7], "loss_spans": [*spans, *more]}
    ends = {"input_ids": [0, 5, 10], "cu_seqlens": [0, 2, 4], "next_tokens": [0, 1, 2]}
    ends["loss_spans"] = [0, len(spans), len(spans) + len(more)]
    layout = Layout(columns="compact", masked=True)
    found = first_wrong(*({k: np.array(v, np.int32) for k, v in of.items()} for of in (columns, ends)), layout)
    expected = None if good and fine else (0 if not good else 1, "loss_spans must rise in pairs, within the row")
    assert found == expected
