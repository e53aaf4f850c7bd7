"""A partition's documents as token ids: reading, tokenizing and adding BOS and EOS, a few batches ahead.

The tokenizer's threads use every core inside one call, but idle while ids are copied out and texts are read. A few
calls in flight fill those gaps; results keep the input's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from packer.corpus.documents import TextBatch, TokenBatch
from packer.errors import UsageError
from packer.plan import BoolArray, Int32Array, Int64Array, offsets_of
from packer.threads import ordered_ahead
from packer.tokenizer import Ends, Engine

THREADS = 3


@dataclass(frozen=True)
class Encoded:
    """Documents of at least one token. ordinals: int64 (n,); ids: int32 (t,); offsets: int64 (n+1,); mask: bool (t,)
    or None where all documents train on all their tokens; masked: bool (n,), documents that came with a mask; empty:
    documents without a token, which are left out."""

    ordinals: Int64Array
    ids: Int32Array
    offsets: Int64Array
    mask: BoolArray | None
    masked: BoolArray
    empty: int


def encode(batches: Iterable[TextBatch | TokenBatch], engine: Engine | None, ends: Ends | None) -> Iterator[Encoded]:
    """Tokenizes texts; ready-made ids pass untouched. Without an engine a text is a UsageError."""
    return ordered_ahead(lambda batch: _encode(batch, engine, ends), batches, threads=THREADS, ahead=THREADS + 1)


def _encode(batch: TextBatch | TokenBatch, engine: Engine | None, ends: Ends | None) -> Encoded:
    mask, masked = None, np.zeros(len(batch.ordinals), np.bool_)
    if isinstance(batch, TokenBatch):
        ids, offsets, mask, masked = batch.ids, batch.offsets, batch.mask, batch.masked
    elif engine is None or ends is None:
        raise UsageError("INPUT holds texts, so --tokenizer is needed (only ready-made input_ids can do without one)")
    else:
        ids, offsets = ends.add(*engine.encode(batch.texts))
    lengths = np.diff(offsets)
    full = lengths > 0
    return Encoded(batch.ordinals[full], ids, offsets_of(lengths[full]), mask, masked[full], int((~full).sum()))
