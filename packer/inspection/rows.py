"""The rows that a person asked for, as they are stored: their segments, where these come from, what is trained.

A token is trained if a label of its own row predicts it, in either convention of labels:

    ids            7     8     9  |  5     6        document boundaries, the document of 5 6 goes on with 4
    aligned     -100     8     9  | -100   6        trained: those with a label
    shifted        8     9  -100  |  6     4        trained: those after a position with a label; and beyond the
                                                    segment 4, which no position of this row holds
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from packer.errors import DatasetError, UsageError
from packer.manifest import Manifest, Origin
from packer.plan import BoolArray, Int64Array
from packer.remote import Place
from packer.schema import IGNORE_INDEX
from packer.stored.groups import Group, groups


@dataclass(frozen=True)
class Segment:
    """One segment of a row. ids, labels: int64 (n,), labels as stored; trained: bool (n,), tokens that a label of the
    row predicts; offset: where in the row it begins; position: the position id of its first token, others follow;
    beyond: the token that its last label predicts and that is not in the row, or None."""

    document: int
    start: int
    doc_length: int
    source: str
    offset: int
    position: int
    ids: Int64Array
    labels: Int64Array
    trained: BoolArray
    beyond: int | None

    @property
    def part(self) -> str:
        """Which of the document's tokens it holds."""
        if len(self.ids) == self.doc_length:
            return "whole"
        return f"[{self.start}:{self.start + len(self.ids)}] of {self.doc_length}"


@dataclass(frozen=True)
class Row:
    """A row, numbered over all shards. place: its number in its shard; trained: its labels that are trained."""

    number: int
    shard: str
    place: int
    tokens: int
    trained: int
    longest: int
    segments: list[Segment]


def numbers(out: Place, manifest: Manifest, ranges: Iterable[range]) -> list[int]:
    """The rows of some ranges, each once, in the order in which they were asked for; UsageError if one is missing."""
    count = manifest.totals.rows
    found: dict[int, None] = {}
    for asked in ranges:
        if asked.stop > count:
            what = str(asked.start) if len(asked) == 1 else f"{asked.start}:{asked.stop}"
            raise UsageError(f"--row {what}: {out} has " + (f"rows 0 to {count - 1}" if count else "no rows"))
        found |= dict.fromkeys(asked)
    return list(found)


def find_row(out: Place, manifest: Manifest, row: int) -> tuple[Group, int]:
    """The group that holds a row, numbered over all shards, and its place in it."""
    left = row
    for shard in manifest.shards:
        if left >= shard.rows:
            left -= shard.rows
            continue
        for group in groups(out, manifest, shard.path):
            if left < group.first_row + group.rows:
                return group, left - group.first_row
    raise DatasetError(f"row {row} is missing: the shards hold fewer rows than the manifest says")


def read_rows(out: Place, manifest: Manifest, chosen: Iterable[int]) -> Iterator[Row]:
    """These rows in this order. What lies together is read once."""
    group: Group | None = None
    first = 0  # number of the group's first row
    for number in chosen:
        if group is None or not first <= number < first + group.rows:
            group, place = find_row(out, manifest, number)
            first = number - place
        place = number - first
        scalar = {name: int(values[place]) for name, values in group.scalar.items()}
        yield Row(
            number,
            group.shard,
            group.first_row + place,
            scalar["num_tokens"],
            scalar["loss_tokens"],
            scalar["max_seqlen"],
            list(segments(group, place)),
        )


def segments(group: Group, row: int) -> Iterator[Segment]:
    """The row's segments, with where they come from."""
    layout = group.manifest.layout
    first, last = int(group.at["doc_ids"][row]), int(group.at["doc_ids"][row + 1])
    row_start = int(group.at["input_ids"][row])
    for i in range(first, last):
        start = int(group.segment_starts[i])
        place = slice(start, start + int(group.segment_lengths[i]))
        labels = group.labels[place]
        trained, beyond = labels != IGNORE_INDEX, None
        if layout.labels == "shifted":  # the label of a position is the next token
            joined = layout.boundaries == "row"  # with the segments before and after, in one sequence
            reached = joined and i > first and group.labels[start - 1] != IGNORE_INDEX
            trained = np.append(reached, trained[:-1])
            if labels[-1] != IGNORE_INDEX and not (joined and i < last - 1):
                beyond = int(labels[-1])
        document = int(group.flat["doc_ids"][i])
        yield Segment(
            document,
            int(group.flat["doc_starts"][i]),
            int(group.flat["doc_lengths"][i]),
            _source(group.manifest, document),
            start - row_start,
            _position(group, i, start - row_start),
            group.flat["input_ids"][place],
            labels,
            trained,
            beyond,
        )


def _position(group: Group, segment: int, offset: int) -> int:
    """The position id of a segment's first token: as stored, or as a compact set implies it."""
    start = int(group.segment_starts[segment])
    if "position_ids" in group.flat:
        return int(group.flat["position_ids"][start])
    layout = group.manifest.layout
    if layout.positions == "document":
        return int(group.flat["doc_starts"][segment])
    return offset if layout.positions == "row" or layout.boundaries == "row" else 0


def _source(manifest: Manifest, document: int) -> str:
    """The input file of a document, and the record's place among that file's records, from 0. A chat of several turns
    may be several documents (`--turns each`): then it is the document's place."""
    what = "turn" if (manifest.options.chat or {}).get("turns") == "each" else "record"
    return _place(manifest, document, what)


def _place(made: Manifest | Origin, document: int, what: str) -> str:
    """The same in a data set or one that it was made from; of a packer data set also where that had it from."""
    firsts = [file.first_doc for file in made.inputs]
    file = made.inputs[int(np.searchsorted(firsts, document, side="right")) - 1]
    place = f"{file.path}, {what} {document - file.first_doc}"
    own = [origin for origin in made.origin if (origin.path, origin.first_doc) == (file.path, file.first_doc)]
    if own and not own[0].renumbered:
        place += f", from {_place(own[0], document - file.first_doc, 'record')}"
    return place
