"""Parquet: the needed columns only, a few rows at a time, so that a row group of any size streams through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from packer.corpus import columns
from packer.corpus.batches import Block
from packer.corpus.records import Reading
from packer.corpus.sources import ReadOptions, Source
from packer.corpus.streams import CHUNK, input_errors, remote_file
from packer.errors import InputError

MAX_ROWS = 1024  # rows decoded together
MAX_DICTIONARY_ROWS = 128  # the same where the metadata tells how large the distinct values are, not the rows


def read(reading: Reading) -> Iterator[Block]:
    """Blocks of a range of row groups. Rows are numbered from 0 in the file."""
    source, start = reading.source, reading.slice.start
    with _open(source) as file:
        metadata = file.metadata
        content = columns.find(file.schema_arrow, source.path, reading.options)
        stop = metadata.num_row_groups if reading.slice.stop is None else reading.slice.stop
        row = sum(metadata.row_group(i).num_rows for i in range(start))
        reading.count_before = lambda: 0
        for group in range(start, stop):
            end = row + metadata.row_group(group).num_rows
            with _damage(f"{source.path}, row group {group}"):
                size = _batch_rows(metadata.row_group(group), content.names)
                for batch in file.iter_batches(size, [group], content.names, use_threads=False):
                    yield from columns.blocks(batch, content, row, reading)
                    row += batch.num_rows
                if row != end:  # a damaged page header, which no checksum covers, can end a column early
                    raise pa.ArrowInvalid(f"{end - row} rows are missing")


def columns_of(source: Source, options: ReadOptions) -> columns.Columns:
    """The columns of a file that hold its content."""
    with _open(source) as file:
        return columns.find(file.schema_arrow, source.path, options)


def group_sizes(source: Source) -> list[int]:
    """Bytes of each row group as stored."""
    with _open(source) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        return [sum(group.column(i).total_compressed_size for i in range(group.num_columns)) for group in groups]


def row_count(source: Source) -> int:
    with _open(source) as file:
        return int(file.metadata.num_rows)


@contextmanager
def _open(source: Source) -> Iterator[pq.ParquetFile]:
    # Without a buffer, or with pre_buffer, a column chunk is read whole: all of a large row group at once.
    options: dict[str, Any] = {"buffer_size": CHUNK, "pre_buffer": False, "page_checksum_verification": True}
    if source.remote:
        with remote_file(source, random=True) as stored:
            with _damage(source.path):
                file = pq.ParquetFile(pa.PythonFile(stored, "r"), **options)
            yield file
        return
    with input_errors(source.path), open(source.location, "rb"):  # the system's own words for a file that is gone
        pass
    with _damage(source.path):
        file = pq.ParquetFile(source.location, **options)
    with file:
        yield file


@contextmanager
def _damage(place: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{place}: Parquet cannot be read ({reason}); fetch the file again") from error


def _batch_rows(group: pq.RowGroupMetaData, names: list[str]) -> int:
    """Rows that decode to about a piece, from what the metadata says of their size."""
    chunks = [group.column(i) for i in range(group.num_columns)]
    chunks = [chunk for chunk in chunks if any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in names)]
    size = sum(int(chunk.total_uncompressed_size) for chunk in chunks)
    most = MAX_DICTIONARY_ROWS if any("DICTIONARY" in str(chunk.encodings) for chunk in chunks) else MAX_ROWS
    return max(1, min(most, columns.PIECE_BYTES * int(group.num_rows) // max(size, 1)))
