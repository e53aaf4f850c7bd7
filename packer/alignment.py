"""Which tokens are trained, where spans of characters are: a token belongs to a span if it begins there.

`encode_batch_fast` tells no offsets, and a call that does costs half as much again. Byte-level tokenizers need none:
each token stands for as many bytes as its name has letters, so running totals over a document's ids are the places
where its tokens begin, and that nothing was lost or put in shows in the total, which is checked for each document:

    ids        "Hi" "ĠPar" "is" <eot>      bytes 2 4 2 5      begins at 0 2 6 8      text: 13 bytes
    span       characters 2 to 8, " Paris"                    trained   0 1 1 0

Documents that fail (a normalizer changed them, white space was swallowed) and other tokenizers are encoded once more,
with offsets. A token begins where its first character stands, a space that is part of it included.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers

from packer.errors import TokenizerError
from packer.plan import BoolArray, Int32Array, Int64Array, offsets_of

Spans = Sequence[tuple[int, int]]

UNKNOWN = -(1 << 40)  # a token whose bytes are not known: no document's total is right with one of these
KEEPS_ALL = ("Split", "Digits", "Punctuation")  # pre-tokenizers that cut a text and, unless told to remove, keep all


class Aligner:
    """Makes token masks of character spans, for texts encoded by `backend` without adding special tokens."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._widths = _byte_widths(backend)
        self._slow: tokenizers.Tokenizer | None = None

    def masks(
        self, texts: Sequence[str], ids: Int32Array, offsets: Int64Array, spans: Sequence[Spans]
    ) -> tuple[BoolArray, int]:
        """texts (n,), their ids: int32 (t,) end to end with offsets: int64 (n+1,), and for each text its spans of
        characters [start, stop), in order and apart.

        Returns the mask, bool (t,), and how many tokens reach across a span's start or end. Ids that are not those of
        the text are a TokenizerError.
        """
        known = self._known(texts, ids, offsets)
        if known.all():
            return self._by_bytes(texts, ids, spans)
        mask = np.zeros(len(ids), np.bool_)
        within = np.repeat(known, np.diff(offsets))
        chosen, others = np.flatnonzero(known).tolist(), np.flatnonzero(~known).tolist()
        mask[within], straddling = self._by_bytes([texts[i] for i in chosen], ids[within], [spans[i] for i in chosen])
        own = [ids[offsets[i] : offsets[i + 1]] for i in others]
        mask[~within], more = self._by_offsets([texts[i] for i in others], own, [spans[i] for i in others])
        return mask, straddling + more

    def _known(self, texts: Sequence[str], ids: Int32Array, offsets: Int64Array) -> BoolArray:
        """Documents whose tokens' bytes are all of the text's: bool (n,)."""
        if self._widths is None:
            return np.zeros(len(texts), np.bool_)
        totals = np.diff(offsets_of(self._widths[ids])[offsets])
        sizes = np.fromiter((len(t) if t.isascii() else len(t.encode()) for t in texts), np.int64, len(texts))
        known: BoolArray = totals == sizes
        normalizer = self._backend.normalizer
        if normalizer is not None:
            for i in np.flatnonzero(known).tolist():
                known[i] = normalizer.normalize_str(texts[i]) == texts[i]
        return known

    def _by_bytes(self, texts: Sequence[str], ids: Int32Array, spans: Sequence[Spans]) -> tuple[BoolArray, int]:
        assert self._widths is not None or not texts
        begins = offsets_of(self._widths[ids]) if self._widths is not None else offsets_of(ids)
        bounds: list[int] = []
        base = 0
        for text, own in zip(texts, spans, strict=True):
            places, size = _in_bytes(text, own)
            bounds += [base + place for place in places]
            base += size
        return _mask(begins, np.array(bounds, np.int64))

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
            # Tokens of one character begin together, so a token is looked up, not a bound.
            after = np.searchsorted(bounds[:, 0], places[:, 0], side="right")
            inside = after > 0
            inside[inside] = places[inside, 0] < bounds[after[inside] - 1, 1]
            edges = bounds.ravel()
            first = np.searchsorted(edges, places[:, 0], side="right")
            straddling += int((first < np.searchsorted(edges, places[:, 1], side="left")).sum())
            parts.append(inside)
        return np.concatenate(parts), straddling


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


def _mask(begins: Int64Array, bounds: Int64Array) -> tuple[BoolArray, int]:
    """begins: int64 (t+1,), where tokens begin, strictly increasing, and the end; bounds: int64 (2s,), in order."""
    places = np.searchsorted(begins, bounds)
    across = begins[places] != bounds
    steps = np.zeros(len(begins), np.int64)
    np.add.at(steps, places[0::2], 1)
    np.add.at(steps, places[1::2], -1)
    return np.cumsum(steps[:-1]) > 0, len(np.unique(places[across]))


def _byte_widths(backend: tokenizers.Tokenizer) -> Int64Array | None:
    """How many bytes of text each id stands for: int64 (v,); None where the tokenizer is not a byte-level one."""
    state: dict[str, Any] = json.loads(backend.to_str())
    model = state["model"]
    if model["type"] != "BPE" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return None
    if not _cuts_bytes(state["pre_tokenizer"]):
        return None
    alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = backend.get_vocab(with_added_tokens=False)
    complete = alphabet <= vocab.keys()
    if not complete and model.get("byte_fallback"):
        return None
    added = backend.get_added_tokens_decoder()
    widths = np.full(max([*vocab.values(), *added]) + 1, UNKNOWN, np.int64)
    for token, i in vocab.items():
        if alphabet.issuperset(token):
            widths[i] = len(token)
    for i, written in added.items():
        widths[i] = len(written.content.encode())
    unknown = model.get("unk_token")
    if not complete and unknown in vocab:
        widths[vocab[unknown]] = UNKNOWN
    return widths


def _cuts_bytes(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Whether a text becomes bytes here, and nothing is put in. (What is left out shows in a document's total.)"""
    parts = [pre_tokenizer] if pre_tokenizer and pre_tokenizer["type"] != "Sequence" else []
    parts = parts or (pre_tokenizer or {}).get("pretokenizers", [])
    levels = [part for part in parts if part["type"] == "ByteLevel"]
    known = all(part["type"] in ("ByteLevel", *KEEPS_ALL) for part in parts)
    return known and len(levels) == 1 and not levels[0]["add_prefix_space"]


__all__ = ["Aligner", "Spans"]
