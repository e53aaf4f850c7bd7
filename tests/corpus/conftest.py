"""`read` takes INPUT arguments all the way to documents; `lines_of` writes JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.conversation import Render
from packer.corpus import PartitionReader, ReadOptions, Skipped, TextBatch, find_sources, partition


@dataclass
class Read:
    documents: list[Any] = field(default_factory=list)  # a text, or (ids, mask or None) as lists
    ordinals: list[int] = field(default_factory=list)  # over all partitions
    records: list[int] = field(default_factory=list)  # one entry a slice
    skipped: list[Skipped] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    partitions: int = 0

    @property
    def faults(self) -> list[tuple[str, str]]:
        return [(fault.where, fault.reason) for fault in self.skipped]


def read_all(*inputs: object, out: str | None = None, render: Render | None = None, **options: Any) -> Read:
    chosen = ReadOptions(**options)
    found = find_sources([str(argument) for argument in inputs], chosen, out=out)
    result = Read(left_out=found.left_out)
    for part in partition(found.sources, chosen):
        assert part.index == result.partitions
        before = sum(result.records)
        reader = PartitionReader(part, chosen, render)
        for batch in reader:
            assert batch.ordinals.dtype == np.int64
            result.ordinals += [before + ordinal for ordinal in batch.ordinals.tolist()]
            result.documents += batch.texts if isinstance(batch, TextBatch) else ready_made(batch)
        assert len(reader.tally.records) == len(part.slices)
        result.records += reader.tally.records
        result.skipped += reader.tally.skipped_reasons
        result.partitions += 1
    assert result.ordinals == sorted(set(result.ordinals))
    assert len(result.ordinals) + len(result.skipped) == sum(result.records)
    return result


def ready_made(batch: Any) -> list[tuple[list[int], list[bool] | None]]:
    assert batch.ids.dtype == np.int32
    assert batch.offsets.dtype == np.int64
    assert len(batch.offsets) == len(batch.ordinals) + 1
    assert batch.mask is None or (batch.mask.dtype == bool and len(batch.mask) == len(batch.ids))
    cuts = list(zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True))
    return [(batch.ids[a:b].tolist(), None if batch.mask is None else batch.mask[a:b].tolist()) for a, b in cuts]


@pytest.fixture(scope="session")
def read() -> Callable[..., Read]:
    return read_all


@pytest.fixture(scope="session")
def lines_of() -> Callable[..., Path]:
    def write(path: Path, records: list[Any]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return path

    return write
