"""What must hold across rows: the segments of each document tile it exactly once, and all counts add up.

Documents are looked at `DOCUMENTS` at a time, so memory does not grow with the corpus; the columns needed are small.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from packer import metrics
from packer.errors import DatasetError
from packer.manifest import Manifest, Totals
from packer.plan import BoolArray
from packer.remote import Place
from packer.schema import IGNORE_INDEX
from packer.stored.groups import Group, groups
from packer.verify.rows import Found

DOCUMENTS = 8 << 20  # looked at together; about 40 bytes a segment

SEGMENT = np.dtype(
    [
        ("doc", "<i8"),
        ("start", "<i8"),
        ("length", "<i4"),
        ("doc_length", "<i4"),
        ("first", "<i4"),  # its first token
        ("next", "<i4"),
        ("row", "<i4"),
        ("shard", "<i4"),
        ("inner", "?"),  # not its row's last segment
    ]
)


@dataclass(frozen=True)
class Documents:
    """What the rows say of the documents. `cut`: those that lost tokens to truncation, and the tokens they lost."""

    placed: int = 0
    split: int = 0
    cut: int = 0
    cut_tokens: int = 0

    def __add__(self, other: Documents) -> Documents:
        return Documents(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


def check(out: Place, manifest: Manifest, found: Found, *, at_once: int = DOCUMENTS) -> None:
    """found: what the rows add up to, from `packer.verify.rows`."""
    documents = Documents()
    for first in range(0, found.last_doc + 1, at_once):
        documents += _check_range(out, manifest, first, first + at_once)
    check_totals(manifest, found.totals, documents, documents.placed, found.totals.placed_tokens)


def _check_range(out: Place, manifest: Manifest, first: int, stop: int) -> Documents:
    parts = [
        _segments(group, index, first, stop)
        for index, shard in enumerate(manifest.shards)
        for group in groups(out, manifest, shard.path)
    ]
    segments = np.concatenate(parts) if parts else np.empty(0, SEGMENT)
    if not len(segments):
        return Documents()
    segments = segments[np.lexsort((segments["start"], segments["doc"]))]
    opens = np.diff(segments["doc"], prepend=-1) != 0  # the first segment of each document
    closes = np.append(opens[1:], True)
    ends = segments["start"] + segments["length"]
    before = np.where(opens, 0, np.append(0, ends[:-1]))
    same = opens | (segments["doc_length"] == np.append(0, segments["doc_length"][:-1]))
    _raise_first(manifest, segments, ~same, "doc_lengths differ between the segments of document {doc}")
    start, stop_at = _kept(manifest, segments)
    expected = np.where(opens, start, before)
    _raise_first(
        manifest, segments, segments["start"] < expected, "document {doc}: tokens from {start} on are placed twice"
    )
    _raise_first(manifest, segments, segments["start"] > expected, "document {doc}: tokens before {start} are missing")
    _raise_first(manifest, segments, closes & (ends < stop_at), "document {doc}: tokens are missing after this segment")
    _raise_first(manifest, segments, closes & (ends > stop_at), "document {doc}: not truncated to max_length")
    goes_on = np.flatnonzero(~closes)
    wrong = np.zeros(len(segments), np.bool_)
    wrong[goes_on] = segments["next"][goes_on] != segments["first"][goes_on + 1]
    alone = ~segments["inner"] | (manifest.layout.boundaries == "document")  # what follows is not the row's next token
    if manifest.layout.masked:
        wrong &= segments["next"] != IGNORE_INDEX
    _raise_first(manifest, segments, wrong & alone, "next_tokens is not the token with which document {doc} goes on")
    beyond = closes & alone & (segments["next"] != IGNORE_INDEX)
    _raise_first(manifest, segments, beyond, "next_tokens goes on after the end of what is kept of document {doc}")
    kept, whole = (stop_at - start)[closes], segments["doc_length"][closes]
    return Documents(
        placed=int(closes.sum()),
        split=int((opens & ~closes).sum()),
        cut=int((kept < whole).sum()),
        cut_tokens=int((whole - kept).sum()),
    )


def _segments(group: Group, shard: int, first: int, stop: int) -> NDArray[np.void]:
    """The group's segments of documents first to stop."""
    chosen = (group.flat["doc_ids"] >= first) & (group.flat["doc_ids"] < stop)
    last = np.zeros(len(chosen), np.bool_)
    last[group.at["doc_ids"][1:] - 1] = True
    segments = np.empty(int(chosen.sum()), SEGMENT)
    for name, values in (
        ("doc", group.flat["doc_ids"]),
        ("start", group.flat["doc_starts"]),
        ("length", group.segment_lengths),
        ("doc_length", group.flat["doc_lengths"]),
        ("first", group.flat["input_ids"][group.segment_starts]),
        ("next", group.flat["next_tokens"]),
        ("row", group.row_of("doc_ids") + group.first_row),
        ("inner", ~last),
    ):
        segments[name] = values[chosen]
    segments["shard"] = shard
    return segments


