"""The shards of a data set as groups of rows: record batches or row groups, each column flat, opened when first needed.

At open the manifest, each shard's size and its footer are read and must agree; what is damaged inside is found while
reading, by page checksums (Parquet) and by the rules of `packer.reader.checks`. Nothing is ever written.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from packer import manifest
from packer.errors import DatasetError
from packer.manifest import Manifest
from packer.plan import Int64Array, offsets_of
from packer.reader.checks import first_wrong
from packer.reader.formats import ShardFile, opened
from packer.remote import Place, place, size_of
from packer.shards import METADATA_KEY

BUFFER_GROUPS = 8  # Parquet row groups whose rows are shuffled together, about 4 M tokens
KEPT_VIEWS = 4096  # record batches whose views are kept: they cost a few hundred bytes, the data stays in the file
CACHED_SHARDS = 64


@dataclass(frozen=True)
class Group:
    """Rows of one shard. values: of each list column, end to end, read-only; ends: where its rows begin and end among
    them, (rows+1,), as a memoryview, whose items are read in a third of the time that NumPy's take."""

    values: dict[str, NDArray[np.integer]]
    ends: dict[str, memoryview[int]]


@dataclass(frozen=True)
class Stretch:
    """The rows of one length in one packing: their numbers from `first` to below `stop`, and those of their groups."""

    max_length: int
    first: int
    stop: int
    groups: slice


class Shards:
    """A data set opened for reading: picklable, and safe to use in forked and in spawned processes.

    split: which one, None for the main one; fingerprint: sha256 of the manifest, and of the name of another split;
    group_rows: int64 (g,), rows of each group; row numbers count through the shards in the manifest's order, those of
    further packings after the first's; stretches: of each packing, one for each row length.
    """

    def __init__(self, out: str | Place, columns: Sequence[str], split: str | None = None) -> None:
        self.out = place(out)
        whole = manifest.load(self.out)
        main = whole.of(split)
        shards = [shard for packing in main.epochs for shard in packing.shards]
        self.manifest = replace(main, shards=shards, groups=[], further_epochs=[])
        own = b"" if self.manifest.split == whole.split else self.manifest.split.encode()
        self.fingerprint = hashlib.sha256((self.out / manifest.FILE).read_bytes() + own).hexdigest()
        self.columns = list(columns)
        self.kept_groups = BUFFER_GROUPS + 2  # of those that have to be decoded
        self._process: int | None = None
        counts: list[list[int]] = [self._rows_of(index) for index in range(len(self.manifest.shards))]
        self.group_rows: Int64Array = np.array([n for of in counts for n in of], np.int64)
        self._group_shard = np.repeat(np.arange(len(counts)), [len(of) for of in counts])
        self._group_in_shard = np.concatenate([np.arange(len(of)) for of in counts])
        self._first_row = offsets_of(self.group_rows)
        self._shard_row = offsets_of(np.array([shard.rows for shard in self.manifest.shards], np.int64))
        self.stretches = self._stretches(main)

    def __len__(self) -> int:
        return int(self._first_row[-1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": None, "_files": None, "_groups": None}

    @property
    def random_access(self) -> bool:
        """Whether one row can be read without its whole group: never over a network."""
        return (
            isinstance(self.out, Path)
            and self.manifest.file_format != "parquet"
            and self.manifest.compression == "none"
        )

    def path(self, shard: int) -> Place:
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
        """The columns of one group, checked; those read last are kept."""
        self._ready()
        found = self._groups.get(index)
        if found is None:
            found = self._groups[index] = self._read(index)
            if len(self._groups) > (KEPT_VIEWS if self.random_access else self.kept_groups):
                self._groups.popitem(last=False)
        else:
            self._groups.move_to_end(index)
        return found

    def numbers(self, name: str) -> NDArray[np.integer]:
        """A scalar column of all rows: (rows,)."""
        parts = []
        for shard in range(len(self.manifest.shards)):
            with _told(f"shard {self.path(shard)}, column {name}"):
                parts.append(self._file(shard).numbers(name))
        return np.concatenate(parts)

    # Files

    def _ready(self) -> None:
        """Handles belong to the process that opened them."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._files: OrderedDict[int, ShardFile] = OrderedDict()
            self._groups: OrderedDict[int, Group] = OrderedDict()

    def _file(self, shard: int) -> ShardFile:
        self._ready()
        file = self._files.get(shard)
        if file is None:
            with _told(f"shard {self.path(shard)}"):
                file = self._files[shard] = opened(self.path(shard), self.manifest.file_format)
            if len(self._files) > CACHED_SHARDS:
                self._files.popitem(last=False)
        return file

    def _rows_of(self, shard: int) -> list[int]:
        """Rows of each group of a shard. Raises DatasetError where the file is not what the manifest says."""
        said, path = self.manifest.shards[shard], self.path(shard)
        if not path.is_file():
            raise DatasetError(f"shard {path} is missing")
        if (size := size_of(path)) != said.bytes:
            raise DatasetError(f"shard {path} has {size} bytes; the manifest says {said.bytes}")
        with _told(f"shard {path}"):
            file = self._file(shard)
            rows, names = file.group_rows(), file.schema.names
            described = (file.schema.metadata or {}).get(METADATA_KEY + b"labels", b"").decode()
        if sum(rows) != said.rows:
            raise DatasetError(f"shard {path} has {sum(rows)} rows; the manifest says {said.rows}")
        for name in self.columns:
            if name not in names:
                raise DatasetError(f"shard {path} has no column {name}")
        if described != self.manifest.layout.labels:
            raise DatasetError(f"shard {path} says labels {described!r}; the manifest says another convention")
        return rows

    def _stretches(self, main: Manifest) -> list[list[Stretch]]:
        packings, shard = [], 0
        for packing in main.epochs:
            found = []
            for part in packing.by_length:
                ends = [shard, shard := shard + len(part.shards)]
                first, stop = self._shard_row[ends].tolist()
                found.append(Stretch(part.max_length, first, stop, slice(*np.searchsorted(self._group_shard, ends))))
            packings.append(found)
        return packings

    def _read(self, index: int) -> Group:
        shard, place = int(self._group_shard[index]), int(self._group_in_shard[index])
        with _told(f"shard {self.path(shard)}, group {place}"):
            arrays = self._file(shard).lists(place, self.columns)
            values: dict[str, NDArray[Any]] = {}
            ends: dict[str, NDArray[Any]] = {}
            for name, array in arrays.items():
                array.validate(full=True)  # of a damaged file, before memory is read by what it says
                values[name] = np.from_dlpack(array.values)
                ends[name] = np.from_dlpack(array.offsets)
        wrong = first_wrong(values, ends, self.manifest.layout)
        if wrong:
            row, rule = wrong
            raise DatasetError(f"{self.place(int(self._first_row[index]) + row)}: {rule}")
        return Group(values, {name: offsets.data for name, offsets in ends.items()})


@contextmanager
def _told(where: str) -> Iterator[None]:
    """What goes wrong in a damaged file is one kind of error, which says where."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, LookupError) as error:
        raise DatasetError(f"{where} cannot be read: {error}") from error
