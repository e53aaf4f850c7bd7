"""A row as text: every token's own bytes, whole characters, and a notation that reads back to exactly these."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from packer.inspection import Row, Segment, Unit, Vocabulary, units
from packer.inspection.notation import Signs, escaped, id_line, signs_for, text_lines
from packer.inspection.screen import Screen

SAMPLE = Path(__file__).parents[1] / "sample_data" / "tokenizer" / "tokenizer.json"
CORPUS = ["the quick brown fox jumps over the lazy dog", "two fish, red fish; don't stop 123", "naïve café 你好"] * 9
NASTY = st.text(
    st.one_of(
        st.sampled_from("⟦⟧⟨⟩[]{}\\#nx0 \n\r\t\x00\x1b\x80\x85\u202e\ufffd\u200d😀é你"), st.characters(codec="utf-8")
    )
)
CONTROL = ["<|a|>", "[B]", "#7", "⟦c⟧"]
Marked = list[tuple[int, bool, bool]]  # (byte, trained, control token)


@cache
def made(kind: str) -> tokenizers.Tokenizer:
    """A small tokenizer of each kind of decoder."""
    if kind == "sample":
        return tokenizers.Tokenizer.from_file(str(SAMPLE))
    if kind == "bytes":
        result = tokenizers.Tokenizer(models.BPE())
        result.pre_tokenizer, result.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    elif kind == "byte-fallback":
        result = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
        result.normalizer = normalizers.Replace(" ", "▁")
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        result.decoder = decoders.Sequence(steps)
        special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, initial_alphabet=["▁"])
        result.train_from_iterator(CORPUS[:2], trainer)
        state = result.to_str()  # the bytes are pieces of the vocabulary, not added tokens
        result = tokenizers.Tokenizer.from_str(
            re.sub(r'"added_tokens": ?\[.*?\],', '"added_tokens": [],', state, flags=re.S)
        )
        result.add_special_tokens(CONTROL)
        return result
    elif kind == "unigram":
        result = tokenizers.Tokenizer(models.Unigram())
        result.pre_tokenizer, result.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=80, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
        )
    else:
        result = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        result.pre_tokenizer, result.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=["[UNK]"])
    result.train_from_iterator(CORPUS, trainer)
    result.add_special_tokens(CONTROL)
    return result


@cache
def vocabulary(kind: str) -> Vocabulary:
    return Vocabulary(made(kind))


def marked(kind: str, ids: Sequence[int], trained: Sequence[bool]) -> Marked:
    """The slow reference: each token's bytes, one after another."""
    pieces = vocabulary(kind).pieces(ids)
    pairs = zip(pieces, trained, strict=True)
    return [(byte, flag, piece.kind != "text") for piece, flag in pairs for byte in piece.data]


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sample", "bytes", "byte-fallback"])
@given(text=NASTY)
def test_the_pieces_are_the_bytes_of_the_text(kind: str, text: str) -> None:
    ids = made(kind).encode(text, add_special_tokens=False).ids
    pieces = vocabulary(kind).pieces(ids)
    assert len(pieces) == len(ids)
    assert b"".join(piece.data for piece in pieces) == text.encode().replace("▁".encode(), b" ")


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
@pytest.mark.parametrize("text", ["the quick fox", "red fish; don't stop 123", "lazy dog, lazy", "fish"])
def test_the_pieces_are_what_the_decoder_makes_of_them(kind: str, text: str) -> None:
    ids = made(kind).encode(text, add_special_tokens=False).ids
    pieces = vocabulary(kind).pieces(ids)
    assert {piece.kind for piece in pieces} == {"text"}
    assert b"".join(piece.data for piece in pieces).decode().strip() == made(kind).decode(
        ids, skip_special_tokens=False
    )


def test_what_the_vocabulary_does_not_have_is_shown() -> None:
    assert vocabulary("bytes").pieces([10**6]) == [(b"#1000000", "unknown")]
    control = made("bytes").token_to_id("#7")
    assert vocabulary("bytes").pieces([control]) == [(b"#7", "control")]


def test_whole_characters_and_parts_of_them() -> None:
    smile = made("bytes").encode("a😀b").ids
    assert len(smile) > 4 or pytest.fail("the emoji should take several tokens")
    n = len(smile)
    whole = units(vocabulary("bytes"), np.array(smile), np.ones(n, np.bool_))
    assert [(unit.first, unit.stop, unit.text) for unit in whole] == [(0, 1, "a"), (1, n - 1, "😀"), (n - 1, n, "b")]
    cut = units(vocabulary("bytes"), np.array(smile[:-2]), np.ones(n - 2, np.bool_))
    assert "".join(unit.text for unit in cut) == "a" + "😀".encode()[:-1].decode("utf-8", "surrogateescape")
    parted = units(vocabulary("bytes"), np.array(smile), np.arange(n) != 2)
    assert "".join(text_lines(parted, signs_for("utf-8"))) == r"⟦a\xf0⟧\x9f⟦\x98\x80b⟧"


