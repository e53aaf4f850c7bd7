"""Balanced steps: the work of the ranks in the steps as they lie in the shards is as even as the manifest says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    spreads = np.concatenate([_spreads(out, part) for part in manifest.by_length])[:KEPT_STEPS]
    found = (len(spreads), *((np.mean(spreads), np.percentile(spreads, 95)) if len(spreads) else (0.0, 0.0)))
    said = (facts.steps, facts.mean or 0.0, facts.p95 or 0.0)
    if not np.allclose(found, said, rtol=ROUNDING, atol=0):
        raise DatasetError(
            f"manifest.json: balance: {said[0]} steps of max/mean {said[1]} (P95 {said[2]}), but the rows say "
            f"{found[0]} of {found[1]} (P95 {found[2]})"
        )


def _spreads(out: Place, part: Manifest) -> NDArray[np.float64]:
    """Of each full step the costliest rank over the mean, steps counted from the part's first row: (steps,)."""
    facts = part.balance
    if facts is None:
        return np.zeros(0)
    per_token, per_square = facts.flops or ((0, 1) if facts.cost == "attention" else (1, 0))
    work = [
        per_token * group.scalar["num_tokens"] + per_square * group.scalar["attention_cost"].astype(np.float64)
        for shard in part.shards
        for group in groups(out, part, shard.path)
    ]
    ranks, each = facts.world_size, facts.rows_per_batch
    rows = np.concatenate([np.zeros(0), *work])
    steps = len(rows) // (ranks * each)
    by_rank = rows[: steps * ranks * each].reshape(steps, ranks, each).sum(axis=2)
    return np.asarray(by_rank.max(axis=1) / by_rank.mean(axis=1), np.float64)
