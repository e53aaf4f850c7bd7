"""How many rows a file of columns holds, from what it says of itself."""

from __future__ import annotations

from packer.corpus import arrow, parquet
from packer.corpus.sources import Source


def rows_of(source: Source) -> int:
    """Rows of a Parquet or Arrow file."""
    return parquet.row_count(source) if source.format == "parquet" else arrow.row_count(source)
