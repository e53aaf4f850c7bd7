"""Blocks of records as the formats give them, and the batches of documents that they are gathered into.

A format yields blocks, in which a place is kept for each bad record so that ordinals need no bookkeeping of their own:

    ["a", None, "b"], ["c"]   ->   TextBatch(ordinals=[0, 2, 3], texts=["a", "b", "c"])

A chat is a `Rendered` in such a block: its text, and what of it is trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from packer.conversation import Rendered
from packer.corpus.documents import TextBatch, TokenBatch
from packer.plan import BoolArray, Int32Array, Int64Array, offsets_of
from packer.similarity import Traits
from packer.similarity.traits import joined

TEXT_BATCH_CHARS = 1 << 20  # characters of text after which a batch is closed
TOKEN_BATCH_IDS = 1 << 19  # ready-made ids after which a batch is closed
BATCH_DOCUMENTS = 4096

Ids = tuple[Int32Array, BoolArray | None]  # one ready-made document: its ids (t,) and the mask (t,) if it has one


@dataclass(frozen=True)
class Tokens:
    """`count` records of which the `kept` are documents. kept: int64 (k,), positions among the records; ids: int32
    (t,) flat; offsets: int64 (k+1,); mask: bool (t,) or None where no record has one; masked: bool (k,), those that
    have one."""

    count: int
    kept: Int64Array
    ids: Int32Array
    offsets: Int64Array
    mask: BoolArray | None
    masked: BoolArray


Plain = list[str | Rendered | None] | Tokens


@dataclass(frozen=True)
class Marked:
    """A block of records with the traits of each, those of bad ones included."""

    block: Plain
    traits: Traits


Block = Plain | Marked


def tokens_of(documents: list[Ids | None]) -> Tokens:
    """A block of records that came one at a time; None is a bad one."""
    kept = [document for document in documents if document is not None]
    positions = np.array([i for i, document in enumerate(documents) if document is not None], np.int64)
    ids = np.concatenate([ids for ids, _ in kept]) if kept else np.empty(0, np.int32)
    mask = None
    if any(mask is not None for _, mask in kept):
        mask = np.concatenate([np.ones(len(ids), bool) if mask is None else mask for ids, mask in kept])
    masked = np.array([mask is not None for _, mask in kept], np.bool_)
    offsets = offsets_of(np.array([len(ids) for ids, _ in kept], np.int64))
    return Tokens(len(documents), positions, ids, offsets, mask, masked)


def first_of(block: Block, count: int) -> Block:
    """The block's first `count` records."""
    if isinstance(block, Marked):
        return Marked(_first_of(block.block, count), block.traits.take(slice(count)))
    return _first_of(block, count)


def _first_of(block: Plain, count: int) -> Plain:
    if not isinstance(block, Tokens):
        return block[:count]
    kept = int(np.searchsorted(block.kept, count))
    end = block.offsets[kept]
    mask = None if block.mask is None else block.mask[:end]
    offsets, masked = block.offsets[: kept + 1], block.masked[:kept]
    return Tokens(min(count, block.count), block.kept[:kept], block.ids[:end], offsets, mask, masked)


def bad_in(block: Block) -> int:
    """Records of the block that hold no document."""
    block = block.block if isinstance(block, Marked) else block
    return block.count - len(block.kept) if isinstance(block, Tokens) else block.count(None)


class Batcher:
    """Gathers blocks into batches of a size that suits a tokenizer, and numbers the records."""

    def __init__(self) -> None:
        self.records = 0  # given so far; the next record's ordinal
        self._ordinals: list[int] = []
        self._texts: list[str] = []
        self._chats: dict[int, Rendered] = {}  # by place among the texts
        self._chars = 0
        self._traits: list[tuple[Traits, list[int]]] = []  # of a block, and the places in it of the texts
        self._tokens: list[TokenBatch] = []

    def add(self, block: Block) -> Iterator[TextBatch | TokenBatch]:
        """Takes a block; yields the batches that it completes."""
        marked = block if isinstance(block, Marked) else None
        if isinstance(block, Marked):
            block = block.block
        traits = marked.traits if marked else None
        if isinstance(block, Tokens):
            yield from self._close_texts()
            yield from self._add_tokens(block, traits)
            return
        yield from self._close_tokens()
        for ordinal, text in enumerate(block, self.records):
            if text is None:
                continue
            if traits is not None:
                self._mark(traits, ordinal - self.records)
            self._ordinals.append(ordinal)
            if not isinstance(text, str):
                self._chats[len(self._texts)] = text
                text = text.text
            self._texts.append(text)
            self._chars += len(text)
            if self._chars >= TEXT_BATCH_CHARS or len(self._texts) >= BATCH_DOCUMENTS:
                yield from self._close_texts()
        self.records += len(block)

    def finish(self) -> Iterator[TextBatch | TokenBatch]:
        """Yields what is left."""
        yield from self._close_texts()
        yield from self._close_tokens()

    def _add_tokens(self, block: Tokens, traits: Traits | None) -> Iterator[TokenBatch]:
        kept = None if traits is None else traits.take(block.kept)
        ordinals = block.kept + self.records
        self._tokens.append(TokenBatch(ordinals, block.ids, block.offsets, block.mask, block.masked, kept))
        self.records += block.count
        ids = sum(len(batch.ids) for batch in self._tokens)
        if ids >= TOKEN_BATCH_IDS or sum(len(batch.ordinals) for batch in self._tokens) >= BATCH_DOCUMENTS:
            yield from self._close_tokens()

    def _mark(self, traits: Traits, place: int) -> None:
        if not self._traits or self._traits[-1][0] is not traits:
            self._traits.append((traits, []))
        self._traits[-1][1].append(place)

    def _close_texts(self) -> Iterator[TextBatch]:
        if self._texts:
            ordinals, texts, chats = np.array(self._ordinals, np.int64), self._texts, self._chats
            self._ordinals, self._texts, self._chats, self._chars = [], [], {}, 0
            traits = joined([of_block.take(np.array(places)) for of_block, places in self._traits])
            self._traits = []
            yield TextBatch(ordinals, texts, chats, traits)

    def _close_tokens(self) -> Iterator[TokenBatch]:
        batches, self._tokens = self._tokens, []
        if sum(len(batch.ordinals) for batch in batches):
            yield batches[0] if len(batches) == 1 else _join(batches)


def _join(batches: list[TokenBatch]) -> TokenBatch:
    mask = None
    if any(batch.mask is not None for batch in batches):
        mask = np.concatenate([np.ones(len(b.ids), bool) if b.mask is None else b.mask for b in batches])
    return TokenBatch(
        np.concatenate([batch.ordinals for batch in batches]),
        np.concatenate([batch.ids for batch in batches]),
        offsets_of(np.concatenate([np.diff(batch.offsets) for batch in batches])),
        mask,
        np.concatenate([batch.masked for batch in batches]),
        joined([batch.traits for batch in batches]),
    )
