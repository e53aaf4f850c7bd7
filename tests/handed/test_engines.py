"""The fast engine against the reference on real corpora with real tokenizers: every id of every document.

They are not part of the repository: PACKER_HANDED names the folder that holds `corpora/`, `tokenizers/` and `bench/`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.corpus import PartitionReader, ReadOptions, TextBatch, find_sources, partition
from packer.engines import FastEngine, HfEngine, trial
from packer.errors import TokenizerError
from packer.tokenizer import load

HANDED = os.environ.get("PACKER_HANDED")
if not HANDED:
    pytest.skip("PACKER_HANDED names no folder of handed corpora", allow_module_level=True)

CORPORA, TOKENIZERS, BENCH = (Path(HANDED) / name for name in ("corpora", "tokenizers", "bench"))
TRUTH: dict[str, Any] = json.loads((CORPORA / "truth.json").read_text(encoding="utf-8"))["files"]
SERVED = ("gpt2", "qwen3", "mistral_v3", "olmo_neox", "tt_2k_ignore_merges", "tt_gemma_cropped")
REFUSED = {"t5_unigram": "Unigram", "tt_tiny_bpe": "byte 0x"}


def test_every_tokenizer_is_in_the_lists() -> None:
    assert {path.parent.name for path in TOKENIZERS.glob("*/tokenizer.json")} == {*SERVED, *REFUSED}


@pytest.mark.parametrize("name", [*SERVED, *REFUSED])
def test_the_verdict(name: str) -> None:
    tokenizer = load(str(TOKENIZERS / name))
    reason = trial.reason_against(tokenizer, "parse")
    assert reason is None if name in SERVED else REFUSED[name] in (reason or "")
    if name == "tt_gemma_cropped":
        with pytest.raises(TokenizerError, match="--special-in-text literal"):
            trial.reason_against(tokenizer, "literal")


def sources() -> Iterator[tuple[Path, ReadOptions]]:
    """Every file of texts: each field and each way to cut it that is known, and all that can be read at all."""
    for name, truth in TRUTH.items():
        for field in truth.get("fields", {}):
            yield CORPORA / name, ReadOptions(text_field=field, on_error="skip")
        if truth.get("views"):
            for split in ("file", "line"):
                yield CORPORA / name, ReadOptions(split_text=split)


def batches(path: Path, options: ReadOptions) -> Iterator[list[str]]:
    for part in partition(find_sources([str(path)], options).sources, options):
        for batch in PartitionReader(part, options):
            if isinstance(batch, TextBatch):
                yield list(batch.texts)


def check(name: str, batches: Iterator[list[str]], mode: str = "parse") -> int:
    """Returns how many documents were compared."""
    tokenizer = load(str(TOKENIZERS / name))
    fast, reference = FastEngine(tokenizer, special_in_text=mode), HfEngine(tokenizer, special_in_text=mode)
    count = 0
    for texts in batches:
        (found, ends), (right, offsets) = fast.encode(texts), reference.encode(texts)
        np.testing.assert_array_equal(ends, offsets)
        np.testing.assert_array_equal(found, right)
        count += len(texts)
    return count


@pytest.mark.parametrize("name", SERVED)
def test_all_corpora(name: str) -> None:
    count = sum(check(name, batches(*source)) for source in sources())
    assert count > 10_000
    if trial_of_literal(name):
        assert sum(check(name, batches(*source), "literal") for source in list(sources())[::4]) > 1_000


def trial_of_literal(name: str) -> bool:
    try:
        return trial.reason_against(load(str(TOKENIZERS / name)), "literal") is None
    except TokenizerError:
        return False


@pytest.mark.parametrize("corpus", ["en.jsonl.zst", "multi.jsonl.zst"])
@pytest.mark.parametrize("name", SERVED)
def test_the_large_corpora(name: str, corpus: str) -> None:
    assert check(name, batches(BENCH / corpus, ReadOptions())) > 1_000