@given(data=st.data())
@pytest.mark.parametrize("kind", ["bytes", "byte-fallback", "unigram", "wordpiece"])
def test_each_token_is_in_one_unit_that_is_trained_as_it_is(kind: str, data: st.DataObject) -> None:
    ids, trained = data.draw(tokens(kind))
    found = units(vocabulary(kind), np.array(ids, np.int64), np.array(trained, np.bool_))
    assert [i for unit in found for i in range(unit.first, unit.stop)] == list(range(len(ids)))
    assert [unit.trained for unit in found for _ in range(unit.first, unit.stop)] == trained
    assert all(unit.text for unit in found)
    joined = b"".join(unit.text.encode("utf-8", "surrogateescape") for unit in found)
    assert joined == bytes(byte for byte, _, _ in marked(kind, ids, trained))


# --- notation --------------------------------------------------------------------------------------------------------


@st.composite
def tokens(draw: st.DrawFn, kind: str) -> tuple[list[int], list[bool]]:
    """Ids of texts, control tokens, other ids of the vocabulary and beyond it; and what is trained."""
    ids: list[int] = []
    backend = made(kind)
    for part in draw(st.lists(st.one_of(NASTY, st.integers(0, backend.get_vocab_size() + 3)), max_size=6)):
        ids += [part] if isinstance(part, int) else backend.encode(part, add_special_tokens=False).ids
    ids += [backend.token_to_id(token) for token in draw(st.lists(st.sampled_from(CONTROL), max_size=2))]
    changes = draw(st.lists(st.integers(0, len(ids)), max_size=6))
    return ids, (np.searchsorted(sorted(changes), np.arange(len(ids)), side="right") % 2 == 1).tolist()


def read_back(lines: Sequence[str], signs: Signs) -> Marked:
    """The notation's rule, without knowing the text."""
    result: Marked = []
    trained = control = False
    for line in lines:
        assert "\n" not in line
        at = 0
        while at < len(line):
            c = line[at]
            at += 1
            if c in signs.trained:
                assert trained == (c == signs.trained[1])
                trained = not trained
                continue
            if c in signs.control:
                assert control == (c == signs.control[1])
                control = not control
                continue
            data = c.encode()
            if c == "\\":
                kind = line[at]
                width = {"x": 2, "u": 4, "U": 8}.get(kind, 0)
                code = int(line[at + 1 : at + 1 + width], 16) if width else 0
                named = {"n": "\n", "r": "\r", "t": "\t"}.get(kind, kind)
                data = bytes([code]) if kind == "x" else (chr(code) if width else named).encode()
                at += 1 + width
            result += [(byte, trained, control) for byte in data]
        assert (trained, control) == (False, False), "a line closes what it opens"
    return result


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("kind", ["bytes", "byte-fallback", "unigram", "wordpiece"])
@given(data=st.data())
def test_the_notation_reads_back_exactly(kind: str, encoding: str, data: st.DataObject) -> None:
    ids, trained = data.draw(tokens(kind))
    signs = signs_for(encoding)
    lines = list(text_lines(units(vocabulary(kind), np.array(ids, np.int64), np.array(trained, np.bool_)), signs))
    assert all(c.isprintable() for line in lines for c in line)
    assert "".join(lines).encode(encoding).decode(encoding) == "".join(lines)
    assert read_back(lines, signs) == marked(kind, ids, trained)


def test_text_cannot_pass_for_marks() -> None:
    found = [
        Unit(0, 1, "⟦x⟧\\n[y]\n", "text", False),
        Unit(1, 2, "<|a|>", "text", False),
        Unit(2, 3, "#7", "control", True),
    ]
    assert list(text_lines(found, signs_for("utf-8"))) == [r"\⟦x\⟧\\n[y]\n", r"<|a|>⟦⟨\#7⟩⟧"]
    assert list(text_lines(found, signs_for("ascii"))) == [r"\u27e6x\u27e7\\n\[y\]\n", r"<|a|>[{\#7}]"]


