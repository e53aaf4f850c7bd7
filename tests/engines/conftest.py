"""A grid of small tokenizers, each with one feature of tokenizer.json, and hostile texts beyond the built-in ones."""

from __future__ import annotations

import copy
import json
import random
import string
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from packer.engines import hostile
from packer.engines.structure import PATTERNS
from packer.tokenizer import Tokenizer, load

SAMPLES = Path(__file__).parents[2] / "sample_data"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTROL = ["<|end|>", "<s>"]
Content = dict[str, Any]


def _lines() -> list[str]:
    text = (SAMPLES / "stories.txt").read_text(encoding="utf-8") + (SAMPLES / "notes.txt").read_text(encoding="utf-8")
    return [*text.split("\n"), "é ü ñ 中文 字符 😀 Ⅷ x² привет мир"]


@cache
def _byte_level(use_regex: bool = True) -> str:
    """Byte-level BPE as GPT-2's; without the pattern its merges reach over words."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=CONTROL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_lines(), trainer)
    return str(backend.to_str())


@cache
def _sentence_piece(bytes_added: bool = False) -> str:
    """BPE over characters, with a token for each byte, as Llama-2's."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=special, initial_alphabet=[*string.printable], show_progress=False
    )
    backend.train_from_iterator((line.replace(" ", "▁") for line in _lines()), trainer)
    content = json.loads(backend.to_str())
    if not bytes_added:
        content["added_tokens"] = content["added_tokens"][:3]
    return json.dumps(content)


def changed(source: str, **parts: Any) -> Content:
    """A tokenizer.json with parts replaced; `model` and `first` (the first added token) are only added to;
    more: further added tokens with their flags, numbered from `at` on."""
    content: Content = json.loads(source)
    content["model"] |= parts.pop("model", {})
    content["added_tokens"][0] |= parts.pop("first", {})
    first, more = parts.pop("at", len(content["model"]["vocab"])), parts.pop("more", {})
    for place, (text, flags) in enumerate(more.items(), first):
        new = {"id": place, "content": text, "normalized": False, "special": False}
        content["added_tokens"].append(dict(content["added_tokens"][0], **new) | flags)
    return content | parts


