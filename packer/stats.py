"""`packer stats`: the lengths of a corpus, and what each way of batching them would cost. Nothing is written.

    INPUT ─▶ tokenize, keep the lengths only ─▶ histogram ─▶ percentiles, truncation, prices, recommendation
    --lengths FILE ───────────────────────────────┘

`packer.measuring` reads the corpus, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from packer import length_file
from packer.chat import ChatOptions
from packer.corpus import ReadOptions
from packer.counting import Progress
from packer.errors import InputError
from packer.job import TokenizerOptions
from packer.lengths import Histogram
from packer.measuring import Measured, Source, Spill, measure
from packer.pricing import Corpus, Price, Terms, prices
from packer.recommending import Recommendation, recommend
from packer.windowing import Coverage, Windowing, coverage

MAX_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
BYTES_A_TOKEN = 2.4  # of Parquet shards at zstd level 1, measured on English text
REPEATS = 1.1  # what overlap adds to it, in the order of the input: zstd finds the repeats
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
    with Spill() as spill:
        return _priced(measure(inputs, read, tokenizer, chat, spill, progress), max_lengths, terms, windows)


def stats_of_lengths(
    path: Path, max_lengths: Sequence[int], terms: Terms, *, windows: tuple[int, Windowing] | None = None
) -> Stats:
    """Prices lengths from a file (see `packer.length_file`), without text or tokenizer."""
    with Spill() as spill:
        found = length_file.read(path, spill.add)
        lengths = spill.corpus() if found.histogram is None else Corpus(found.histogram, None)
        if not lengths.histogram.documents:
            raise InputError(f"--lengths {path} holds no length above 0")
        return _priced(Measured(lengths, Source([str(path)]), empty=found.empty), max_lengths, terms, windows)


def _priced(
    measured: Measured, max_lengths: Sequence[int], terms: Terms, windows: tuple[int, Windowing] | None
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
