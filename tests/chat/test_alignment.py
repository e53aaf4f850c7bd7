"""Spans of characters to token masks: every kind of tokenizer against the offsets of `tokenizers`, token by token."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from packer.alignment import Aligner, Spans
from packer.errors import TokenizerError

WORDS = "the quick brown fox jumps over a lazy dog, isn't it? Zürich naïve café 東京 の 夜 🙂 👩‍🚀 12 345 don't \n\n\t"
CORPUS = [WORDS, WORDS.upper(), "  indented   text\n  and more", "Paris is in France; Paris, Texas is not. " * 3]
CONTROL = ["<s>", "</s>", "<|im_end|>", "[INST]"]
PIECES = [
    *("the quick", " brown", "fox ", "Paris", " is", " ", "  ", "\n", "\n\n", "\t", "é", "e\u0301", "東京", "夜", "🙂"),
    *("👩‍🚀", "\u2581", "\u2581x", "ﬁ", "İ", "\u0958", "\x00", "…", "12345", "'s", "<mask>", " <mask> ", "naïve"),
    *CONTROL,
]


def trained(model: models.Model, trainer: trainers.Trainer, **parts: Any) -> Tokenizer:
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(CONTROL)
    return tokenizer


def byte_level(**parts: Any) -> Tokenizer:
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=letters, show_progress=False)
    parts = {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False), **parts}
    return trained(models.BPE(), trainer, **parts)


def letters_missing() -> Tokenizer:
    """A byte-level vocabulary of the bytes that it saw: others become the unknown token."""
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False)
    return trained(models.BPE(unk_token="<unk>"), trainer, pre_tokenizer=pre_tokenizers.ByteLevel(False))


def sentencepiece(**parts: Any) -> Tokenizer:
    """BPE over characters with blanks for spaces, and bytes to fall back on."""
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False)
    tokenizer = trained(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainer, **parts)
    state = json.loads(tokenizer.to_str())
    vocab = state["model"]["vocab"]
    vocab |= {f"<0x{byte:02X}>": 1000 + byte for byte in range(256)}
    return Tokenizer.from_str(json.dumps(state))


BLANKS = normalizers.Replace(" ", "\u2581")


def metaspace(scheme: str) -> Tokenizer:
    return sentencepiece(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False))


def swallowing(**flags: bool) -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<mask>", **flags)])
    return tokenizer


def unigram() -> Tokenizer:
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    return trained(models.Unigram(), trainer, normalizer=normalizers.NFKC(), pre_tokenizer=pre_tokenizers.Metaspace())


def wordpiece() -> Tokenizer:
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    return trained(
        models.WordPiece(unk_token="[UNK]"),
        trainer,
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    )


def words_of_digits() -> Tokenizer:
    steps = [
        pre_tokenizers.Split(Regex(r"\p{L}+|\s+|[^\s\p{L}]+"), "isolated"),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return byte_level(pre_tokenizer=pre_tokenizers.Sequence(steps))


few = settings(max_examples=30)  # for each kind

KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level,
    "byte-level, trimmed offsets": lambda: byte_level(post_processor=processors.ByteLevel(trim_offsets=True)),
    "byte-level, NFC": lambda: byte_level(normalizer=normalizers.NFC()),
    "byte-level, lower case": lambda: byte_level(normalizer=normalizers.Lowercase()),
    "byte-level, prefix space": lambda: byte_level(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "byte-level, digits apart": words_of_digits,
    "byte-level, letters missing": letters_missing,
    "byte-level, mask takes space before": lambda: swallowing(lstrip=True),
    "byte-level, mask takes space after": lambda: swallowing(rstrip=True),
    "byte-level, mask a whole word": lambda: swallowing(single_word=True),
    "blanks, one in front of each section": lambda: sentencepiece(
        normalizer=normalizers.Sequence([normalizers.Prepend("\u2581"), BLANKS])
    ),
    "blanks, none in front": lambda: sentencepiece(normalizer=BLANKS),
    "blanks, one in front of the text": lambda: metaspace("first"),
    "blanks, always one in front": lambda: metaspace("always"),
    "blanks, never one in front": lambda: metaspace("never"),
    "unigram": unigram,
    "wordpiece": wordpiece,
}
FAST = {
    *("byte-level", "byte-level, trimmed offsets", "byte-level, NFC", "byte-level, digits apart"),
    *("blanks, one in front of each section", "blanks, none in front", "blanks, one in front of the text"),
    *("blanks, never one in front", "byte-level, letters missing"),
}
kept = cache(lambda kind: KINDS[kind]())


@cache
def aligner(kind: str) -> Aligner:
    return Aligner(kept(kind))


def encoded(tokenizer: Tokenizer, texts: list[str]) -> tuple[Any, Any]:
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ids = [i for encoding in encodings for i in encoding.ids]
    return np.array(ids, np.int32), np.cumsum([0, *map(len, encodings)], dtype=np.int64)


@cache
def with_whole_offsets(kind: str) -> Tokenizer:
    plain = Tokenizer.from_str(kept(kind).to_str())
    plain.post_processor = None  # it can leave spaces out of them
    return plain


def reference(kind: str, text: str, spans: Spans) -> tuple[list[bool], int]:
    """One token at a time."""
    mask, across = [], 0
    for start, stop in with_whole_offsets(kind).encode(text, add_special_tokens=False).offsets:
        mask.append(any(first <= start < last for first, last in spans))
        across += any(start < bound < stop for span in spans for bound in span)
    return mask, across


@st.composite
def texts_and_spans(draw: st.DrawFn) -> tuple[list[str], list[list[tuple[int, int]]]]:
    texts = draw(st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), min_size=1, max_size=4))
    spans = []
    for text in texts:
        bounds = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
        spans.append(list(zip(bounds[0::2], bounds[1::2], strict=False)))
    return texts, spans


@pytest.mark.parametrize("kind", KINDS)
@few
@given(case=texts_and_spans())
def test_equals_offsets_token_by_token(kind: str, case: tuple[list[str], list[list[tuple[int, int]]]]) -> None:
    texts, spans = case
    tokenizer = kept(kind)
    mask, across = aligner(kind).masks(texts, *encoded(tokenizer, texts), spans)
    expected = [reference(kind, text, own) for text, own in zip(texts, spans, strict=True)]
    assert mask.dtype == np.bool_
    assert mask.tolist() == [trained for own, _ in expected for trained in own]
    assert across == sum(count for _, count in expected)


@pytest.mark.parametrize("kind", KINDS)
def test_which_tokenizers_need_no_second_encoding(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = kept(kind)
    texts = ["the quick Paris is</s> lazy <|im_end|>\n", "naïve 東京 🙂"]
    ids, offsets = encoded(tokenizer, texts)
    fresh = Aligner(tokenizer)
    asked: list[str] = []
    by_offsets = fresh._by_offsets
    monkeypatch.setattr(fresh, "_by_offsets", lambda *given: asked.append("again") or by_offsets(*given))
    fresh.masks(texts, ids, offsets, [[(4, 9)], [(0, 5)]])
    swallow = kind.startswith("byte-level, mask")  # none in these texts
    assert (not asked) == (kind in FAST or swallow)


def test_a_token_belongs_to_the_side_where_it_begins() -> None:
    tokenizer = kept("byte-level")
    text = "in Paris now"
    tokens = [text[a:b] for a, b in tokenizer.encode(text, add_special_tokens=False).offsets]
    assert " Paris" in tokens  # the space is part of it
    ids, offsets = encoded(tokenizer, [text])
    paris = tokens.index(" Paris")
    with_space, across = Aligner(tokenizer).masks([text], ids, offsets, [[(2, 8)]])
    assert (with_space.nonzero()[0].tolist(), across) == ([paris], 0)
    without, across = Aligner(tokenizer).masks([text], ids, offsets, [[(3, 8)]])
    assert (without.sum(), across) == (0, 1)


def test_every_token_of_a_character_goes_with_it() -> None:
    tokenizer = kept("byte-level")
    text = "a\U0001f9ffb"
    ids, offsets = encoded(tokenizer, [text])
    assert len(ids) >= 5
    mask, across = Aligner(tokenizer).masks([text], ids, offsets, [[(1, 2)]])
    assert (mask.tolist(), across) == ([False, *[True] * (len(ids) - 2), False], 0)


def test_texts_without_spans_or_tokens() -> None:
    tokenizer = kept("byte-level")
    mask, across = Aligner(tokenizer).masks([], *encoded(tokenizer, []), [])
    assert (mask.tolist(), across) == ([], 0)
    mask, across = Aligner(tokenizer).masks(["", "fox"], *encoded(tokenizer, ["", "fox"]), [[], []])
    assert not mask.any()
    assert across == 0


def test_ids_of_another_text_are_refused() -> None:
    tokenizer = kept("wordpiece")
    ids, offsets = encoded(tokenizer, ["the quick"])
    with pytest.raises(TokenizerError, match="are not those"):
        Aligner(tokenizer).masks(["the lazy dog"], ids, offsets, [[(0, 3)]])


def test_control_tokens_read_as_text_stay_so() -> None:
    literal = Tokenizer.from_str(kept("unigram").to_str())
    literal.encode_special_tokens = True
    text = "Paris <|im_end|> is"
    ids, offsets = encoded(literal, [text])
    mask, _ = Aligner(literal).masks([text], ids, offsets, [[(6, 16)]])
    assert mask.sum() > 1
