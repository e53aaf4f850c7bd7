"""Documents from files of any supported format: INPUT arguments in, batches of texts or ready-made token ids out.

    find_sources(inputs) -> sources -> partition() -> partitions -> PartitionReader -> TextBatch | TokenBatch

    sources        the nouns: ReadOptions, Source, Slice, Partition, Found
    inputs         arguments, folders and globs to sources
    stored         URLs to files: folders and globs in a store
    identify       what a file is, by content and name
    schema         which field holds a record's content
    partitions     sources cut and grouped into units of work
    reader         one partition as a stream of batches
    documents      what a reader yields
    batches        records gathered into batches, and numbered
    records        one parsed record to a document, or the reason why not
    chats          one parsed record to a chat, or to a prompt and its completion
    streams        bytes, decompressed, in chunks and lines
    jsonl          JSON Lines, stdin too
    json_stream    JSON arrays and pretty-printed objects
    tables         CSV and TSV
    texts          free text
    parquet        Parquet
    arrow          Arrow IPC files and streams, Feather
    extent         how many rows a file of columns holds
    columns        columns of texts
    token_columns  columns of token ids and masks
    chat_columns   columns of chats and pairs
    packed         packer data sets, put together again by packer.stored
    hub            `hf:` data sets

Memory is bounded by a chunk and the largest record, whatever the size of the file.
"""

from packer.corpus.documents import Tally, TextBatch, TokenBatch
from packer.corpus.inputs import find_sources
from packer.corpus.partitions import partition
from packer.corpus.reader import PartitionReader
from packer.corpus.sources import Found, Partition, ReadOptions, Schema, Slice, Source, Table
from packer.schema import Skipped

__all__ = [
    "Found",
    "Partition",
    "PartitionReader",
    "ReadOptions",
    "Schema",
    "Skipped",
    "Slice",
    "Source",
    "Table",
    "Tally",
    "TextBatch",
    "TokenBatch",
    "find_sources",
    "partition",
]
