"""What documents are put together by, while they are on their way to a plan. It is never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.plan import Int64Array
from packer.similarity.vectors import Int8Array


@dataclass(frozen=True)
class Traits:
    """Of n documents. vectors: int8 (n, d) (see `packer.similarity.vectors`), groups: int64 (n,), equal numbers for
    equal groups of a partition; either may be None."""

    vectors: Int8Array | None = None
    groups: Int64Array | None = None

    def take(self, rows: NDArray[Any] | slice) -> Traits:
        """Those of some documents: an index, a mask or a slice."""
        return Traits(
            None if self.vectors is None else self.vectors[rows], None if self.groups is None else self.groups[rows]
        )


def joined(parts: Sequence[Traits | None]) -> Traits | None:
    """Those of several batches after one another; None where the parts have none.

    A part of no document may have vectors of another width, for it may come before the first vector is seen.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    vectors = [part.vectors for part in known if part.vectors is not None and len(part.vectors)]
    groups = [part.groups for part in known if part.groups is not None]
    return Traits(np.concatenate(vectors) if vectors else None, np.concatenate(groups) if groups else None)
