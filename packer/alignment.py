"""Which tokens are trained, where spans of characters are: a token belongs to a span if it begins there.

`encode_batch_fast` tells no offsets, and a call that does costs half as much again. Most tokenizers need none. A token
of a byte-level vocabulary stands for as many bytes as its name has letters, one of a SentencePiece-like BPE for the
bytes of its name with blanks for `▁`, so running totals over a document's ids are the places where its tokens begin;
and that nothing was lost, changed or put in shows in the total, which is checked for each document:

    ids        "Hi" "ĠPar" "is" <eot>      bytes 2 4 2 5      begins at 0 2 6 8      text: 13 bytes
    span       characters 2 to 8, " Paris"                    trained   0 1 1 0

Documents that fail (a normalizer changed them, white space was swallowed) and other tokenizers are encoded once more,
with offsets. A token begins where its first character stands, a space that is part of it included; what a tokenizer
puts in front of a text stands where the text begins.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tokenizers

from packer.errors import TokenizerError
from packer.plan import BoolArray, Int32Array, Int64Array, offsets_of

Spans = Sequence[tuple[int, int]]

UNKNOWN = -(1 << 40)  # a token whose bytes are not known: no document's total is right with one of these
BLANK = "▁"  # what SentencePiece writes for a space
KEEPS_ALL = ("Split", "Digits", "Punctuation")  # pre-tokenizers that cut a text and, unless told to remove, keep all
PREPEND = {"type": "Prepend", "prepend": BLANK}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}


class Aligner:
    """Makes token masks of character spans, for texts encoded by `backend` without adding special tokens."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._table = _table(backend)
        self._slow: tokenizers.Tokenizer | None = None

    def masks(
        self, texts: Sequence[str], ids: Int32Array, offsets: Int64Array, spans: Sequence[Spans]
    ) -> tuple[BoolArray, int]:
        """texts (n,), their ids: int32 (t,) end to end with offsets: int64 (n+1,), and for each text its spans of
        characters [start, stop), in order and apart.

        Returns the mask, bool (t,), and how many tokens reach across a span's start or end. Ids that are not those of
        the text are a TokenizerError.
        """
        if self._table is None:
            return self._by_offsets(texts, np.split(ids, offsets[1:-1]), spans)
        widths = self._table.widths_of(ids, offsets, texts)
        known = self._known(texts, np.diff(offsets_of(widths)[offsets]))
        if known.all():
            return _by_bytes(texts, widths, spans)
        mask = np.zeros(len(ids), np.bool_)
        within = np.repeat(known, np.diff(offsets))
        chosen, others = np.flatnonzero(known).tolist(), np.flatnonzero(~known).tolist()
        mask[within], straddling = _by_bytes([texts[i] for i in chosen], widths[within], [spans[i] for i in chosen])
        own = [ids[offsets[i] : offsets[i + 1]] for i in others]
        mask[~within], more = self._by_offsets([texts[i] for i in others], own, [spans[i] for i in others])
        return mask, straddling + more

    def _known(self, texts: Sequence[str], totals: Int64Array) -> BoolArray:
        """Documents whose tokens' bytes are all of the text's: bool (n,)."""
        sizes = np.fromiter((len(t) if t.isascii() else len(t.encode()) for t in texts), np.int64, len(texts))
        known: BoolArray = totals == sizes
        if self._table is not None and self._table.normalizer:
            for i in np.flatnonzero(known).tolist():
                known[i] = self._is_normal(texts[i], self._table.normalizer)
        return known

    def _is_normal(self, text: str, normalizer: str) -> bool:
        """Whether the tokenizer's normalizer leaves the text as it is."""
        if normalizer == "NFC":  # the most usual, and Python knows a quick answer
            return unicodedata.is_normalized("NFC", text)
        return bool(self._backend.normalizer.normalize_str(text) == text)

    def _by_offsets(
        self, texts: Sequence[str], ids: Sequence[Int32Array], spans: Sequence[Spans]
    ) -> tuple[BoolArray, int]:
        if self._slow is None:
            self._slow = tokenizers.Tokenizer.from_str(self._backend.to_str())
            self._slow.encode_special_tokens = self._backend.encode_special_tokens
            self._slow.post_processor = None  # it would leave the spaces out of the offsets
        parts, straddling = [np.zeros(0, np.bool_)], 0
        encodings = self._slow.encode_batch(list(texts), add_special_tokens=False)
        for text, own, encoding, wanted in zip(texts, ids, encodings, spans, strict=True):
            if not np.array_equal(own, np.array(encoding.ids, np.int64)):
                raise TokenizerError(f"the ids of the text {text[:40]!r} are not those that its tokenizer gives now")
            places = np.array(encoding.offsets, np.int64).reshape(-1, 2)
            bounds = np.array(wanted, np.int64).reshape(-1, 2)
            # Tokens of one character begin together, so it is tokens that are looked up, not bounds.
            after = np.searchsorted(bounds[:, 0], places[:, 0], side="right")
            inside = after > 0
            inside[inside] = places[inside, 0] < bounds[after[inside] - 1, 1]
            edges = bounds.ravel()
            first = np.searchsorted(edges, places[:, 0], side="right")
            straddling += int((first < np.searchsorted(edges, places[:, 1], side="left")).sum())
            parts.append(inside)
        return np.concatenate(parts), straddling


