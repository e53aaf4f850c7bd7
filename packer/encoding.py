"""A partition's documents as token ids: reading, tokenizing and adding BOS and EOS, a few batches ahead.

The tokenizer's threads use every core inside one call, but idle while ids are copied out and texts are read. A few
calls in flight fill those gaps; results keep the input's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from packer.corpus.documents import TextBatch, TokenBatch
from packer.engines import Engine, Watch
from packer.errors import UsageError
from packer.plan import BoolArray, Int32Array, Int64Array, offsets_of
from packer.threads import ordered_ahead
from packer.tokenizer import Ends

THREADS = 3


@dataclass(frozen=True)
class Encoded:
    """Documents of at least one token. ordinals: int64 (n,); ids: int32 (t,); offsets: int64 (n+1,); mask: bool (t,)
    or None where all documents train on all their tokens; masked: bool (n,), documents that came with a mask; empty:
    documents without a token, which are left out; checked: documents that the reference engine encoded too."""

    ordinals: Int64Array
    ids: Int32Array
    offsets: Int64Array
    mask: BoolArray | None
    masked: BoolArray
    empty: int
    checked: int = 0


def encode(
    batches: Iterable[TextBatch | TokenBatch], engine: Engine | None, ends: Ends | None, watch: Watch | None = None
) -> Iterator[Encoded]:
    """Tokenizes texts; ready-made ids pass untouched. Without an engine a text is a UsageError.

    With a watch, raises DifferenceError where a sampled document's ids are not the reference's.
    """

    def work(item: tuple[TextBatch | TokenBatch, list[int]]) -> Encoded:
        return _encode(*item, engine, ends, watch)

    return ordered_ahead(work, _picked(batches, watch), threads=THREADS, ahead=THREADS + 1)


def _picked(
    batches: Iterable[TextBatch | TokenBatch], watch: Watch | None
) -> Iterator[tuple[TextBatch | TokenBatch, list[int]]]:
    """Each batch with the documents that are to be compared: chosen in order, before threads take them."""
    for batch in batches:
        yield batch, watch.pick(batch.ordinals, batch.texts) if watch and isinstance(batch, TextBatch) else []


def _tokenized(
    texts: TextBatch, picked: list[int], engine: Engine, watch: Watch | None
) -> tuple[Int32Array, Int64Array]:
    if watch is None or not texts.texts:
        return engine.encode(texts.texts)
    return watch.encode(engine, texts.ordinals, texts.texts, picked)


def _encode(
    batch: TextBatch | TokenBatch, picked: list[int], engine: Engine | None, ends: Ends | None, watch: Watch | None
) -> Encoded:
    mask, masked = None, np.zeros(len(batch.ordinals), np.bool_)
    if isinstance(batch, TokenBatch):
        ids, offsets, mask, masked = batch.ids, batch.offsets, batch.mask, batch.masked
    elif engine is None or ends is None:
        raise UsageError("INPUT holds texts, so --tokenizer is needed (only ready-made input_ids can do without one)")
    else:
        ids, offsets = ends.add(*_tokenized(batch, picked, engine, watch))
    lengths = np.diff(offsets)
    full = lengths > 0
    return Encoded(
        batch.ordinals[full], ids, offsets_of(lengths[full]), mask, masked[full], int((~full).sum()), len(picked)
    )
