"""The trial on many small tokenizers: it refuses, with a reason, or the ids are the reference's on any text."""

# ruff: noqa: RUF001  characters that look like others are what this is about

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.engines import FastEngine, HfEngine, trial
from packer.errors import TokenizerError
from packer.tokenizer import Tokenizer

Grid = Callable[[str], Tokenizer]
Texts = Callable[[object, int, Tokenizer], Iterator[str]]

# What becomes of each: "both" modes served, "parse" only, or words of the reason. Where a part was never compared the
# fast engine may well be right; where it is known to be wrong, says this table.
SERVED = {
    "gpt2": "both",
    "gpt2 wide merges": "both",
    "prefix space": "both",
    "no pattern": "both",
    "deepseek": "both",
    "smollm": "both",
    "nfc": "both",
    "replace a letter": "both",
    "ignore merges": "both",
    "truncation": "both",
    "post-processor": "both",
    "added lstrip": "both",
    "added rstrip": "both",
    "added single_word": "both",
    "added normalized": "both",
    "added nfc normalized": "both",
    "added text": "both",
    "added nfc accent, whole": "both",
    "llama": "both",
    "gemma": "both",
    "no fusion": "both",
    "no bytes": "both",
    "no bytes, no fusion": "both",
    "llama lstrip": "both",
    "llama rstrip": "both",
    **{f"pattern {name}": "both" for name in "abcdefgh"},
    "gpt2 as pattern": "with this pattern",
    "word pattern": "with this pattern",
    "boundary pattern": "with this pattern",
    "space pattern": "with this pattern",
    "removed": "with this pattern",
    "digit runs": "Digits",
    "punctuation": "Punctuation",
    "white space": "WhitespaceSplit",
    "NFD": "NFD",
    "NFKC": "NFKC",
    "NFKD": "NFKD",
    "Lowercase": "Lowercase",
    "replace a pattern": "Replace",
    "end of word": "end_of_word_suffix",
    "metaspace": "Metaspace",
    "bytes added": "both",
    "angle lacking": "its ids of '<0x",
    "byte lacking": "it refuses",
    "unknown token lacking": "refuses",
    "added elsewhere": "outside the vocabulary",  # the reference numbers such tokens anew
    "added nfc accent": "after normalization",
    "llama normalized": "after normalization",
    "no unknown": "both",
    "no bytes, no unknown": "",
}
# With these the reference itself finds a control token in plain text, so that no engine can leave it be
NEVER_LITERAL = ("ignore merges",)
QUICK = ("gpt2", "pattern a", "added text", "llama")


def difference(tokenizer: Tokenizer, mode: str, texts: list[str]) -> str | None:
    """The first text whose ids are not the reference's."""
    found, ends = FastEngine(tokenizer, special_in_text=mode).encode(texts)
    right, offsets = HfEngine(tokenizer, special_in_text=mode).encode(texts)
    if np.array_equal(found, right) and np.array_equal(ends, offsets):
        return None
    return next(
        text
        for i, text in enumerate(texts)
        if found[ends[i] : ends[i + 1]].tolist() != right[offsets[i] : offsets[i + 1]].tolist()
    )


def check(grid: Grid, texts: Texts, name: str, mode: str) -> None:
    tokenizer, expected = grid(name), SERVED[name]
    if mode == "literal" and name in NEVER_LITERAL:
        with pytest.raises(TokenizerError, match="its model itself makes"):
            trial.reason_against(tokenizer, mode)
        return
    reason = trial.reason_against(tokenizer, mode)
    if reason is None:
        assert difference(tokenizer, mode, list(texts(f"{name} {mode}", 500, tokenizer))) is None
        assert expected in ("both", "parse")
        assert mode == "parse" or expected == "both"
    else:
        assert expected not in ("both", mode), reason
        assert expected == "parse" or expected in reason


def test_the_table_is_the_grid(grid: Grid) -> None:
    assert {*SERVED, "dropout"} == {*grid.names}  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["parse", "literal"])
@pytest.mark.parametrize("name", QUICK)
def test_some(grid: Grid, texts: Texts, name: str, mode: str) -> None:
    check(grid, texts, name, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["parse", "literal"])
@pytest.mark.parametrize("name", [name for name in SERVED if name not in QUICK])
def test_the_others(grid: Grid, texts: Texts, name: str, mode: str) -> None:
    check(grid, texts, name, mode)


def test_dropout_is_refused_before_any_engine(grid: Grid) -> None:
    with pytest.raises(TokenizerError, match="dropout"):
        grid("dropout")


@pytest.mark.parametrize("name", ["sample", "gpt2", "pattern h", "added nfc normalized", "llama"])
@settings(max_examples=100)
@given(texts=st.lists(st.text() | st.text("aé中 \n'’s1²\u0301<|end|>\u3000\x00", max_size=40), max_size=8))
def test_any_text(grid: Grid, name: str, texts: list[str]) -> None:
    assert difference(grid(name), "parse", texts) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["sample", "pattern b", "added nfc normalized", "llama"])
def test_a_hundred_thousand_hostile_strings(grid: Grid, texts: Texts, name: str, seed: int) -> None:
    tokenizer = grid(name)
    assert difference(tokenizer, "parse", list(texts(("hundred thousand", name, seed), 13_000, tokenizer))) is None
