"""From blocks to shards: one stream cut once over all blocks, every row written once, the same bytes every time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer import cutting, finish, packing, staging
from packer.blocks import Block, Collector
from packer.corpus import ReadOptions
from packer.cutting import StagedBlock, cut
from packer.encoding import Encoded
from packer.errors import OutputError
from packer.finish import Output, staged_blocks, write_shards
from packer.interleave import Stream, generator
from packer.job import BlockReport, Job, PartitionReport
from packer.manifest import Totals
from packer.packing.overlong import Losses
from packer.plan import runs
from packer.rows import columns
from packer.schema import IGNORE_INDEX, SCOPES, TAILS, Layout
from packer.shards import ShardFile, arrow_schema, read_shard
from packer.stage import plan_block
from packer.staging import write_block
from packer.windowing import Windowing

Document = tuple[list[int], list[bool] | None]  # ids, mask
Partitions = list[list[list[Document]]]  # partitions of blocks of documents
JOB = Job(
    read=ReadOptions(),
    tokenizer=None,
    strategy="wrapped",
    max_length=8,
    overlong=None,
    min_tokens=0,
    max_segments=None,
    seed=0,
    order="plan",
    block_tokens=1 << 20,
)


@pytest.fixture(autouse=True, scope="module")
def _without_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "sync", id)
        yield


def block_of(documents: Sequence[Document], first: int) -> Block:
    """A block of documents whose ordinals count from `first`."""
    parts = [
        Encoded(
            np.array([ordinal]),
            np.array(ids, np.int32),
            np.array([0, len(ids)]),
            None if mask is None else np.array(mask, np.bool_),
            np.array([mask is not None]),
            0,
        )
        for ordinal, (ids, mask) in enumerate(documents, first)
    ]
    collector = Collector(1 << 40)
    for part in parts:
        assert list(collector.add(part)) == []
    [block] = collector.rest()
    return block


def staged(folder: Path, partitions: Partitions, job: Job) -> list[StagedBlock]:
    """The blocks of all partitions as a run leaves them; each partition has one bad record at its end."""
    reports = []
    for index, blocks in enumerate(partitions):
        found, first = [], 0
        for number, documents in enumerate(blocks):
            block = block_of(documents, first)
            plan, stops, _ = plan_block(job, block, generator(job.seed, Stream.TIES, index, number))
            first += len(documents)
            if plan.rows:
                name = f"block-{number:05d}"
                write_block(block.documents, plan, stops, finish.partition_folder(folder, index) / name)
                found.append(BlockReport(name, plan.rows, plan.tokens, block.documents.trained is not None))
        reports.append(PartitionReport(index, [first + 1], [], Totals(records=first + 1), Losses(), [], found))
    return staged_blocks(folder, reports)


Row = tuple[tuple[int, ...], tuple[bool, ...], tuple[tuple[int, ...], ...]]  # tokens, mask, segments as SEGMENT


def rows_of(blocks: Sequence[StagedBlock]) -> list[Row]:
    """Every row of the blocks, with ordinals counted over the whole input."""
    found: list[Row] = []
    for block in blocks:
        rows = block.reader().read(0, block.rows)
        assert len(rows.tokens) == block.tokens
        trained = np.ones(len(rows.tokens), np.bool_) if rows.trained is None else rows.trained
        rows.segments["doc"] += block.first_doc
        for (a, b), (s, e) in zip(pairwise(rows.row_offsets), pairwise(rows.row_segments), strict=True):
            segments = tuple(tuple(segment) for segment in rows.segments[s:e].tolist())
            found.append((tuple(rows.tokens[a:b].tolist()), tuple(trained[a:b].tolist()), segments))
    return found


def naive_stream(partitions: Partitions, job: Job) -> list[Row]:
    """The whole corpus as one list of tokens, cut every max_length."""
    stream = []  # ordinal, position, id, trained, document's length, next
    ordinal = 0
    for blocks in partitions:
        for ids, mask in (document for block in blocks for document in block):
            bits = mask or [True] * len(ids)
            start, stop = 0, len(ids)
            if len(ids) > job.max_length and (mask is not None if job.overlong is None else job.overlong != "split"):
                start = len(ids) - job.max_length if job.overlong == "truncate-left" else 0
                stop = start + job.max_length
            if len(ids) < job.min_tokens or (mask is not None and not any(bits[start + 1 : stop])):
                stop = start
            for at in range(start, stop):
                following = ids[at + 1] if at + 1 < stop and bits[at + 1] else IGNORE_INDEX
                stream.append((ordinal, at, ids[at], bits[at], len(ids), following))
            ordinal += 1
        ordinal += 1  # the bad record
    rows = []
    for first in range(0, len(stream), job.max_length):
        tokens = stream[first : first + job.max_length]
        segments: list[list[int]] = []
        for document, position, _, _, length, following in tokens:
            if not segments or segments[-1][0] != document:
                segments.append([document, position, 0, length, following])
            segments[-1][2] += 1
            segments[-1][4] = following
        rows.append(
            (tuple(token[2] for token in tokens), tuple(token[3] for token in tokens), tuple(map(tuple, segments)))
        )
    return rows


def document(number: int, length: int, kind: str) -> Document:
    ids = [100 * number + position for position in range(length)]
    masks = {"plain": None, "masked": [position % 3 != 1 for position in range(length)], "asked": [False] * length}
    return ids, masks[kind]


@st.composite
def corpora(draw: st.DrawFn) -> Partitions:
    """Many tiny blocks: from one token, so that a row may span several of them and several partitions."""
    kinds = st.sampled_from(draw(st.sampled_from([["plain"], ["masked"], ["plain", "plain", "masked", "asked"]])))
    shape = draw(
        st.lists(
            st.lists(st.lists(st.tuples(st.integers(1, 9), kinds), min_size=1, max_size=4), max_size=5),
            min_size=1,
            max_size=4,
        )
    )
    numbers = iter(range(1, 1000))
    return [[[document(next(numbers), *one) for one in block] for block in blocks] for blocks in shape]


jobs = st.builds(
    lambda max_length, overlong, min_tokens: replace(
        JOB, max_length=max_length, overlong=overlong, min_tokens=min_tokens
    ),
    st.integers(1, 12) | st.just(40),
    st.sampled_from([None, None, "split", "truncate", "truncate-left"]),
    st.integers(0, 3),
)


@settings(max_examples=80)
@given(corpora(), jobs, st.booleans(), st.sampled_from([1, 2, 64]))
def test_a_stream_is_cut_once(partitions: Partitions, job: Job, shuffle: bool, at_once: int) -> None:
    expected = naive_stream(partitions, job)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "ROWS", at_once)
        done = cut(staged(Path(folder), partitions, job), job.max_length, None, job.seed, shuffle=shuffle)
        found = rows_of(done.blocks)
    assert sorted(found) == sorted(expected)
    assert shuffle or found == expected, "unshuffled rows stand in the stream's order"
    assert sum(len(tokens) < job.max_length for tokens, _, _ in found) <= 1
    rows_with = Counter(segment[0] for _, _, segments in expected for segment in segments)
    assert done.split_documents == sum(rows > 1 for rows in rows_with.values())
    assert done.placed_documents == len(rows_with)


def test_a_row_over_many_blocks() -> None:
    """Seven blocks of one token in three partitions; rows of five."""
    partitions = [[[document(number, 1, "plain")] for number in range(a, b)] for a, b in ((0, 2), (2, 3), (3, 7))]
    with TemporaryDirectory() as folder:
        done = cut(staged(Path(folder), partitions, JOB), 5, None, 0, shuffle=False)
        found = rows_of(done.blocks)
    assert done.split_documents == 0
    assert [tokens for tokens, _, _ in found] == [(0, 100, 200, 300, 400), (500, 600)]
    assert [[segment[0] for segment in segments] for _, _, segments in found] == [[0, 1, 3, 5, 6], [7, 8]]


# --- windows ---------------------------------------------------------------------------------------------------------

Token = tuple[int, int, int, bool]  # document, position, id, trained
Window = tuple[list[tuple[int, int, int]], list[int]]  # document, position and id of each token; labels


def naive_starts(n: int, size: int, windowing: Windowing) -> list[int]:
    """Windows with all labels, then what the tail asks for."""
    full = [s for s in range(0, n, windowing.stride) if s + size < n]
    keep = [s for s in range(0, n, windowing.stride) if s + size >= n][:1]
    align = [max(n - size - 1, 0)] if max((s + size for s in full), default=0) < n - 1 else []
    return full + {"keep": keep, "align": align, "drop": []}[windowing.tail]


def naive_windows(partitions: Partitions, size: int, windowing: Windowing, min_tokens: int) -> list[Window]:
    """Over lists of tokens, one window after another."""
    documents: list[list[Token]] = []
    records = [one for blocks in partitions for one in (*chain.from_iterable(blocks), ([], None))]
    for ordinal, (ids, mask) in enumerate(records):
        bits = mask or [True] * len(ids)
        if ids and len(ids) >= min_tokens and (mask is None or any(bits[1:])):
            documents.append([(ordinal, at, ids[at], bits[at]) for at in range(len(ids))])
    streams = documents if windowing.scope == "document" else [list(chain.from_iterable(documents))]
    windows = []
    for tokens in streams:
        predicted: set[int] = set()
        for s in naive_starts(len(tokens), size, windowing):
            targets = range(s + 1, min(s + size, len(tokens)) + 1)
            real = {t for t in targets if t < len(tokens) and not (windowing.mask_overlap and t in predicted)}
            if real:
                labels = [tokens[t][2] if t in real and tokens[t][3] else IGNORE_INDEX for t in targets]
                windows.append(([token[:3] for token in tokens[s : s + size]], labels))
                predicted |= set(targets)
    return windows


def windows_in(blocks: Sequence[StagedBlock], windowing: Windowing, labels: str) -> list[Window]:
    """As the columns say it, in either convention of labels."""
    layout = Layout(labels=labels, boundaries="row" if windowing.scope == "corpus" else "document")  # type: ignore[arg-type]
    found: list[Window] = []
    for block in blocks:
        rows = block.reader().read(0, block.rows)
        values = columns(rows, layout).lists
        targets = values["labels"].values
        if labels == "aligned":  # as a reader converts them
            targets = np.append(targets[1:], IGNORE_INDEX)
            targets[rows.row_offsets[1:] - 1] = values["next_tokens"].values[rows.row_segments[1:] - 1]
        document = np.repeat(rows.segments["doc"], rows.segments["length"])
        position = runs(rows.segments["start"].astype(np.int64), rows.segments["length"])
        tokens = list(zip(document.tolist(), position.tolist(), rows.tokens.tolist(), strict=True))
        found += [(tokens[a:b], targets[a:b].tolist()) for a, b in pairwise(rows.row_offsets.tolist())]
        assert block.tokens == len(tokens)
    return found


windowings = st.builds(
    Windowing,
    st.integers(1, 9) | st.just(30),
    st.sampled_from(SCOPES),
    st.sampled_from(TAILS),
    st.booleans(),
)


@settings(max_examples=120)
@given(
    corpora(), st.integers(1, 8) | st.just(20), windowings, st.integers(0, 3), st.booleans(), st.sampled_from([1, 64])
)
def test_windows(
    partitions: Partitions, size: int, windowing: Windowing, min_tokens: int, shuffle: bool, at_once: int
) -> None:
    """The same whatever the blocks and partitions are; a window may span many of them."""
    expected = naive_windows(partitions, size, windowing, min_tokens)
    job = replace(JOB, max_length=size, overlong="split", min_tokens=min_tokens, window=windowing)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "ROWS", at_once)
        done = cut(staged(Path(folder), partitions, job), size, windowing, 0, shuffle=shuffle)
        found = windows_in(done.blocks, windowing, "shifted")
        assert sorted(found) == sorted(expected)
        assert shuffle or found == expected, "unshuffled windows stand in the order of the input"
        assert sorted(windows_in(done.blocks, windowing, "aligned")) == sorted(expected), "next_tokens keep the rest"
    in_windows = [{token[0] for token in tokens} for tokens, _ in expected]
    windows_with = Counter(document for documents in in_windows for document in documents)
    assert done.placed_documents == len(windows_with)
    assert done.split_documents == sum(count > 1 for count in windows_with.values())
    distinct = {token[:2] for tokens, _ in expected for token in tokens}
    tokens = sum(len(tokens) for tokens, _ in expected)
    coverage = done.coverage
    assert (coverage.windows, coverage.tokens, coverage.distinct_tokens) == (len(expected), tokens, len(distinct))


@given(corpora(), st.integers(1, 8), st.data(), st.sampled_from(SCOPES), st.sampled_from(["keep", "align"]))
def test_every_token_is_predicted_once(
    partitions: Partitions, size: int, data: st.DataObject, scope: str, tail: str
) -> None:
    """All but each document's first; over the corpus, all but the first."""
    windowing = Windowing(data.draw(st.integers(1, size)), scope, tail, mask_overlap=True)  # type: ignore[arg-type]
    plain = [[[(ids, None) for ids, _ in block] for block in blocks] for blocks in partitions]
    job = replace(JOB, max_length=size, overlong="split", window=windowing)
    with TemporaryDirectory() as folder:
        done = cut(staged(Path(folder), plain, job), size, windowing, 0, shuffle=True)
        found = windows_in(done.blocks, windowing, "shifted")
    documents = [ids for blocks in plain for block in blocks for ids, _ in block]
    streams = documents if scope == "document" else [list(chain.from_iterable(documents))]
    wanted = [token for ids in streams for token in ids[1:]]
    assert Counter(label for _, labels in found for label in labels if label != IGNORE_INDEX) == Counter(wanted)
    assert done.coverage.predictions == len(wanted)


