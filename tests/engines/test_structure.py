"""What a tokenizer.json may be built of for the fast engine, and what is left to the reference."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from packer.engines.structure import PATTERNS, reason_against

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PREPEND, SPACES = {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
NFC = {"type": "NFC"}


def split(pattern: dict[str, str], behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def regex(pattern: str, **other: Any) -> dict[str, Any]:
    return split({"Regex": pattern}, **other)


def normalizers(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


def pre_tokenizers(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def content(**parts: Any) -> dict[str, Any]:
    """A tokenizer.json with these parts, otherwise GPT-2's."""
    model = {"type": "BPE", "dropout": None, "vocab": {}, "merges": []} | parts.pop("model", {})
    return {"added_tokens": [], "normalizer": None, "pre_tokenizer": BYTE_LEVEL, "model": model} | parts


def added(text: str, **flags: bool) -> dict[str, Any]:
    return {"id": 0, "content": text, "normalized": False, "special": True} | flags


ALLOWED = {
    "gpt-2": content(),
    "no type, as files of old": {**content(), "model": {"vocab": {}, "merges": []}},
    "ignore_merges": content(model={"ignore_merges": True}),
    "byte_fallback": content(model={"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}),
    "empty affixes": content(model={"continuing_subword_prefix": "", "end_of_word_suffix": ""}),
    "no dropout": content(model={"dropout": 0.0}),
    "nfc": content(normalizer=NFC),
    "nothing splits": content(pre_tokenizer=None),
    "llama-2": content(normalizer=normalizers(PREPEND, SPACES), pre_tokenizer=None),
    "gemma": content(normalizer=SPACES, pre_tokenizer=split({"String": " "}, behavior="MergedWithPrevious")),
    "nested": content(normalizer=normalizers(normalizers(NFC)), pre_tokenizer=pre_tokenizers(pre_tokenizers())),
    "digits": content(pre_tokenizer=pre_tokenizers({"type": "Digits", "individual_digits": True}, BYTE_LEVEL)),
    "added": content(added_tokens=[added("<é>"), added("<x>", normalized=True, lstrip=True, special=False)]),
    "added, nfc": content(normalizer=NFC, added_tokens=[added("<é>"), added("<x>", normalized=True)]),
    **{f"pattern {i}": content(pre_tokenizer=pre_tokenizers(regex(one))) for i, one in enumerate(sorted(PATTERNS))},
}

REFUSED = {
    "dropout": (content(model={"dropout": 0.1}), "dropout"),
    "end of word": (content(model={"end_of_word_suffix": "</w>"}), "end_of_word_suffix"),
    "subword prefix": (content(model={"continuing_subword_prefix": "##"}), "continuing_subword_prefix"),
    "Unigram": (content(model={"type": "Unigram"}), "Unigram"),
    "WordPiece": (content(model={"type": "WordPiece"}), "WordPiece"),
    "WordLevel": (content(model={"type": "WordLevel"}), "WordLevel"),
    "no model": ({}, "unknown"),
    **{
        kind: (content(normalizer=normalizers(NFC, {"type": kind})), kind)
        for kind in ("Lowercase", "NFD", "NFKC", "NFKD", "StripAccents", "Strip", "Precompiled", "BertNormalizer")
    },
    "replace a pattern": (content(normalizer={"type": "Replace", "pattern": {"Regex": " "}, "content": ""}), "Replace"),
    "Metaspace": (content(pre_tokenizer={"type": "Metaspace", "replacement": "▁"}), "Metaspace"),
    **{
        kind: (content(pre_tokenizer=pre_tokenizers({"type": kind}, BYTE_LEVEL)), kind)
        for kind in ("Whitespace", "WhitespaceSplit", "Punctuation", "BertPreTokenizer", "CharDelimiterSplit")
    },
    "runs of digits": (content(pre_tokenizer={"type": "Digits", "individual_digits": False}), "Digits"),
    **{
        pattern: (content(pre_tokenizer=regex(pattern)), "with this pattern")
        for pattern in (r"\w+|[^\w\s]+", r"\b\w+\b", r"\S+", r"'s| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    },
    "inverted": (content(pre_tokenizer=regex(r"\p{N}{1,3}", invert=True)), "with this pattern"),
    "removed": (content(pre_tokenizer=regex(r"\p{N}{1,3}", behavior="Removed")), "with this pattern"),
    "another string": (content(pre_tokenizer=split({"String": "_"}, behavior="MergedWithPrevious")), "this pattern"),
    "another way": (content(pre_tokenizer=split({"String": " "}, behavior="Isolated")), "this pattern"),
    "added, normalized": (content(normalizer=NFC, added_tokens=[added("<é>", normalized=True)]), "'<\\xe9>'"),
    "added, prepended": (
        content(normalizer=normalizers(PREPEND, SPACES), added_tokens=[added("<s>", normalized=True)]),
        "'<s>'",
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name: str) -> None:
    assert reason_against(ALLOWED[name]) is None


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    parts, said = REFUSED[name]
    before = copy.deepcopy(parts)
    assert said in (reason_against(parts) or "")
    assert parts == before
