"""`packer stats` on a terminal of 80 columns: lengths as bars, padding by strategy and max_length, one of them in full.

Colour only on a terminal; piped, the same text without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.bar import Bar
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from packer import chat_summary
from packer.packing import missing
from packer.pricing import Price
from packer.stats import Stats, WindowPrice

BAR_WIDTH = 38
LABEL_WIDTH = 13
SHOWN = 5  # files not read, and records skipped, that are named
PADDED = ("static", "dynamic", "bucketed", "token-budget")
Columns = Sequence[tuple[str, Callable[[Price], str]]]

COLUMNS: Columns = [
    ("rows", lambda price: f"{price.rows:,}"),
    ("padding", lambda price: _share(price.pad_ratio)),
    ("bound", lambda price: "" if price.strategy in PADDED else f"+{_share(price.rows / price.bound - 1)}"),
    ("per row", lambda price: f"{price.documents_per_row:,.2f}"),
    ("cut", lambda price: f"{price.documents_split:,}"),
    ("lost", lambda price: f"{price.tokens_dropped:,}"),
    ("attn", lambda price: f"{price.attention_cost_ratio:,.2f}"),
    ("shapes", lambda price: f"{price.shapes:,}"),
]
RANK_COLUMNS: Columns = [
    ("tokens", lambda price: _times(price.rank_tokens_imbalance)),
    ("P95", lambda price: _times(price.rank_tokens_imbalance_p95)),
    ("attention", lambda price: _times(price.rank_attention_imbalance)),
    ("P95", lambda price: _times(price.rank_attention_imbalance_p95)),
]
MODEL_COLUMNS: Columns = [
    ("FLOPs a step", lambda price: f"{price.flops_per_step or 0:.2e}"),
    ("time", lambda price: _times(price.time_ratio)),
]
NOTES = (
    "bound: rows above the least that any packing needs: +0% is optimal, full or not",
    "cut: documents; lost: tokens; attn: attention paid, by what documents alone need",
    "shapes: distinct shapes of a batch, each compiled anew",
)


def render(stats: Stats) -> str:
    """The figures as text, in colour if stdout is a terminal."""
    console = Console(highlight=False)
    with console.capture() as captured:
        _show(console, stats)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _show(console: Console, stats: Stats) -> None:
    best = stats.recommendation.max_length
    at_best = [price for price in stats.strategies if price.max_length == best]
    _section(console, None, _facts(stats))
    _section(console, "documents by length, in tokens", _histogram(stats))
    if len(stats.truncation) > 1:
        _section(console, "padding, by max_length", _padding(stats))
    title = f"at max_length {best:,}, batches of {stats.terms.batch_size:,}"
    _section(console, title, _table(stats, at_best, COLUMNS))
    sampled = ["~ estimated from a sample"] if any(price.estimated for price in at_best) else []
    for note in (*NOTES, *_bound_note(at_best), *sampled):
        console.print(Text(note, style="dim"))
    if stats.terms.world_size > 1:
        title = f"busiest of {stats.terms.world_size:,} ranks by their mean, in a step"
        _section(console, title, _table(stats, at_best, RANK_COLUMNS))
    if stats.terms.model:
        _section(console, "work of the model", _table(stats, at_best, MODEL_COLUMNS))
    if stats.windows:
        _section(console, "windows", _labelled(_window_lines(stats.windows)))
    _section(console, None, _recommendation(stats))


def _bound_note(prices: Sequence[Price]) -> Iterator[str]:
    """What the linear program says, or why there is none."""
    known = next((price for price in prices if price.strategy == "optimal"), None)
    if known and known.rows > known.bound:
        yield f"optimal: none has fewer than {known.bound:,} rows; pack takes more time, and may come closer"
    elif reason := missing("optimal"):
        yield f"optimal is not shown: {reason}"


def _window_lines(windows: WindowPrice) -> Iterator[tuple[str, str]]:
    covered, over = windows.coverage, "each document" if windows.scope == "document" else "the corpus as one stream"
    how = f"{windows.context_size:,} tokens every {windows.stride:,} over {over}, tail {windows.tail}"
    yield "windows", f"{covered.windows:,} of {how}"
    distinct = f"{covered.distinct_tokens:,} distinct: each {covered.duplication:.2f} times"
    yield "tokens", f"{covered.tokens:,}, {distinct}; {covered.unseen_tokens:,} in no window"
    most = f"{covered.predictions_min:,} to {covered.predictions_max:,}, {covered.predictions_mean:.2f} on average"
    yield "predicted", f"{covered.predictions:,} labels; each token {most}"
    yield "disk", f"about {windows.disk_bytes / 1e6:,.1f} MB of Parquet"


def _section(console: Console, title: str | None, content: Table) -> None:
    if title:
        console.print(Padding(Text(title, style="bold"), (1, 0, 0, 0)))
    console.print(content)


def _facts(stats: Stats) -> Table:
    return _labelled(_fact_lines(stats))


def _labelled(lines: Iterator[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LABEL_WIDTH - 1, no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(label, Text(text))
    return grid


def _fact_lines(stats: Stats) -> Iterator[tuple[str, str]]:
    source, length = stats.source, stats.length
    out = [(stats.skipped, "bad records skipped"), (stats.empty, "empty left out")]
    left_out = ", ".join(f"{count:,} {what}" for count, what in out if count)
    yield "documents", f"{stats.documents:,} with {stats.tokens:,} tokens" + (f" ({left_out})" if left_out else "")
    yield "length", f"min {length.min:,}  mean {length.mean:,.1f}  max {length.max:,}"
    percentiles = ((name.upper(), getattr(length, name)) for name in ("p50", "p90", "p95", "p99"))
    yield "", "  ".join(f"{name} {value:,.10g}" for name, value in percentiles)
    if len(stats.truncation) == 1:
        loss = stats.truncation[0]
        over = f"{loss.documents:,} documents ({_share(loss.documents_ratio)})"
        yield f"over {loss.max_length:,}", f"{over}; {loss.tokens:,} tokens ({_share(loss.tokens_ratio)}) beyond"
    if source.chats:
        yield from chat_summary.lines(source.chats, source.chat)
    if source.added:
        yield "added", source.added
    if source.special_documents and not source.chats:
        yield "control", f"{source.special_documents:,} documents have a control token written in their text"
    for record in source.skipped_records[:SHOWN]:
        yield "skipped", f"{record.path}, {record.where}: {record.reason}"
    if source.left_out:
        yield "not read", ", ".join(source.left_out[:SHOWN]) + (" ..." if len(source.left_out) > SHOWN else "")


def _histogram(stats: Stats) -> Table:
    """One bar for each power of two: lengths above half of it, up to it."""
    bins: dict[int, int] = {}
    for length, count in stats.length.histogram.items():
        top = (length - 1).bit_length()
        bins[top] = bins.get(top, 0) + count
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(width=BAR_WIDTH)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    most = max(bins.values())
    for top in range(min(bins), max(bins) + 1):
        count = bins.get(top, 0)
        label = f"{(1 << top >> 1) + 1:,} - {1 << top:,}" if top > 1 else f"{1 << top}"
        grid.add_row(
            label, Bar(most, 0, count, width=BAR_WIDTH, color="cyan"), f"{count:,}", _share(count / stats.documents)
        )
    return grid


def _padding(stats: Stats) -> Table:
    """Strategies by max_length, and above them what truncation would lose."""
    table = _plain()
    for loss in stats.truncation:
        table.add_column(f"{loss.max_length:,}", justify="right", no_wrap=True)
    table.add_row("longer documents", *(_share(loss.documents_ratio) for loss in stats.truncation), style="dim")
    table.add_row("tokens beyond", *(_share(loss.tokens_ratio) for loss in stats.truncation), style="dim")
    for name in dict.fromkeys(price.strategy for price in stats.strategies):
        found = {price.max_length: price for price in stats.strategies if price.strategy == name}
        cells = [
            _share(found[loss.max_length].pad_ratio) if loss.max_length in found else "-" for loss in stats.truncation
        ]
        table.add_row(name, *cells, style=_style(stats, name))
    return table


def _table(stats: Stats, prices: Sequence[Price], columns: Columns) -> Table:
    table = _plain()
    for title, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for price in prices:
        name = f"~{price.strategy}" if price.estimated else price.strategy
        table.add_row(name, *(cell(price) for _, cell in columns), style=_style(stats, price.strategy))
    return table


def _plain() -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    return table


def _style(stats: Stats, strategy: str) -> str:
    return "bold green" if strategy == stats.recommendation.strategy else ""


def _recommendation(stats: Stats) -> Table:
    chosen = stats.recommendation
    reasons = chosen.reason.split("; ")
    lines = [("", ""), ("recommended", f"{chosen.strategy} at max_length {chosen.max_length:,}")]
    return _labelled(iter([*lines, *(("", reason) for reason in reasons)]))


def _share(ratio: float) -> str:
    """A percentage of three or four characters; what is not 0% never reads as it."""
    if 0 < ratio < 0.0001:
        return "<0.01%"
    return f"{ratio:.2%}" if 0 < ratio < 0.1 else f"{ratio:.1%}" if 0 < ratio < 10 else f"{ratio:.0%}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"
