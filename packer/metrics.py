"""What a plan costs, from counts alone."""

from __future__ import annotations


def lower_bound(tokens: int, max_length: int) -> int:
    """Rows that no plan can go below: ceil(tokens / max_length)."""
    return -(-tokens // max_length)


def efficiency(tokens: int, rows: int, max_length: int) -> float:
    """Share of the rows' room that holds tokens, 0 to 1."""
    return tokens / (rows * max_length) if rows else 0.0
