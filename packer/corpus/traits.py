"""`--embedding-field` and `--group-field`: what of a record its document is put together with others by.

A vector is an array of numbers, in CSV one written as JSON; a group is a string or an integer. Vectors become small
integers as they are read (`packer.similarity.vectors`): wide ones would take more memory than the documents. A record
without its vector or group is a bad record, like one without its text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from packer.corpus import schema as schemas
from packer.corpus.sources import ReadOptions
from packer.errors import InputError
from packer.plan import Int64Array, offsets_of
from packer.similarity import Traits
from packer.similarity.vectors import MOST_COMPONENTS, Int8Array, compact

LARGEST = float(np.finfo(np.float32).max)


class TraitError(ValueError):
    """A record without the field, or with a value that cannot serve. Its text is the reason, without the place."""


@dataclass(frozen=True)
class Traited:
    """What a converter made of a record, with its vector, float64 (d,), and its group; None where none is asked for."""

    document: Any
    vector: NDArray[np.float64] | None
    group: int | None


class TraitReader:
    """The traits of one partition's records: vectors of one width, groups numbered as they come."""

    def __init__(self, options: ReadOptions) -> None:
        self.embedding_field, self.group_field = options.embedding_field, options.group_field
        self._width: int | None = None
        self._groups: dict[str | int, int] = {}

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in (self.embedding_field, self.group_field) if name is not None))

    def of_record(self, record: Any, document: Any) -> Traited:
        """The document with its record's traits. Raises TraitError."""
        vector = group = None
        if self.embedding_field is not None:
            vector = self._vector(_value(record, self.embedding_field))
        if self.group_field is not None:
            group = self._number(_value(record, self.group_field))
        return Traited(document, vector, group)

    def gathered(self, found: list[Traited | None], counts: list[int]) -> Traits:
        """Of records one after another, each standing for so many documents; None is a bad one."""
        each = np.repeat(np.arange(len(found)), counts)
        vectors = groups = None
        if self.embedding_field is not None:
            values = np.zeros((len(found), self._width or 1))
            for place, one in enumerate(found):
                if one is not None:
                    values[place] = one.vector
            vectors = compact(values)[each]
        if self.group_field is not None:
            numbers = [0 if one is None or one.group is None else one.group for one in found]
            groups = np.array(numbers, np.int64)[each]
        return Traits(vectors, groups)

    def of_columns(self, batch: pa.RecordBatch) -> tuple[Traits, dict[int, str]]:
        """The traits of a small batch's rows, and the reason against each row that has none."""
        faults: dict[int, str] = {}
        vectors = groups = None
        if self.embedding_field is not None:
            vectors = self._vectors(batch.column(self.embedding_field), self.embedding_field, faults)
        if self.group_field is not None:
            groups = self._numbers(batch.column(self.group_field), self.group_field, faults)
        return Traits(vectors, groups), faults

    def check_columns(self, table: pa.Schema, path: str) -> None:
        """Raises InputError where a column is not there, there twice, or of a type that cannot serve."""
        for name in self.fields:
            if table.names.count(name) != 1:
                number = "no" if name not in table.names else "more than one"
                raise InputError(f"{path}: {number} column {name}; it has {schemas.shorten(table.names)}")
        types = pa.types
        embedding, group = self.embedding_field, self.group_field
        if embedding is not None:
            kind = table.field(embedding).type
            is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
            if not is_list or not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
                raise InputError(f"{path}: column {embedding} is {kind}, not a list of numbers")
        if group is not None:
            kind = table.field(group).type
            inner = kind.value_type if types.is_dictionary(kind) else kind
            if not (_is_string(inner) or types.is_integer(inner)):
                raise InputError(f"{path}: column {group} is {kind}, neither text nor integers")

    def _vector(self, value: Any) -> NDArray[np.float64]:
        name = self.embedding_field
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise TraitError(f"field {name} is a string, not an array of numbers") from None
        if not isinstance(value, list) or not value:
            raise TraitError(f"field {name} is not an array of numbers")
        if wrong := set(map(type, value)) - {int, float}:
            position = next(i for i, one in enumerate(value) if type(one) in wrong)
            raise TraitError(f"field {name} holds {json.dumps(value[position])[:40]} at position {position}, no number")
        try:
            vector = np.array(value, np.float64)
        except OverflowError:
            raise TraitError(f"field {name} holds an integer that is too large for a vector") from None
        if reason := self._fault(len(vector), vector):
            raise TraitError(reason)
        return vector

    def _fault(self, width: int, values: NDArray[np.floating]) -> str | None:
        """What is wrong with a vector, whose width the first one sets."""
        if wrong := self._wrong_width(width):
            return wrong
        unfit = np.flatnonzero(~(np.abs(values) <= LARGEST))
        if len(unfit):
            return f"field {self.embedding_field} holds {values[unfit[0]]} at position {unfit[0]}, not a finite number"
        self._width = width
        return None

    def _wrong_width(self, width: int) -> str | None:
        if not 0 < width <= MOST_COMPONENTS:
            return f"field {self.embedding_field} has {width} numbers, not 1 to {MOST_COMPONENTS}"
        if self._width not in (None, width):
            return f"field {self.embedding_field} has {width} numbers, where the vectors before it have {self._width}"
        return None

    def _number(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise TraitError(f"field {self.group_field} is neither a string nor an integer")
        if value == "":
            raise TraitError(f"field {self.group_field} is empty")
        return self._groups.setdefault(value, len(self._groups))

    def _vectors(self, column: pa.Array, name: str, faults: dict[int, str]) -> Int8Array:
        """int8 (n, d) of a column of lists; a row without a good vector has zeros."""
        import pyarrow.compute as pc  # here, for it takes long to load and JSON lines need none of it

        sizes = np.asarray(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        absent = column.is_null().to_numpy(zero_copy_only=False)
        flat = column.flatten()
        hollow = np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))
        numbers = flat.cast(pa.float64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False)
        ends = offsets_of(sizes)
        unfit = np.zeros(len(numbers), np.bool_)
        unfit[hollow] = True
        unfit |= ~(np.abs(numbers) <= LARGEST)
        before = offsets_of(unfit.view(np.int8))
        bad = absent | (before[ends[1:]] > before[ends[:-1]])
        right = np.flatnonzero(~bad & (sizes > 0) & (sizes <= MOST_COMPONENTS))
        if self._width is None and len(right):
            self._width = int(sizes[right[0]])
        bad |= sizes != (self._width or -1)
        for row in np.flatnonzero(bad).tolist():
            values = numbers[ends[row] : ends[row + 1]]
            faults.setdefault(row, self._reason(name, values, bool(absent[row]), hollow - ends[row]))
        made = np.zeros((len(sizes), self._width or 1))
        if not bad.all():
            made[~bad] = numbers[np.repeat(~bad, sizes)].reshape(-1, self._width or 1)
        return compact(made)

    def _reason(self, name: str, values: NDArray[np.float64], absent: bool, hollow: Int64Array) -> str:
        if absent:
            return f"field {name} is null"
        inside = hollow[(hollow >= 0) & (hollow < len(values))]
        if len(inside):
            return f"field {name} holds null at position {inside[0]}, no number"
        return self._fault(len(values), values) or f"field {name} cannot be read"

    def _numbers(self, column: pa.Array, name: str, faults: dict[int, str]) -> Int64Array:
        """int64 (n,) of a column of strings or integers; each distinct value is looked up once."""
        null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
        coded = column if pa.types.is_dictionary(column.type) else _plain(column).dictionary_encode()
        numbers = np.zeros(len(column), np.int64)
        index = np.asarray(coded.indices.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        reasons: dict[int, str] = {}
        known = np.zeros(len(coded.dictionary), np.int64)
        for place in np.unique(index[~null]).tolist():
            try:
                value = coded.dictionary[place].as_py()
                if value is None:
                    reasons[place] = f"field {name} is null"
                    continue
                known[place] = self._number(value)
            except UnicodeDecodeError as error:
                reasons[place] = f"field {name} is not UTF-8 ({error.reason}); convert it first, e.g. with iconv"
            except TraitError as error:
                reasons[place] = str(error)
        numbers[~null] = known[index[~null]]
        for row in np.flatnonzero(null | np.isin(index, list(reasons))).tolist():
            faults.setdefault(row, f"field {name} is null" if null[row] else reasons[int(index[row])])
        return numbers


def _value(record: Any, name: str | None) -> Any:
    """The record's field, not null. Raises TraitError."""
    if not isinstance(record, dict):
        raise TraitError(f"is not an object, so it has no field {name}")
    if name not in record:
        raise TraitError(f"field {name} is missing (keys: {schemas.shorten(map(str, record))})")
    if record[name] is None:
        raise TraitError(f"field {name} is null")
    return record[name]


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _plain(column: pa.Array) -> pa.Array:
    """Arrow encodes no views."""
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column
