"""Which tokenizers the fast engine may serve at all: those built of parts that were compared with the reference.

Everything else is left to the reference, though the fast engine might load it: it has been seen to load a tokenizer and
give other ids (dropout; patterns with a word boundary). What is here is then still tried (`packer.engines.trial`).
"""

# ruff: noqa: RUF001  patterns as they stand in tokenizer.json files

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The patterns of pre-tokenizers in use, each named after a tokenizer that has it.
PATTERNS = {
    # Llama-3, cl100k
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    # Qwen-2, Qwen-3
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # Qwen-3.5
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    # gpt-oss, o200k
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # Mistral's Tekken
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    # DeepSeek-V3, three in a row
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def reason_against(content: Mapping[str, Any]) -> str | None:
    """Why the fast engine does not serve the tokenizer of this tokenizer.json, or None."""
    return (
        _model(content.get("model") or {})
        or _normalizer(content.get("normalizer"))
        or _splits(content)
        or _added_tokens(content)
    )


def _model(model: Mapping[str, Any]) -> str | None:
    kind = model.get("type") or ("BPE" if "merges" in model else "unknown")
    if kind != "BPE":
        return f"its model is {kind}"
    if model.get("dropout"):
        return "its model has dropout"
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            return f"its model has a {name}"
    return None


def _normalizer(normalizer: Mapping[str, Any] | None) -> str | None:
    for part in _parts(normalizer, "normalizers"):
        replaces_text = part.get("type") == "Replace" and "String" in (part.get("pattern") or {})
        if part.get("type") not in ("NFC", "Prepend") and not replaces_text:
            return f"its normalizer {part.get('type')} was not compared"
    return None


def _splits(content: Mapping[str, Any]) -> str | None:
    for part in _parts(content.get("pre_tokenizer"), "pretokenizers"):
        kind, pattern = part.get("type"), part.get("pattern") or {}
        known = (
            kind == "ByteLevel"
            or (kind == "Digits" and part.get("individual_digits"))
            or (kind == "Split" and not part.get("invert") and _known_split(pattern, part.get("behavior")))
        )
        if not known:
            return f"its pre-tokenizer {kind} was not compared" + (" with this pattern" if kind == "Split" else "")
    return None


def _added_tokens(content: Mapping[str, Any]) -> str | None:
    """Those that are looked for in the normalized text: only where normalization leaves them as they are."""
    changing = [part.get("type") for part in _parts(content.get("normalizer"), "normalizers")]
    for token in content.get("added_tokens") or ():
        text = token.get("content", "")
        if token.get("normalized") and changing and not (set(changing) == {"NFC"} and text.isascii()):
            return f"its added token {text!a} is looked for after normalization"
    return None


def _known_split(pattern: Mapping[str, Any], behavior: object) -> bool:
    if pattern == {"String": " "}:
        return behavior == "MergedWithPrevious"
    return behavior == "Isolated" and pattern.get("Regex") in PATTERNS


def _parts(node: Mapping[str, Any] | None, name: str) -> list[Mapping[str, Any]]:
    """A normalizer or pre-tokenizer as the list of its parts."""
    if node is None:
        return []
    return [one for part in node[name] for one in _parts(part, name)] if node.get("type") == "Sequence" else [node]
