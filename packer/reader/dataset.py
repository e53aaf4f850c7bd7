"""`PackedDataset`: rows by number, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from packer import manifest
from packer.errors import UsageError
from packer.plan import Int64Array
from packer.reader.batch import Batch, columns_to_read, in_convention, joined, read_batch
from packer.reader.files import Shards, Stretch
from packer.remote import Place, place
from packer.sampling import Lengths, Order, Work, epoch_order

Row = dict[str, object]


class PackedDataset:
    """The rows of a data set, by number. Opens each shard when a row of it is first asked for, in each process anew.

    split: the one to read, None for the main one. labels: the convention to give, `aligned` or `shifted`; None: as
    stored. vocab_size: refuse a data set with ids beyond it. epoch: of a data set with several packings, which one the
    numbers are of (modulo how many there are); `set_epoch` goes to another. Raises DatasetError where the data set is
    damaged, at once or when the damage is met.
    """

    def __init__(
        self,
        out: str | Place,
        *,
        split: str | None = None,
        labels: str | None = None,
        vocab_size: int | None = None,
        epoch: int = 0,
    ) -> None:
        out = place(out)
        self.manifest = manifest.load(out).of(split)
        self.labels = labels or self.manifest.layout.labels
        largest = self.manifest.totals.max_token_id
        if vocab_size is not None and largest >= vocab_size:
            raise UsageError(f"{out} holds token id {largest}, but vocab_size is {vocab_size}")
        self.shards = Shards(out, columns_to_read(self.manifest.layout), split)
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Numbers are those of another packing from now on, where there are several."""
        self._packing = self._stretches(epoch)

    def __len__(self) -> int:
        return self._packing[-1].stop - self._packing[0].first

    @property
    def stored_rows(self) -> int:
        """Rows of all packings."""
        return len(self.shards)

    def batch(self, rows: Int64Array) -> Batch:
        """The rows of these numbers, counted over all packings, end to end, in the wanted convention; of none: a token
        that is not trained."""
        return in_convention(read_batch(self.shards, rows), self.labels)

    def __getitem__(self, index: int) -> Row:
        """One row: `input_ids`, `labels`, `position_ids` int64 (T,); `cu_seqlens` int32 (A+1,), `seq_lengths` and
        `next_tokens` (A,); `loss_tokens`, `max_seqlen` int; `convention`, that of the labels. All fresh and
        writable."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        batch = self.batch(np.array([self._packing[0].first + index % len(self)]))
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

    @property
    def row_lengths(self) -> list[int]:
        """Rising; several where `--max-length` was given several times."""
        return [stretch.max_length for stretch in self.shards.stretches[0]]

    def orders(self, seed: int, epoch: int, *, shuffle: bool, buffer_groups: int) -> list[Order]:
        """The rows of each length in the order of an epoch (see `packer.sampling.order`), of the packing it reads."""
        buffer = None if self.random_access else buffer_groups
        found = []
        for index, one in enumerate(self._stretches(epoch)):
            groups, key = self.shards.group_rows[one.groups], (index,) if index else ()
            order = epoch_order(groups, seed, epoch, *key, shuffle=shuffle, buffer_groups=buffer)
            found.append(order.counted_from(one.first))
        return found

    def lengths(self, orders: Sequence[Order], schedule: str, seed: int, epoch: int) -> Lengths:
        """When the rows of these orders are due (see `packer.sampling.schedule`)."""
        of_row = np.zeros(self.stored_rows, np.uint8)
        for packing in self.shards.stretches:
            for index, one in enumerate(packing):
                of_row[one.first : one.stop] = index
        return Lengths.of(orders, self.row_lengths, of_row, schedule, seed=seed, epoch=epoch)

    def _stretches(self, epoch: int) -> list[Stretch]:
        return self.shards.stretches[epoch % len(self.shards.stretches)]

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
