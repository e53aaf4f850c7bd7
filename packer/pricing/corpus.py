"""The nouns of pricing: what is priced, under which terms, and a price."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from packer.interleave import Stream, generator
from packer.lengths import Histogram, exact_sum
from packer.packing import overlong
from packer.plan import Int32Array
from packer.pricing.flops import Model
from packer.pricing.ranks import Steps

SAMPLE = 1 << 16  # documents that stand for all where the order is unknown or costs too much


@dataclass(frozen=True)
class Corpus:
    """Lengths of documents, all at least 1. `ordered` gives them in input order, int32 chunks, afresh at each call;
    None where only the histogram is known."""

    histogram: Histogram
    ordered: Callable[[], Iterator[Int32Array]] | None

    def sample(self, seed: int) -> Int32Array:
        """Up to SAMPLE documents: every so-manyth in input order, or of a histogram: drawn from it, in random order."""
        total = self.histogram.documents
        if self.ordered is None:
            rng = generator(seed, Stream.SAMPLE)
            ranks = rng.permutation(total) if total <= SAMPLE else rng.integers(0, total, SAMPLE)
            return self.histogram.at(ranks).astype(np.int32)
        wanted = np.arange(min(total, SAMPLE)) * total // min(total, SAMPLE)
        parts, first = [], 0
        for chunk in self.ordered():
            here = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, first + len(chunk))]
            parts.append(chunk[here - first])
            first += len(chunk)
        return np.concatenate(parts)

    def chunks(self, seed: int) -> Iterator[Int32Array]:
        """All documents in input order; where that is unknown, the sample."""
        if self.ordered is None:
            yield self.sample(seed)
        else:
            yield from self.ordered()


@dataclass(frozen=True)
class Terms:
    """What all prices share.

    batch_size: documents, or packed rows, a batch. tokens_per_batch: of token-budget batches; None: batch_size *
    max_length. budget: `padded` sums lengths as padded, `sum` as they are. overlong: None truncates where documents are
    padded, as trainers do, and splits where they are packed, as `packer pack` does.
    """

    batch_size: int = 8
    tokens_per_batch: int | None = None
    budget: str = "padded"
    pad_to_multiple_of: int = 1
    world_size: int = 1
    overlong: str | None = None
    seed: int = 0
    model: Model | None = None

    def rng(self, *key: int) -> np.random.Generator:
        return generator(self.seed, Stream.BATCHES, *key)

    def steps(self) -> Steps:
        return Steps(self.world_size, self.model)


@dataclass(frozen=True)
class Price:
    """What one strategy costs at one max_length. The reader of the JSON sees these names.

    rows: of the training data: packed ones, or a document each. batches: of `batch_size` rows, or of a token budget.
    lower_bound: rows that no packing of the same pieces can go below. lp_bound: the same of the linear program that
    `optimal` solves, at least as high; None where it was not.
    real_tokens, padded_tokens: what the rows hold; packed rows count as filled up to max_length.
    pad_ratio: padded / (padded + real).
    documents_per_row: documents that have a token in some row, by rows.
    documents_split: cut between rows. tokens_dropped: in no row.
    attention_cost: sum of L**2 over what the kernel sees as sequences; with padding, L is the padded length.
    attention_cost_ratio: that by the sum over the whole documents, so cutting documents takes it below 1.
    shapes: distinct shapes of a batch, each compiled anew; 1 for packed rows, which can be filled up.
    rank_*_imbalance: max / mean over the ranks of a step, mean over the steps; _p95: its 95th percentile; None for one
    rank, or where there are fewer batches than ranks.
    flops_per_step: of all ranks. time_ratio: time for each real token, waiting for the slowest rank included, by that
    of the fastest strategy at this max_length. None without a model, or without a full step.
    estimated: from a sample.
    """

    strategy: str
    max_length: int
    rows: int
    batches: int
    lower_bound: int
    real_tokens: int
    padded_tokens: int
    pad_ratio: float
    documents_per_row: float
    documents_split: int
    tokens_dropped: int
    attention_cost: int
    attention_cost_ratio: float
    shapes: int
    rank_tokens_imbalance: float | None
    rank_tokens_imbalance_p95: float | None
    rank_attention_imbalance: float | None
    rank_attention_imbalance_p95: float | None
    flops_per_step: float | None
    time_ratio: float | None
    estimated: bool
    lp_bound: int | None = None

    @property
    def bound(self) -> int:
        """The higher of the two."""
        return max(self.lower_bound, self.lp_bound or 0)


@dataclass(frozen=True)
class Pieces:
    """What a policy for long documents leaves of a corpus. documents: that have a token in some piece."""

    histogram: Histogram
    documents: int
    split: int
    dropped: int


def pieces_of(corpus: Histogram, max_length: int, policy: str) -> Pieces:
    """Exact, whatever the order."""
    long = corpus.lengths > max_length
    counts = corpus.counts[long]
    beyond = exact_sum(corpus.lengths[long], counts)
    if not len(counts):
        return Pieces(corpus, corpus.documents, 0, 0)
    short = (corpus.lengths[~long], corpus.counts[~long])
    if policy == "drop":
        return Pieces(Histogram(*short), corpus.documents - int(counts.sum()), 0, beyond)
    if policy == "split":
        full, rest = np.divmod(corpus.lengths[long], max_length)
        lengths = np.concatenate([short[0], [max_length], rest])
        pieces = Histogram.of(lengths, np.concatenate([short[1], [(full * counts).sum()], counts]))
        return Pieces(pieces, corpus.documents, int(counts.sum()), 0)
    kept = Histogram.of(np.append(short[0], max_length), np.append(short[1], counts.sum()))
    return Pieces(kept, corpus.documents, 0, beyond - max_length * int(counts.sum()))


def cut(chunk: Int32Array, max_length: int, policy: str) -> Int32Array:
    """The same for lengths in order: the pieces' lengths, int32 (p,)."""
    return overlong.split(overlong.keep(chunk, max_length, policy), max_length).length


