"""What must hold of windows: each where the options put it, once; its labels the next tokens; the figures right.

Written from the contract, apart from `packer.windowing`. n tokens (of a document; of the corpus in corpus scope):

    full    at 0, S, 2 S, ..., floor((n - N - 1) / S) + 1 of them for n > N, else none: all N labels are real
    keep    then one at the next multiple of S, if it begins below n: what is left
    align   then one at n - N - 1, of N tokens (n <= N: at 0, of n), if the full ones left predictions
    neither where it would have no label: one token, or (mask_overlap) nothing that is not predicted already
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.corpus.packed import ABSENT
from packer.errors import DatasetError
from packer.manifest import Manifest
from packer.plan import BoolArray, Int64Array
from packer.remote import Place
from packer.schema import IGNORE_INDEX
from packer.stored.groups import Group, all_groups, labelled, raise_at
from packer.stored.tables import AT_ONCE, Documents
from packer.verify.documents import Documents as Counted
from packer.verify.documents import check_totals
from packer.verify.rows import Found
from packer.windowing import Windowing

MISSED = 1000  # windows: where more are missing the number is wrong, and not a window


@dataclass(frozen=True)
class Expected:
    """Windows of documents of n tokens, all int64 (d,): full ones, where the tail begins and its tokens, 0 for none;
    `reached`: the last token that a full one predicts, 0 for none."""

    full: Int64Array
    tail_start: Int64Array
    tail_length: Int64Array
    reached: Int64Array

    @property
    def counts(self) -> Int64Array:
        return self.full + (self.tail_length > 0)


def expected(n: Int64Array, size: int, window: Windowing) -> Expected:
    full = np.maximum((n - size - 1) // window.stride + 1, 0) * (n > size)
    reached = ((full - 1) * window.stride + size) * (full > 0)
    left = reached < n - 1  # predictions
    start, length, wanted = {
        "keep": (full * window.stride, n - full * window.stride, left | (not window.mask_overlap)),
        "align": (np.maximum(n - size - 1, 0), np.minimum(n, size), left),
        "drop": (n, n, np.zeros(len(n), np.bool_)),
    }[window.tail]
    wanted &= n - start > 1  # a label, the next token, is there
    return Expected(full, np.where(wanted, start, 0), np.where(wanted, length, 0), reached)


@dataclass(frozen=True)
class Row:
    """The number of each row's window, -1 for none; the tokens it must hold; its leading labels that an earlier window
    has; where among all documents its first token lies. int64 (R,)."""

    number: Int64Array
    length: Int64Array
    seen: Int64Array
    place: Int64Array


class Places:
    """Where the windows of a data set lie. lengths: int64 (records,), of the documents that are windowed, 0 for others;
    tokens: of all of them."""

    def __init__(self, folder: Path, manifest: Manifest, lengths: Int64Array, starts: Int64Array, tokens: int) -> None:
        window = manifest.options.window
        if window is None or window.stride < 1 or (window.stride > manifest.max_length and not window.allow_gaps):
            raise DatasetError("manifest.json: options.window is damaged: no windows are cut like that")
        self.window, self.size = window, manifest.max_length
        self.lengths, self.starts, self.tokens = lengths, starts, tokens
        self.corpus = window.scope == "corpus"
        self.known = not self.corpus or window.stride <= self.size or starts[-1] == tokens
        if self.corpus:
            self.total = int(self._expected(np.array([tokens])).counts[0])
            return
        self.firsts = np.memmap(folder / "firsts", np.int64, "w+", shape=(len(lengths) + 1,))
        for first in range(0, len(lengths), AT_ONCE):
            counts = self._expected(lengths[first : first + AT_ONCE]).counts
            self.firsts[first + 1 : first + 1 + len(counts)] = self.firsts[first] + np.cumsum(counts)
        self.total = int(self.firsts[-1])

    def _expected(self, n: Int64Array) -> Expected:
        return expected(np.asarray(n, np.int64), self.size, self.window)

    def find(self, group: Group) -> Row:
        """What each row of a group must be, by where it begins."""
        first = group.at["doc_ids"][:-1]
        documents, start = group.flat["doc_ids"][first], group.flat["doc_starts"][first]
        place = self.starts[documents] + start
        begin = place if self.corpus else start
        at = self._expected(np.array([self.tokens]) if self.corpus else self.lengths[documents])
        number = begin // self.window.stride
        full = (begin % self.window.stride == 0) & (number < at.full)
        tail = ~full & (at.tail_length > 0) & (begin == at.tail_start)
        number = np.where(full, number, at.full)
        if not self.corpus:
            number += self.firsts[documents]
        seen = np.where(full & (begin > 0), self.size - self.window.stride, np.where(tail, at.reached - begin, 0))
        length = np.where(full, self.size, at.tail_length)
        return Row(np.where(full | tail, number, -1), length, np.maximum(seen, 0), place)

    def again(self, group: Group) -> BoolArray:
        """Positions whose label an earlier window has, where that masks it: bool (T,)."""
        if not self.known:
            hidden: BoolArray = labelled(group) == IGNORE_INDEX
            return hidden & self.window.mask_overlap
        row = group.row_of("input_ids")
        offset = np.arange(len(row)) - group.at["input_ids"][:-1][row]
        result: BoolArray = (offset < self.find(group).seen[row]) & self.window.mask_overlap
        return result

    def tells(self, group: Group, tells: BoolArray) -> BoolArray:
        """See `Documents.fill`."""
        visible: BoolArray = labelled(group) != IGNORE_INDEX
        if not self.known:
            return tells & visible
        if self.corpus:
            tells[group.at["input_ids"][1:] - 1] = self.find(group).place + group.counts("input_ids") < self.tokens
        return tells & ~self.again(group)

    def describe(self, number: int) -> str:
        """The window of this number, to a person."""
        if self.corpus:
            at, document, name = self._expected(np.array([self.tokens])), 0, "the corpus"
        else:
            document = int(np.searchsorted(self.firsts, number, side="right")) - 1
            at, name = self._expected(self.lengths[document : document + 1]), f"document {document}"
            number -= int(self.firsts[document])
        start = number * self.window.stride if number < at.full[0] else int(at.tail_start[0])
        return f"{name}: the window at token {start}"


def check(out: Place, manifest: Manifest, found: Found) -> None:
    """Everything that can be known without INPUT. found: what the rows add up to, from `packer.verify.rows`."""
    with tempfile.TemporaryDirectory(prefix="packer-verify-") as name:
        folder = Path(name)
        documents = Documents(folder, out, [manifest], found.last_doc + 1)
        tokens = manifest.totals.tokens - manifest.losses.tokens
        if documents.total > tokens:
            raise DatasetError(
                f"manifest.json: totals: {tokens} tokens without those left out, but the documents in the rows have "
                f"{documents.total}"
            )
        places = places_of(documents, manifest, folder)
        check_places(out, manifest, places, folder)
        documents.fill(tells=places.tells)
        labels = _Labels(folder, documents, places, manifest)
        rows_of = np.memmap(folder / "rows", np.int32, "w+", shape=documents.lengths.shape)
        for group in all_groups(out, manifest):
            labels.check(group)
            np.add.at(rows_of, group.flat["doc_ids"], 1)
        _check_coverage(manifest, found, places, documents.held(), labels)
        placed, split = int((rows_of > 0).sum()), int((rows_of > 1).sum())
        unseen = manifest.totals.documents - manifest.losses.documents - placed
        _check_unseen(manifest, unseen, tokens - documents.total)
    check_totals(manifest, found.totals, Counted(placed, split), placed + unseen, tokens)


def places_of(documents: Documents, manifest: Manifest, folder: Path) -> Places:
    """By the lengths of the documents that some row tells of."""
    tokens = manifest.totals.tokens - manifest.losses.tokens
    return Places(folder, manifest, documents.lengths, documents.starts, tokens)


def check_places(out: Place, manifest: Manifest, places: Places, folder: Path) -> None:
    """Every window where it must be, and once."""
    rows = sum(shard.rows for shard in manifest.shards)
    if places.total != rows and (not places.known or places.total > 2 * rows + MISSED):
        raise DatasetError(f"manifest.json: totals: {rows} rows, but {places.total} windows by the options")
    marks = np.memmap(folder / "marks", np.uint8, "w+", shape=(places.total + 1,))  # never empty
    for group in all_groups(out, manifest):
        at = places.find(group)
        begins = places.starts[group.flat["doc_ids"]] + group.flat["doc_starts"]
        offset = group.segment_starts - group.at["input_ids"][:-1][group.row_of("doc_ids")]
        apart = begins != at.place[group.row_of("doc_ids")] + offset
        _raise_first(group, group.rows_with("doc_ids", apart), "the segments of a window follow one another")
        _raise_first(group, (group.counts("doc_ids") > 1) & (not places.corpus), "a window is one segment")
        if not places.known:
            continue
        _raise_first(group, at.number < 0, "a window begins where the options put one")
        _raise_first(group, group.counts("input_ids") != at.length, "a window holds all the tokens that it can")
        order = np.argsort(at.number, kind="stable")
        again = np.zeros(group.rows, np.bool_)
        again[order[1:]] = np.diff(at.number[order]) == 0
        _raise_first(group, again | (marks[at.number] > 0), "no window is there twice")
        marks[at.number] = 1
    for first in range(0, places.total if places.known else 0, AT_ONCE):
        part = marks[first : min(first + AT_ONCE, places.total)]
        if not part.all():
            raise DatasetError(f"{places.describe(first + int(np.argmin(part)))} is missing")


class _Labels:
    """Checks labels, and counts how many each token has."""

    def __init__(self, folder: Path, documents: Documents, places: Places, manifest: Manifest) -> None:
        self.documents, self.places = documents, places
        self.trained = documents.trained if manifest.totals.masked_documents else None
        self.visible = 0
        self.counts = np.memmap(folder / "predicted", np.int32, "w+", shape=(documents.total + 1,))

    def check(self, group: Group) -> None:
        at, documents = self.places.find(group), self.documents
        row = group.row_of("input_ids")
        offset = np.arange(len(row)) - group.at["input_ids"][:-1][row]
        target = at.place[row] + offset + 1
        first = group.at["doc_ids"][:-1]
        stop = documents.starts[group.flat["doc_ids"][first]] + group.flat["doc_lengths"][first]
        exists = target < (self.places.tokens if self.places.corpus else stop[row])
        again = self.places.again(group)
        target = np.minimum(target, documents.total)
        token = documents.tokens[target]
        known = token != ABSENT
        if not self.places.known:  # a document that no row holds may come next
            last = group.at["input_ids"][1:] - 1
            known[last] = exists[last] = False
            exists[last] = labelled(group)[last] != IGNORE_INDEX
        labels = labelled(group)
        visible = labels != IGNORE_INDEX
        wanted = exists & ~again & (True if self.trained is None else self.trained[target] == 1)
        for rule, wrong in (
            ("a label that an earlier window has is masked", visible & again),
            ("no label goes beyond the end", visible & ~exists),
            ("labels are the next tokens", visible & known & (labels != token)),
            ("no label is missing", wanted & ~visible),
        ):
            _raise_first(group, group.rows_with("input_ids", wrong), rule)
        np.add.at(self.counts, target[exists & ~again], 1)
        self.visible += int(visible.sum())


def _check_coverage(manifest: Manifest, found: Found, places: Places, distinct: int, labels: _Labels) -> None:
    """The manifest's figures, each counted anew."""
    totals, losses, coverage = manifest.totals, manifest.losses, manifest.coverage
    if coverage is None:
        raise DatasetError("manifest.json is damaged: coverage is None, but the rows are windows")
    firsts = 1 if places.corpus else totals.documents - losses.documents
    predictable = max(places.tokens - firsts, 0)
    total = predicted = most = 0
    least = np.iinfo(np.int32).max
    for first in range(0, len(labels.counts), AT_ONCE):
        counts = labels.counts[first : first + AT_ONCE]
        counts = counts[counts > 0]
        total, predicted = total + int(counts.sum(dtype=np.int64)), predicted + len(counts)
        least, most = min(least, int(counts.min(initial=least))), max(most, int(counts.max(initial=0)))
    figures: list[tuple[str, float, float]] = [
        ("windows", coverage.windows, found.totals.rows),
        ("tokens", coverage.tokens, found.totals.placed_tokens),
        ("distinct_tokens", coverage.distinct_tokens, distinct),
        ("duplication", coverage.duplication, found.totals.placed_tokens / max(distinct, 1)),
        ("unseen_tokens", coverage.unseen_tokens, places.tokens - distinct),
    ]
    if places.known:
        figures += [
            ("predictions", coverage.predictions, total),
            ("predictions_min", coverage.predictions_min, least if 0 < predicted == predictable else 0),
            ("predictions_mean", coverage.predictions_mean, total / max(predictable, 1)),
            ("predictions_max", coverage.predictions_max, most),
        ]
    if not totals.masked_documents:
        figures.append(("predictions", coverage.predictions, labels.visible))
    for name, value, expected_value in figures:
        if value != expected_value:
            raise DatasetError(f"manifest.json: totals: {name} is {value}, but the rows say {expected_value}")


def _check_unseen(manifest: Manifest, documents: int, tokens: int) -> None:
    """Documents of which no window holds anything, and their tokens: as many as can be, by the options."""
    window = manifest.options.window
    most = {"keep": documents, "align": documents, "drop": documents * manifest.max_length}
    limit = most[window.tail] if window and window.scope == "document" else tokens * (documents > 0)
    if not 0 <= documents <= tokens <= limit:
        raise DatasetError(
            f"manifest.json: totals: {documents} documents are in no window, with {tokens} tokens: that cannot be"
        )


def _raise_first(group: Group, broken: BoolArray, rule: str) -> None:
    if broken.any():
        raise_at(group, int(np.argmax(broken)), rule)
