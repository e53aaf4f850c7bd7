"""All shards of the main split: of each packing, those of each row length, and what the manifest says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packer import finish, metrics
from packer.balancing import Balance, Spreads, mean_and_p95
from packer.cutting import StagedBlock
from packer.job import Job
from packer.manifest import BalanceFacts, Epoch, LengthGroup, Totals
from packer.schema import Layout
from packer.shards import ShardFile, arrow_schema


@dataclass(frozen=True)
class Packed:
    """One packing. totals: those that only the final columns know; the rest as in `packer.manifest.Epoch`."""

    totals: Totals
    lower_bound: int
    efficiency: float
    packing_factor: float
    groups: list[LengthGroup]
    balance: BalanceFacts | None
    shards: list[ShardFile]

    def as_epoch(self, split: str, totals: Totals) -> Epoch:
        """totals: of the first packing, whose documents are these too."""
        same = ("documents", "tokens", "placed_documents", "split_documents", "max_token_id", "masked_documents")
        counted = replace(self.totals, **{name: getattr(totals, name) for name in same})
        return Epoch(split, **{**vars(self), "totals": counted})


def write(
    folder: Path,
    blocks: Sequence[StagedBlock],
    layout: Layout,
    output: finish.Output,
    described: dict[str, str],
    job: Job,
) -> list[Packed]:
    """Writes the rows of each packing to `folder`/data, those of the first under the split's own name.

    described: what shards say of themselves beside the layout and their max_length.
    """
    return [
        _packing(folder, [block for block in blocks if block.part[0] == epoch], layout, output, described, job, epoch)
        for epoch in range(job.epochs)
    ]


def split_of(split: str, epoch: int) -> str:
    """The name in the files of a packing."""
    return f"{split}.epoch{epoch}" if epoch else split


def _packing(
    folder: Path,
    blocks: Sequence[StagedBlock],
    layout: Layout,
    output: finish.Output,
    described: dict[str, str],
    job: Job,
    epoch: int,
) -> Packed:
    output = replace(output, split=split_of(output.split, epoch))
    by_length = [[block for block in blocks if block.part[1] == index] for index in range(len(job.row_lengths))]
    counts = [len(finish.Sizes.of(own, output, job.order).shards) if own else 0 for own in by_length]
    parts: list[tuple[int, finish.Written]] = []
    for index, (max_length, own) in enumerate(zip(job.row_lengths, by_length, strict=True)):
        schema = arrow_schema(layout, {"max_length": str(max_length), **described})
        part = finish.Part(epoch, index, sum(counts[:index]), sum(counts))
        written = finish.Written()  # a length that no document needs has a group without rows
        if own:
            written = finish.write_shards(folder, own, layout, output, schema, job.seed, job.order, part)
        parts.append((max_length, written))
    return _summed(parts, output.balance, several=bool(job.lengths))


def _summed(parts: Sequence[tuple[int, finish.Written]], balance: Balance | None, *, several: bool) -> Packed:
    totals = sum((one.totals for _, one in parts), Totals())
    groups = [
        LengthGroup(
            max_length,
            len(one.shards),
            one.totals.rows,
            one.totals.placed_tokens,
            metrics.lower_bound(one.totals.placed_tokens, max_length),
            metrics.efficiency(one.totals.placed_tokens, one.totals.rows, max_length),
        )
        for max_length, one in parts
    ]
    room = sum(group.rows * group.max_length for group in groups)
    return Packed(
        totals,
        sum(group.lower_bound for group in groups),
        totals.placed_tokens / room,
        totals.segments / totals.rows,
        groups if several else [],
        _balance_facts(balance, Spreads.joined(one.spreads for _, one in parts if one.spreads)) if balance else None,
        [shard for _, one in parts for shard in one.shards],
    )


def _balance_facts(balance: Balance, spreads: Spreads) -> BalanceFacts:
    stored, shuffled = (mean_and_p95(one) or (None, None) for one in (spreads.stored, spreads.shuffled))
    return BalanceFacts(
        balance.world_size,
        balance.rows_per_batch,
        balance.cost,
        list(balance.flops) if balance.flops else None,
        steps=len(spreads.stored),
        mean=stored[0],
        p95=stored[1],
        shuffled_mean=shuffled[0],
        shuffled_p95=shuffled[1],
    )