def test_tokens_of_a_cut_file_that_are_missing(tmp_path: Path) -> None:
    partitions = [[[document(1, 9, "plain")]], [[document(2, 9, "plain")]]]
    job = replace(JOB, overlong="split", window=Windowing(3, "corpus"))
    blocks = staged(tmp_path, partitions, job)
    done = cut(blocks, 8, Windowing(3, "corpus"), 0, shuffle=False)
    path = blocks[1].folder / "tokens.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OutputError, match=r"tokens.bin is cut short"):
        done.blocks[1].reader().read(0, done.blocks[1].rows)


# --- planning and writing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", packing.STRATEGIES)
@given(corpora(), jobs, st.none() | st.integers(1, 3))
def test_plan_block(strategy: str, partitions: Partitions, job: Job, max_segments: int | None) -> None:
    """Every token in a row or counted as lost; a stream is one row a document, of any length."""
    documents = [one for blocks in partitions for block in blocks for one in block]
    if not documents:
        return
    job = replace(job, strategy=strategy, max_segments=None if strategy == "wrapped" else max_segments)
    block = block_of(documents, 0)
    plan, stops, losses = plan_block(job, block, np.random.default_rng(0))
    lengths = block.documents.segments["length"].copy()
    plan.validate(lengths, 9 if job.cut_later else job.max_length)
    assert plan.tokens + losses.tokens == sum(lengths)
    seen = [set(range(start, start + n)) for start, n in zip(plan.start.tolist(), plan.length.tolist(), strict=True)]
    tokens = {(doc, position) for doc, part in zip(plan.doc.tolist(), seen, strict=True) for position in part}
    assert len(tokens) == plan.tokens, "no token twice"
    assert all(position < stops[doc] for doc, position in tokens)
    if job.cut_later:
        assert plan.doc.tolist() == sorted(set(plan.doc.tolist()))
        assert plan.rows == len(plan.doc)


