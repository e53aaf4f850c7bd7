"""Blocks: the documents that are planned at once, collected from batches as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from packer.encoding import Encoded
from packer.plan import BoolArray, Int64Array, offsets_of
from packer.rows import Rows, whole_documents
from packer.similarity import Traits
from packer.similarity.traits import joined

T = TypeVar("T", bound=np.generic)
FIRST_TOKENS = 1 << 18  # of a block in the making: what a small corpus needs
RESERVED_TOKENS = 36 << 20  # of one that grows beyond: address space, for memory is what has been written to


@dataclass(frozen=True)
class Block:
    """Documents to be planned at once; `masked`: bool (n,), those that came with a loss mask; traits: of the documents,
    where they are planned by them."""

    documents: Rows
    masked: BoolArray
    traits: Traits | None = None


class Collector:
    """Cuts the stream of documents into blocks: each ends with the document that brings it to block_tokens."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens, self._block = block_tokens, _Collected()

    @property
    def tokens(self) -> int:
        """Collected so far."""
        return self._block.tokens

    def add(self, batch: Encoded) -> Iterator[Block]:
        """Takes the batch; gives the blocks that it completes."""
        first = 0
        while first < len(batch.ordinals):
            full = batch.offsets[first] + self._block_tokens - self._block.tokens
            last = min(int(np.searchsorted(batch.offsets[first + 1 :], full)) + first + 1, len(batch.ordinals))
            self._block.add(batch, first, last)
            first = last
            if self._block.tokens >= self._block_tokens:
                yield from self.rest()

    def rest(self) -> Iterator[Block]:
        """What has been collected, if anything."""
        block, self._block = self._block, _Collected()
        if block.tokens:
            yield block.done()


class _Collected:
    """A block in the making: documents are copied to their place as they come, while others are being tokenized."""

    def __init__(self) -> None:
        self.tokens = 0
        self._ids = np.empty(FIRST_TOKENS, np.int32)
        self._mask: BoolArray | None = None  # from the first document that has one on
        self._ordinals: list[Int64Array] = []
        self._lengths: list[Int64Array] = []
        self._masked: list[BoolArray] = []
        self._traits: list[Traits | None] = []

    def add(self, batch: Encoded, first: int, last: int) -> None:
        """Takes documents first to last of a batch."""
        start, stop = int(batch.offsets[first]), int(batch.offsets[last])
        end = self.tokens + stop - start
        if end > len(self._ids):
            self._ids = _grown(self._ids, self.tokens, end)
            self._mask = None if self._mask is None else _grown(self._mask, self.tokens, end)
        self._ids[self.tokens : end] = batch.ids[start:stop]
        if batch.mask is not None and self._mask is None:
            self._mask = np.empty(len(self._ids), np.bool_)
            self._mask[: self.tokens] = True
        if self._mask is not None:
            self._mask[self.tokens : end] = True if batch.mask is None else batch.mask[start:stop]
        self._ordinals.append(batch.ordinals[first:last])
        self._lengths.append(np.diff(batch.offsets[first : last + 1]))
        self._masked.append(batch.masked[first:last])
        self._traits.append(None if batch.traits is None else batch.traits.take(slice(first, last)))
        self.tokens = end

    def done(self) -> Block:
        documents = whole_documents(
            np.concatenate(self._ordinals),
            self._ids[: self.tokens],
            offsets_of(np.concatenate(self._lengths)),
            None if self._mask is None else self._mask[: self.tokens],
        )
        return Block(documents, np.concatenate(self._masked), joined(self._traits))


def _grown(values: NDArray[T], used: int, needed: int) -> NDArray[T]:
    """The used values in a larger array."""
    larger = np.empty(max(needed, RESERVED_TOKENS, 2 * len(values)), values.dtype)
    larger[:used] = values[:used]
    return larger
