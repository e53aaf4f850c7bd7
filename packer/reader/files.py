"""The shards of a data set as groups of rows: record batches or row groups, each column flat, opened when first needed.

At open the manifest, each shard's size and its footer are read and must agree; what is damaged inside is found while
reading, by page checksums (Parquet) and by the rules that `packer.reader.batch` checks. Nothing is ever written.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from packer import manifest
from packer.errors import DatasetError
from packer.plan import Int64Array, offsets_of
from packer.shards import METADATA_KEY

BUFFER_GROUPS = 8  # Parquet row groups whose rows are shuffled together, about 4 M tokens
KEPT_VIEWS = 4096  # record batches whose views are kept: they cost a few hundred bytes, the data stays in the file
CACHED_SHARDS = 64


@dataclass(frozen=True)
class Group:
    """Rows of one shard. lists: values (v,) and offsets (rows+1,) of each list column, read-only views; offsets as a
    memoryview, whose items are read in a third of the time that NumPy's take."""

    shard: int
    first_row: int  # in its shard
    lists: dict[str, tuple[NDArray[np.integer], memoryview[int]]]


class Shards:
    """A data set opened for reading: picklable, and safe to use in forked and in spawned processes.

    group_rows: int64 (g,), rows of each group; row numbers count through the shards in the manifest's order.
    """

    def __init__(self, out: str | Path, columns: Sequence[str]) -> None:
        self.out = Path(out)
        self.manifest = manifest.load(self.out)
        self.fingerprint = hashlib.sha256((self.out / manifest.FILE).read_bytes()).hexdigest()
        self.columns = list(columns)
        self._process: int | None = None
        counts: list[list[int]] = [self._rows_of(index) for index in range(len(self.manifest.shards))]
        self.group_rows: Int64Array = np.array([n for of in counts for n in of], np.int64)
        self._group_shard = np.repeat(np.arange(len(counts)), [len(of) for of in counts])
        self._group_in_shard = np.concatenate([np.arange(len(of)) for of in counts])
        self._first_row = offsets_of(self.group_rows)
        self._shard_row = offsets_of(np.array([shard.rows for shard in self.manifest.shards], np.int64))

    def __len__(self) -> int:
        return int(self._first_row[-1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": None, "_files": None, "_groups": None}

    @property
    def random_access(self) -> bool:
        """Whether one row can be read without its whole group."""
        return self.manifest.file_format != "parquet" and self.manifest.compression == "none"

    def path(self, shard: int) -> Path:
        return self.out / self.manifest.shards[shard].path

    def place(self, row: int) -> str:
        """The shard of a row and its number there, for errors."""
        shard = int(np.searchsorted(self._shard_row, row, side="right")) - 1
        return f"{self.path(shard)}, row {row - int(self._shard_row[shard])}"

    def locate(self, rows: Int64Array) -> tuple[list[int], list[int]]:
        """The group of each row, and its number in the group."""
        groups = np.searchsorted(self._first_row, rows, side="right") - 1
        return groups.tolist(), (rows - self._first_row[groups]).tolist()

    def group(self, index: int) -> Group:
        """The columns of one group; those read last are kept."""
        self._ready()
        found = self._groups.get(index)
        if found is None:
            found = self._groups[index] = self._read(index)
            if len(self._groups) > (KEPT_VIEWS if self.random_access else BUFFER_GROUPS + 2):
                self._groups.popitem(last=False)
        else:
            self._groups.move_to_end(index)
        return found

    def numbers(self, name: str) -> NDArray[np.integer]:
        """A scalar column of all rows: (rows,)."""
        self._ready()
        parts = [self._numbers_of(shard, name) for shard in range(len(self.manifest.shards))]
        return np.concatenate(parts)

    # Files

    def _ready(self) -> None:
        """Handles belong to the process that opened them."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._files: OrderedDict[int, Any] = OrderedDict()
            self._groups: OrderedDict[int, Group] = OrderedDict()

    def _file(self, shard: int) -> Any:
        """A ParquetFile, or a list of record batches or their reader."""
        self._ready()
        file = self._files.get(shard)
        if file is None:
            try:
                file = self._files[shard] = _opened(self.path(shard), self.manifest.file_format)
            except (OSError, pa.ArrowException) as error:
                raise DatasetError(f"shard {self.path(shard)} cannot be read: {error}") from error
            if len(self._files) > CACHED_SHARDS:
                self._files.popitem(last=False)
        return file

    def _rows_of(self, shard: int) -> list[int]:
        """Rows of each group of a shard. Raises DatasetError where the file is not what the manifest says."""
        said, path = self.manifest.shards[shard], self.path(shard)
        if not path.is_file():
            raise DatasetError(f"shard {path} is missing")
        if path.stat().st_size != said.bytes:
            raise DatasetError(f"shard {path} has {path.stat().st_size} bytes; the manifest says {said.bytes}")
        file = self._file(shard)
        if self.manifest.file_format == "parquet":
            rows = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            schema = file.schema_arrow
        else:
            rows = [batch.num_rows for batch in file]
            schema = file[0].schema if file else None
        if sum(rows) != said.rows:
            raise DatasetError(f"shard {path} has {sum(rows)} rows; the manifest says {said.rows}")
        missing = [name for name in self.columns if schema is not None and name not in schema.names]
        if missing:
            raise DatasetError(f"shard {path} has no column {missing[0]}")
        described = (schema.metadata or {}).get(METADATA_KEY + b"labels", b"").decode() if schema else None
        if described is not None and described != self.manifest.layout.labels:
            raise DatasetError(f"shard {path} says labels {described!r}; the manifest says another convention")
        return rows

    def _read(self, index: int) -> Group:
        shard = int(self._group_shard[index])
        file, place = self._file(shard), int(self._group_in_shard[index])
        try:
            if self.manifest.file_format == "parquet":
                table = file.read_row_group(place, columns=self.columns, use_threads=False)
                columns = {name: table.column(name).combine_chunks() for name in self.columns}
            else:
                columns = {name: file[place].column(name) for name in self.columns}
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(f"shard {self.path(shard)}, group {place} cannot be read: {error}") from error
        lists = {}
        for name, column in columns.items():
            array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            lists[name] = (array.values.to_numpy(), memoryview(array.offsets.to_numpy()))
        return Group(shard, int(self._first_row[index] - self._shard_row[shard]), lists)

    def _numbers_of(self, shard: int, name: str) -> NDArray[np.integer]:
        file = self._file(shard)
        try:
            if self.manifest.file_format == "parquet":
                column = file.read(columns=[name], use_threads=False).column(0)
                return np.asarray(column.to_numpy())
            return np.concatenate([batch.column(name).to_numpy() for batch in file])
        except (OSError, pa.ArrowException, KeyError) as error:
            raise DatasetError(f"shard {self.path(shard)}, column {name} cannot be read: {error}") from error


def _opened(path: Path, file_format: str) -> Any:
    if file_format == "parquet":
        return pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
    source = pa.memory_map(str(path))
    if file_format == "arrow":
        reader = pa.ipc.open_file(source)
        return [reader.get_batch(i) for i in range(reader.num_record_batches)]
    return list(pa.ipc.open_stream(source))
