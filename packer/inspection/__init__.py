"""A look into a data set: its totals, and rows as a person wants to see them.

Group ──rows──▶ Row, Segment: as stored ──pieces──▶ Unit: text by tokens ──▶ notation, screen, page/rows
"""

from __future__ import annotations

from packer import packings_summary, tokenizer
from packer.errors import TokenizerError, UsageError
from packer.inspection.pieces import Unit, Vocabulary, units
from packer.inspection.rows import Row, Segment, find_row, numbers, read_rows, segments
from packer.manifest import Manifest, Split
from packer.remote import Place
from packer.report import counted, coverage_as_text, predictions_as_text, windows_as_text

__all__ = [
    "Row",
    "Segment",
    "Unit",
    "Vocabulary",
    "find_row",
    "numbers",
    "read_rows",
    "segments",
    "totals_lines",
    "units",
    "vocabulary",
]


def vocabulary(manifest: Manifest, source: str | None) -> Vocabulary:
    """Of the tokenizer that made the data set, or for ready-made ids of the one that the user names."""
    facts = manifest.tokenizer
    if source is None and facts is None:
        raise UsageError("the data set was packed from ready-made ids; --decode needs --tokenizer")
    try:
        loaded = tokenizer.load(source or (facts.source if facts else ""))
    except TokenizerError as error:
        raise TokenizerError(f"{error}; name the tokenizer with --tokenizer") from None
    if facts and loaded.fingerprint != facts.fingerprint:
        raise TokenizerError(f"tokenizer {loaded.source} is not the one that the data set was made with")
    return Vocabulary(loaded.backend)


def totals_lines(out: Place, manifest: Manifest) -> list[str]:
    """What the data set is, in a few lines."""
    totals, layout = manifest.totals, manifest.layout
    size = sum(shard.bytes for shard in manifest.shards)
    window, coverage = manifest.options.window, manifest.coverage
    if window and coverage:
        what = [
            f"{out}: {totals.rows:,} windows of at most {manifest.max_length:,} tokens, {windows_as_text(window)}, "
            f"{manifest.efficiency:.2%} full",
            f"  {coverage_as_text(coverage)}; {manifest.losses.tokens:,} left out",
            f"  {predictions_as_text(coverage)}; {totals.placed_documents:,} documents in windows, "
            f"{totals.split_documents:,} in several",
        ]
    else:
        what = [
            f"{out}: {totals.rows:,} rows of at most {manifest.max_length:,} tokens, by {manifest.options.strategy}, "
            f"{manifest.efficiency:.2%} full",
            f"  {totals.placed_tokens:,} tokens in {totals.segments:,} segments of {totals.placed_documents:,} "
            f"documents ({totals.split_documents:,} cut); {manifest.losses.tokens:,} tokens lost",
        ]
    return [
        *what,
        *(f"  {label:<8} {text}" for label, text in packings_summary.length_lines(manifest.groups)),
        *(f"  {label:<8} {text}" for label, text in packings_summary.balance_lines(manifest.balance)),
        *(f"  {label:<8} {text}" for label, text in packings_summary.epoch_lines(manifest)),
        f"  labels {layout.labels}, attention by {layout.boundaries}, positions by {layout.positions}, "
        f"columns {layout.columns}",
        f"  {size / 1e6:,.1f} MB of {manifest.file_format} in {counted(len(manifest.shards), 'shard')}, "
        f"split {manifest.split}",
        f"  from {counted(len(manifest.inputs), 'file')}, {totals.records:,} records ({totals.skipped:,} skipped, "
        f"{totals.empty:,} empty)",
        *(_held_lines(manifest.validation) if manifest.validation else ()),
    ]


def _held_lines(held: Split) -> list[str]:
    size = sum(shard.bytes for shard in held.shards)
    totals = held.totals
    return [
        f"  split {held.split}: {totals.documents:,} documents held out ({held.ratio:g} of all, by content), "
        f"{totals.placed_tokens:,} tokens in {totals.rows:,} rows, {held.losses.tokens:,} lost, "
        f"{size / 1e6:,.1f} MB in {counted(len(held.shards), 'shard')}"
    ]
