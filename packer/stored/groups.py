"""Rows as they are stored, a group at a time: every column flat, with where each row begins in it.

What verifying, inspecting and reading a data set as INPUT have in common. Memory is bounded by a row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from packer.errors import DatasetError
from packer.manifest import Manifest
from packer.plan import BoolArray, Int64Array
from packer.remote import Place
from packer.schema import IGNORE_INDEX
from packer.shards import read_shard

Numbers = NDArray[np.signedinteger]


@dataclass(frozen=True)
class Group:
    """R rows as stored, all int64. flat[c]: list column c end to end; at[c]: int64 (R+1,), where each row's begins;
    scalar[c]: (R,)."""

    shard: str
    first_row: int
    flat: Mapping[str, Int64Array]
    at: Mapping[str, Int64Array]
    scalar: Mapping[str, Int64Array]
    manifest: Manifest

    @property
    def rows(self) -> int:
        return len(self.at["input_ids"]) - 1

    def counts(self, column: str) -> Int64Array:
        return np.diff(self.at[column])

    def row_of(self, column: str) -> Int64Array:
        """The row of each element of a list column."""
        return np.repeat(np.arange(self.rows), self.counts(column))

    def rows_with(self, column: str, wrong: BoolArray) -> BoolArray:
        """Which rows have a wrong element in a list column: bool (R,)."""
        result = np.zeros(self.rows, np.bool_)
        result[self.row_of(column)[wrong]] = True
        return result

    @cached_property
    def sequence_starts(self) -> Int64Array:
        """Where each attention sequence begins among the tokens: int64 (A,)."""
        last = np.zeros(len(self.flat["cu_seqlens"]), np.bool_)
        last[self.at["cu_seqlens"][1:] - 1] = True
        starts = self.flat["cu_seqlens"] + self.at["input_ids"][:-1][self.row_of("cu_seqlens")]
        return starts[~last]

    @cached_property
    def sequence_lengths(self) -> Int64Array:
        return np.diff(self.sequence_starts, append=len(self.flat["input_ids"]))

    @cached_property
    def sequence_offsets(self) -> Int64Array:
        """Where each row's attention sequences begin: int64 (R+1,)."""
        return self.at["cu_seqlens"] - np.arange(self.rows + 1)

    @cached_property
    def segment_lengths(self) -> Int64Array:
        """Tokens of each segment. In a row that is one sequence, all but the last run to their document's end, which
        truncation may have brought forward."""
        if self.manifest.layout.boundaries == "document":
            return self.sequence_lengths
        ends = self.flat["doc_lengths"]
        if self.manifest.options.overlong == "truncate":
            ends = np.minimum(ends, self.manifest.max_length)
        lengths = ends - self.flat["doc_starts"]
        last = self.at["doc_ids"][1:] - 1
        lengths[last] = 0
        lengths[last] = self.counts("input_ids") - np.add.reduceat(lengths, self.at["doc_ids"][:-1])
        return lengths

    @cached_property
    def segment_starts(self) -> Int64Array:
        return np.cumsum(self.segment_lengths) - self.segment_lengths

    @cached_property
    def is_sequence_start(self) -> BoolArray:
        result = np.zeros(len(self.flat["input_ids"]), np.bool_)
        result[self.sequence_starts] = True
        return result

    @cached_property
    def trained(self) -> BoolArray:
        """Compact sets: the tokens inside the loss spans, or all where there are none: bool (T,)."""
        result = np.ones(len(self.flat["input_ids"]), np.bool_)
        if "loss_spans" in self.flat:
            edges = self.flat["loss_spans"] + self.at["input_ids"][:-1][self.row_of("loss_spans")]
            steps = np.zeros(len(result) + 1, np.int64)
            np.add.at(steps, edges[::2], 1)
            np.add.at(steps, edges[1::2], -1)
            result = np.cumsum(steps[:-1]) > 0
        return result

    @cached_property
    def labels(self) -> Int64Array:
        """As stored, or as a compact set implies them."""
        if "labels" in self.flat:
            return self.flat["labels"]
        targets = np.where(self.trained, self.flat["input_ids"], IGNORE_INDEX)
        if self.manifest.layout.labels == "aligned":
            return np.where(self.is_sequence_start, IGNORE_INDEX, targets)
        shifted = np.append(targets[1:], IGNORE_INDEX)
        shifted[self.segment_starts + self.segment_lengths - 1] = self.flat["next_tokens"]
        return shifted

    def sums(self, values: Numbers) -> Int64Array:
        """Totals over each row's attention sequences."""
        return np.add.reduceat(values, self.sequence_offsets[:-1], dtype=np.int64)


def groups(out: Place, manifest: Manifest, shard: str) -> Iterator[Group]:
    """The shard, a row group at a time."""
    first_row = 0
    for batch in read_shard(out / shard, manifest.file_format):
        if len(batch):
            yield _group(batch, shard, first_row, manifest)
        first_row += len(batch)


def _group(batch: pa.RecordBatch, shard: str, first_row: int, manifest: Manifest) -> Group:
    flat, at, scalar = {}, {}, {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        is_list = pa.types.is_list(column.type)
        null = _first_null(column)
        if null is None and is_list:
            offsets = column.offsets.to_numpy().astype(np.int64)
            inner = _first_null(column.flatten())
            null = None if inner is None else int(np.searchsorted(offsets - offsets[0], inner, side="right")) - 1
        if null is not None:
            raise DatasetError(f"{shard}, row {first_row + null}: columns: {name} has a null")
        if is_list:
            flat[name] = column.flatten().to_numpy().astype(np.int64)
            at[name] = offsets - offsets[0]
        else:
            scalar[name] = column.to_numpy().astype(np.int64)
    return Group(shard, first_row, flat, at, scalar, manifest)


def _first_null(values: pa.Array) -> int | None:
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) if values.null_count else None


def labelled(group: Group) -> Int64Array:
    """The label of the token after each position, in either convention: int64 (T,)."""
    if group.manifest.layout.labels == "shifted":
        return group.labels
    after = np.append(group.labels[1:], IGNORE_INDEX)
    ends = group.sequence_starts + group.sequence_lengths - 1
    last = np.searchsorted(group.segment_starts, ends, side="right") - 1
    after[ends] = group.flat["next_tokens"][last]
    return after


def all_groups(out: Place, *splits: Manifest) -> Iterator[Group]:
    """Those of every shard of the splits."""
    for split in splits:
        for shard in split.shards:
            yield from groups(out, split, shard.path)


def raise_at(group: Group, row: int, rule: str) -> None:
    raise DatasetError(f"{group.shard}, row {group.first_row + row}: broken rule: {rule}")
