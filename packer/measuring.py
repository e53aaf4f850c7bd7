"""The lengths of a corpus: one pass that tokenizes it and keeps nothing else.

They go to a temporary file in input order, 4 bytes a document, for the prices that depend on order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from packer import attempts, chat_summary, corpus, stage, stored
from packer.chat import ChatOptions
from packer.conversation import ChatCounts
from packer.corpus import Partition, PartitionReader, ReadOptions, TextBatch, TokenBatch
from packer.corpus.documents import KEPT_REASONS
from packer.counting import Counts, Places, Progress, counted
from packer.encoding import encode
from packer.errors import InputError
from packer.job import TokenizerOptions
from packer.lengths import Histogram
from packer.plan import Int32Array
from packer.pricing import Corpus
from packer.rendering import describe
from packer.schema import Skipped
from packer.tokenizer import find as find_tokenizer

CHUNK = 1 << 20  # documents priced at a time


@dataclass(frozen=True)
class Source:
    """Where the lengths come from. special_documents: texts in which a control token is written out; None where there
    was no text. added: what the tokenizer puts around a document; engine: the library that made the ids; engine_note:
    why it is not another; checked_documents: those that the reference engine encoded too; left_out: files of folders
    that were not read; chats: what chats and pairs came to, and chat how they were rendered and masked, None where
    there were none."""

    inputs: list[str]
    tokenizer: str | None = None
    fingerprint: str | None = None
    added: str | None = None
    special_documents: int | None = None
    engine: str | None = None
    engine_note: str | None = None
    checked_documents: int = 0
    skipped_records: list[Skipped] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    chats: ChatCounts | None = None
    chat: dict[str, Any] | None = None


@dataclass
class Measured:
    """Lengths, and what was met on the way to them. `ordered`: None where only the histogram is known."""

    lengths: Corpus
    source: Source
    skipped: int = 0
    empty: int = 0


class Spill:
    """Lengths in input order, in a temporary file that vanishes with it."""

    def __enter__(self) -> Spill:
        self._file = tempfile.TemporaryFile()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def clear(self) -> None:
        self._file.seek(0)
        self._file.truncate()

    def add(self, lengths: Int32Array) -> None:
        self._file.write(lengths.data)

    def chunks(self) -> Iterator[Int32Array]:
        self._file.seek(0)
        while data := self._file.read(4 * CHUNK):
            yield np.frombuffer(data, np.int32)

    def corpus(self) -> Corpus:
        histogram = Histogram.of(np.empty(0, np.int32))
        for chunk in self.chunks():
            histogram = histogram.merge(Histogram.of(chunk))
        return Corpus(histogram, self.chunks)


def measure(
    inputs: Sequence[str],
    read: ReadOptions,
    tokenizer: TokenizerOptions | None,
    chat: ChatOptions | None,
    spill: Spill,
    progress: Progress | None,
) -> Measured:
    if tokenizer is not None:
        find_tokenizer(tokenizer.source)  # a wrong name should show before anything is read
    found = corpus.find_sources(inputs, read)
    packed = stored.check(found.sources, tokenizer.source if tokenizer else None, read)
    choice = None
    if tokenizer is not None:
        tokenizer, choice = attempts.choose(tokenizer, found.sources, read.limit)
    with tempfile.TemporaryDirectory(prefix="packer-stats-") as folder:
        sources = stored.put_together(found.sources, Path(folder), read)
        partitions = corpus.partition(sources, read)
        passed, choice = attempts.run(
            lambda chosen, told: _pass(partitions, read, chosen, chat, spill, told),
            tokenizer,
            choice,
            sources,
            spill.clear,
            progress,
        )
    lengths = spill.corpus()
    if not lengths.histogram.documents:
        raise InputError(
            f"there is nothing to measure: INPUT holds no document ({passed.records} records, of which {passed.empty} "
            f"are empty and {passed.skipped} were skipped)"
        )
    source = Source(
        inputs=[str(one.path) for one in found.sources],
        special_documents=passed.watch.documents if passed.watch.texts else None,
        skipped_records=passed.reasons[:KEPT_REASONS],
        left_out=found.left_out,
        chats=passed.chats if passed.chats.documents else None,
        chat=describe(chat, passed.chats) if chat and passed.chats.documents else None,
    )
    if packed.tokenizer is not None:
        source = replace(source, tokenizer=packed.tokenizer.source, fingerprint=packed.tokenizer.fingerprint)
    if tokenizer is not None and choice is not None:
        loaded, ends = stage.load_tokenizer(tokenizer)
        source = replace(
            source,
            tokenizer=loaded.source,
            fingerprint=loaded.fingerprint,
            added=_added(ends.summary, passed, tokenizer) if passed.watch.texts else None,
            engine=choice.version,
            engine_note=choice.note,
            checked_documents=passed.checked,
        )
    return Measured(lengths, source, passed.skipped, passed.empty)


@dataclass
class _Pass:
    """What one pass over the corpus met."""

    watch: _Watch
    records: int = 0
    skipped: int = 0
    empty: int = 0
    checked: int = 0
    chats: ChatCounts = field(default_factory=ChatCounts)
    reasons: list[Skipped] = field(default_factory=list)


def _pass(
    partitions: Iterable[Partition],
    read: ReadOptions,
    tokenizer: TokenizerOptions | None,
    chat: ChatOptions | None,
    spill: Spill,
    progress: Progress | None,
) -> _Pass:
    """Adds the lengths of all documents to the spill."""
    met = _Pass(_Watch(None if tokenizer is None else stage.load_tokenizer(tokenizer)[0].control_finder()))
    left = read.limit
    for partition in partitions:
        if left == 0:
            break
        reader, counts = _lengths_of(partition, replace(read, limit=left), tokenizer, chat, spill, met.watch, progress)
        records = sum(reader.tally.records)
        left = None if left is None else left - records
        met.records, met.skipped = met.records + records, met.skipped + reader.tally.skipped
        met.empty, met.checked = met.empty + counts.empty, met.checked + counts.checked
        met.chats += counts.chats
        met.reasons += reader.tally.skipped_reasons
    return met


def _added(summary: str, passed: _Pass, tokenizer: TokenizerOptions) -> str | None:
    """What is put around texts; ready-made ids are left as they are."""
    asked = bool(tokenizer.bos or tokenizer.eos or tokenizer.eos_token)
    documents = passed.records - passed.skipped - passed.empty
    return chat_summary.added(summary, documents, passed.chats, asked=asked)


def _lengths_of(
    partition: Partition,
    read: ReadOptions,
    tokenizer: TokenizerOptions | None,
    chat: ChatOptions | None,
    spill: Spill,
    watch: _Watch,
    progress: Progress | None,
) -> tuple[PartitionReader, Counts]:
    """Adds the lengths of a partition's documents to the spill."""
    engine, ends, vocab_size = stage.engine_of(tokenizer)
    render, chat_ends = stage.chats_of(tokenizer, chat)
    reader = PartitionReader(partition, read, render)
    counts, places = Counts(reader.tally), Places(partition, reader.tally)
    sample = stage.watch_of(tokenizer, 0, partition.index)
    encoded = encode(watch.over(reader), engine, ends, chat_ends, sample)
    for batch in counted(encoded, counts, places, vocab_size, progress):
        spill.add(np.diff(batch.offsets).astype(np.int32))
    if render:
        render.check(counts.chats)
    return reader, counts


@dataclass
class _Watch:
    """Counts documents in which a control token is written out, as their texts pass."""

    control: Callable[[str], bool] | None
    texts: int = 0
    documents: int = 0

    def over(self, batches: Iterable[TextBatch | TokenBatch]) -> Iterator[TextBatch | TokenBatch]:
        for batch in batches:
            if isinstance(batch, TextBatch):
                self.texts += len(batch.texts)
                if self.control:
                    self.documents += sum(
                        batch.chats[place].control if place in batch.chats else self.control(text)
                        for place, text in enumerate(batch.texts)
                    )
            yield batch