def _by_bytes(texts: Sequence[str], widths: Int64Array, spans: Sequence[Spans]) -> tuple[BoolArray, int]:
    """For texts whose tokens' widths are all known: int64 (t,), of all texts end to end."""
    begins = offsets_of(widths)
    bounds: list[int] = []
    base = 0
    for text, own in zip(texts, spans, strict=True):
        places, size = _in_bytes(text, own)
        bounds += [base + place for place in places]
        base += size
    edges = np.array(bounds, np.int64)
    tokens = np.searchsorted(begins, edges)  # the first that begins there or after
    steps = np.zeros(len(begins), np.int64)
    np.add.at(steps, tokens[0::2], 1)
    np.add.at(steps, tokens[1::2], -1)
    return np.cumsum(steps[:-1]) > 0, len(np.unique(tokens[begins[tokens] != edges]))


def _in_bytes(text: str, spans: Spans) -> tuple[list[int], int]:
    """The spans' starts and stops as places in the UTF-8 text, and its size."""
    bounds = [bound for span in spans for bound in span]
    if text.isascii():
        return bounds, len(text)
    places, place, done = [], 0, 0
    for bound in bounds:
        place += len(text[done:bound].encode())
        done = bound
        places.append(place)
    return places, place + len(text[done:].encode())


@dataclass(frozen=True)
class _Table:
    """What each id stands for.

    widths: int64 (v,), bytes of text, UNKNOWN for some; blank: bool (v,), ids whose token begins with a blank; added:
    bool (v,), added tokens; prefix: where the tokenizer puts a blank in front, "" nowhere, "document" or "section" (of
    what stands between added tokens); normalizer: what may change a text otherwise, "" nothing.
    """

    widths: Int64Array
    blank: BoolArray
    added: BoolArray
    prefix: str
    normalizer: str

    def widths_of(self, ids: Int32Array, offsets: Int64Array, texts: Sequence[str]) -> Int64Array:
        """Bytes of text that each token stands for: int64 (t,)."""
        widths: Int64Array = self.widths[ids]
        if not self.prefix or not len(ids):
            return widths
        added = self.added[ids]
        first = np.zeros(len(ids), np.bool_)
        starts, full = offsets[:-1], np.diff(offsets) > 0
        if self.prefix == "document":  # and only where none stands there already
            full = full & np.fromiter((not text.startswith((" ", BLANK)) for text in texts), np.bool_, len(texts))
        else:
            first[1:] = added[:-1]
        first[starts[full]] = True
        first &= ~added
        widths[first] -= 1
        widths[first & ~self.blank[ids]] = UNKNOWN
        return widths


