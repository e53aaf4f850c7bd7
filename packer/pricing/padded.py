"""One document a row, padded: to max_length, or with others of its batch to the longest of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from packer import batching
from packer.batching import Batches
from packer.lengths import SAFE, exact_sum
from packer.metrics import packing_bound
from packer.plan import BoolArray, Int32Array, Int64Array
from packer.pricing.corpus import Case, Corpus, Price, Terms, Work, cut, pieces_of

IN_BATCHES = ("dynamic", "bucketed", "token-budget")
Width = TypeVar("Width", int, Int64Array)


def padded(corpus: Corpus, max_length: int, terms: Terms) -> Iterator[Price]:
    """`static`, `dynamic`, `bucketed` and `token-budget`."""
    policy = terms.overlong or "truncate"
    pieces = pieces_of(corpus.histogram, max_length, policy)
    if not pieces.documents:
        return
    case = Case(corpus, terms, max_length, pieces, packing_bound(pieces.histogram, max_length))
    yield case.price("static", _static(pieces.histogram.documents, max_length, terms))
    works = {name: Work(terms.steps()) for name in IN_BATCHES}
    sampled = 0
    for index, chunk in enumerate(corpus.chunks(terms.seed)):
        lengths = cut(chunk, max_length, policy)
        sampled += int(lengths.sum(dtype=np.int64))
        for name, work in works.items():
            tokens, cost, shapes, full = in_batches(name, lengths, max_length, terms, index)
            work.batches += len(tokens)
            work.tokens += exact_sum(tokens)
            work.cost += exact_sum(cost)
            work.shapes |= shapes
            work.steps.add(tokens[full], cost[full])
    share = pieces.histogram.tokens / max(sampled, 1)
    for name, work in works.items():
        work.rows, work.estimated = pieces.histogram.documents, corpus.ordered is None
        if share != 1:
            work.batches, work.tokens, work.cost = (round(n * share) for n in (work.batches, work.tokens, work.cost))
        if name != "token-budget":
            work.batches = -(-work.rows // terms.batch_size)  # exact, though the rest is a sample
        yield case.price(name, work)


def _static(rows: int, max_length: int, terms: Terms) -> Work:
    """Every batch is the same, so there is nothing to add up."""
    size, width = terms.batch_size, rounded(max_length, terms)
    work = Work(terms.steps(), rows, -(-rows // size), rows * width, rows * width * width)
    work.shapes = {min(rows, size), rows % size} - {0}
    if rows // size >= terms.world_size:  # one step stands for all
        work.steps.add(*(np.full(terms.world_size, size * each) for each in (width, width * width)))
    return work


def in_batches(
    strategy: str, lengths: Int32Array, max_length: int, terms: Terms, index: int
) -> tuple[Int64Array, Int64Array, set[int], BoolArray]:
    """Tokens and attention cost of each batch, in training order, int64 (b,); the distinct shapes, as numbers; and
    which batches are full: a short one, the last that was cut, would make a step look uneven."""
    batches = _made(strategy, lengths, max_length, terms, terms.rng(index))
    full = np.ones(len(batches), np.bool_)
    if strategy != "token-budget":
        full = np.diff(batches.offsets) == terms.batch_size
    if strategy == "token-budget" and terms.budget == "sum":
        return *laid_end_to_end(batches, lengths), full
    return *padded_to_longest(batches, lengths, terms), full


def laid_end_to_end(batches: Batches, lengths: Int32Array) -> tuple[Int64Array, Int64Array, set[int]]:
    """See `in_batches`; without padding, each document an attention sequence."""
    own, starts = lengths[batches.documents].astype(np.int64), batches.offsets[:-1]
    tokens = np.add.reduceat(own, starts) if len(own) else own
    cost = np.add.reduceat(own * own, starts) if len(own) else own
    return tokens, cost, set(np.unique(tokens).tolist())


def padded_to_longest(batches: Batches, lengths: Int32Array, terms: Terms) -> tuple[Int64Array, Int64Array, set[int]]:
    """See `in_batches`; each document as long as the longest of its batch."""
    own, starts = lengths[batches.documents].astype(np.int64), batches.offsets[:-1]
    if not len(own):
        return own, own, set()
    documents = np.diff(batches.offsets)
    width = rounded(np.maximum.reduceat(own, starts), terms)
    tokens = documents * width
    exact = tokens if float(tokens.max()) * float(width.max()) < SAFE else tokens.astype(object)
    return tokens, exact * width, set(np.unique(documents << 32 | width).tolist())


def _made(strategy: str, lengths: Int32Array, max_length: int, terms: Terms, rng: np.random.Generator) -> Batches:
    if strategy == "dynamic":
        return batching.dynamic(lengths, terms.batch_size, rng)
    if strategy == "bucketed":
        return batching.bucketed(lengths, terms.batch_size, rng)
    budget = terms.tokens_per_batch or terms.batch_size * max_length
    if terms.budget == "sum":
        return batching.token_sum(lengths, budget, rng)
    return batching.token_budget(lengths, terms.batch_size, budget, terms.pad_to_multiple_of, rng)


def rounded(width: Width, terms: Terms) -> Width:
    """Padded up to `pad_to_multiple_of`."""
    return -(-width // terms.pad_to_multiple_of) * terms.pad_to_multiple_of
