"""Columns of Arrow record batches to blocks, in pieces of a bounded size: texts here, ready-made ids in token_columns,
chats in chat_columns.

A batch may hold gigabytes, and its rows may differ a thousandfold in length, so pieces are cut by the rows' real sizes:

    sizes 3, 1, 9, 1, 1 at a limit of 4   ->   rows [0, 2), [2, 3), [3, 5)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from packer.conversation import Rendered
from packer.corpus import schema as schemas
from packer.corpus.batches import Block, Marked, Plain
from packer.corpus.chat_columns import chat_block, is_text, names_of
from packer.corpus.records import Reading, too_long
from packer.corpus.sources import ReadOptions, Schema
from packer.corpus.streams import not_utf8
from packer.corpus.token_columns import check_lists, list_sizes, token_block
from packer.corpus.traits import TraitReader
from packer.errors import InputError
from packer.plan import Int64Array, offsets_of

PIECE_BYTES = 4 << 20
WINDOW_ROWS = 1 << 16  # rows whose sizes are looked at together


@dataclass(frozen=True)
class Columns:
    """The columns that hold the content: its schema, the column of the mask if there is one, what else of a chat's or a
    pair's record is read, and those of `packer.corpus.traits`."""

    schema: Schema
    mask: str | None = None
    others: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        names = [self.schema.field, *([] if self.mask is None else [self.mask]), *self.others, *self.traits]
        return list(dict.fromkeys(names))


def find(table: pa.Schema, path: str, options: ReadOptions) -> Columns:
    """The columns of a table to read. Raises InputError where there are none, or of a type that cannot serve."""
    traits = TraitReader(options)
    traits.check_columns(table, path)
    return replace(_content(table, path, options), traits=traits.fields)


def _content(table: pa.Schema, path: str, options: ReadOptions) -> Columns:
    schema = schemas.of_columns(table.names, path, options)
    if schema.rendered:
        return Columns(schema, others=tuple(names_of(table, schema, path)[1:]))
    if schema.kind == "text":
        kind = table.field(schema.field).type
        if not (is_text(kind) or pa.types.is_null(kind)):
            raise InputError(f"{path}: column {schema.field} is {schemas.shorten([str(kind)])}, not text")
        return Columns(schema)
    mask = next((name for name in schemas.MASK_FIELDS if name in table.names), None)
    columns = Columns(schema, mask)
    for name in columns.names:
        if table.names.count(name) != 1:
            raise InputError(f"{path}: more than one column {name}")
        check_lists(table.field(name).type, name, path)
    return columns


def blocks(batch: pa.RecordBatch, columns: Columns, first: int, reading: Reading) -> Iterator[Block]:
    """The rows of a batch, which are the slice's rows from `first` on."""
    for window in range(0, batch.num_rows, WINDOW_ROWS):
        part = batch.slice(window, WINDOW_ROWS)
        for start, stop in cut(_sizes(part, columns), PIECE_BYTES):
            piece, row = part.slice(start, stop - start), first + window + start
            if columns.schema.rendered:
                yield chat_block(piece.select(columns.names), row, reading)
            elif columns.traits:
                traits, faults = reading.traits.of_columns(piece)
                yield Marked(_block(piece, columns, row, reading, faults), traits)
            else:
                yield _block(piece, columns, row, reading, {})


def _block(piece: pa.RecordBatch, columns: Columns, row: int, reading: Reading, faults: Mapping[int, str]) -> Plain:
    """faults: what is wrong with rows apart from their content."""
    field = columns.schema.field
    if columns.schema.kind == "text":
        return _text_block(piece.column(field), field, row, reading, faults)
    return token_block(piece, field, columns.mask, row, reading, faults)


def _sizes(batch: pa.RecordBatch, columns: Columns) -> Int64Array:
    """Bytes of each row: int64 (n,). Of chats the mean, for nested sizes are not to be had at once."""
    if columns.schema.rendered:
        size = batch.select(columns.names).nbytes // max(batch.num_rows, 1)
        return np.full(batch.num_rows, size + 1, np.int64)
    content = batch.column(columns.schema.field)
    return _text_sizes(content) if columns.schema.kind == "text" else list_sizes(content) * 4


def cut(sizes: Int64Array, limit: int) -> Iterator[tuple[int, int]]:
    """Runs of rows [start, stop) that hold at most `limit` together, or one row that is larger. sizes: int64 (n,)"""
    ends = offsets_of(sizes)
    start = 0
    while start < len(sizes):
        stop = max(int(np.searchsorted(ends, ends[start] + limit, side="right")) - 1, start + 1)
        yield start, stop
        start = stop


def _text_block(texts: pa.Array, field: str, first: int, reading: Reading, faults: Mapping[int, str]) -> Plain:
    if pa.types.is_null(texts.type):
        starts, data = [0] * (len(texts) + 1), memoryview(b"")
    else:
        # One buffer of bytes with 64-bit offsets, whatever the column's type was.
        flat = (texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts).cast(pa.large_binary())
        _, offsets, buffer = flat.buffers()
        starts = np.frombuffer(offsets, np.int64)[flat.offset : flat.offset + len(flat) + 1].tolist()
        data = memoryview(b"" if buffer is None else buffer)
    nulls = set(np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist()) if texts.null_count else set()
    block: list[str | Rendered | None] = []
    for row, (start, stop) in enumerate(pairwise(starts)):
        text = reason = None
        if row in nulls:
            reason = f"field {field} is null"
        elif stop - start > reading.options.max_record_bytes:
            reason = too_long(reading.options)
        else:
            try:
                text = str(data[start:stop], "utf-8")
            except UnicodeDecodeError as error:
                reason = f"field {field} is {not_utf8(bytes(data[start:stop]), error.start)}"
        if reason := reason or faults.get(row):
            text = None
            reading.bad_at("row", first + row, reason)
        block.append(text)
    return block


def _text_sizes(texts: pa.Array) -> Int64Array:
    """Bytes of each text, 0 for null: int64 (n,)."""
    import pyarrow.compute as pc  # here, for it takes long to load and JSON lines need none of it

    kind = texts.type
    if pa.types.is_null(kind):
        return np.zeros(len(texts), np.int64)
    if pa.types.is_dictionary(kind):
        sizes = pc.take(pc.binary_length(texts.dictionary), texts.indices)
    elif pa.types.is_string_view(kind):
        # Arrow has no kernel for this one: each view is 16 bytes and begins with the length as int32.
        views = np.frombuffer(texts.buffers()[1], np.int32).reshape(-1, 4)
        sizes = pa.array(views[texts.offset : texts.offset + len(texts), 0])
        return _as_int64(pc.if_else(texts.is_valid(), sizes, 0))
    else:
        sizes = pc.binary_length(texts)
    return _as_int64(sizes.fill_null(0))


def _as_int64(numbers: Any) -> Int64Array:
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64)
