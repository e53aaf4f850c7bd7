"""Balanced steps: the work of the ranks in the steps as they lie in the shards is as even as the manifest says."""

from __future__ import annotations

import numpy as np

from packer.errors import DatasetError
from packer.manifest import Manifest
from packer.remote import Place
from packer.stored.groups import groups

KEPT_STEPS = 1 << 20  # as many as the manifest's figures are of
ROUNDING = 1e-9


def check(out: Place, manifest: Manifest) -> None:
    """Raises DatasetError where the manifest gives other figures than the rows."""
    facts = manifest.balance
    if facts is None:
        return
    spreads = [spread for part in manifest.by_length for spread in _spreads(out, part)][:KEPT_STEPS]
    found = (len(spreads), *((np.mean(spreads), np.percentile(spreads, 95)) if spreads else (0.0, 0.0)))
    said = (facts.steps, facts.mean or 0.0, facts.p95 or 0.0)
    if not np.allclose(found, said, rtol=ROUNDING, atol=0):
        raise DatasetError(
            f"manifest.json: balance: {said[0]} steps of max/mean {said[1]} (P95 {said[2]}), but the rows say "
            f"{found[0]} of {found[1]} (P95 {found[2]})"
        )


def _spreads(out: Place, part: Manifest) -> list[float]:
    """Of each full step the costliest rank over the mean, steps counted from the part's first row."""
    facts = part.balance
    if facts is None:
        return []
    work: list[float] = []
    for group in (group for shard in part.shards for group in groups(out, part, shard.path)):
        tokens, attention = group.scalar["num_tokens"], group.scalar["attention_cost"]
        per_token, per_square = facts.flops or ((0, 1) if facts.cost == "attention" else (1, 0))
        work += (per_token * tokens + per_square * attention).tolist()
    ranks, each = facts.world_size, facts.rows_per_batch
    steps = len(work) // (ranks * each)
    by_rank = np.array(work[: steps * ranks * each], np.float64).reshape(steps, ranks, each).sum(axis=2)
    return list((by_rank.max(axis=1) / by_rank.mean(axis=1)).tolist())
