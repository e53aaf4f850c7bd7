"""Every token against INPUT: the documents are put together again from the rows, and compared with a new tokenization.

Rows hold documents in random order, INPUT has them in its own, so the rows are first put into tables in document order
(`packer.stored.tables`), then both are read side by side. Memory stays bounded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from packer import corpus, engines, holdout, rendering, stored, tokenizer
from packer.chat import ChatOptions
from packer.conversation import ChatCounts
from packer.corpus import PartitionReader, ReadOptions
from packer.corpus.packed import ABSENT, UNKNOWN
from packer.encoding import ChatEnds, Encoded, encode
from packer.errors import DatasetError, UsageError
from packer.manifest import Manifest, Totals
from packer.plan import Int64Array, offsets_of, runs
from packer.remote import Place
from packer.stored.tables import Documents
from packer.verify import splits, windows


def check(
    out: Place, manifest: Manifest, inputs: Sequence[str], tokenizer_source: str | None, template: str | None = None
) -> int:
    """Returns how many tokens were compared. Raises DatasetError at the first that differs. template: the chat
    template's file, where it lies elsewhere than the manifest says."""
    try:
        options = ReadOptions(**manifest.options.read)
    except TypeError as error:
        raise DatasetError(f"manifest.json: options.read is damaged: {error}") from None
    sources = corpus.find_sources(inputs, options, out=str(out)).sources
    stored.check(sources, tokenizer_source, options)
    ready = all(source.schema is not None and source.schema.kind == "input_ids" for source in sources)
    engine, ends = _tokenizer(manifest, tokenizer_source) if tokenizer_source or not ready else (None, None)
    render, chat_ends = (None, None) if ready else _chats(manifest, tokenizer_source, template)
    compared = lost = 0
    seen, chats = Totals(), ChatCounts()
    with tempfile.TemporaryDirectory(prefix="packer-verify-") as folder:
        sources = stored.put_together(sources, Path(folder) / stored.FOLDER, options)
        documents = Documents(Path(folder), out, manifest.parts, manifest.totals.records)
        if manifest.options.window is None:
            documents.fill()
        else:
            documents.fill(next_tokens=True, tells=windows.places_of(documents, manifest, Path(folder)).tells)
        if manifest.validation is not None:
            documents_splits = splits.split_of(out, manifest, Path(folder))
        windowed = np.memmap(Path(folder) / "windowed", np.int64, "w+", shape=(manifest.totals.records,))
        for partition in corpus.partition(sources, options):
            left = None if options.limit is None else options.limit - seen.records
            if left == 0:
                break
            reader = PartitionReader(partition, replace(options, limit=left), render)
            counts = Totals()
            for batch in encode(reader, engine, ends, chat_ends):
                chats += batch.chats
                held, held_trained = _compare(documents, batch, seen.records)
                compared += held
                lost += int(_masked(batch).sum()) - held_trained
                if manifest.validation is not None:
                    _check_splits(manifest, manifest.validation.ratio, batch, documents_splits, seen.records)
                windowed[batch.ordinals + seen.records] = _windowed(batch, manifest.options.min_tokens)
                counts += Totals(
                    documents=len(batch.ordinals),
                    tokens=len(batch.ids),
                    empty=batch.empty,
                    masked_documents=int(batch.masked.sum()),
                )
            seen += replace(counts, records=sum(reader.tally.records), skipped=reader.tally.skipped)
        _check_totals(manifest, seen, chats, lost)
        held = documents.held()
        if compared != held:
            raise DatasetError(f"only {compared} of {held} tokens in the rows are in INPUT")
        if manifest.options.window is not None:
            _check_windows(out, manifest, windowed, Path(folder))
    return compared


def _check_totals(manifest: Manifest, seen: Totals, chats: ChatCounts, lost: int) -> None:
    """lost: tokens of INPUT that a loss mask trains and that are in no row."""
    for name in ("records", "documents", "tokens", "skipped", "empty", "masked_documents"):
        found, expected = getattr(seen, name), getattr(manifest.whole, name)
        if found != expected:
            raise DatasetError(f"INPUT has {found} {name}, but the data set was made from {expected}")
    for name, expected in asdict(manifest.chats or ChatCounts()).items():
        if (found := getattr(chats, name)) != expected:
            raise DatasetError(f"INPUT's chats have {found} {name}, but the manifest says {expected}")
    expected = sum(split.losses.trained_tokens for split in manifest.splits)
    if manifest.options.window is None and lost != expected:
        raise DatasetError(f"INPUT has {lost} trained tokens that are in no row, but the manifest says {expected}")


