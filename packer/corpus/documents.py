"""What reading a corpus yields: batches of documents in input order, and the count of what was read.

A batch holds texts still to be tokenized, or documents that came as token ids. `ordinals` number the records of one
partition from 0, skipped and empty ones included, so that a document can always be traced to its source.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from packer.conversation import Rendered
from packer.plan import BoolArray, Int32Array, Int64Array
from packer.schema import Skipped
from packer.similarity import Traits

KEPT_REASONS = 100  # skipped records whose reasons are kept; all are counted


@dataclass(frozen=True)
class TextBatch:
    """Texts to tokenize. ordinals: int64 (n,); chats: what is known of those texts that a chat or a pair was rendered
    to, by their place among the texts; traits: of the documents, where they are asked for."""

    ordinals: Int64Array
    texts: list[str]
    chats: dict[int, Rendered] = field(default_factory=dict)
    traits: Traits | None = None


@dataclass(frozen=True)
class TokenBatch:
    """Ready-made documents. ordinals: int64 (n,); ids: int32 (t,) flat; offsets: int64 (n+1,), document i is
    ids[offsets[i]:offsets[i+1]]; mask: bool (t,), the tokens to train on, or None where every record trains on all;
    masked: bool (n,), the documents that came with a mask; traits: of the documents, where they are asked for."""

    ordinals: Int64Array
    ids: Int32Array
    offsets: Int64Array
    mask: BoolArray | None
    masked: BoolArray
    traits: Traits | None = None


@dataclass
class Tally:
    """What one partition's reading met. `records` counts every record, by source slice, in the partition's order."""

    records: list[int] = field(default_factory=list)
    skipped: int = 0
    skipped_reasons: list[Skipped] = field(default_factory=list)  # the first KEPT_REASONS

    def skip(self, path: str, where: str, reason: str) -> None:
        self.skipped += 1
        if len(self.skipped_reasons) < KEPT_REASONS:
            self.skipped_reasons.append(Skipped(path, where, reason))
