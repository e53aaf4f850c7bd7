"""`PackedDataset`: rows by number, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from packer import manifest
from packer.errors import UsageError
from packer.plan import Int64Array
from packer.reader.batch import Batch, columns_to_read, in_convention, joined, read_batch
from packer.reader.files import Shards
from packer.remote import Place, place
from packer.sampling import Order, Work, epoch_order

Row = dict[str, object]


class PackedDataset:
    """The rows of a data set, by number. Opens each shard when a row of it is first asked for, in each process anew.

    split: the one to read, None for the main one. labels: the convention to give, `aligned` or `shifted`; None: as
    stored. vocab_size: refuse a data set with ids beyond it. Raises DatasetError where the data set is damaged, at once
    or when the damage is met.
    """

    def __init__(
        self,
        out: str | Place,
        *,
        split: str | None = None,
        labels: str | None = None,
        vocab_size: int | None = None,
    ) -> None:
        out = place(out)
        self.manifest = manifest.load(out).of(split)
        self.labels = labels or self.manifest.layout.labels
        largest = self.manifest.totals.max_token_id
        if vocab_size is not None and largest >= vocab_size:
            raise UsageError(f"{out} holds token id {largest}, but vocab_size is {vocab_size}")
        self.shards = Shards(out, columns_to_read(self.manifest.layout), split)

    def __len__(self) -> int:
        return len(self.shards)

    def batch(self, rows: Int64Array) -> Batch:
        """The rows of these numbers end to end, in the wanted convention; of none: a token that is not trained."""
        return in_convention(read_batch(self.shards, rows), self.labels)

    def __getitem__(self, index: int) -> Row:
        """One row: `input_ids`, `labels`, `position_ids` int64 (T,); `cu_seqlens` int32 (A+1,), `seq_lengths` and
        `next_tokens` (A,); `loss_tokens`, `max_seqlen` int; `convention`, that of the labels. All fresh and
        writable."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        batch = self.batch(np.array([index % len(self)]))
        return row_of(batch)

    def __getitems__(self, indices: Sequence[int]) -> list[Row]:
        """Several at once, as `torch.utils.data.DataLoader` asks for them."""
        return [self[index] for index in indices]

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(len(self)))

    @property
    def fingerprint(self) -> str:
        """sha256 of the manifest, and of the name of another split than the main one."""
        return self.shards.fingerprint

    @property
    def random_access(self) -> bool:
        return self.shards.random_access

    def order(self, seed: int, epoch: int, *, shuffle: bool, buffer_groups: int) -> Order:
        """The rows in the order of an epoch (see `packer.sampling.order`)."""
        buffer = None if self.random_access else buffer_groups
        return epoch_order(self.shards.group_rows, seed, epoch, shuffle=shuffle, buffer_groups=buffer)

    def work(self) -> Work:
        """Tokens and attention cost of each row, from the scalar columns alone."""
        return Work(self.shards.numbers("num_tokens"), self.shards.numbers("attention_cost"))


def batch_of(rows: Sequence[Row]) -> Batch:
    """Rows as `PackedDataset` gives them, end to end."""
    parts = []
    for row in rows:
        ends = np.asarray(row["cu_seqlens"], np.int64)
        flat = {
            name: np.asarray(row[name], np.int64) for name in ("input_ids", "labels", "position_ids", "next_tokens")
        }
        convention = str(row["convention"])
        parts.append(Batch(**flat, rows=ends[[0, -1]], sequences=ends, real=np.diff(ends), convention=convention))
    return joined(parts)


def row_of(batch: Batch) -> Row:
    return {
        "input_ids": batch.input_ids,
        "labels": batch.labels,
        "position_ids": batch.position_ids,
        "cu_seqlens": batch.cu_seqlens(),
        "seq_lengths": np.diff(batch.sequences),
        "next_tokens": batch.next_tokens,
        "loss_tokens": batch.loss_tokens,
        "max_seqlen": batch.max_seqlen,
        "convention": batch.convention,
    }