@dataclass
class Work:
    """What training on the rows takes, added up. tokens: what batches hold, padding included; computed: those that go
    through the model, where that is less; split: documents cut, where the pieces do not say it."""

    steps: Steps
    rows: int = 0
    batches: int = 0
    tokens: int = 0
    cost: int = 0
    shapes: set[int] = field(default_factory=set)
    computed: int | None = None
    split: int | None = None
    estimated: bool = False


@dataclass(frozen=True)
class Case:
    """One corpus at one max_length, its long documents dealt with. bound: rows that no packing goes below; lp_bound: as
    many of the linear program."""

    corpus: Corpus
    terms: Terms
    max_length: int
    pieces: Pieces
    bound: int
    lp_bound: int | None = None

    def price(self, strategy: str, work: Work) -> Price:
        """All but the time_ratio, which the other strategies decide: it holds FLOPs for each real token for now."""
        pieces, model = self.pieces, self.terms.model
        real = pieces.histogram.tokens
        tokens, attention = work.steps.tokens or (None, None), work.steps.attention or (None, None)
        flops = None
        if model:
            computed = work.tokens if work.computed is None else work.computed
            flops = model.per_token * computed + model.per_square * work.cost
        return Price(
            strategy=strategy,
            max_length=self.max_length,
            rows=work.rows,
            batches=work.batches,
            lower_bound=self.bound,
            real_tokens=real,
            padded_tokens=work.tokens - real,
            pad_ratio=(work.tokens - real) / work.tokens,
            documents_per_row=pieces.documents / work.rows,
            documents_split=pieces.split if work.split is None else work.split,
            tokens_dropped=pieces.dropped,
            attention_cost=work.cost,
            attention_cost_ratio=work.cost / self.corpus.histogram.squares,
            shapes=len(work.shapes),
            rank_tokens_imbalance=tokens[0],
            rank_tokens_imbalance_p95=tokens[1],
            rank_attention_imbalance=attention[0],
            rank_attention_imbalance_p95=attention[1],
            flops_per_step=flops and flops / -(-work.batches // self.terms.world_size),
            time_ratio=flops and work.steps.waiting and flops * work.steps.waiting / real,
            estimated=work.estimated,
            lp_bound=self.lp_bound,
        )


def compared(prices: Sequence[Price]) -> list[Price]:
    """The prices of one max_length, with their times relative to the shortest."""
    shortest = min((price.time_ratio for price in prices if price.time_ratio), default=1.0)
    return [replace(price, time_ratio=price.time_ratio and price.time_ratio / shortest) for price in prices]
