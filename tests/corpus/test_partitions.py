"""How sources are cut and put together."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise

import pytest

from packer.corpus import ReadOptions, Slice, Source, find_sources, partition


def sizes(*stored, target=100, **changes):
    sources = [Source(f"{i}", "", "jsonl", "gzip", size, None, **changes) for i, size in enumerate(stored)]
    return [
        [int(piece.source.path) for piece in part.slices]
        for part in partition(sources, ReadOptions(partition_bytes=target))
    ]


def test_small_files_are_put_together():
    assert sizes(50, 50, 1, 99, 1) == [[0, 1], [2, 3], [4]]
    assert sizes(500, 1, 0, 500) == [[0], [1, 2], [3]]
    assert len(sizes(*[1] * 10_000)) == 100
    assert sizes() == []


def test_stdin_is_alone():
    sources = [
        Source("a", "", "csv", None, 1, None),
        Source("-", "", "stdin", None, 0, None),
        Source("b", "", "csv", None, 1, None),
    ]
    parts = partition(sources, ReadOptions())
    assert [[piece.source.path for piece in part.slices] for part in parts] == [["a"], ["-"], ["b"]]


def test_large_lines_are_cut_after_a_line_feed(tmp_path):
    path = tmp_path / "x.jsonl"
    lines = [json.dumps({"text": "x" * (i * 13 % 40)}) + "\n" for i in range(50)]
    path.write_text("".join(lines))
    options = ReadOptions(partition_bytes=100)
    sources = find_sources([str(path)], options).sources
    parts = partition(sources, options)
    pieces = [piece for part in parts for piece in part.slices]
    assert len(parts) > 10
    assert pieces[0].start == 0
    assert pieces[-1].stop == path.stat().st_size
    data = path.read_bytes()
    for left, right in pairwise(pieces):
        assert left.stop == right.start
        assert data[right.start - 1 : right.start] == b"\n"
        assert 100 <= left.stop - left.start < 160
    assert partition(sources, options) == parts
    assert pickle.loads(pickle.dumps(parts)) == parts


@pytest.mark.parametrize("split", ["file", "line", "paragraph"])
def test_text_is_cut_only_where_a_line_is_a_document(tmp_path, read, split):
    (tmp_path / "x.txt").write_text("word\n" * 100)
    result = read(tmp_path / "x.txt", split_text=split, partition_bytes=100)
    assert result.partitions == (5 if split == "line" else 1)


def test_a_slice_of_everything_is_the_default(tmp_path, lines_of):
    path = lines_of(tmp_path / "x.jsonl", [{"text": "a"}])
    sources = find_sources([str(path)], ReadOptions()).sources
    assert partition(sources, ReadOptions())[0].slices == (Slice(sources[0], 0, None),)
