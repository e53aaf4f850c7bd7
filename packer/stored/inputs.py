"""A packer data set as INPUT: tokenize once, pack many times.

    check          before anything is read: which data sets, made with which tokenizer, and whether they lost tokens
    put_together   their documents, in the order of their own input, as tables that `packer.corpus.packed` reads

Documents keep their ordinals, and partitions are cut as the data set's own were, so that with the same options and seed
a data set gives the rows that the input it was made from would give. What was no document there (a bad or an empty
record) is an empty record here.

A data set that lost tokens is refused, or with `allow_lossy` read for what is left: what is there of a document is a
document, without a boundary that was not there. Only where its middle is missing does it become several documents, one
for each unbroken part, for no label may lead over the gap; the records are then numbered anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from packer import manifest as manifests
from packer import tokenizer
from packer.corpus import Partition, ReadOptions, Source, Table
from packer.corpus.packed import ABSENT
from packer.errors import DatasetError, InputError
from packer.manifest import Manifest, Origin, TokenizerFacts
from packer.packing.overlong import Losses
from packer.plan import BoolArray, Int64Array
from packer.stored.groups import Group
from packer.stored.tables import AT_ONCE, Documents, Tells

FOLDER = "inputs"  # of the tables, below OUT/.tmp
ADVICE = "give the input it was made from, or --allow-lossy to take what is left"


@dataclass(frozen=True)
class Stored:
    """The packer data sets among a run's sources. origin: of each, first_doc still to be counted; tokenizer: what made
    their ids, None if no tokenizer is known; only: there are no other sources."""

    origin: list[Origin]
    tokenizer: TokenizerFacts | None
    only: bool


def check(sources: Sequence[Source], tokenizer_source: str | None, read: ReadOptions) -> Stored:
    """What the manifests tell. Raises InputError where a data set lost tokens or was made with another tokenizer than
    the one given, or than the other data sets."""
    packed = [source for source in sources if source.format == "packed"]
    origin, facts, named = [], None, ""
    for source in packed:
        manifest = manifests.load(_out(source))
        if not read.allow_lossy and (lost := _lost(manifest)):
            raise InputError(f"{source.path}: is a packer data set that lost tokens ({lost}); {ADVICE}")
        own = manifest.tokenizer
        if own and facts and own.fingerprint != facts.fingerprint:
            raise InputError(f"{source.path}: was made with tokenizer {own.source}, but {named} with {facts.source}")
        if own and facts is None:
            facts, named = own, source.path
        fingerprint = hashlib.sha256(Path(source.location).read_bytes()).hexdigest()
        origin.append(Origin(source.path, fingerprint, 0, False, manifest.inputs, manifest.origin))
    if facts and tokenizer_source is not None:
        loaded = tokenizer.load(tokenizer_source)
        if loaded.fingerprint != facts.fingerprint:
            raise InputError(
                f"{named}: was made with tokenizer {facts.source} (sha256 {facts.fingerprint[:12]}...), not with "
                f"{tokenizer_source} ({loaded.fingerprint[:12]}...); leave out --tokenizer, or give that one"
            )
    return Stored(origin, facts, len(packed) == len(sources))


def put_together(sources: Sequence[Source], folder: Path, read: ReadOptions) -> list[Source]:
    """The sources, with a table in `folder` for each packer data set: about 4 bytes a token, 5 with loss masks."""
    result = []
    for index, source in enumerate(sources):
        if source.format == "packed":
            own = folder / f"input-{index:05d}"
            own.mkdir(parents=True)
            source = replace(source, table=_table(source, own, allow_lossy=read.allow_lossy))
        result.append(source)
    return result


def complete(stored: Stored, partitions: Sequence[Partition], first_docs: Sequence[int]) -> list[Origin]:
    """The origin of each data set, now that the first record of each source of the partitions is counted."""
    sources = [source for source, _ in groupby(piece.source for part in partitions for piece in part.slices)]
    packed = [(source, first) for source, first in zip(sources, first_docs, strict=False) if source.format == "packed"]
    return [
        replace(origin, first_doc=first, renumbered=(source.table is not None and source.table.renumbered))
        for origin, (source, first) in zip(stored.origin, packed, strict=False)  # --limit may end before the last
    ]


def _out(source: Source) -> Path:
    return Path(source.location).parent


def _lost(manifest: Manifest) -> str:
    """What is surely lost, in words. Windows may lose what a label still tells, so that shows later."""
    losses = sum((split.losses for split in manifest.splits), Losses())
    reasons = (
        ("truncated", losses.truncated_documents),
        ("dropped as too long", losses.dropped_documents),
        ("left out as too short", losses.short_documents),
        ("dropped with nothing to train on", losses.untrained_documents),
    )
    return ", ".join(f"{count:,} documents {what}" for what, count in reasons if count)


def _table(source: Source, folder: Path, *, allow_lossy: bool) -> Table:
    out, manifest = _out(source), manifests.load(_out(source))
    _check_bytes(source, manifest)
    totals = manifest.whole
    documents = Documents(folder, out, manifest.splits, totals.records)
    unseen = manifest.coverage is not None and manifest.coverage.unseen_tokens > 0
    whole = not unseen and not any(split.losses.tokens for split in manifest.splits)
    window = manifest.options.window
    # Without gaps a stream lacks tokens at its end only: the label at a window's end is of the next token in any case.
    over_documents = window is not None and window.scope == "corpus" and window.stride <= manifest.max_length
    documents.fill(next_tokens=True, tells=_tells(documents) if over_documents else None, spans=True)
    missing = totals.tokens - documents.held()
    if missing and (whole or not allow_lossy):
        if whole:
            raise DatasetError(f"{source.path}: {missing} of {totals.tokens} tokens are in no row; see packer verify")
        raise InputError(f"{source.path}: is a packer data set that lost tokens ({missing:,} in no row); {ADVICE}")
    records = totals.records
    if missing:
        records = _write_parts(documents, manifest, folder)
    else:
        (folder / "lengths").rename(folder / "sizes")
        (folder / "starts").rename(folder / "places")
        _cuts(manifest).tofile(folder / "cuts")
    masked = "no" if documents.trained is None else "some"
    if totals.masked_documents == totals.documents:
        masked = "all"
    return Table(str(folder), records, masked, renumbered=records != totals.records)


def _check_bytes(source: Source, manifest: Manifest) -> None:
    """Every shard has the bytes that were written."""
    for shard in (shard for split in manifest.splits for shard in split.shards):
        path = _out(source) / shard.path
        try:
            with open(path, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DatasetError(f"shard {path} cannot be read: {error.strerror}") from error
        if found != shard.sha256:
            raise DatasetError(f"shard {path}: its bytes are not those that were written; pack the data set again")


def _cuts(manifest: Manifest) -> Int64Array:
    """The records with which partitions begin."""
    records = np.array(manifest.partitions, np.int64)
    return np.asarray((np.cumsum(records) - records)[records > 0], np.int64)


def _tells(documents: Documents) -> Tells:
    def tells(group: Group, told: BoolArray) -> BoolArray:
        """In one stream of documents the label at a window's end is of the token that comes next there."""
        ends = group.at["input_ids"][1:] - 1
        told[ends] = documents.places(group)[ends] + 1 < documents.total
        return told

    return tells


