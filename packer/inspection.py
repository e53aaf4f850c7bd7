"""A look into a data set: its totals, and one row as a person wants to see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from packer import tokenizer
from packer.errors import DatasetError, TokenizerError, UsageError
from packer.manifest import Manifest, Origin, Split
from packer.plan import BoolArray, Int64Array
from packer.report import counted, coverage_as_text, predictions_as_text, windows_as_text
from packer.schema import IGNORE_INDEX
from packer.stored.groups import Group, groups

SHOWN_IDS = 12  # of a segment, where text is not decoded
Mark = Callable[[str, bool], str]  # text and whether it is trained, to what is printed


@dataclass(frozen=True)
class Segment:
    """One segment of a row. ids, labels: int64 (n,); trained: bool (n,), tokens that some label predicts."""

    document: int
    start: int
    doc_length: int
    source: str
    ids: Int64Array
    trained: BoolArray


def find_row(out: Path, manifest: Manifest, row: int) -> tuple[Group, int]:
    """The group that holds a row, numbered over all shards, and its place in it."""
    if not 0 <= row < manifest.totals.rows:
        raise UsageError(f"--row {row}: {out} has rows 0 to {manifest.totals.rows - 1}")
    left = row
    for shard in manifest.shards:
        if left >= shard.rows:
            left -= shard.rows
            continue
        for group in groups(out, manifest, shard.path):
            if left < group.first_row + group.rows:
                return group, left - group.first_row
    raise DatasetError(f"row {row} is missing: the shards hold fewer rows than the manifest says")


def segments(group: Group, row: int) -> Iterator[Segment]:
    """The row's segments, with where they come from."""
    layout = group.manifest.layout
    first, last = group.at["doc_ids"][row], group.at["doc_ids"][row + 1]
    for i in range(first, last):
        start = int(group.segment_starts[i])
        place = slice(start, start + int(group.segment_lengths[i]))
        predicted = group.labels[place] != IGNORE_INDEX
        if layout.labels == "shifted":  # the label of a position is the next token
            reached = layout.boundaries == "row" and i > first  # by the segment before, in the same sequence
            predicted = np.append(reached and group.labels[start - 1] != IGNORE_INDEX, predicted[:-1])
        document = int(group.flat["doc_ids"][i])
        yield Segment(
            document,
            int(group.flat["doc_starts"][i]),
            int(group.flat["doc_lengths"][i]),
            _source(group.manifest, document),
            group.flat["input_ids"][place],
            predicted,
        )


def _source(made: Manifest | Origin, document: int) -> str:
    """The input file of a document, and the record's place among that file's records, from 0; of a packer data set,
    where that had it from."""
    firsts = [file.first_doc for file in made.inputs]
    file = made.inputs[int(np.searchsorted(firsts, document, side="right")) - 1]
    place = f"{file.path}, record {document - file.first_doc}"
    own = [origin for origin in made.origin if (origin.path, origin.first_doc) == (file.path, file.first_doc)]
    if own and not own[0].renumbered:
        place += f", from {_source(own[0], document - file.first_doc)}"
    return place


def show_row(
    group: Group, row: int, number: int, *, decode: Callable[[Sequence[int]], str] | None, mark: Mark
) -> Iterator[str]:
    """Lines for a person."""
    scalar = {name: int(values[row]) for name, values in group.scalar.items()}
    yield (
        f"row {number} ({group.shard}, row {group.first_row + row}): {scalar['num_tokens']} of at most "
        f"{group.manifest.max_length} tokens, {scalar['loss_tokens']} trained, longest sequence {scalar['max_seqlen']}"
    )
    for i, segment in enumerate(segments(group, row)):
        stop = segment.start + len(segment.ids)
        part = (
            "whole" if len(segment.ids) == segment.doc_length else f"[{segment.start}:{stop}] of {segment.doc_length}"
        )
        yield ""
        yield f"  segment {i}: document {segment.document} ({segment.source}), {part}, {len(segment.ids)} tokens"
        yield "    " + (_text(segment, decode, mark) if decode else _ids(segment, mark))


def _ids(segment: Segment, mark: Mark) -> str:
    pairs = list(zip(segment.ids.tolist(), segment.trained.tolist(), strict=True))
    shown = [mark(str(token), trained) for token, trained in pairs[:SHOWN_IDS]]
    return " ".join(shown) + (f" ... {len(pairs) - SHOWN_IDS} more" if len(pairs) > SHOWN_IDS else "")


def _text(segment: Segment, decode: Callable[[Sequence[int]], str], mark: Mark) -> str:
    """Runs of tokens that are trained alike, decoded together so that characters of several tokens stay whole."""
    edges = [0, *(np.flatnonzero(np.diff(segment.trained)) + 1).tolist(), len(segment.ids)]
    return "".join(
        mark(escaped(decode(segment.ids[a:b].tolist())), bool(segment.trained[a])) for a, b in pairwise(edges) if b > a
    )


def escaped(text: str) -> str:
    r"""Control and other unprintable characters as escapes.   'a\n\x1b' -> 'a\\n\\x1b'"""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def decoder(manifest: Manifest, source: str | None) -> Callable[[Sequence[int]], str]:
    """Ids to text, with the tokenizer that made the data set."""
    facts = manifest.tokenizer
    if source is None and facts is None:
        raise UsageError("the data set was packed from ready-made ids; --decode needs --tokenizer")
    try:
        loaded = tokenizer.load(source or (facts.source if facts else ""))
    except TokenizerError as error:
        raise TokenizerError(f"{error}; name the tokenizer with --tokenizer") from None
    if facts and loaded.fingerprint != facts.fingerprint:
        raise TokenizerError(f"tokenizer {loaded.source} is not the one that the data set was made with")
    return loaded.decode


def totals_lines(out: Path, manifest: Manifest) -> list[str]:
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
        f"  labels {layout.labels}, attention by {layout.boundaries}, positions by {layout.positions}, "
        f"columns {layout.columns}",
        f"  {size / 1e6:,.1f} MB of {manifest.file_format} in {counted(len(manifest.shards), 'shard')}, "
        f"split {manifest.split}",
        *(_held_lines(manifest.validation) if manifest.validation else ()),
        f"  from {counted(len(manifest.inputs), 'file')}, {totals.records:,} records ({totals.skipped:,} skipped, "
        f"{totals.empty:,} empty)",
    ]


def _held_lines(held: Split) -> list[str]:
    size = sum(shard.bytes for shard in held.shards)
    totals = held.totals
    return [
        f"  split {held.split}: {totals.documents:,} documents held out ({held.ratio:g} of all, by content), "
        f"{totals.placed_tokens:,} tokens in {totals.rows:,} rows, {held.losses.tokens:,} lost, "
        f"{size / 1e6:,.1f} MB in {counted(len(held.shards), 'shard')}"
    ]
