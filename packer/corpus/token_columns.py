"""Columns of token ids and masks to blocks: whole columns at a time, no Python object for a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from packer.corpus.batches import Tokens
from packer.corpus.records import ID_LIMIT, Reading, id_reason, length_reason, mask_from, mask_reason, too_long
from packer.errors import InputError
from packer.plan import BoolArray, Int64Array, offsets_of


def check_lists(kind: pa.DataType, name: str, path: str) -> None:
    """Raises InputError unless the column is a list of integers (of booleans too for a mask)."""
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    booleans = name not in ("input_ids", "labels")
    if not is_list or not (types.is_integer(kind.value_type) or (booleans and types.is_boolean(kind.value_type))):
        raise InputError(f"{path}: column {name} is {kind}, not a list of integers")


def list_sizes(lists: pa.Array) -> Int64Array:
    """Values of each list, 0 for null: int64 (n,)."""
    import pyarrow.compute as pc  # here, for it takes long to load and JSON lines need none of it

    return np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), np.int64)


@dataclass
class _Lists:
    """A column of lists, flat. sizes: int64 (n,); values: integers (t,), 0 for null ones; hollow: positions of those
    among the values; absent: bool (n,), lists that are null."""

    sizes: Int64Array
    values: NDArray[Any]
    hollow: Int64Array
    absent: BoolArray

    @classmethod
    def of(cls, column: pa.Array) -> _Lists:
        flat = column.flatten()
        hollow = np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False)).astype(np.int64)
        values = (flat.fill_null(0) if flat.null_count else flat).to_numpy(zero_copy_only=False)
        values = values.astype(np.int8) if values.dtype == bool else values
        absent = column.is_null().to_numpy(zero_copy_only=False)
        return cls(list_sizes(column), values, hollow, absent)

    def only(self, rows: BoolArray) -> _Lists:
        """Some of the rows; rows: bool (n,)."""
        if rows.all():
            return self
        values = self.values[np.repeat(rows, self.sizes)]
        return _Lists(self.sizes[rows], values, np.empty(0, np.int64), self.absent[rows])


class _Faults:
    """The first reason found against each row."""

    def __init__(self, rows: int) -> None:
        self.reasons: dict[int, str] = {}
        self.good = np.ones(rows, bool)

    def add(self, row: int, reason: str) -> None:
        self.reasons.setdefault(row, reason)
        self.good[row] = False

    def rows_of(self, positions: Int64Array, sizes: Int64Array, rows: Int64Array) -> list[tuple[int, int, int]]:
        """(row, position in it, position) of the first of the positions in each list; list i belongs to rows[i]."""
        offsets = offsets_of(sizes)
        lists, firsts = np.unique(np.searchsorted(offsets, positions, side="right") - 1, return_index=True)
        at = positions[firsts]
        return list(zip(rows[lists].tolist(), (at - offsets[lists]).tolist(), at.tolist(), strict=True))


def token_block(
    batch: pa.RecordBatch,
    field: str,
    mask_field: str | None,
    first: int,
    reading: Reading,
    others: Mapping[int, str],
) -> Tokens:
    """The rows of a small batch, which are the slice's rows from `first` on. others: what is wrong with rows apart from
    their tokens."""
    rows = np.arange(batch.num_rows)
    faults = _Faults(batch.num_rows)
    ids = _Lists.of(batch.column(field))
    _check_whole(ids, field, faults)
    wrong = np.flatnonzero((ids.values < 0) | (ids.values >= ID_LIMIT))
    for row, position, at in faults.rows_of(wrong, ids.sizes, rows):
        faults.add(row, id_reason(field, int(ids.values[at]), position))
    for row in np.flatnonzero(ids.sizes * 4 > reading.options.max_record_bytes).tolist():
        faults.add(row, too_long(reading.options))
    for row, reason in others.items():
        faults.add(row, reason)
    mask = None
    if mask_field is not None:
        mask = _mask(_Lists.of(batch.column(mask_field)), mask_field, ids, faults)
    for row in sorted(faults.reasons):
        reading.bad_at("row", first + row, faults.reasons[row])
    ids = ids.only(faults.good)
    masked = np.full(len(ids.sizes), mask is not None)
    return Tokens(len(rows), rows[faults.good], ids.values.astype(np.int32), offsets_of(ids.sizes), mask, masked)


def _check_whole(lists: _Lists, field: str, faults: _Faults) -> None:
    for row in np.flatnonzero(lists.absent).tolist():
        faults.add(row, f"field {field} is null")
    for row, position, _ in faults.rows_of(lists.hollow, lists.sizes, np.arange(len(lists.sizes))):
        faults.add(row, f"field {field} holds null at position {position}, not an integer")


def _mask(marks: _Lists, field: str, ids: _Lists, faults: _Faults) -> BoolArray:
    """The mask of the rows that are good in the end: bool (t,)."""
    _check_whole(marks, field, faults)
    for row in np.flatnonzero(marks.sizes != ids.sizes).tolist():
        faults.add(row, length_reason(field, int(marks.sizes[row]), int(ids.sizes[row])))
    good = faults.good.copy()
    rows = np.flatnonzero(good)
    marks, ids = marks.only(good), ids.only(good)
    mask, wrong = mask_from(field, marks.values, ids.values)
    for row, position, at in faults.rows_of(np.flatnonzero(wrong), ids.sizes, rows):
        faults.add(row, mask_reason(field, int(marks.values[at]), position, int(ids.values[at])))
    kept: BoolArray = mask[np.repeat(faults.good[rows], ids.sizes)]
    return kept