@dataclass
class Written:
    """What `write_shards` gave, and what stands on disk."""

    shards: list[ShardFile]
    totals: Totals
    contents: list[bytes]
    rows: list[list[dict[str, Any]]]  # by shard
    groups: list[list[int]]  # rows of each row group, by shard


MASKED = Layout(masked=True)
OUTPUT = Output("train", "parquet", "zstd", None)


def write(
    folder: Path,
    partitions: Partitions,
    layout: Layout = MASKED,
    output: Output = OUTPUT,
    order: str = "plan",
) -> tuple[list[Row], Written]:
    """The staged rows in their order, and the shards made of them."""
    folder.mkdir(exist_ok=True)
    blocks = staged(folder, partitions, replace(JOB, strategy="bfd"))
    expected = rows_of(blocks)
    schema = arrow_schema(layout, {"max_length": "8"})
    made = write_shards(folder, blocks, layout, output, schema, seed=3, order=order)
    shards, totals = made.shards, made.totals
    paths = [folder / shard.path for shard in shards]
    batches = [list(read_shard(path, output.file_format)) for path in paths]
    if output.file_format == "parquet":
        files = [pq.ParquetFile(path).metadata for path in paths]
        groups = [[file.row_group(i).num_rows for i in range(file.num_row_groups)] for file in files]
    else:
        groups = [[len(batch) for batch in part] for part in batches]
    rows = [pa.Table.from_batches(part).to_pylist() for part in batches]
    return expected, Written(shards, totals, [path.read_bytes() for path in paths], rows, groups)


