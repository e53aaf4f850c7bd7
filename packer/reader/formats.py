"""One shard of each format, opened: its rows by group, its list columns a group at a time, its scalar columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from packer.remote import Place


class ShardFile(Protocol):
    """Errors are those of pyarrow."""

    schema: pa.Schema

    def group_rows(self) -> list[int]: ...

    def lists(self, group: int, names: Sequence[str]) -> dict[str, pa.ListArray]: ...

    def numbers(self, name: str) -> NDArray[np.integer]: ...


class _Parquet:
    """Row groups, decoded when they are asked for, page checksums verified."""

    def __init__(self, path: Place) -> None:
        source = path if isinstance(path, Path) else pa.PythonFile(path.open(), "r")
        self.file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)
        self.schema = self.file.schema_arrow

    def group_rows(self) -> list[int]:
        return [self.file.metadata.row_group(i).num_rows for i in range(self.file.num_row_groups)]

    def lists(self, group: int, names: Sequence[str]) -> dict[str, pa.ListArray]:
        table = self.file.read_row_group(group, columns=list(names), use_threads=False)
        return {name: _one(table.column(name)) for name in names}

    def numbers(self, name: str) -> NDArray[np.integer]:
        return _values(_one(self.file.read(columns=[name], use_threads=False).column(name)))


class _Arrow:
    """Record batches of a memory map. Only their views are made, unless they are compressed."""

    def __init__(self, path: Place) -> None:
        self.reader = pa.ipc.open_file(_mapped(path))
        self.schema = self.reader.schema

    def group_rows(self) -> list[int]:
        return [self.reader.get_batch(i).num_rows for i in range(self.reader.num_record_batches)]

    def lists(self, group: int, names: Sequence[str]) -> dict[str, pa.ListArray]:
        batch = self.reader.get_batch(group)
        return {name: batch.column(name) for name in names}

    def numbers(self, name: str) -> NDArray[np.integer]:
        batches = (self.reader.get_batch(i) for i in range(self.reader.num_record_batches))
        return np.concatenate([_values(batch.column(name)) for batch in batches])


class _Stream:
    """The same of a stream, which has no index: its batches are kept."""

    def __init__(self, path: Place) -> None:
        reader = pa.ipc.open_stream(_mapped(path))
        self.schema = reader.schema
        self.batches = list(reader)

    def group_rows(self) -> list[int]:
        return [batch.num_rows for batch in self.batches]

    def lists(self, group: int, names: Sequence[str]) -> dict[str, pa.ListArray]:
        return {name: self.batches[group].column(name) for name in names}

    def numbers(self, name: str) -> NDArray[np.integer]:
        return np.concatenate([_values(batch.column(name)) for batch in self.batches])


def _mapped(path: Place) -> pa.NativeFile:
    """Mapped into memory, or read as it is needed where it lies in a store."""
    return pa.memory_map(str(path)) if isinstance(path, Path) else pa.PythonFile(path.open(), "r")


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _values(array: pa.Array) -> NDArray[np.integer]:
    """Without `to_numpy`, which imports pandas where it is installed."""
    array.validate(full=True)
    result: NDArray[Any] = np.from_dlpack(array)
    return result


FORMATS: dict[str, Any] = {"parquet": _Parquet, "arrow": _Arrow, "arrow-stream": _Stream}


def opened(path: Place, file_format: str) -> ShardFile:
    file: ShardFile = FORMATS[file_format](path)
    return file