def _check_splits(manifest: Manifest, ratio: float, batch: Encoded, marks: NDArray[np.uint8], first_doc: int) -> None:
    """Every document that is in some row is in the split where its content belongs."""
    held = holdout.held_out(batch.ids, batch.offsets, ratio, manifest.seed)
    found = marks[batch.ordinals + first_doc]
    wrong = (found != 0) & (found != np.where(held, 2, 1))
    if wrong.any():
        at = int(np.argmax(wrong))
        name = manifest.splits[int(held[at])].split
        raise DatasetError(f"document {batch.ordinals[at] + first_doc}: by its content it belongs in split {name}")


def _windowed(batch: Encoded, min_tokens: int) -> Int64Array:
    """Tokens of each document, 0 where it is left out whole: too short, or nothing in it to train on."""
    lengths = np.diff(batch.offsets)
    left_out = lengths < min_tokens
    if batch.mask is not None:
        trained = offsets_of(batch.mask.view(np.int8))
        first = np.minimum(batch.offsets[:-1] + 1, batch.offsets[1:])  # nothing predicts the first token
        left_out |= batch.masked & (trained[batch.offsets[1:]] == trained[first])
    return np.where(left_out, 0, lengths)


def _check_windows(out: Place, manifest: Manifest, lengths: Int64Array, folder: Path) -> None:
    """The windows are those of INPUT's documents, those of which no row tells included."""
    starts = np.memmap(folder / "stream", np.int64, "w+", shape=(len(lengths) + 1,))
    np.cumsum(lengths, out=starts[1:])
    documents = manifest.totals.documents - manifest.losses.documents
    tokens = manifest.totals.tokens - manifest.losses.tokens
    if (int((lengths > 0).sum()), int(starts[-1])) != (documents, tokens):
        raise DatasetError(
            f"INPUT has {int((lengths > 0).sum())} documents with {starts[-1]} tokens to make windows of, but the "
            f"manifest says {documents} with {tokens}"
        )
    places = windows.Places(folder, manifest, lengths, starts, tokens)
    windows.check_places(out, manifest, places, folder)


def _tokenizer(manifest: Manifest, source: str | None) -> tuple[engines.Engine | None, tokenizer.Ends | None]:
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
    return engines.make("hf", loaded, literal), ends


def _chats(
    manifest: Manifest, source: str | None, template: str | None
) -> tuple[rendering.Rendering | None, ChatEnds | None]:
    """What renders chats as the data set's were. Raises DatasetError where the template is another one."""
    described, facts, ends = manifest.options.chat, manifest.tokenizer, manifest.options
    if facts is None:
        return None, None
    source = source or facts.source
    try:
        options = rendering.options_of(described, source, template) if described else ChatOptions(source)
        rendered_by = (described or {}).get("rendered_by") or {}
        expected = {one.get("sha256") for one in (rendered_by, rendered_by.get("with_tools", rendered_by))}
    except (AttributeError, KeyError, TypeError) as error:
        raise DatasetError(f"manifest.json: options.chat is damaged: {error}") from None
    literal, eos = ends.special_in_text == "literal", bool(ends.eos or ends.eos_token)
    render, chat_ends = rendering.prepare(
        options, tokenizer.load(source), literal=literal, add_bos=bool(ends.bos), add_eos=eos
    )
    if rendered_by:
        now = render.renderer.facts()
        if {one.get("sha256") for one in (now, now.get("with_tools", now))} != expected:
            raise DatasetError(
                f"the chat template {now['template']} is not the one the data set was made with: its sha256 is "
                f"{str(now['sha256'])[:12]}..., not {str(rendered_by.get('sha256'))[:12]}...; --chat-template names it"
            )
    return render, chat_ends


def _masked(batch: Encoded) -> NDArray[np.bool_]:
    """Trained tokens of documents that came with a loss mask: bool (t,)."""
    if batch.mask is None:
        return np.zeros(len(batch.ids), np.bool_)
    return batch.mask & np.repeat(batch.masked, np.diff(batch.offsets))


def _compare(documents: Documents, batch: Encoded, first_doc: int) -> tuple[int, int]:
    """Compares a batch's documents with those of the rows; documents that no row holds were lost, and counted. Returns
    how many tokens the rows hold, and how many of these are trained by a loss mask."""
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
    return int(held.sum()), int((held & _masked(batch)[here]).sum())


def _raise_first(ordinals: Int64Array, batch: Encoded, here: Int64Array, wrong: NDArray[np.bool_], what: str) -> None:
    if wrong.any():
        at = int(here[np.argmax(wrong)])
        document = int(np.searchsorted(batch.offsets, at, side="right")) - 1
        position = at - int(batch.offsets[document])
        raise DatasetError(f"document {ordinals[document]}, position {position}: the {what} is not that of INPUT")