def _kept(manifest: Manifest, segments: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which part of its document must be in rows, as the policy for long ones says: start and stop, int64 (S,).

    With loss masks and no policy named, only documents that have a mask are truncated: what the rows hold tells.
    """
    length = segments["doc_length"].astype(np.int64)
    policy = manifest.options.overlong
    room = manifest.max_length
    start, stop = np.zeros_like(length), length
    if policy == "truncate-left":
        start = np.maximum(length - room, 0)
    elif policy == "truncate":
        stop = np.minimum(length, room)
    elif policy is None and manifest.layout.masked:
        opens = np.diff(segments["doc"], prepend=-1) != 0
        held = np.add.reduceat(segments["length"], np.flatnonzero(opens), dtype=np.int64)[np.cumsum(opens) - 1]
        stop = np.where((length > room) & (held == room), room, length)
    return start, stop


def _raise_first(manifest: Manifest, segments: NDArray[np.void], wrong: BoolArray, rule: str) -> None:
    if wrong.any():
        segment = segments[int(np.argmax(wrong))]
        text = rule.format(doc=segment["doc"], start=segment["start"])
        shard = manifest.shards[segment["shard"]].path
        raise DatasetError(f"{shard}, row {segment['row']}: broken rule: {text}")


def check_totals(manifest: Manifest, found: Totals, documents: Documents, seen: int, seen_tokens: int) -> None:
    """seen, seen_tokens: documents and tokens that are accounted for without the losses."""
    totals, losses = manifest.totals, manifest.losses
    lengths = [
        (part.max_length, sum(one.rows for one in part.shards), sum(one.tokens for one in part.shards))
        for part in manifest.by_length
    ]
    for group, (size, rows, tokens) in zip(manifest.groups, lengths, strict=False):
        bounds = metrics.lower_bound(tokens, size), metrics.efficiency(tokens, rows, size)
        if (group.rows, group.tokens, group.lower_bound, group.efficiency) != (rows, tokens, *bounds):
            raise DatasetError(f"manifest.json: groups: rows of {size} are {rows} with {tokens} tokens")
    whole = not losses.tokens and not (manifest.coverage and manifest.coverage.unseen_tokens)
    for name, value, expected in (
        *((name, getattr(totals, name), getattr(found, name)) for name in _FOUND),
        ("placed_documents", totals.placed_documents, documents.placed),
        ("split_documents", totals.split_documents, documents.split),
        ("truncated_documents", losses.truncated_documents, documents.cut),
        ("truncated_tokens", losses.truncated_tokens, documents.cut_tokens),
        ("documents", totals.documents, seen + losses.documents),
        ("tokens", totals.tokens, seen_tokens + losses.tokens),
        *((("max_token_id", totals.max_token_id, found.max_token_id),) if whole else ()),
        ("lower_bound", manifest.lower_bound, sum(metrics.lower_bound(tokens, n) for n, _, tokens in lengths)),
        ("efficiency", manifest.efficiency, found.placed_tokens / max(sum(n * rows for n, rows, _ in lengths), 1)),
        ("packing_factor", manifest.packing_factor, found.segments / max(found.rows, 1)),
    ):
        if value != expected:
            raise DatasetError(f"manifest.json: totals: {name} is {value}, but the rows say {expected}")
    if manifest.lp_bound is not None and not manifest.lower_bound <= manifest.lp_bound <= totals.rows:
        raise DatasetError(
            f"manifest.json: totals: lp_bound is {manifest.lp_bound}, but must lie between lower_bound, "
            f"{manifest.lower_bound}, and the rows, {totals.rows}"
        )


def check_whole(manifest: Manifest) -> None:
    """What must hold of all splits together."""
    totals = manifest.whole
    mask_overlap = manifest.options.window is not None and manifest.options.window.mask_overlap
    if bool(totals.masked_documents) > manifest.layout.masked or totals.masked_documents < (
        manifest.layout.masked and not mask_overlap
    ):
        raise DatasetError(
            f"manifest.json: totals: masked_documents is {totals.masked_documents}, but layout.masked is "
            f"{manifest.layout.masked}"
        )
    for name, value, expected in (
        ("records", totals.records, totals.documents + totals.skipped + totals.empty),
        ("records of the inputs", sum(file.documents for file in manifest.inputs), totals.records),
        ("records of the partitions", sum(manifest.partitions), totals.records),
        ("tokens of the inputs", sum(file.tokens for file in manifest.inputs), totals.tokens),
    ):
        if value != expected:
            raise DatasetError(f"manifest.json: totals: {name} is {value}, but the rows say {expected}")
    first = 0
    for file in manifest.inputs:
        if file.first_doc != first:
            raise DatasetError(f"manifest.json: totals: first_doc of {file.path} is {file.first_doc}, not {first}")
        first += file.documents


_FOUND = ("rows", "segments", "placed_tokens", "loss_tokens", "attention_cost", "max_seqlen")
