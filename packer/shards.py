"""Shard files: Parquet, Arrow IPC file or Arrow IPC stream, written a row group at a time and checksummed on the way.

Parquet is written plainly, zstd level 1: on token ids dictionaries and DELTA are larger or slower, and statistics on
lists cost time and are never used. Page checksums let a reader notice one flipped bit.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from packer.errors import DatasetError
from packer.plan import Int64Array
from packer.remote import Place
from packer.rows import Lists
from packer.schema import FORMAT_NAME, FORMAT_VERSION, Column, Layout, columns_of
from packer.staging import sync

ZSTD_LEVEL = 1
INT32_MAX = 2**31 - 1
METADATA_KEY = FORMAT_NAME.encode() + b"."


def arrow_schema(layout: Layout, metadata: Mapping[str, str]) -> pa.Schema:
    """Nothing nullable. The metadata makes each shard describe itself without its manifest."""
    described = {"format_version": str(FORMAT_VERSION), **layout.as_metadata(), **metadata}
    return pa.schema(
        [pa.field(column.name, _arrow_type(column), nullable=False) for column in columns_of(layout)],
        metadata={METADATA_KEY + key.encode(): value for key, value in described.items()},
    )


def _arrow_type(column: Column) -> pa.DataType:
    number = pa.type_for_alias(column.dtype)
    return pa.list_(pa.field("element", number, nullable=False)) if column.is_list else number


def record_batch(
    lists: Mapping[str, Lists], numbers: Mapping[str, NDArray[np.signedinteger]], schema: pa.Schema
) -> pa.RecordBatch:
    """Columns as Arrow arrays over the same memory."""
    arrays = [
        pa.ListArray.from_arrays(
            _array(_int32_offsets(lists[field.name].offsets)), _array(lists[field.name].values), type=field.type
        )
        if field.name in lists
        else _array(numbers[field.name])
        for field in schema
    ]
    return pa.record_batch(arrays, schema=schema)


def _array(values: NDArray[np.signedinteger]) -> pa.Array:
    """The same memory as an Arrow array. (`pa.array` would import pandas where it is installed: 0.15 s.)"""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.type_for_alias(values.dtype.name), len(values), [None, buffer])


def _int32_offsets(offsets: Int64Array, limit: int = INT32_MAX) -> NDArray[np.int32]:
    """Arrow's list offsets are int32: a row group that would overflow them must not be written."""
    if offsets[-1] > limit:
        raise DatasetError(f"a row group of {offsets[-1]} tokens exceeds Arrow's limit of {limit}; lower --max-length")
    return offsets.astype(np.int32)


@dataclass(frozen=True)
class ShardFile:
    """What the manifest says of one shard. path: relative to the data set, POSIX."""

    path: str
    rows: int
    tokens: int
    bytes: int
    sha256: str


class _Hashing(io.RawIOBase):
    """A file that is hashed as it is written; the writers only append."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "xb")  # noqa: SIM115  closed by close()
        self.sha256 = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.sha256.update(view)
        self.size += len(view)
        return self.file.write(view)

    def flush(self) -> None:
        if not self.file.closed:
            self.file.flush()

    def close(self) -> None:
        self.file.close()
        super().close()


class ShardWriter:
    """Writes one shard: a context manager; `result` holds after it. Leaves the file where it is on an error."""

    def __init__(self, path: Path, schema: pa.Schema, file_format: str, compression: str) -> None:
        self.path, self.schema = path, schema
        self._sink = _Hashing(path)
        self._rows = self._tokens = 0
        self._writer = _writer(self._sink, schema, file_format, None if compression == "none" else compression)

    def write(self, batch: pa.RecordBatch) -> None:
        """One row group (Parquet) or record batch (Arrow)."""
        if isinstance(self._writer, pq.ParquetWriter):
            self._writer.write_table(pa.Table.from_batches([batch]), row_group_size=len(batch))
        else:
            self._writer.write_batch(batch)
        self._rows += len(batch)
        self._tokens += len(batch.column("input_ids").values)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._writer.close()
            self._sink.close()
            sync(self.path)
        except Exception:
            if error is None:  # otherwise the first error is the one to see
                raise

    def result(self, path: str) -> ShardFile:
        return ShardFile(path, self._rows, self._tokens, self._sink.size, self._sink.sha256.hexdigest())


def _writer(sink: _Hashing, schema: pa.Schema, file_format: str, compression: str | None) -> Any:
    if file_format == "parquet":
        return pq.ParquetWriter(
            sink,
            schema,
            compression=compression or "none",
            compression_level=ZSTD_LEVEL if compression == "zstd" else None,
            use_dictionary=False,
            write_statistics=[field.name for field in schema if not pa.types.is_list(field.type)],
            write_page_checksum=True,
        )
    options = pa.ipc.IpcWriteOptions(compression=compression)
    open_writer = pa.ipc.new_file if file_format == "arrow" else pa.ipc.new_stream
    return open_writer(sink, schema, options=options)


def read_shard(path: Place, file_format: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """A shard's record batches in order, page checksums verified. Errors of the file are DatasetErrors naming it."""
    try:
        if file_format == "parquet":
            with _opened(path) as source, _parquet(source) as parquet:
                for group in range(parquet.num_row_groups):
                    yield from parquet.read_row_group(group, columns=columns, use_threads=False).to_batches()
        else:
            with _opened(path) as source:
                yield from _ipc_batches(source, file_format, columns)
    except (OSError, pa.ArrowException, EOFError) as error:
        raise DatasetError(f"shard {path} cannot be read: {error}") from error


def _opened(path: Place) -> pa.NativeFile:
    return pa.OSFile(str(path)) if isinstance(path, Path) else pa.PythonFile(path.open(), "r")


def _parquet(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)


def _ipc_batches(source: pa.NativeFile, file_format: str, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    if file_format == "arrow":
        reader = pa.ipc.open_file(source)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        batches = iter(pa.ipc.open_stream(source))
    for batch in batches:
        yield batch.select(columns) if columns else batch


def shard_schema(path: Place, file_format: str) -> pa.Schema:
    """The schema with the metadata that the shard carries about itself."""
    try:
        with _opened(path) as source:
            if file_format == "parquet":
                return pq.read_schema(source)
            return (pa.ipc.open_file if file_format == "arrow" else pa.ipc.open_stream)(source).schema
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"shard {path} cannot be read: {error}") from error