def read_back(rows: Sequence[dict[str, Any]]) -> list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]]:
    """Tokens and segments of rows as stored."""
    names = ("doc_ids", "doc_starts", "seq_lengths", "doc_lengths", "next_tokens")
    return [(tuple(row["input_ids"]), tuple(zip(*(row[name] for name in names), strict=True))) for row in rows]


def some(documents: int, per_block: int) -> Partitions:
    """Documents of 1 to 8 tokens, some masked, in two partitions."""
    all_documents = [document(n, 1 + n * 7 % 8, "masked" if n % 5 == 4 else "plain") for n in range(documents)]
    blocks = [all_documents[at : at + per_block] for at in range(0, documents, per_block)]
    return [blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]]


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "arrow-stream"])
@pytest.mark.parametrize("order", ["plan", "shuffle"])
@pytest.mark.parametrize("rows_per_shard", [None, 1, 7, 1000])
def test_every_row_once(tmp_path: Path, file_format: str, order: str, rows_per_shard: int | None) -> None:
    output = Output("train", file_format, "none", rows_per_shard)
    expected, written = write(tmp_path / "out", some(60, 9), output=output, order=order)
    found = read_back([row for shard in written.rows for row in shard])
    wanted = [(tokens, segments) for tokens, _, segments in expected]
    assert sorted(found) == sorted(wanted)
    assert (found == wanted) == (order == "plan")
    sizes = [len(shard) for shard in written.rows]
    assert sizes[:-1] == [rows_per_shard or len(wanted)] * (len(sizes) - 1)
    assert 1 <= sizes[-1] <= (rows_per_shard or len(wanted))


