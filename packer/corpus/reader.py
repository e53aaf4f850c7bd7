"""`PartitionReader`: one partition as a stream of batches. The one table from format to module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from packer.corpus import arrow, hub, json_stream, jsonl, parquet, tables, texts
from packer.corpus.batches import Batcher, Block
from packer.corpus.documents import Tally, TextBatch, TokenBatch
from packer.corpus.records import Reading
from packer.corpus.sources import Partition, ReadOptions

FORMATS: dict[str, Callable[[Reading], Iterator[Block]]] = {
    "jsonl": jsonl.read,
    "stdin": jsonl.read,
    "json": json_stream.read,
    "parquet": parquet.read,
    "arrow": arrow.read,
    "csv": tables.read,
    "tsv": tables.read,
    "text": texts.read,
    "hub": hub.read,
}


class PartitionReader:
    """Iterate it once, to the end; `tally` is complete then.

    Ordinals number the partition's records from 0 across its slices; an empty document is yielded like any other.
    Raises RecordError at a bad record (unless `on_error` is "skip"), InputError at a source that cannot be read.
    """

    def __init__(self, partition: Partition, options: ReadOptions) -> None:
        self.tally = Tally()
        self._partition, self._options = partition, options

    def __iter__(self) -> Iterator[TextBatch | TokenBatch]:
        batcher = Batcher()
        for piece in self._partition.slices:
            before = batcher.records
            if piece.source.size or piece.source.format in ("stdin", "hub"):  # an empty file has no footer to read
                for block in FORMATS[piece.source.format](Reading(piece, self._options, self.tally)):
                    yield from batcher.add(block)
            self.tally.records.append(batcher.records - before)
        yield from batcher.finish()
