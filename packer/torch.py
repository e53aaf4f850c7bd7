"""Batches as tensors for a training loop. The only module that imports torch (`pip install 'packer[torch]'`).

    from packer.torch import PackedLoader, attention_kwargs

    loader = PackedLoader("OUT", rows_per_batch=4, rank=rank, world_size=world_size)
    for batch in loader:  # one epoch; every rank gets as many batches
        q, k, v = ...  # (T, heads, head_dim)
        out = flash_attn_varlen_func(q, k, v, causal=True, **attention_kwargs(batch))

A mean of the loss is the sum over all ranks, divided by the sum of their `loss_tokens`: batches differ in them, and a
rank may get filler that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from packer import reader
from packer.errors import UsageError
from packer.plan import Int64Array
from packer.reader.batch import Batch, as_rectangle, in_convention, padded_to, with_multiple, with_segment_positions
from packer.reader.dataset import batch_of
from packer.reader.epochs import Epochs, read
from packer.reader.files import BUFFER_GROUPS
from packer.sampling import Sampling

LAYOUTS = ("varlen", "transformers", "padded", "nested")
Tensors = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """How a batch is laid out. See `collate`."""

    layout: str = "varlen"
    pad_to: int | None = None
    max_segments_to: int | None = None
    segment_multiple: int = 1
    pad_to_multiple_of: int = 1
    pad_token_id: int = 0
    shift_labels: bool = False

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise UsageError(f"layout {self.layout!r}: one of {', '.join(LAYOUTS)}")
        if self.max_segments_to is not None and self.pad_to is None:
            raise UsageError("max_segments_to needs pad_to")
        if self.layout in ("padded", "nested") and (self.pad_to or self.segment_multiple > 1):
            raise UsageError(f"pad_to and segment_multiple are of layouts varlen and transformers, not {self.layout}")

    def tensors(self, batch: Batch) -> Tensors:
        if self.layout == "padded":
            return self._rectangle(batch)
        if self.layout == "transformers":  # it knows sequences by positions that begin at 0, whatever is stored
            batch = with_segment_positions(batch)
        shifted = in_convention(batch, "shifted") if self.shift_labels else None
        if self.layout == "nested":
            return _nested(batch)
        batch = self._sized(batch)
        tensors = _flat(batch)
        if self.pad_to:
            tensors["max_seqlen"] = self.pad_to
        if self.segment_multiple > 1:
            tensors["cu_seqlens_padded"] = tensors["cu_seqlens"]
            tensors["cu_seqlens"] = torch.from_numpy(batch.cu_seqlens_real())
        if self.layout == "varlen":
            return tensors
        return _for_transformers(tensors, self._sized(shifted) if shifted else None)

    def _sized(self, batch: Batch) -> Batch:
        if self.segment_multiple > 1:
            batch = with_multiple(batch, self.segment_multiple, self.pad_token_id)
        if self.pad_to:
            batch = padded_to(batch, self.pad_to, self.max_segments_to, self.pad_token_id)
        return batch

    def _rectangle(self, batch: Batch) -> Tensors:
        arrays, mask = as_rectangle(batch, self.pad_to_multiple_of, self.pad_token_id)
        tensors: Tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
        return {**tensors, "attention_mask": torch.from_numpy(mask), "loss_tokens": batch.loss_tokens}


def _flat(batch: Batch) -> Tensors:
    return {
        "input_ids": torch.from_numpy(batch.input_ids),
        "labels": torch.from_numpy(batch.labels),
        "position_ids": torch.from_numpy(batch.position_ids),
        "cu_seqlens": torch.from_numpy(batch.cu_seqlens()),
        "seq_idx": torch.from_numpy(batch.seq_idx()),
        "max_seqlen": batch.max_seqlen,
        "loss_tokens": batch.loss_tokens,
    }


def _nested(batch: Batch) -> Tensors:
    offsets = torch.from_numpy(batch.sequences)
    tensors: Tensors = {
        name: torch.nested.nested_tensor_from_jagged(torch.from_numpy(getattr(batch, name)), offsets)
        for name in ("input_ids", "labels", "position_ids")
    }
    return {**tensors, "max_seqlen": batch.max_seqlen, "loss_tokens": batch.loss_tokens}


def _for_transformers(tensors: Tensors, shifted: Batch | None) -> Tensors:
    ends, longest = tensors.pop("cu_seqlens_padded", tensors["cu_seqlens"]), tensors["max_seqlen"]
    result: Tensors = {name: tensors[name][None] for name in ("input_ids", "labels", "position_ids", "seq_idx")}
    result |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}
    if shifted is not None:
        result["shift_labels"] = torch.from_numpy(shifted.labels)[None]
    return result


def collate(
    rows: Sequence[Mapping[str, Any]], layout: str = "varlen", *, labels: str | None = None, **shape: Any
) -> Tensors:
    """Rows of a `PackedDataset` as one batch of tensors: the `collate_fn` of a DataLoader, the `data_collator` of a
    Trainer. labels: the convention to give, `aligned` or `shifted`; None: as the rows have it, and aligned for
    transformers.

    layouts:
    - varlen: `input_ids`, `labels`, `position_ids` int64 (T,); `cu_seqlens` (A+1,) and `seq_idx` (T,) int32;
      `max_seqlen`, `loss_tokens` int
    - transformers: `(1, T)`, with `cu_seq_lens_q/k`, `max_length_q/k` and `seq_idx` (1, T), never an attention mask;
      with shift_labels=True also `shift_labels`
    - padded: `(B, L)` with `attention_mask`, L rounded up to pad_to_multiple_of; rows of one document only
    - nested: jagged nested tensors, an attention sequence a row

    segment_multiple=M pads each attention sequence to a multiple: `cu_seqlens` counts real tokens, `cu_seqlens_padded`
    positions. pad_to=T and max_segments_to=A fix the shapes, and `max_seqlen` is then T. UsageError where a batch does
    not fit: `pad_to >= rows * max_length + max_segments_to` always does.
    """
    arrays = [{name: _array(value) for name, value in row.items()} for row in rows]
    batch = batch_of(arrays)
    wanted = labels or ("aligned" if layout == "transformers" else batch.convention)
    return Shape(layout, **shape).tensors(in_convention(batch, wanted))


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, torch.Tensor) else value


def attention_kwargs(batch: Mapping[str, Any], api: str = "flash_attn") -> Tensors:
    """The arguments that say where sequences begin, by the names of `flash_attn_varlen_func` (`api="flash_attn"`) or of
    `torch.nn.attention.varlen.varlen_attn` (`api="torch"`)."""
    if "cu_seqlens" not in batch:
        raise UsageError("attention_kwargs is for layout varlen: in the others the model is told by the batch itself")
    ends = batch.get("cu_seqlens_padded", batch["cu_seqlens"])
    names = {
        "flash_attn": ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
        "torch": ("cu_seq_q", "cu_seq_k", "max_q", "max_k"),
    }
    if api not in names:
        raise UsageError(f"api {api!r}: one of {', '.join(names)}")
    return dict(zip(names[api], (ends, ends, batch["max_seqlen"], batch["max_seqlen"]), strict=True))


class PackedDataset(Dataset[Tensors]):
    """Rows by number as tensors: `packer.reader.PackedDataset` with its arrays as tensors that share no memory."""

    def __init__(
        self,
        out: str | Path,
        *,
        split: str | None = None,
        labels: str | None = None,
        vocab_size: int | None = None,
        epoch: int = 0,
    ) -> None:
        self.rows = reader.PackedDataset(out, split=split, labels=labels, vocab_size=vocab_size, epoch=epoch)

    def set_epoch(self, epoch: int) -> None:
        """Numbers are those of another packing from now on, where there are several."""
        self.rows.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensors:
        row = self.rows[index]
        return {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in row.items()
        }


class _Batches(Dataset[Tensors]):
    """Batches by their row numbers: what the workers of a DataLoader are asked for."""

    def __init__(self, datasets: Sequence[reader.PackedDataset], shape: Shape) -> None:
        self.datasets, self.shape = datasets, shape

    def __getitem__(self, rows: Int64Array) -> Tensors:
        return self.shape.tensors(read(self.datasets, rows))


class _Ahead(Sampler[Int64Array]):
    """The row numbers of the batches to come; asked anew for each epoch."""

    def __init__(self, rows: Callable[[], Iterator[Int64Array]]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Int64Array]:
        return self.rows()


class PackedLoader:
    """Epochs of batches for one rank. Iterating gives one epoch; the next time, the next.

    out: a data set, or `{"A": 0.7, "B": 0.3}`: several, mixed by tokens, until the first of them ends.
    rows_per_batch or tokens_per_batch; world_size, rank; seed; shuffle; drop_last: see `packer.sampling`.
    balance: `attention`, `tokens` (batches of rows of like length), or `flops` with the FLOPs of a token and of a unit
    of attention, flops=(a, b).
    schedule: of a data set with several row lengths, when rows of each are read: `random` (default: in proportion),
    `ascending`, `descending`, `grow`, `shrink`, `grow:CYCLES` (see `packer.sampling.schedule`); a batch has rows of one
    length. scale_rows: rows_per_batch is that of the longest, a shorter one has as many more as fill as many tokens.
    tokens_per_step: accumulate gradients by tokens. Each batch then says with `last_in_step` whether the optimizer
    steps after it: when all ranks together have had so many tokens since its last step, and at the epoch's end.
    split: the one to read, such as `validation`; None: the main one.
    labels: `aligned` or `shifted`; None: as stored, and aligned for layout transformers.
    layout, pad_to, max_segments_to, segment_multiple, pad_to_multiple_of, pad_token_id, shift_labels: see `collate`.
    buffer_groups: Parquet row groups whose rows are shuffled together, and that each worker holds.
    num_workers, pin_memory, and other options of `torch.utils.data.DataLoader`.

    Every rank has the same number of batches (`len`), and no row is in two. What was yielded counts as taken:
    `state_dict()` and `load_state_dict()` go on from there, also under other ranks, batch sizes and workers. Iterating
    anew before the end begins the epoch anew; a state taken after the last batch gives an iteration without a batch.
    """

    def __init__(
        self,
        out: str | Path | Mapping[str, float],
        *,
        split: str | None = None,
        rows_per_batch: int | None = None,
        tokens_per_batch: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        balance: str | None = None,
        flops: tuple[float, float] | None = None,
        schedule: str | None = None,
        scale_rows: bool = False,
        tokens_per_step: int | None = None,
        labels: str | None = None,
        vocab_size: int | None = None,
        layout: str = "varlen",
        buffer_groups: int = BUFFER_GROUPS,
        num_workers: int = 0,
        pin_memory: bool = False,
        loader_options: Mapping[str, Any] | None = None,
        **shape: Any,
    ) -> None:
        sources = out if isinstance(out, Mapping) else {out: 1.0}
        if labels is None and layout == "transformers":
            labels = "aligned"
        given: dict[str, Any] = {"split": split, "labels": labels, "vocab_size": vocab_size}
        datasets = [reader.PackedDataset(path, **given) for path in sources]
        for dataset in datasets:
            dataset.shards.kept_groups = buffer_groups + 2
        if len({dataset.labels for dataset in datasets}) > 1:
            raise UsageError("data sets of a mixture store different label conventions: choose one with labels=")
        sampling = Sampling(
            world_size=world_size,
            rows_per_batch=rows_per_batch,
            tokens_per_batch=tokens_per_batch,
            padded=layout == "padded",
            balance=balance,
            flops=flops,
            drop_last=drop_last,
            schedule=schedule,
            scale_rows=scale_rows,
        )
        self.epochs = Epochs(
            datasets,
            list(sources.values()),
            sampling,
            rank=rank,
            seed=seed,
            shuffle=shuffle,
            buffer_groups=buffer_groups,
        )
        self.tokens_per_step = tokens_per_step
        self._resumed, self._start = False, 0
        self._through_loader = bool(num_workers or pin_memory or loader_options)
        self._loader = DataLoader(
            _Batches(datasets, Shape(layout, **shape)),
            batch_size=None,
            sampler=_Ahead(lambda: self.epochs.rows(self.epochs.done)),
            num_workers=num_workers,
            pin_memory=pin_memory,
            **(loader_options or {}),
        )

    def __len__(self) -> int:
        """Batches of this epoch on this rank, exactly; after a resume, of what was left of it."""
        return len(self.epochs) - (self.epochs.done if self._resumed else self._start)

    def __iter__(self) -> Iterator[Tensors]:
        if not self._resumed:
            self.epochs.restart()  # of the next epoch, if all of this one was taken
        self._resumed, self._start = False, self.epochs.done
        step, last = self.epochs.done, self.epochs.optimizer_steps(self.tokens_per_step)
        for batch in self._batches():
            self.epochs.advance()
            if last is not None:
                batch["last_in_step"] = bool(last[step])
            step += 1
            yield batch
        self.epochs.set_epoch(self.epochs.progress.epoch + 1)
        self._start = 0

    def _batches(self) -> Iterator[Tensors]:
        """What is left of the epoch; in this process without the DataLoader's own work, which is most of it."""
        if self._through_loader:
            yield from self._loader
        else:
            for rows in self.epochs.rows(self.epochs.done):
                yield self._loader.dataset[rows]

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration gives."""
        if epoch != self.epochs.progress.epoch:
            self._resumed, self._start = False, 0
        self.epochs.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where this epoch is: what was yielded, not what was read ahead. Plain values, the same on every rank."""
        return self.epochs.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where `state` was taken. DatasetError if it is of other data."""
        self.epochs.load_state_dict(state)
        self._resumed = True