def _table(backend: tokenizers.Tokenizer) -> _Table | None:
    """None where a token's name does not tell its bytes."""
    state: dict[str, Any] = json.loads(backend.to_str())
    model = state["model"]
    if model["type"] != "BPE" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None
    vocab: dict[str, int] = backend.get_vocab(with_added_tokens=False)
    pre_tokenizers = _parts(state["pre_tokenizer"], "pretokenizers")
    byte_level = _cuts_bytes(pre_tokenizers)
    prefix = "" if byte_level else _prefix(state["normalizer"], pre_tokenizers)
    widths = _byte_level_widths(vocab, model) if byte_level else _sentencepiece_widths(vocab, model)
    if widths is None or prefix is None:
        return None
    added = backend.get_added_tokens_decoder()
    size = max([*vocab.values(), *added]) + 1
    table = _Table(
        np.full(size, UNKNOWN, np.int64),
        np.zeros(size, np.bool_),
        np.zeros(size, np.bool_),
        prefix,
        normalizer=(state["normalizer"] or {}).get("type", "") if byte_level else "",
    )
    for token, i in vocab.items():
        table.widths[i] = widths.get(token, UNKNOWN)
        table.blank[i] = token.startswith(BLANK)
    for i, written in added.items():
        changed = written.normalized and BLANK in written.content
        table.widths[i] = UNKNOWN if changed else len(written.content.encode())
        table.added[i] = True
    return table


def _byte_level_widths(vocab: dict[str, int], model: dict[str, Any]) -> dict[str, int] | None:
    alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    complete = alphabet <= vocab.keys()
    if not complete and model.get("byte_fallback"):
        return None
    widths = {token: len(token) for token in vocab if alphabet.issuperset(token)}
    if not complete:  # what stands for anything
        widths.pop(model.get("unk_token") or "", None)
    return widths


def _sentencepiece_widths(vocab: dict[str, int], model: dict[str, Any]) -> dict[str, int] | None:
    """With bytes to fall back on, nothing is unknown."""
    fallback = {f"<0x{byte:02X}>": 1 for byte in range(256)}
    if not model.get("byte_fallback") or not fallback.keys() <= vocab.keys():
        return None
    return {token: len(token.replace(BLANK, " ").encode()) for token in vocab} | fallback


def _prefix(normalizer: dict[str, Any] | None, pre_tokenizers: list[dict[str, Any]]) -> str | None:
    """Where a SentencePiece-like tokenizer puts a blank in front; None where it does something else to a text."""
    normalizers = _parts(normalizer, "normalizers")
    spaces = [part for part in pre_tokenizers if part["type"] == "Metaspace"]
    if any(part["type"] not in ("Metaspace", *KEEPS_ALL) for part in pre_tokenizers):
        return None
    if not spaces and normalizers in ([REPLACE], [PREPEND, REPLACE]):
        return "section" if PREPEND in normalizers else ""
    if not normalizers and len(spaces) == 1 and spaces[0]["replacement"] == BLANK:
        return {"never": "", "first": "document"}.get(spaces[0]["prepend_scheme"])
    return None


def _parts(processor: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """A normalizer's or pre-tokenizer's steps."""
    if processor is None:
        return []
    return list(processor[name]) if processor["type"] == "Sequence" else [processor]


def _cuts_bytes(pre_tokenizers: list[dict[str, Any]]) -> bool:
    """Whether a text becomes bytes here, and nothing is put in. (What is left out shows in a document's total.)"""
    levels = [part for part in pre_tokenizers if part["type"] == "ByteLevel"]
    known = all(part["type"] in ("ByteLevel", *KEEPS_ALL) for part in pre_tokenizers)
    return known and len(levels) == 1 and not levels[0]["add_prefix_space"]