def test_shards_are_what_is_said_of_them(tmp_path: Path) -> None:
    expected, written = write(tmp_path / "out", some(60, 9), output=Output("valid", "parquet", "zstd", 10))
    count = len(written.shards)
    assert count == -(-len(expected) // 10)
    assert [s.path for s in written.shards] == [f"data/valid-{i:05d}-of-{count:05d}.parquet" for i in range(count)]
    assert sorted(path.name for path in (tmp_path / "out" / "data").iterdir()) == [
        Path(shard.path).name for shard in written.shards
    ]
    for shard, content, rows in zip(written.shards, written.contents, written.rows, strict=True):
        assert shard.rows == len(rows)
        assert shard.tokens == sum(len(row["input_ids"]) for row in rows)
        assert (shard.bytes, shard.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    rows = [row for shard in written.rows for row in shard]
    assert written.totals == Totals(
        rows=len(rows),
        segments=sum(len(row["doc_ids"]) for row in rows),
        placed_tokens=sum(row["num_tokens"] for row in rows),
        loss_tokens=sum(label != IGNORE_INDEX for row in rows for label in row["labels"]),
        attention_cost=sum(row["attention_cost"] for row in rows),
        max_seqlen=max(row["max_seqlen"] for row in rows),
    )


@pytest.mark.parametrize("rows_per_shard", [None, 11])
@pytest.mark.parametrize("group_tokens", [1, 30, 100, 10_000])
def test_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_tokens: int, rows_per_shard: int | None
) -> None:
    """As many rows as hold about so many tokens, in every group of a shard but its last."""
    monkeypatch.setattr(finish, "GROUP_TOKENS", group_tokens)
    expected, written = write(tmp_path / "out", some(60, 9), output=replace(OUTPUT, rows_per_shard=rows_per_shard))
    per_group = max(1, group_tokens * len(expected) // sum(len(tokens) for tokens, _, _ in expected))
    for groups, rows in zip(written.groups, written.rows, strict=True):
        ends = list(accumulate(groups))
        assert ends == [*range(per_group, len(rows), per_group), len(rows)]
    assert read_back([row for shard in written.rows for row in shard]) == [(t, s) for t, _, s in expected]


def test_equal_shards_of_the_size_aimed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "SHARD_TOKENS", 60)
    expected, written = write(tmp_path / "out", some(60, 9))
    tokens = sum(len(row) for row, _, _ in expected)
    assert abs(len(written.shards) - tokens / 60) <= 1
    sizes = [shard.rows for shard in written.shards]
    assert len(set(sizes[:-1])) == 1
    assert sizes[-1] <= sizes[0]


@pytest.mark.parametrize("order", ["plan", "shuffle"])
@pytest.mark.parametrize("file_format", ["parquet", "arrow", "arrow-stream"])
def test_the_same_bytes_twice(tmp_path: Path, file_format: str, order: str) -> None:
    output = Output("train", file_format, "zstd", 8)
    first, second = (write(tmp_path / name, some(60, 9), output=output, order=order)[1] for name in ("one", "two"))
    assert first.contents == second.contents
    assert first.shards == second.shards


def test_one_short_row(tmp_path: Path) -> None:
    """trl 1337: too little data for one full row is no error."""
    _, written = write(tmp_path / "out", [[[document(0, 3, "plain")]]], Layout())
    [[row]] = written.rows
    assert (row["input_ids"], row["cu_seqlens"], row["num_tokens"]) == ([0, 1, 2], [0, 3], 3)
