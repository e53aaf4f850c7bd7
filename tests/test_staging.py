"""Staged blocks give back what was written, in pieces of any size, and say so when they cannot."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import OutputError
from packer.plan import offsets_of
from packer.rows import SEGMENT, Rows, concatenate
from packer.staging import BlockReader, BlockWriter


def make_rows(shape: list[list[int]], *, masked: bool, seed: int = 0) -> Rows:
    """Rows whose segments have these lengths, with random contents in every field."""
    rng = np.random.default_rng(seed)
    lengths = [length for row in shape for length in row]
    segments = np.zeros(len(lengths), SEGMENT)
    for name in SEGMENT.names or ():
        limit = np.iinfo(SEGMENT[name]).max
        segments[name] = rng.integers(-100, limit, len(lengths), endpoint=True)
    segments["length"] = lengths
    tokens = rng.integers(0, 2**31 - 1, sum(lengths), endpoint=True).astype(np.int32)
    trained = rng.random(len(tokens)) < 0.5 if masked else None
    return Rows(tokens, trained, segments, offsets_of(np.array([len(row) for row in shape], np.int64)))


def written(folder: Path, rows: Rows, pieces: list[int]) -> BlockReader:
    """The rows in a staged block, written in pieces that end at these row numbers, the last of them first."""
    writer = BlockWriter(folder, np.stack([rows.row_segments, rows.row_offsets], axis=1))
    parts = [(start, rows.take(np.arange(start, stop))) for start, stop in pairwise(sorted({0, *pieces, len(rows)}))]
    for start, part in reversed(parts):
        writer.write(part, start)
    for _, part in parts:
        writer.note(part)
    assert writer.close() == {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    return BlockReader(folder, masked=rows.trained is not None)


def same(one: Rows, other: Rows) -> bool:
    masks = [None if rows.trained is None else rows.trained.tolist() for rows in (one, other)]
    return (
        one.tokens.tolist() == other.tokens.tolist()
        and masks[0] == masks[1]
        and one.segments.tolist() == other.segments.tolist()
        and one.row_segments.tolist() == other.row_segments.tolist()
    )


shapes = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=20)


@given(shapes, st.booleans(), st.data())
def test_round_trip(shape: list[list[int]], masked: bool, data: st.DataObject) -> None:
    rows = make_rows(shape, masked=masked)
    ends = st.lists(st.integers(0, len(rows)))
    with TemporaryDirectory() as folder:
        reader = written(Path(folder) / "block", rows, data.draw(ends))
        bounds = [0, *sorted(data.draw(ends)), len(rows)]
        parts = [reader.read(start, stop - start) for start, stop in pairwise(bounds)]
    assert [len(part) for part in parts] == np.diff(bounds).tolist()
    assert same(concatenate(parts), rows)


@pytest.mark.parametrize("name", ["tokens.bin", "trained.bin", "segments.bin", "rows.bin"])
@pytest.mark.parametrize("left", ["nothing", "half", "all but a byte"])
@pytest.mark.parametrize("at_once", [4, 1])
def test_a_cut_file_is_an_error(tmp_path: Path, name: str, left: str, at_once: int) -> None:
    reader = written(tmp_path / "block", make_rows([[2], [1, 3], [2], [4]], masked=True), [])
    path = tmp_path / "block" / name
    content = path.read_bytes()
    path.write_bytes(content[: {"nothing": 0, "half": len(content) // 2, "all but a byte": len(content) - 1}[left]])
    with pytest.raises(OutputError, match=rf"{name} is cut short"):
        [reader.read(start, at_once) for start in range(0, 4, at_once)]


def test_more_rows_than_there_are(tmp_path: Path) -> None:
    reader = written(tmp_path / "block", make_rows([[1], [2]], masked=False), [])
    reader.read(0, 2)
    with pytest.raises(OutputError, match="cut short"):
        reader.read(2, 1)


def test_a_block_is_never_written_over(tmp_path: Path) -> None:
    """A second try must start from nothing: appending would give both tries' rows."""
    written(tmp_path / "block", make_rows([[1]], masked=False), [])
    with pytest.raises(FileExistsError):
        BlockWriter(tmp_path / "block", np.zeros((1, 2), np.int64))
