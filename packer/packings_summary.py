"""Row lengths, balanced steps and further packings in words, for the summary and for `inspect`."""

from __future__ import annotations

from collections.abc import Sequence

from packer.balancing import COSTS
from packer.manifest import BalanceFacts, LengthGroup, Manifest
from packer.packing.equalized import Trade

Lines = list[tuple[str, str]]


def length_lines(groups: Sequence[LengthGroup]) -> Lines:
    """One for each row length, where there are several."""
    return [
        (
            f"of {group.max_length:,}",
            f"{group.rows:,} rows of {group.tokens:,} tokens, {group.efficiency:.2%} full, bound {group.lower_bound:,}",
        )
        for group in groups
        if group.rows
    ]


def balance_lines(balance: BalanceFacts | None) -> Lines:
    if balance is None:
        return []
    rows = "a row" if balance.rows_per_batch == 1 else f"{balance.rows_per_batch:,} rows"
    shape = f"of {balance.world_size:,} ranks with {rows} each"
    if balance.mean is None:
        return [("balanced", f"nothing: there is no full step {shape}")]
    what = f"{balance.steps:,} steps {shape}"
    return [
        (
            "balanced",
            f"{what}; {COSTS[balance.cost]}, max/mean {balance.mean:.3f} (P95 {balance.p95:.3f}), shuffled "
            f"{balance.shuffled_mean:.3f} (P95 {balance.shuffled_p95:.3f})",
        )
    ]


def trade_lines(trades: Sequence[Trade], max_length: int) -> Lines:
    """What each cut of `--equalize` gives: fill against max/mean."""
    lines = []
    for trade in trades:
        cut = f"over {max_length // trade.cut:,} spread" if trade.cut > 1 else "plain best fit"
        used = f", taken in {trade.chosen:,} of {sum(one.chosen for one in trades):,} blocks" if trade.chosen else ""
        spreads = [
            f"{spread / count:.3f}" if count else "-"
            for spread, count in ((trade.step_spread, trade.steps), (trade.pipeline_spread, trade.pipelines))
        ]
        fill = trade.tokens / max(trade.rows * max_length, 1)
        text = f"{cut}: {trade.rows:,} rows, {fill:.2%} full, step {spreads[0]}, pipeline {spreads[1]}{used}"
        lines.append(("equalized" if trade.cut == 1 else "", text))
    return lines


def epoch_lines(manifest: Manifest) -> Lines:
    if not manifest.further_epochs:
        return []
    rows = ", ".join(f"{packing.totals.rows:,}" for packing in manifest.epochs)
    return [("epochs", f"{len(manifest.epochs)} packings of the same documents, rows {rows}; figures are of the first")]
