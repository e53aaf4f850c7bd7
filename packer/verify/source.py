"""Every token against INPUT: the documents are put together again from the rows, and compared with a new tokenization.

Rows hold documents in random order, INPUT has them in its own, so the rows are first written into one temporary file
in document order (4 bytes a token), then both are read side by side. Memory stays bounded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from packer import corpus, tokenizer
from packer.corpus import PartitionReader, ReadOptions
from packer.encoding import Encoded, encode
from packer.errors import DatasetError, UsageError
from packer.manifest import Manifest, Totals
from packer.plan import Int64Array, runs
from packer.schema import IGNORE_INDEX
from packer.verify.rows import Group, groups

ABSENT = -1  # a token that no row holds
UNKNOWN = 2  # whether a token is trained cannot be seen: nothing predicts a segment's first token


class _Documents:
    """Documents put together again, on disk. starts: int64 (records+1,), where each begins among `tokens`."""

    def __init__(self, folder: Path, out: Path, manifest: Manifest) -> None:
        records = manifest.totals.records
        self.lengths = np.memmap(folder / "lengths", np.int64, "w+", shape=(records,))
        for shard in manifest.shards:
            for group in groups(out, manifest, shard.path):
                self.lengths[group.flat["doc_ids"]] = group.flat["doc_lengths"]
        self.starts = np.memmap(folder / "starts", np.int64, "w+", shape=(records + 1,))
        np.cumsum(self.lengths, out=self.starts[1:])
        total = int(self.starts[-1])
        self.tokens = np.memmap(folder / "tokens", np.int32, "w+", shape=(total,))
        self.trained = np.memmap(folder / "trained", np.int8, "w+", shape=(total,)) if manifest.layout.masked else None
        for start in range(0, total, 1 << 24):
            self.tokens[start : start + (1 << 24)] = ABSENT
            if self.trained is not None:
                self.trained[start : start + (1 << 24)] = UNKNOWN
        for shard in manifest.shards:
            for group in groups(out, manifest, shard.path):
                self._place(group, manifest.layout.labels)

    def _place(self, group: Group, labels: str) -> None:
        places = runs(self.starts[group.flat["doc_ids"]] + group.flat["doc_starts"], group.segment_lengths)
        self.tokens[places] = group.flat["input_ids"]
        if self.trained is None:
            return
        visible = group.labels != IGNORE_INDEX
        if labels == "aligned":
            known = ~group.is_sequence_start
            self.trained[places[known]] = visible[known]
        else:  # the label at a position is of the document's next one
            last = np.zeros(len(places), np.bool_)
            last[group.segment_starts + group.segment_lengths - 1] = True
            self.trained[places[~last] + 1] = visible[~last]


def check(out: Path, manifest: Manifest, inputs: Sequence[str], tokenizer_source: str | None) -> int:
    """Returns how many tokens were compared. Raises DatasetError at the first that differs."""
    engine, ends = _tokenizer(manifest, tokenizer_source)
    try:
        options = ReadOptions(**manifest.options.read)
    except TypeError as error:
        raise DatasetError(f"manifest.json: options.read is damaged: {error}") from None
    sources = corpus.find_sources(inputs, options, out=str(out)).sources
    compared = 0
    seen = Totals()
    with tempfile.TemporaryDirectory(prefix="packer-verify-") as folder:
        documents = _Documents(Path(folder), out, manifest)
        for partition in corpus.partition(sources, options):
            left = None if options.limit is None else options.limit - seen.records
            if left == 0:
                break
            reader = PartitionReader(partition, replace(options, limit=left))
            counts = Totals()
            for batch in encode(reader, engine, ends):
                compared += _compare(documents, batch, seen.records)
                counts += Totals(documents=len(batch.ordinals), tokens=len(batch.ids), empty=batch.empty)
            seen += replace(counts, records=sum(reader.tally.records), skipped=reader.tally.skipped)
    for name in ("records", "documents", "tokens", "skipped", "empty"):
        found, expected = getattr(seen, name), getattr(manifest.totals, name)
        if found != expected:
            raise DatasetError(f"INPUT has {found} {name}, but the data set was made from {expected}")
    if compared != manifest.totals.placed_tokens:
        raise DatasetError(f"only {compared} of {manifest.totals.placed_tokens} tokens in the rows are in INPUT")
    return compared


def _tokenizer(manifest: Manifest, source: str | None) -> tuple[tokenizer.Engine | None, tokenizer.Ends | None]:
    facts = manifest.tokenizer
    if facts is None:
        if source is not None:
            raise UsageError("the data set was packed from ready-made ids, without a tokenizer; leave out --tokenizer")
        return None, None
    loaded = tokenizer.load(source or facts.source)
    if loaded.fingerprint != facts.fingerprint:
        raise DatasetError(
            f"tokenizer {loaded.source} is not the one the data set was made with: its tokenizer.json has sha256 "
            f"{loaded.fingerprint[:12]}..., not {facts.fingerprint[:12]}..."
        )
    literal = manifest.options.special_in_text or "parse"
    ends = tokenizer.Ends(tuple(facts.prefix), tuple(facts.suffix), facts.summary)
    return tokenizer.HfEngine(loaded, special_in_text=literal), ends


def _compare(documents: _Documents, batch: Encoded, first_doc: int) -> int:
    """Compares a batch's documents with those of the rows; documents that no row holds were lost, and counted."""
    ordinals = batch.ordinals + first_doc
    if len(ordinals) and ordinals[-1] >= len(documents.lengths):
        raise DatasetError(f"INPUT holds more than the {len(documents.lengths)} records the data set was made from")
    stored, lengths = documents.lengths[ordinals], np.diff(batch.offsets)
    placed = stored > 0
    wrong = placed & (stored != lengths)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DatasetError(f"document {ordinals[at]}: {stored[at]} tokens in the rows, {lengths[at]} in INPUT")
    here = runs(batch.offsets[:-1][placed], lengths[placed])
    there = runs(documents.starts[ordinals[placed]], lengths[placed])
    tokens = documents.tokens[there]
    held = tokens != ABSENT
    _raise_first(ordinals, batch, here, held & (tokens != batch.ids[here]), "token")
    if documents.trained is not None:
        trained = documents.trained[there]
        mask = np.ones(len(here), np.bool_) if batch.mask is None else batch.mask[here]
        _raise_first(ordinals, batch, here, held & (trained != UNKNOWN) & ((trained == 1) != mask), "loss mask")
    return int(held.sum())


def _raise_first(ordinals: Int64Array, batch: Encoded, here: Int64Array, wrong: NDArray[np.bool_], what: str) -> None:
    if wrong.any():
        at = int(here[np.argmax(wrong)])
        document = int(np.searchsorted(batch.offsets, at, side="right")) - 1
        position = at - int(batch.offsets[document])
        raise DatasetError(f"document {ordinals[document]}, position {position}: the {what} is not that of INPUT")
