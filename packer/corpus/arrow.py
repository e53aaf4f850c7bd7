"""Arrow IPC, the file format (also Feather V2) and the stream format, mapped into memory and read a piece at a time.

In a store nothing can be mapped: there the batches' needed columns are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from packer.corpus import columns
from packer.corpus.batches import Block
from packer.corpus.chat_columns import as_binary
from packer.corpus.records import Reading
from packer.corpus.sources import ReadOptions, Source
from packer.corpus.streams import open_bytes, remote_file
from packer.errors import InputError

FILE_MAGIC = b"ARROW1"


def read(reading: Reading) -> Iterator[Block]:
    """Blocks of a range of record batches, or of a whole stream. Rows are numbered from 0 in the file."""
    source, piece = reading.source, reading.slice
    content = columns_of(source, reading.options)
    with _open(source, content.names) as reader:
        is_file = isinstance(reader, pa.RecordBatchFileReader)
        if is_file:
            stop = reader.num_record_batches if piece.stop is None else piece.stop
            # Counted only when an error needs it: a compressed batch must be decompressed to tell its rows.
            reading.count_before = lambda: sum(reader.get_batch(i).num_rows for i in range(piece.start))
            batches = (reader.get_batch(i) for i in range(piece.start, stop))
        else:
            batches = iter(reader)
        row = 0
        for batch in batches:
            for name in content.names:
                _validate(batch.column(name))
            yield from columns.blocks(batch, content, row, reading)
            row += batch.num_rows


def columns_of(source: Source, options: ReadOptions) -> columns.Columns:
    """The columns of a file that hold its content."""
    with _open(source) as reader:
        return columns.find(reader.schema, source.path, options)


def batch_count(source: Source) -> int | None:
    """Record batches of a file; None for a stream, which can only be read from its beginning."""
    with _open(source) as reader:
        return reader.num_record_batches if isinstance(reader, pa.RecordBatchFileReader) else None


def row_count(source: Source, looked_at: int = 64) -> int:
    """Rows of a file or stream; of a file of many batches, as many as if the others were like the first ones."""
    with _open(source) as reader:
        if not isinstance(reader, pa.RecordBatchFileReader):
            return sum(int(batch.num_rows) for batch in reader)
        count = int(reader.num_record_batches)
        rows = sum(int(reader.get_batch(i).num_rows) for i in range(min(count, looked_at)))
        return rows * count // max(min(count, looked_at), 1)


@contextmanager
def _open(source: Source, names: list[str] | None = None) -> Iterator[pa.RecordBatchFileReader]:
    """A reader of the file or stream, of the named columns only. What Arrow raises becomes an InputError."""
    with open_bytes(source) as stored:
        make = pa.ipc.open_file if stored.read(6) == FILE_MAGIC else pa.ipc.open_stream
    try:
        with _mapped(source) as mapped:
            reader = make(mapped)
            if names is not None and (source.remote or not _in_place(reader, mapped)):
                indices = sorted(reader.schema.get_field_index(name) for name in names)
                mapped.seek(0)
                reader = make(mapped, options=pa.ipc.IpcReadOptions(included_fields=indices))
            yield reader
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{source.path}: Arrow cannot be read ({reason}); fetch the file again") from error


def _mapped(source: Source) -> pa.NativeFile:
    if source.remote:
        return pa.PythonFile(remote_file(source, random=True), "r")
    return pa.memory_map(source.location)


def _in_place(reader: pa.RecordBatchFileReader, mapped: pa.MemoryMappedFile) -> bool:
    """Whether the batches of a file are used where they are mapped. Then choosing columns would copy them, needlessly;
    of a compressed file it saves decompressing the others. A stream's columns are chosen without a copy."""
    if not isinstance(reader, pa.RecordBatchFileReader) or reader.num_record_batches == 0:
        return False
    mapped.seek(0)
    whole = mapped.read_buffer()
    buffers = [buffer for column in reader.get_batch(0).columns for buffer in column.buffers() if buffer]
    return all(whole.address <= buffer.address < whole.address + whole.size for buffer in buffers)


def _validate(column: pa.Array) -> None:
    """Raises ArrowInvalid for offsets that point outside of the data, which would otherwise be read as they are.

    As bytes, not as text: a text that is not UTF-8 is that row's fault, not the file's.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        large = pa.types.is_large_string(kind.value_type)
        values = column.dictionary.cast(pa.large_binary() if large else pa.binary())
        values.validate(full=True)
        pa.DictionaryArray.from_arrays(column.indices, values, safe=False).validate(full=True)
    elif pa.types.is_string_view(kind):
        column.cast(pa.binary_view()).validate(full=True)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column.cast(as_binary(kind)).validate(full=True)
    elif pa.types.is_nested(kind):
        column.view(as_binary(kind)).validate(full=True)
    else:
        column.validate(full=True)
