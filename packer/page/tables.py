"""Figures as text: the headline, tables and the notes that explain them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from packer import chat_summary
from packer.pricing import Price
from packer.stats import PERCENTILES, Stats

PADDED = ("static", "dynamic", "bucketed", "token-budget")  # a document a row: no packing, so no distance to its bound
SHOWN = 5  # files, and records skipped, that are named

STRATEGIES = {
    "static": "a document a row, padded to max_length",
    "dynamic": "documents in shuffled batches, each padded to the longest of its batch",
    "bucketed": "the same, with documents of like length in a batch",
    "token-budget": "documents of like length, as many a batch as fit a number of tokens",
    "bfd": "packed, best-fit decreasing: fewest rows in practice, and the default of packer pack",
    "ffd": "packed, first-fit decreasing",
    "optimal": "packed, cutting stock by column generation: fewest rows, of packer pack --strategy optimal",
    "first-fit": "packed into the first row with room, documents in input order",
    "wrapped": "all documents as one stream, cut into rows: full rows, many documents cut",
    "none": "a document a row, unpadded",
}


class Column(NamedTuple):
    """A column of the table of strategies. note: says what it shows, in a sentence."""

    title: str
    cell: Callable[[Price], str]
    note: str


def number(value: int) -> str:
    """With thousands separators."""
    return f"{value:,}"


def share(ratio: float) -> str:
    """A percentage of three or four characters; what is not 0% or 100% never reads as it. page.js has the same."""
    if 0 < ratio < 0.0001:
        return "<0.01%"
    if 0.999 < ratio < 1:
        return ">99.9%"
    return f"{ratio:.2%}" if 0 < ratio < 0.1 else f"{ratio:.1%}" if 0 < ratio < 1 else f"{ratio:.0%}"


def times(value: float | None) -> str:
    """A ratio: two decimals while they say something."""
    return "-" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def above_bound(price: Price) -> str:
    if price.strategy in PADDED:
        return "-"
    return f"+{price.rows - price.bound:,} ({share(price.rows / price.bound - 1)})"


COLUMNS = (
    Column("padding", lambda price: share(price.pad_ratio), "The pad ratio: padding, by all tokens that rows hold."),
    Column(
        "rows",
        lambda price: f"{price.rows:,}",
        "Rows of training data: packed ones, or a document each.",
    ),
    Column(
        "above bound",
        above_bound,
        "Rows above the lower bound, which no packing of the same pieces can go below. A plan at the bound (+0) is "
        "optimal, even if its rows are not full.",
    ),
    Column("batches", lambda price: f"{price.batches:,}", "Of the batch size below, or of a token budget."),
    Column("padded tokens", lambda price: f"{price.padded_tokens:,}", "Tokens of padding in an epoch."),
    Column(
        "documents a row",
        lambda price: f"{price.documents_per_row:,.2f}",
        "Documents that have a token in some row, by rows.",
    ),
    Column("cut", lambda price: f"{price.documents_split:,}", "Documents that are cut between rows."),
    Column("tokens lost", lambda price: f"{price.tokens_dropped:,}", "Tokens that are in no row."),
    Column(
        "attention",
        lambda price: times(price.attention_cost_ratio),
        "The attention ratio: the sum of squared lengths that the kernel sees, by that of the whole documents. "
        "Padding takes it above 1, cutting documents below.",
    ),
    Column(
        "shapes",
        lambda price: f"{price.shapes:,}",
        "Distinct shapes of a batch, each compiled anew. Packed rows have one: they can be filled up.",
    ),
)
RANKS = (
    Column(
        "rank tokens (P95)",
        lambda price: _spread(price.rank_tokens_imbalance, price.rank_tokens_imbalance_p95),
        "Rank imbalance: the tokens of a step's busiest rank by the mean of its ranks, as a mean over steps, and in "
        "brackets the 95th percentile. All ranks wait for the busiest. 1 is even.",
    ),
    Column(
        "rank attention (P95)",
        lambda price: _spread(price.rank_attention_imbalance, price.rank_attention_imbalance_p95),
        "The same for attention work.",
    ),
)
MODEL = (
    Column(
        "FLOPs a step",
        lambda price: "-" if price.flops_per_step is None else f"{price.flops_per_step:.2e}",
        "FLOPs of a training step of the given model, over all ranks.",
    ),
    Column(
        "time",
        lambda price: times(price.time_ratio),
        "Time for each real token, waiting for the slowest rank included, by that of the fastest strategy at the same "
        "max_length.",
    ),
)


def _spread(mean: float | None, p95: float | None) -> str:
    return times(mean) if mean is None else f"{times(mean)} ({times(p95)})"


def short(value: float) -> str:
    """With one decimal, if it has any."""
    return f"{value:,.1f}".removesuffix(".0")


def columns(stats: Stats) -> list[Column]:
    """Those that have something to show."""
    ranked = any(price.rank_tokens_imbalance is not None for price in stats.strategies)
    modelled = any(price.time_ratio is not None for price in stats.strategies)
    return [*COLUMNS, *(RANKS if ranked else ()), *(MODEL if modelled else ())]


def max_lengths(stats: Stats) -> list[int]:
    """Those at which a strategy is priced."""
    return list(dict.fromkeys(price.max_length for price in stats.strategies))


def at(stats: Stats, max_length: int) -> list[Price]:
    return [price for price in stats.strategies if price.max_length == max_length]


def names(stats: Stats) -> list[str]:
    return list(dict.fromkeys(price.strategy for price in stats.strategies))


def label(price: Price) -> str:
    return f"{price.strategy} ~" if price.estimated else price.strategy


def estimated(prices: Sequence[Price]) -> bool:
    return any(price.estimated for price in prices)


def pad_ratios(stats: Stats) -> list[tuple[str, list[Price | None]]]:
    """Strategies, each with its price at every max_length."""
    found = {(price.strategy, price.max_length): price for price in stats.strategies}
    return [(name, [found.get((name, length)) for length in max_lengths(stats)]) for name in names(stats)]


def title(stats: Stats) -> str:
    inputs = [Path(one).name or one for one in stats.source.inputs]
    return f"{inputs[0]} and {len(inputs) - 1:,} more" if len(inputs) > 1 else inputs[0] if inputs else "lengths"


def headline(stats: Stats) -> list[tuple[str, str]]:
    length = stats.length
    return [
        ("documents", number(stats.documents)),
        ("tokens", number(stats.tokens)),
        *((name.upper(), short(getattr(length, name))) for name in PERCENTILES),
        ("mean", short(length.mean)),
        ("longest", number(length.max)),
    ]


def facts(stats: Stats) -> list[tuple[str, str]]:
    """Where the lengths come from, what was left out, and the terms of all prices."""
    source, terms = stats.source, stats.terms
    control = source.special_documents
    found = [
        ("input", _listed(source.inputs)),
        ("tokenizer", source.tokenizer),
        *(chat_summary.lines(source.chats, source.chat) if source.chats else ()),
        ("added to each document", source.added),
        ("control tokens", f"{control:,} documents have one written in their text" if control else None),
        ("bad records skipped", number(stats.skipped) if stats.skipped else None),
        ("", _listed([f"{one.path}, {one.where}: {one.reason}" for one in source.skipped_records])),
        ("shortest document", f"{number(stats.length.min)} tokens"),
        ("empty, left out", number(stats.empty) if stats.empty else None),
        ("not read", _listed(source.left_out)),
        ("batch size", f"{terms.batch_size:,}"),
        ("token budget", _budget(stats)),
        ("longer documents", terms.overlong or "truncated where padded, split where packed"),
        ("padded to a multiple of", number(terms.pad_to_multiple_of) if terms.pad_to_multiple_of > 1 else None),
        ("ranks", number(terms.world_size) if terms.world_size > 1 else None),
        ("model", _model(stats)),
        ("seed", str(terms.seed)),
    ]
    return [(name, text) for name, text in found if text]


def _listed(values: Sequence[str]) -> str:
    more = f" and {len(values) - SHOWN:,} more" if len(values) > SHOWN else ""
    return ", ".join(values[:SHOWN]) + more


def _budget(stats: Stats) -> str:
    tokens = stats.terms.tokens_per_batch
    how = "padded" if stats.terms.budget == "padded" else "end to end"
    return f"{tokens:,} a batch, {how}" if tokens else f"batch size * max_length, {how}"


def _model(stats: Stats) -> str | None:
    model = stats.terms.model
    if model is None:
        return None
    return f"hidden {model.hidden:,}, {model.layers:,} layers" + (f", FFN {model.ffn:,}" if model.ffn else "")


def recommended(stats: Stats, price: Price | None) -> bool:
    chosen = stats.recommendation
    return price is not None and (price.strategy, price.max_length) == (chosen.strategy, chosen.max_length)


def shade(ratio: float) -> str:
    """How strongly a cell of that pad ratio is tinted, as a CSS percentage."""
    return f"{round(60 * ratio)}%"
