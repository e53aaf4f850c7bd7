r"""Token ids to text that keeps its token boundaries: the bytes of each token, and which tokens make a character.

Decoding a row as a whole loses where tokens end; decoding token by token breaks characters that several tokens share,
drops ids that the vocabulary does not have, and a SentencePiece decoder eats a space wherever it starts. So each token
becomes its bytes first:

    ids       464    30325   222     50256
    bytes     The    e2 98   83      <|endoftext|>
    units     The    ☃               <|endoftext|>, told apart as a control token

and a unit is the shortest run of tokens that ends where a character ends. Where only some tokens of a character are
trained it stays in its tokens, and their bytes are shown: \xe2\x98 \x83.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import tokenizers

from packer.plan import BoolArray, Int64Array

Kind = Literal["text", "control", "unknown"]
BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")  # a byte-fallback token
BY_PIECE = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}  # decoders that leave each piece its own text


class Piece(NamedTuple):
    """One token: the bytes of its text, and whether it is text, a control token, or unknown: an id that the vocabulary
    does not have, or a token without text. That one is written as its number, #50270."""

    data: bytes
    kind: Kind


@dataclass(frozen=True)
class Unit:
    """Tokens first to stop (in their segment), shown as one. A byte that is no part of a whole character in the unit
    stands in `text` as a lone surrogate (Python's `surrogateescape`)."""

    first: int
    stop: int
    text: str
    kind: Kind
    trained: bool


class Vocabulary:
    """What each id of a tokenizer stands for."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._added = backend.get_added_tokens_decoder()
        self._steps = list(_decoders(backend))
        names = {step["type"] for step in self._steps}
        self._way = "bytes" if names == {"ByteLevel"} else "pieces" if names and names <= BY_PIECE else "decode"
        self._bytes = _byte_level_alphabet() if self._way == "bytes" else {}

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """One for each id, none without bytes."""
        result: list[Piece] = []
        before: int | None = None  # the token that a decoder with rules for neighbours has to see
        for i in ids:
            piece = self._named(i)
            if piece is None:
                data = self._text(i, before)
                piece = Piece(data, "text") if data else Piece(f"#{i}".encode(), "unknown")
            before = i if piece.kind == "text" else None
            result.append(piece)
        return result

    def _named(self, i: int) -> Piece | None:
        """Added tokens, and ids that the vocabulary does not have."""
        added = self._added.get(i)
        if added is not None and added.content:
            return Piece(added.content.encode(), "control" if added.special else "text")
        if self._backend.id_to_token(i) is None:
            return Piece(f"#{i}".encode(), "unknown")
        return None

    def _text(self, i: int, before: int | None) -> bytes:
        token = str(self._backend.id_to_token(i))
        if self._way == "bytes":
            found = [self._bytes.get(c) for c in token]
            return bytes(b for b in found if b is not None) if None not in found else token.encode()
        if self._way == "pieces":
            return self._by_steps(token)
        alone = self._decode([i])
        if before is None:
            return alone.encode()
        left, both = self._decode([before]), self._decode([before, i])
        return (both.removeprefix(left) if both.startswith(left) else alone).encode()

    def _decode(self, ids: list[int]) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=False))

    def _by_steps(self, token: str) -> bytes:
        for step in self._steps:
            if step["type"] == "ByteFallback" and (byte := BYTE.fullmatch(token)):
                return bytes.fromhex(byte[1])
            if step["type"] == "Replace" and "String" in step["pattern"]:
                token = token.replace(step["pattern"]["String"], step["content"])
            if step["type"] == "Metaspace":
                token = token.replace(step["replacement"], " ")
        return token.encode()


def _decoders(backend: tokenizers.Tokenizer) -> Iterator[dict[str, Any]]:
    """The steps of its decoder, as its JSON has them."""
    waiting = [json.loads(backend.decoder.__getstate__())] if backend.decoder else []
    while waiting:
        step = waiting.pop(0)
        if step["type"] == "Sequence":
            waiting = step["decoders"] + waiting
        else:
            yield step


def _byte_level_alphabet() -> dict[str, int]:
    """The characters that byte-level tokenizers write bytes with: Latin-1's visible ones stand for themselves, the
    others follow from U+0100 in their order."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def units(vocabulary: Vocabulary, ids: Int64Array, trained: BoolArray) -> list[Unit]:
    """The tokens of a segment, in order; each is in one unit. ids: int64 (n,); trained: bool (n,)."""
    pieces, flags = vocabulary.pieces(ids.tolist()), trained.tolist()
    result: list[Unit] = []
    first = 0
    while first < len(pieces):
        stop = first + 1
        if pieces[first].kind == "text":
            while stop < len(pieces) and pieces[stop].kind == "text":
                stop += 1
            result += _characters(pieces, flags, first, stop)
        else:
            result.append(Unit(first, stop, pieces[first].data.decode(), pieces[first].kind, flags[first]))
        first = stop
    return result


def _characters(pieces: Sequence[Piece], flags: Sequence[bool], first: int, stop: int) -> Iterator[Unit]:
    """Units of consecutive text tokens first to stop."""
    parts = [piece.data for piece in pieces[first:stop]]
    text = b"".join(parts).decode("utf-8", "surrogateescape")
    whole = set(accumulate(len(c.encode("utf-8", "surrogateescape")) for c in text))  # where characters end
    begin, begin_byte, end_byte = first, 0, 0
    joined = b"".join(parts)
    for i, part in enumerate(parts, first):
        end_byte += len(part)
        if end_byte not in whole:
            continue
        if len(set(flags[begin : i + 1])) == 1:
            ends = [(begin, i + 1, joined[begin_byte:end_byte])]
        else:
            ends = [(at, at + 1, parts[at - first]) for at in range(begin, i + 1)]
        for a, b, data in ends:
            yield Unit(a, b, data.decode("utf-8", "surrogateescape"), "text", flags[a])
        begin, begin_byte = i + 1, end_byte
