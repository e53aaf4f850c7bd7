"""Columns of chats and pairs to blocks: nested lists and structs, or texts that hold them as JSON.

Rows become Python objects, as JSON records are, for a template takes nothing else; rendering costs far more than that.
A struct has a null for each key that a record does not have, so such keys are left out.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from packer.corpus import schema as schemas
from packer.corpus.batches import Block
from packer.corpus.records import BadRecordError, Reading, too_long
from packer.corpus.sources import Schema
from packer.errors import InputError


def names_of(table: pa.Schema, schema: Schema, path: str) -> list[str]:
    """The columns to read. Raises InputError where one is there twice, or of a type that cannot serve."""
    names = [*schema.fields, *(name for name in schemas.EXTRA_FIELDS if name in table.names)]
    for name in names:
        if table.names.count(name) != 1:
            raise InputError(f"{path}: more than one column {name}")
    lists = schema.kind != "alpaca"
    for name in schema.fields:
        kind = table.field(name).type
        if not (is_text(kind) or pa.types.is_null(kind) or (lists and _is_list(kind))):
            wanted = "a text or a list of messages" if lists else "text"
            raise InputError(f"{path}: column {name} is {schemas.shorten([str(kind)])}, not {wanted}")
    return names


def chat_block(batch: pa.RecordBatch, first: int, reading: Reading) -> Block:
    """The rows of a small batch, which are the slice's rows from `first` on."""
    convert, limit = reading.converter(whole=False), reading.options.max_record_bytes
    documents: list[Any] = []
    for row, record in enumerate(_rows(batch)):
        document: Any = None
        try:
            if batch.nbytes > limit and batch.slice(row, 1).nbytes > limit:
                raise BadRecordError(too_long(reading.options))
            if isinstance(record, BadRecordError):
                raise record
            document = convert({name: without_nulls(value) for name, value in record.items()})
        except BadRecordError as error:
            reading.bad_at("row", first + row, str(error))
        documents.append(document)
    return reading.block_of(documents)


def without_nulls(value: Any) -> Any:
    """Without the keys of structs, at any depth, that are null; but null content stays, for that is told."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None or k in ("content", "value")}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def as_binary(kind: pa.DataType) -> pa.DataType:
    """The type with bytes in the place of texts, at any depth: what can be checked without a look at the text."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(as_binary(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(as_binary(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(as_binary(field.type)) for field in kind])
    return kind


def is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _rows(batch: pa.RecordBatch) -> list[Any]:
    """The rows as objects; a BadRecordError in place of one that is not UTF-8."""
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        return [_row(batch.slice(row, 1)) for row in range(batch.num_rows)]


def _row(batch: pa.RecordBatch) -> Any:
    try:
        return batch.to_pylist()[0]
    except UnicodeDecodeError as error:
        return BadRecordError(f"is not UTF-8 ({error.reason}); convert the file first, e.g. with iconv")