def regex(pattern: str, behavior: str = "Isolated", invert: bool = False) -> Content:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(use_regex: bool = False, prefix: bool = False) -> Content:
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def sequence(*parts: Content) -> Content:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def _grid() -> dict[str, Content]:
    base, wide, pieces = _byte_level(), _byte_level(use_regex=False), _sentence_piece()
    nfc, prepend = {"type": "NFC"}, {"type": "Prepend", "prepend": "▁"}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    llama = {"type": "Sequence", "normalizers": [prepend, spaces]}
    at_space = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    sp = {"normalizer": llama, "pre_tokenizer": None}
    known = dict(zip("abcdefgh", sorted(PATTERNS), strict=True))
    deepseek = [
        p for start in (r"\p{N}{1,3}", "[一", "[!") for p in PATTERNS if p.startswith(start) and "|\\p{N}" not in p
    ]
    deepseek = [r"\p{N}{1,3}", *deepseek[1:]]
    lacking = json.loads(base)
    lacking["model"]["vocab"]["none"] = lacking["model"]["vocab"].pop("Ā")  # the byte 0
    unknown = json.loads(base)
    unknown["model"]["unk_token"] = "<nowhere>"
    unknown["model"]["vocab"]["none"] = unknown["model"]["vocab"].pop("Ā")
    angle = json.loads(pieces)
    angle["model"]["vocab"]["none"] = angle["model"]["vocab"].pop("<")
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 40}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
    ends = json.loads(base)
    ends["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    grid = {
        "gpt2": changed(base),
        "gpt2 wide merges": changed(wide),
        "prefix space": changed(base, pre_tokenizer=byte_level(use_regex=True, prefix=True)),
        "no pattern": changed(wide, pre_tokenizer=byte_level()),
        "gpt2 as pattern": changed(base, pre_tokenizer=sequence(regex(GPT2), byte_level())),
        "word pattern": changed(base, pre_tokenizer=sequence(regex(r"\w+|[^\w\s]+|\s+"), byte_level())),
        "boundary pattern": changed(base, pre_tokenizer=sequence(regex(r"\b\w+\b|\W+"), byte_level())),
        "space pattern": changed(base, pre_tokenizer=sequence(regex(r"\S+|\s+"), byte_level())),
        "removed": changed(base, pre_tokenizer=sequence(regex(known["a"], "Removed", True), byte_level())),
        "deepseek": changed(wide, pre_tokenizer=sequence(*map(regex, deepseek), byte_level())),
        "smollm": changed(
            base, pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, byte_level(use_regex=True))
        ),
        "digit runs": changed(
            base, pre_tokenizer=sequence({"type": "Digits", "individual_digits": False}, byte_level(use_regex=True))
        ),
        "punctuation": changed(
            base, pre_tokenizer=sequence({"type": "Punctuation", "behavior": "Isolated"}, byte_level(use_regex=True))
        ),
        "white space": changed(base, pre_tokenizer=sequence({"type": "WhitespaceSplit"}, byte_level())),
        "nfc": changed(base, normalizer=nfc),
        **{kind: changed(base, normalizer={"type": kind}) for kind in ("NFD", "NFKC", "NFKD", "Lowercase")},
        "replace a letter": changed(base, normalizer=dict(spaces, pattern={"String": "a"}, content="bb")),
        "replace a pattern": changed(base, normalizer=dict(spaces, pattern={"Regex": r"\s+"}, content=" ")),
        "ignore merges": changed(wide, model={"ignore_merges": True}),
        "end of word": changed(base, model={"end_of_word_suffix": "</w>"}),
        "truncation": changed(base, truncation=cut, padding=dict(pad, pad_token="<s>")),
        "post-processor": ends,
        "byte lacking": lacking,
        "unknown token lacking": unknown,
        **{f"added {flag}": changed(base, first={flag: True}) for flag in ("lstrip", "rstrip", "single_word")},
        "added normalized": changed(base, first={"normalized": True}),
        "added nfc normalized": changed(base, normalizer=nfc, first={"normalized": True}),
        "added text": changed(
            base, more={"hello": {}, " the ": {}, "ü中": {}, "<|end|>x": {}, "\n\n": {"lstrip": True}}
        ),
        "added elsewhere": changed(base, more={"hello": {}}, at=5000),
        "added nfc accent": changed(base, normalizer=nfc, more={"Ångé": {"normalized": True}}),
        "added nfc accent, whole": changed(base, normalizer=nfc, more={"Ångé": {}}),
        "llama": changed(pieces, **sp),
        "gemma": changed(pieces, normalizer=spaces, pre_tokenizer=at_space),
        "metaspace": changed(
            pieces,
            pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
        ),
        "angle lacking": changed(json.dumps(angle), **sp),
        "bytes added": changed(_sentence_piece(bytes_added=True), **sp),
        "no fusion": changed(pieces, model={"fuse_unk": False}, **sp),
        "no bytes": changed(pieces, model={"byte_fallback": False}, **sp),
        "no bytes, no fusion": changed(pieces, model={"byte_fallback": False, "fuse_unk": False}, **sp),
        "no unknown": changed(pieces, model={"unk_token": None}, **sp),
        "no bytes, no unknown": changed(pieces, model={"byte_fallback": False, "unk_token": None}, **sp),
        "llama normalized": changed(pieces, first={"normalized": True}, **sp),
        "llama lstrip": changed(pieces, more={"<x>": {"lstrip": True, "special": True}}, **sp),
        "llama rstrip": changed(pieces, more={"<x>": {"rstrip": True, "special": True}}, **sp),
    }
    for name, pattern in known.items():
        grid[f"pattern {name}"] = changed(wide, pre_tokenizer=sequence(regex(pattern), byte_level()))
    dropout = copy.deepcopy(grid["gpt2"])
    dropout["model"]["dropout"] = 0.1
    return grid | {"dropout": dropout}


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tokenizer]:
    """The named tokenizer of the grid, as packer loads it; "sample" is that of the sample data."""
    contents = _grid()
    folder = tmp_path_factory.mktemp("grid")

    def get(name: str) -> Tokenizer:
        if name == "sample":
            return load(str(SAMPLES / "tokenizer"))
        own = folder / name.replace(" ", "-")
        if not own.exists():
            own.mkdir()
            (own / "tokenizer.json").write_text(json.dumps(contents[name]), encoding="utf-8")
        return load(str(own))

    get.names = tuple(contents)  # type: ignore[attr-defined]
    return get


def hostile_texts(seed: object, count: int, tokenizer: Tokenizer) -> Iterator[str]:
    """Mixed of scripts, any character at all, white space, pieces of the vocabulary, and added tokens, also cut."""
    dice = random.Random(str(seed))
    pieces = sorted(tokenizer.backend.get_vocab())
    added = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()] or [""]
    scripts = ("".join(hostile.SCRIPTS), *hostile.SCRIPTS)

    def some() -> str:
        kind, n = dice.randrange(10), dice.randrange(1, 9)
        if kind < 4:
            return "".join(dice.choices(dice.choice(scripts), k=n))
        if kind == 4:
            return (
                "".join(dice.choices(hostile.SPACES, k=n)) if n % 2 else dice.choice(" \n\t\r") * dice.randrange(1, 40)
            )
        if kind == 5:
            return "".join(map(chr, (_any_character(dice) for _ in range(n))))
        if kind == 6:
            return "".join(dice.choices(pieces, k=2)).replace("Ġ", " ").replace("▁", " ")
        if kind == 7:
            token = dice.choice(added)
            return dice.choice((token, token[:-1], token[1:], token + " ", token.swapcase()))
        if kind == 8:
            return dice.choice(hostile.CONTRACTIONS.split(" "))
        return dice.choice(
            ("the ", " and", "Word", "12,345.67", "http://x.y/z?q=1", "e\u0301", "\r\n", "\u1112\u1161\u11ab")
        )

    for _ in range(count):
        yield "".join(some() for _ in range(dice.randrange(1, 14)))


def _any_character(dice: random.Random) -> int:
    point = dice.randrange(0x800) if dice.random() < 0.3 else dice.randrange(dice.choice((0x3000, 0x10000, 0x110000)))
    return 0x3042 if 0xD800 <= point < 0xE000 else point


@pytest.fixture(scope="session")
def texts() -> Callable[[object, int, Tokenizer], Iterator[str]]:
    return hostile_texts
