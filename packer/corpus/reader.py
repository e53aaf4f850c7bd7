"""`PartitionReader`: one partition as a stream of batches. The one table from format to module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from packer.conversation import Render
from packer.corpus import arrow, hub, json_stream, jsonl, packed, parquet, tables, texts
from packer.corpus.batches import Batcher, Block, bad_in, first_of
from packer.corpus.documents import KEPT_REASONS, Tally, TextBatch, TokenBatch
from packer.corpus.records import Reading
from packer.corpus.sources import Partition, ReadOptions, Slice
from packer.corpus.traits import TraitReader
from packer.errors import RecordError

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
    "packed": packed.read,
}


class PartitionReader:
    """Iterate it once, to the end; `tally` is complete then.

    Ordinals number the partition's records from 0 across its slices; an empty document is yielded like any other.
    render: makes texts of chats and pairs; without it they are a UsageError. A record that it renders to several texts
    counts as so many records.

    Raises RecordError at a bad record (unless `on_error` is "skip"), InputError at a source that cannot be read.
    """

    def __init__(self, partition: Partition, options: ReadOptions, render: Render | None = None) -> None:
        self.tally = Tally()
        self._partition, self._options, self._render = partition, options, render
        self._traits = TraitReader(options)

    def __iter__(self) -> Iterator[TextBatch | TokenBatch]:
        batcher = Batcher()
        for piece in self._partition.slices:
            before = batcher.records
            if piece.source.size or piece.source.format in ("stdin", "hub"):  # an empty file has no footer to read
                for block in self._blocks(piece, batcher):
                    yield from batcher.add(block)
            self.tally.records.append(batcher.records - before)
        yield from batcher.finish()

    def _blocks(self, piece: Slice, batcher: Batcher) -> Iterator[Block]:
        limit, options = self._options.limit, self._options
        if limit is None:
            yield from FORMATS[piece.source.format](Reading(piece, options, self.tally, self._render, self._traits))
            return
        # Formats read ahead of what they yield, so bad records are noted apart until it is known which ones count.
        noted = Tally()
        counted = 0
        reading = Reading(piece, replace(options, on_error="skip"), noted, self._render, self._traits)
        for block in FORMATS[piece.source.format](reading):
            if batcher.records >= limit:
                return
            head = first_of(block, limit - batcher.records)
            new = noted.skipped_reasons[counted : counted + bad_in(head)]
            counted += bad_in(head)
            self.tally.skipped += bad_in(head)
            self.tally.skipped_reasons += new[: KEPT_REASONS - len(self.tally.skipped_reasons)]
            if new and options.on_error == "fail":
                raise RecordError(new[0].path, new[0].where, new[0].reason)
            yield head
