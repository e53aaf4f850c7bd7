"""Row lengths, balanced steps and further packings in words, for the summary and for `inspect`."""

from __future__ import annotations

from collections.abc import Sequence

from packer.balancing import COSTS
from packer.manifest import BalanceFacts, LengthGroup, Manifest

Lines = list[tuple[str, str]]


def length_lines(groups: Sequence[LengthGroup]) -> Lines:
    """One for each row length, where there are several."""
    return [
        (
            f"of {group.max_length:,}",
            f"{group.rows:,} rows of {group.tokens:,} tokens, {group.efficiency:.2%} full, bound {group.lower_bound:,}",
        )
        for group in groups
    ]


def balance_lines(balance: BalanceFacts | None) -> Lines:
    if balance is None:
        return []
    what = f"{balance.steps:,} steps of {balance.world_size:,} ranks with {balance.rows_per_batch:,} rows each"
    if balance.mean is None:
        return [("balanced", f"nothing: there is no full one of {what[2:]}")]
    return [
        (
            "balanced",
            f"{what}; {COSTS[balance.cost]}, max/mean {balance.mean:.3f} (P95 {balance.p95:.3f}), shuffled "
            f"{balance.shuffled_mean:.3f} (P95 {balance.shuffled_p95:.3f})",
        )
    ]


def epoch_lines(manifest: Manifest) -> Lines:
    if not manifest.further_epochs:
        return []
    rows = ", ".join(f"{packing.totals.rows:,}" for packing in manifest.epochs)
    return [("epochs", f"{len(manifest.epochs)} packings of the same documents, rows {rows}; figures are of the first")]
