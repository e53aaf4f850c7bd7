"""Which strategy at which max_length, and why, from the prices alone. Every reason is a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packer.lengths import Histogram
from packer.pricing import Price

FEW_LONG = 0.01  # documents longer than max_length, as a share, that need no thought
MANY_LONG = 0.1
LITTLE_PADDING = 0.1  # of shuffled batches, as a share: lengths are much alike
LITTLE_SAVED = 0.03  # by packing, beyond batches by length
WORTH_SOLVING = 0.01  # of the rows, that optimal saves: it takes a minute a block where bfd takes an instant
UNEVEN = 1.1  # max / mean of attention work over ranks that is worth a balanced order


@dataclass(frozen=True)
class Recommendation:
    strategy: str
    max_length: int
    reason: str


def recommend(
    histogram: Histogram, prices: Sequence[Price], max_lengths: Sequence[int], *, masked: bool = False
) -> Recommendation:
    """At the shortest of the max_lengths that few documents exceed, else at the longest. masked: all documents have a
    loss mask, so that pack does not split them."""
    max_length = next((n for n in sorted(max_lengths) if _long(histogram, n) <= FEW_LONG), max(max_lengths))
    at = {price.strategy: price for price in prices if price.max_length == max_length}
    if "bfd" not in at:
        reason = f"every document is longer than {max_length:,} tokens and dropped: raise max_length, or split them"
        return Recommendation("bfd", max_length, reason)
    reasons = [_about_padding(at), *_about_long(histogram, max_length, masked)]
    strategy = "bucketed" if _padding_is_little(at) else "optimal" if _bfd_wastes(at) else "bfd"
    if strategy == "optimal":
        reasons.insert(1, f"optimal does with {at[strategy].rows:,}, {_saved(at):.1%} fewer")
    reasons += _about_ranks(at[strategy])
    return Recommendation(strategy, max_length, "; ".join(reasons))


def _long(histogram: Histogram, max_length: int) -> float:
    return histogram.longer_than(max_length)[0] / histogram.documents


def _padding_is_little(at: dict[str, Price]) -> bool:
    """Shuffled batches hold little padding, and sorted ones hardly more than packed rows."""
    saved = at["bucketed"].pad_ratio - at["bfd"].pad_ratio
    return at["dynamic"].pad_ratio <= LITTLE_PADDING and saved <= LITTLE_SAVED


def _bfd_wastes(at: dict[str, Price]) -> bool:
    return "optimal" in at and _saved(at) >= WORTH_SOLVING


def _saved(at: dict[str, Price]) -> float:
    """Rows of bfd that optimal does without, as a share."""
    return 1 - at["optimal"].rows / at["bfd"].rows


def _about_padding(at: dict[str, Price]) -> str:
    static, dynamic, bucketed, bfd = (at[name] for name in ("static", "dynamic", "bucketed", "bfd"))
    if _padding_is_little(at):
        return (
            f"lengths are much alike: {dynamic.pad_ratio:.1%} of shuffled batches is padding, {bucketed.pad_ratio:.1%} "
            f"of batches by length, so packing ({bfd.pad_ratio:.1%}) has little to save"
        )
    above = bfd.rows - bfd.bound
    return (
        f"packed rows of {bfd.max_length:,} are {bfd.pad_ratio:.2%} empty, where padding is {static.pad_ratio:.0%} of "
        f"static, {dynamic.pad_ratio:.0%} of dynamic and {bucketed.pad_ratio:.0%} of bucketed batches; {bfd.rows:,} "
        f"rows do for {static.rows:,}, " + (f"{above:,} above the least possible" if above else "as few as can be")
    )


def _about_long(histogram: Histogram, max_length: int, masked: bool) -> list[str]:
    documents, tokens = histogram.longer_than(max_length)
    share = documents / histogram.documents
    if share <= FEW_LONG:
        return []
    advice = "split them, as pack does by default, or raise max_length"
    if share > MANY_LONG:
        advice = "raise max_length, split them (pack's default), or cut windows with packer window"
    if masked:
        advice = "raise max_length, for pack truncates what has a loss mask"
    return [
        f"{documents:,} documents ({share:.1%}) are longer, and truncation would lose {tokens:,} tokens "
        f"({tokens / histogram.tokens:.1%}): {advice}"
    ]


def _about_ranks(price: Price) -> list[str]:
    worst = price.rank_attention_imbalance
    if worst is None or worst <= UNEVEN:
        return []
    return [
        f"in a step the busiest rank has {worst:.2f} times the mean attention work "
        f"(p95 {price.rank_attention_imbalance_p95:.2f}): give ranks rows of equal cost (balanced order)"
    ]
