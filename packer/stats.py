"""`packer stats`: the lengths of a corpus, and what each way of batching them would cost. Nothing is written.

    INPUT ─▶ tokenize, keep the lengths only ─▶ histogram ─▶ percentiles, truncation, prices, recommendation
    --lengths FILE ───────────────────────────────┘

One pass. Lengths go to a temporary file in input order, 4 bytes a document, for the prices that depend on order.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from packer import attempts, chat_summary, corpus, length_file, stage, stored
from packer.chat import ChatOptions
from packer.conversation import ChatCounts
from packer.corpus import Partition, PartitionReader, ReadOptions, TextBatch, TokenBatch
from packer.corpus.documents import KEPT_REASONS
from packer.encoding import encode
from packer.errors import InputError
from packer.lengths import Histogram
from packer.plan import Int32Array
from packer.pricing import Corpus, Price, Terms, prices
from packer.recommending import Recommendation, recommend
from packer.rendering import describe
from packer.schema import Skipped
from packer.stage import Counts, Places, Progress, TokenizerOptions
from packer.tokenizer import find as find_tokenizer
from packer.windowing import Coverage, Windowing, coverage

MAX_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
BYTES_A_TOKEN = 2.4  # of Parquet shards at zstd level 1, measured on English text
REPEATS = 1.1  # what overlap adds to it, in the order of the input: zstd finds the repeats
CHUNK = 1 << 20  # documents priced at a time
PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


@dataclass(frozen=True)
class Lengths:
    """Tokens of a document. The percentiles are those of `numpy.percentile`; histogram: documents by length."""

    min: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: int
    histogram: dict[int, int]


@dataclass(frozen=True)
class Truncation:
    """What cutting documents at max_length would lose: documents that are longer, and their tokens beyond it."""

    max_length: int
    documents: int
    documents_ratio: float
    tokens: int
    tokens_ratio: float


@dataclass(frozen=True)
class WindowPrice:
    """What `packer window` would make. disk_bytes: of Parquet shards at their defaults, estimated."""

    context_size: int
    stride: int
    scope: str
    tail: str
    mask_overlap: bool
    coverage: Coverage
    disk_bytes: int


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


@dataclass(frozen=True)
class Stats:
    documents: int
    skipped: int
    empty: int
    tokens: int
    length: Lengths
    truncation: list[Truncation]
    strategies: list[Price]
    recommendation: Recommendation
    windows: WindowPrice | None
    terms: Terms
    source: Source

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _Measured:
    """Lengths, and what was met on the way to them. `ordered`: None where only the histogram is known."""

    lengths: Corpus
    source: Source
    skipped: int = 0
    empty: int = 0


def stats(
    inputs: Sequence[str],
    read: ReadOptions,
    tokenizer: TokenizerOptions | None,
    max_lengths: Sequence[int],
    terms: Terms,
    progress: Progress | None = None,
    *,
    windows: tuple[int, Windowing] | None = None,
    chat: ChatOptions | None = None,
) -> Stats:
    """Reads and tokenizes INPUT once. Raises a PackerError; an INPUT without a document is one."""
    with _Spill() as spill:
        return _priced(_measure(inputs, read, tokenizer, chat, spill, progress), max_lengths, terms, windows)


def stats_of_lengths(
    path: Path, max_lengths: Sequence[int], terms: Terms, *, windows: tuple[int, Windowing] | None = None
) -> Stats:
    """Prices lengths from a file (see `packer.length_file`), without text or tokenizer."""
    with _Spill() as spill:
        found = length_file.read(path, spill.add)
        lengths = spill.corpus() if found.histogram is None else Corpus(found.histogram, None)
        if not lengths.histogram.documents:
            raise InputError(f"--lengths {path} holds no length above 0")
        return _priced(_Measured(lengths, Source([str(path)]), empty=found.empty), max_lengths, terms, windows)


def _priced(
    measured: _Measured, max_lengths: Sequence[int], terms: Terms, windows: tuple[int, Windowing] | None
) -> Stats:
    histogram, source = measured.lengths.histogram, measured.source
    masked = bool(
        source.chats and source.chats.documents == histogram.documents and (source.chat or {})["loss"] != "all"
    )
    if masked and terms.overlong is None:
        terms = replace(terms, overlong="truncate")  # as pack does
    found = list(prices(measured.lengths, max_lengths, terms))
    return Stats(
        documents=histogram.documents,
        skipped=measured.skipped,
        empty=measured.empty,
        tokens=histogram.tokens,
        length=_lengths(histogram),
        truncation=[_truncation(histogram, max_length) for max_length in max_lengths],
        strategies=found,
        recommendation=recommend(histogram, found, max_lengths, masked=masked),
        windows=_windows(histogram, *windows) if windows else None,
        terms=terms,
        source=measured.source,
    )


def _windows(histogram: Histogram, size: int, windowing: Windowing) -> WindowPrice:
    covered = coverage(histogram.lengths, size, windowing, counts=histogram.counts)
    tokens = covered.distinct_tokens if windowing.stride < size else covered.tokens
    overlap = REPEATS if windowing.stride < size else 1.0
    return WindowPrice(
        context_size=size,
        stride=windowing.stride,
        scope=windowing.scope,
        tail=windowing.tail,
        mask_overlap=windowing.mask_overlap,
        coverage=covered,
        disk_bytes=round(tokens * BYTES_A_TOKEN * overlap),
    )


def _lengths(histogram: Histogram) -> Lengths:
    percentiles = dict(zip(PERCENTILES, histogram.percentiles([*PERCENTILES.values()]), strict=True))
    return Lengths(
        min=int(histogram.lengths[0]),
        mean=histogram.tokens / histogram.documents,
        max=int(histogram.lengths[-1]),
        histogram=dict(zip(histogram.lengths.tolist(), histogram.counts.tolist(), strict=True)),
        **percentiles,
    )


def _truncation(histogram: Histogram, max_length: int) -> Truncation:
    documents, tokens = histogram.longer_than(max_length)
    return Truncation(max_length, documents, documents / histogram.documents, tokens, tokens / histogram.tokens)


# Measuring a corpus


class _Spill:
    """Lengths in input order, in a temporary file that vanishes with it."""

    def __enter__(self) -> _Spill:
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


def _measure(
    inputs: Sequence[str],
    read: ReadOptions,
    tokenizer: TokenizerOptions | None,
    chat: ChatOptions | None,
    spill: _Spill,
    progress: Progress | None,
) -> _Measured:
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
    return _Measured(lengths, source, passed.skipped, passed.empty)


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
    spill: _Spill,
    progress: Progress | None,
) -> _Pass:
    """Adds the lengths of all documents to the spill."""
    met = _Pass(_Watch(None if tokenizer is None else stage.load_tokenizer(tokenizer)[0].control_pattern()))
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
    spill: _Spill,
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
    for batch in stage.counted(encoded, counts, places, vocab_size, progress):
        spill.add(np.diff(batch.offsets).astype(np.int32))
    if render:
        render.check(counts.chats)
    return reader, counts


@dataclass
class _Watch:
    """Counts documents in which a control token is written out, as their texts pass."""

    pattern: re.Pattern[str] | None
    texts: int = 0
    documents: int = 0

    def over(self, batches: Iterable[TextBatch | TokenBatch]) -> Iterator[TextBatch | TokenBatch]:
        for batch in batches:
            if isinstance(batch, TextBatch):
                self.texts += len(batch.texts)
                if self.pattern:
                    self.documents += sum(
                        batch.chats[place].control if place in batch.chats else self.pattern.search(text) is not None
                        for place, text in enumerate(batch.texts)
                    )
            yield batch
