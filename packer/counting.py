"""What passes on the way to blocks: counted, checked, and with its place in the input where something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from packer import engines
from packer.conversation import ChatCounts
from packer.corpus import Partition
from packer.corpus.documents import Tally
from packer.encoding import Encoded
from packer.errors import InputError
from packer.plan import offsets_of

Progress = Callable[[int, int], None]  # documents and tokens just done; below 0: they are to be done again


class Counts:
    """Empty and checked documents, what chats came to, and the tokens of each slice, added up as batches pass."""

    def __init__(self, tally: Tally) -> None:
        self.empty = self.checked = 0
        self.chats = ChatCounts()
        self.tokens: list[int] = []
        self._tally = tally

    def add(self, batch: Encoded) -> None:
        """The reader is ahead of the batch, so the slices of its records are known."""
        self.empty += batch.empty
        self.checked += batch.checked
        self.chats += batch.chats
        firsts = offsets_of(np.array(self._tally.records, np.int64))[1:]
        bounds = [0, *np.searchsorted(batch.ordinals, firsts).tolist(), len(batch.ordinals)]
        sums = np.diff(batch.offsets[bounds]).tolist()
        self.tokens = [a + b for a, b in zip_longest(self.tokens, sums, fillvalue=0)]


@dataclass(frozen=True)
class Places:
    """Where in the partition's files its records are, for errors. several: a record may be several documents, which are
    what is counted."""

    partition: Partition
    tally: Tally
    several: bool = False

    def of(self, ordinal: int) -> str:
        """The file, and the record's number in it, from 1 (in a slice that begins later: counted from there)."""
        firsts = offsets_of(np.array(self.tally.records, np.int64))
        index = int(np.searchsorted(firsts, ordinal, side="right")) - 1
        piece = self.partition.slices[index]
        if piece.source.format == "packed":
            return f"{piece.source.path}, document {ordinal - int(firsts[index]) + piece.start}"
        after = f" after byte {piece.start}" if piece.start and piece.source.format in ("jsonl", "text") else ""
        noun = "document" if self.several else "record"
        return f"{piece.source.path}, {noun} {ordinal - int(firsts[index]) + 1}{after}"


def counted(
    batches: Iterable[Encoded], counts: Counts, places: Places, vocab_size: int, progress: Progress | None
) -> Iterator[Encoded]:
    """The batches, counted and reported as they pass. Raises InputError at an id beyond the vocabulary."""
    for batch in _placed(batches, places):
        counts.add(batch)
        if len(batch.ids) and batch.ids.max() >= vocab_size:
            at = int(np.argmax(batch.ids >= vocab_size))
            document = int(np.searchsorted(batch.offsets, at, side="right")) - 1
            raise InputError(
                f"{places.of(int(batch.ordinals[document]))}: holds token id {batch.ids[at]}, but the tokenizer's "
                f"vocabulary ends at {vocab_size - 1}; give the tokenizer that made the ids"
            )
        if progress:
            progress(len(batch.ordinals), len(batch.ids))
        yield batch


def _placed(batches: Iterable[Encoded], places: Places) -> Iterator[Encoded]:
    """The batches; a difference between the engines gets its place in the input."""
    try:
        yield from batches
    except engines.DifferenceError as error:
        raise engines.EngineError(f"{places.of(error.document)}: {error.reason}") from error