def _write_parts(documents: Documents, manifest: Manifest, folder: Path) -> int:
    """Sizes and places of what is there of each document, one record for each part. Returns how many."""
    first = 0
    cuts = _cuts(manifest)
    new_cuts = cuts.copy()
    with open(folder / "sizes", "wb") as sizes, open(folder / "places", "wb") as places:
        for start, stop in _ranges(documents):
            size, place, counts = _parts(documents, start, stop)
            size.tofile(sizes)
            place.tofile(places)
            inside = (cuts >= start) & (cuts < stop)
            new_cuts[inside] = first + (np.cumsum(counts) - counts)[cuts[inside] - start]
            first += len(size)
    new_cuts.tofile(folder / "cuts")
    return first


def _ranges(documents: Documents) -> Iterator[tuple[int, int]]:
    """Documents, about AT_ONCE tokens at a time and never more of them than that."""
    start, total = 0, len(documents.lengths)
    while start < total:
        stop = int(np.searchsorted(documents.starts, documents.starts[start] + AT_ONCE, side="right")) - 1
        stop = min(max(stop, start + 1), start + AT_ONCE, total)
        yield start, stop
        start = stop


def _parts(documents: Documents, start: int, stop: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Of documents start to stop: tokens and place of each unbroken part, int64 (p,), one of no tokens for a document
    of which nothing is there; and the number of parts of each, int64 (d,)."""
    starts = np.asarray(documents.starts[start : stop + 1])
    here = np.asarray(documents.tokens[starts[0] : starts[-1]]) != ABSENT
    opens = here.copy()
    opens[1:] &= ~here[:-1]
    closes = here.copy()
    closes[:-1] &= ~here[1:]
    edges = starts[:-1][np.diff(starts) > 0] - starts[0]
    opens[edges] = here[edges]
    inner = edges[edges > 0] - 1
    closes[inner] = here[inner]
    begin, end = np.flatnonzero(opens), np.flatnonzero(closes) + 1
    owner = np.searchsorted(starts, begin + starts[0], side="right") - 1
    counts = np.bincount(owner, minlength=stop - start)
    empty = np.flatnonzero(counts == 0)
    order = np.argsort(np.concatenate([owner, empty]), kind="stable")
    size = np.concatenate([end - begin, np.zeros(len(empty), np.int64)])[order]
    place = np.concatenate([begin + starts[0], starts[empty]])[order]
    return size, place, np.maximum(counts, 1)