def test_control_characters_are_escaped() -> None:
    assert escaped("a\n\x1b[31mé\u202e\x85\\") == "a\\n\\x1b[31mé\\u202e\\u0085\\"
    assert escaped("é😀", "latin-1") == "é\\U0001f600"
    assert escaped(b"caf\xe9".decode("utf-8", "surrogateescape")) == "caf\\xe9"


def test_ids() -> None:
    signs = signs_for("utf-8")
    flags = [False, True, True, False, True]
    assert id_line([1, 2, 3, 4, 5], flags, 12, signs) == "1 ⟦2 3⟧ 4 ⟦5⟧"
    assert id_line([1, 2, 3, 4, 5], flags, 2, signs) == "1 ⟦2⟧ ... 3 more"


# --- screen ----------------------------------------------------------------------------------------------------------


def a_row(text: str, trained: slice, *, beyond: int | None = None, source: str = "in.jsonl, record 0") -> Row:
    ids = np.array(made("sample").encode(text).ids)
    flags = np.zeros(len(ids), np.bool_)
    flags[trained] = True
    segment = Segment(0, 0, len(ids), source, 0, 0, ids, np.where(flags, ids, -100), flags, beyond)
    return Row(0, "data/x.parquet", 0, len(ids), int(flags.sum()), len(ids), [segment])


def screen(
    width: int = 60, encoding: str = "utf-8", *, terminal: bool, no_color: bool = False, text: bool = True
) -> Screen:
    file = io.TextIOWrapper(io.BytesIO(), encoding)
    kind = "standard" if terminal else None
    console = Console(
        file=file, force_terminal=terminal, color_system=kind, no_color=no_color, width=width, _environ={}
    )  # type: ignore[arg-type]
    return Screen(console, vocabulary("sample") if text else None)


def test_colours_tell_what_is_trained() -> None:
    row = a_row("fish [a] \\n\x1b[31m and a good deal more of it\n<|endoftext|>", slice(3, None))
    end = row.segments[0].ids[-1]
    assert made("sample").id_to_token(end) == "<|endoftext|>"
    lines = list(screen(30, terminal=True).row(row, 512))
    assert any("\x1b[" in line for line in lines)
    shown = [Text.from_ansi(line) for line in lines]
    assert all(len(line.plain) <= 30 for line in shown)
    body = shown[[line.plain.startswith("  segment") for line in shown].index(True) :]
    body = [line for line in body if line.plain.startswith("    ")]
    pieces = [piece.data.decode() for piece in vocabulary("sample").pieces(row.segments[0].ids.tolist())]
    expected = [(c, i >= 3) for i, piece in enumerate(pieces) for c in escaped(piece) if c != " "]
    found = []
    for line in body:
        for at, c in enumerate(line.plain):
            styles = [str(span.style) for span in line.spans if span.start <= at < span.end]
            if c != " ":
                found.append((c, any("color(2)" in style for style in styles)))  # green
    assert found == expected
    legend = Text.from_ansi(screen(80, terminal=True).legend())
    assert legend.plain.startswith("trained   not trained   control tokens")


@pytest.mark.parametrize("options", [{"terminal": False}, {"terminal": True, "no_color": True}])
def test_without_colours_the_notation(options: dict[str, bool]) -> None:
    row = a_row("fish [a]\n" * 40, slice(0, 1), source="a\x1b[31m.jsonl, record 0")
    shown = screen(**options)  # type: ignore[arg-type]
    lines = list(shown.row(row, 512))
    assert not shown.coloured
    assert "\x1b" not in "".join(lines)
    assert lines[0].endswith(f"{row.tokens} of at most 512 tokens, 1 trained, longest sequence {row.tokens}")
    assert f"(a\\x1b[31m.jsonl, record 0), whole, {row.tokens} tokens, 1 trained" in lines[2]
    assert "".join(line[4:] for line in lines[3:]).replace("⟦", "").replace("⟧", "") == "fish [a]\\n" * 40
    assert shown.legend() == "⟦ trained ⟧  ⟨ control token ⟩  \\ escapes"


def test_a_label_beyond_the_row_is_told() -> None:
    beyond = made("sample").encode(" fish").ids[0]
    lines = list(screen(terminal=False, encoding="ascii").row(a_row("two", slice(0, 0), beyond=beyond), 8))
    assert lines[-2].startswith("  its last label")
    assert lines[-1] == f"    [{made('sample').decode([beyond])}]"
    lines = list(screen(terminal=False, text=False).row(a_row("two", slice(0, 0), beyond=beyond), 8))
    assert lines[-1] == f"    ⟦{beyond}⟧"
