"""Rows packed by every strategy, counted without tokens. Each batch is `batch_size` rows in shuffled order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from packer import packing
from packer.lengths import Histogram, exact_sum
from packer.metrics import lower_bound, packing_bound
from packer.packing import bfd, ffd, first_fit, wrapped
from packer.packing.decreasing import AlikeRows, Moves
from packer.plan import Int32Array, Int64Array, Plan, offsets_of
from packer.pricing.corpus import SAMPLE, Case, Corpus, Pieces, Price, Terms, Work, cut, pieces_of
from packer.pricing.ranks import Steps

BLOCK_TOKENS = 32 << 20  # what `packer pack` plans at once
EFFORT = 2  # of optimal at each max_length: a second or two, where `packer pack` takes its time for a block
DRAWN_ROWS = 1 << 20  # rows that stand for all when ranks are compared
DECREASING: dict[str, Callable[[Histogram, int], Moves]] = {"bfd": bfd.pack_histogram, "ffd": ffd.pack_histogram}


def packed(corpus: Corpus, max_length: int, terms: Terms) -> Iterator[Price]:
    """`bfd`, `ffd`, `optimal` where it is installed, `first-fit` and `wrapped`."""
    pieces = pieces_of(corpus.histogram, max_length, terms.overlong or "split")
    if pieces.documents:
        case = Case(corpus, terms, max_length, pieces, packing_bound(pieces.histogram, max_length))
        found = {name: plan(pieces.histogram, max_length) for name, plan in DECREASING.items()}
        if not packing.missing("optimal"):
            from packer.packing import optimal

            solved = optimal.solve_histogram(pieces.histogram, max_length, effort=EFFORT, fitted=found["bfd"])
            found["optimal"], case = solved.moves, replace(case, lp_bound=solved.bound)
        for name, moves in found.items():
            yield case.price(name, _decreasing(case, moves))
        yield case.price("first-fit", _first_fit(case))
    stream = Pieces(corpus.histogram, corpus.histogram.documents, 0, 0)  # cut anyway, so nothing needs splitting
    if terms.overlong in ("truncate", "truncate-left", "drop"):
        stream = pieces_of(corpus.histogram, max_length, terms.overlong)
    if stream.documents:
        case = Case(corpus, terms, max_length, stream, lower_bound(stream.histogram.tokens, max_length))
        yield case.price("wrapped", _wrapped(case))


def _decreasing(case: Case, moves: Moves) -> Work:
    """From the histogram alone, whatever the number of documents."""
    histogram, terms = case.pieces.histogram, case.terms
    alike = RowClasses.of(moves)
    work = _work(case, alike.total, histogram.squares)
    if terms.world_size > 1:
        _deal(work.steps, *alike.drawn(terms.rng(0)), terms.batch_size)
    return work


def _first_fit(case: Case) -> Work:
    """Document by document, in blocks as `packer pack` does. Of many, a sample."""
    corpus, terms, histogram = case.corpus, case.terms, case.pieces.histogram
    estimated = corpus.ordered is None or corpus.histogram.documents > SAMPLE
    rows = sampled = 0
    steps = terms.steps()
    for block in _blocks(corpus.sample(terms.seed)):
        tokens, cost, full = first_fit_rows(block, case.max_length, terms.overlong or "split")
        sampled += int(tokens.sum()) + full * case.max_length
        if terms.world_size > 1:
            alone = np.full(min(full, DRAWN_ROWS), case.max_length, np.int64)
            order = terms.rng(rows).permutation(len(tokens) + len(alone))
            tokens_of = np.concatenate([tokens, alone])[order]
            _deal(steps, tokens_of, np.concatenate([cost, alone * alone])[order], terms.batch_size)
        rows += len(tokens) + full
    if estimated:
        rows = max(round(rows * histogram.tokens / sampled), case.bound)
    return replace(_work(case, rows, histogram.squares), steps=steps, estimated=estimated)


def first_fit_rows(lengths: Int32Array, max_length: int, policy: str) -> tuple[Int64Array, Int64Array, int]:
    """Tokens and attention cost of each row, int64 (r,), but for those that one piece fills: they are counted only."""
    if policy == "split":
        full, shared = int((lengths // max_length).sum(dtype=np.int64)), lengths % max_length
    else:
        kept = cut(lengths, max_length, policy)
        full, shared = int((kept == max_length).sum()), kept[kept < max_length]
    plan = first_fit.pack(shared[shared > 0], max_length, rng=np.random.default_rng(0))
    return *_of_plan(plan), full


def _blocks(lengths: Int32Array) -> Iterator[Int32Array]:
    ends = offsets_of(lengths)
    first = 0
    while first < len(lengths):
        last = min(int(np.searchsorted(ends, ends[first] + BLOCK_TOKENS)), len(lengths))
        yield lengths[first:last]
        first = last


def _wrapped(case: Case) -> Work:
    corpus, terms, max_length = case.corpus, case.terms, case.max_length
    place = split = cost = seen = 0
    for chunk in _streamed(case):
        lengths = chunk.astype(np.int64)
        starts = (place + offsets_of(lengths)[:-1]) % max_length
        first = np.minimum(lengths, max_length - starts)  # what each document puts into the row that it begins in
        full, last = np.divmod(lengths - first, max_length)
        cost += exact_sum(first, first) + exact_sum(full) * max_length**2 + exact_sum(last, last)
        split += int((first < lengths).sum())
        place, seen = place + int(lengths.sum()), seen + len(lengths)
    share = case.pieces.documents / max(seen, 1)
    work = _work(case, case.bound, round(cost * share) if share != 1 else cost)
    if terms.world_size > 1:
        _deal_stream(work.steps, _streamed(case), max_length, terms)
    return replace(work, split=round(split * share), estimated=corpus.ordered is None)


def _streamed(case: Case) -> Iterator[Int32Array]:
    """What is kept of the documents, end to end."""
    policy = case.terms.overlong
    for chunk in case.corpus.chunks(case.terms.seed):
        yield chunk if policy in (None, "split") else cut(chunk, case.max_length, policy)


def _deal_stream(steps: Steps, chunks: Iterator[Int32Array], max_length: int, terms: Terms) -> None:
    """The full rows at the stream's start, as many as a sample needs."""
    some, tokens = [], 0
    for chunk in chunks:
        some.append(chunk)
        tokens += int(chunk.sum(dtype=np.int64))
        if tokens >= DRAWN_ROWS * max_length:
            break
    rows = min(tokens // max_length, DRAWN_ROWS)
    lengths = np.diff(np.minimum(offsets_of(np.concatenate(some)), rows * max_length)).astype(np.int32)
    rng = terms.rng(0)
    row_tokens, row_cost = _of_plan(wrapped.pack(lengths[lengths > 0], max_length, rng=rng))
    order = rng.permutation(rows)
    _deal(steps, row_tokens[order], row_cost[order], terms.batch_size)


def _of_plan(plan: Plan) -> tuple[Int64Array, Int64Array]:
    """Tokens and attention cost of each row: int64 (r,)."""
    squares = offsets_of(plan.length.astype(np.int64) ** 2)
    return plan.row_lengths(), np.diff(squares[plan.row_offsets])


def _deal(steps: Steps, tokens: Int64Array, cost: Int64Array, batch_size: int) -> None:
    """Rows in training order, `batch_size` a batch; an incomplete last batch is left out."""
    end = len(tokens) - len(tokens) % batch_size
    steps.add(*(values[:end].reshape(-1, batch_size).sum(axis=1) for values in (tokens, cost)))


def _work(case: Case, rows: int, cost: int) -> Work:
    """Rows count as filled up, but a varlen kernel computes real tokens only."""
    terms, real = case.terms, case.pieces.histogram.tokens
    batches = -(-rows // terms.batch_size)
    return Work(terms.steps(), rows, batches, rows * case.max_length, cost, {case.max_length}, computed=real)


@dataclass(frozen=True)
class RowClasses:
    """Rows that hold the same. rows, tokens, cost: int64 (k,), of how many rows, and of each."""

    rows: Int64Array
    tokens: Int64Array
    cost: Int64Array

    @classmethod
    def of(cls, moves: Moves) -> RowClasses:
        alike, tokens = AlikeRows(moves), moves.each * moves.length
        return cls(alike.sizes, alike.summed(tokens), alike.summed(tokens * moves.length))

    @property
    def total(self) -> int:
        return int(self.rows.sum())

    def drawn(self, rng: np.random.Generator) -> tuple[Int64Array, Int64Array]:
        """Tokens and cost of the rows in random order; of many, of as many as a sample needs."""
        if self.total <= DRAWN_ROWS:
            kind = rng.permutation(np.repeat(np.arange(len(self.rows)), self.rows))
        else:
            kind = np.searchsorted(np.cumsum(self.rows), rng.integers(0, self.total, DRAWN_ROWS), side="right")
        return self.tokens[kind], self.cost[kind]
