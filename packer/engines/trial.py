"""The trial of the fast engine: may it serve this tokenizer? The verdict is kept for the next run.

It may if the tokenizer's parts are known (`structure`) and thousands of hostile strings give the reference's ids. That
takes a second or two, so a verdict is kept in the user's cache folder, by the tokenizer's fingerprint and all versions.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections import defaultdict
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import orjson
import tokenizers

from packer import __version__, memory
from packer.engines import fast, hostile, structure
from packer.engines.engine import Engine, fault_in
from packer.engines.errors import EngineError
from packer.engines.fast import FastEngine
from packer.engines.hf import HfEngine
from packer.tokenizer import Tokenizer

PIECES = 2000  # of the vocabulary, at most, to build strings of
ADDED = 300  # added tokens of one kind, at most
PASSING = (ImportError, MemoryError, OSError)  # causes that say nothing of the next run


def reason_against(tokenizer: Tokenizer, special_in_text: str) -> str | None:
    """Why the fast engine may not serve this tokenizer, or None. The library must be installed."""
    path = _verdict_path(tokenizer, special_in_text)
    if path and (kept := _read(path)) is not None:
        return kept["reason"]
    reason = structure.reason_against(orjson.loads(tokenizer.path.read_bytes()))
    if reason is None:
        reference = HfEngine(tokenizer, special_in_text=special_in_text)
        try:
            reason = difference(tokenizer, FastEngine(tokenizer, special_in_text=special_in_text), reference)
        except EngineError as error:
            reason = f"it refuses: {error}"
            path = None if isinstance(error.__cause__, PASSING) else path
        memory.trim()
    if path:
        _keep(path, reason)
    return reason


def difference(tokenizer: Tokenizer, engine: Engine, reference: Engine) -> str | None:
    """The first hostile string that the engines see differently, as a reason, or None. The engine's errors pass."""
    texts = strings(tokenizer)
    try:
        expected, ends = reference.encode(texts)
    except Exception as error:  # the library raises bare Exceptions
        return f"tokenizers {tokenizers.__version__} itself refuses a string: {' '.join(str(error).split())}"
    ids, offsets = engine.encode(texts)
    if fault := fault_in((ids, offsets), len(texts), tokenizer.vocab_size):
        return fault
    if np.array_equal(ids, expected) and np.array_equal(offsets, ends):
        return None
    text = next(
        text
        for i, text in enumerate(texts)
        if not np.array_equal(ids[offsets[i] : offsets[i + 1]], expected[ends[i] : ends[i + 1]])
    )
    shown = ascii(text if len(text) <= 40 else text[:40] + "...")
    return f"its ids of {shown} are not those of tokenizers {tokenizers.__version__}"


def strings(tokenizer: Tokenizer) -> list[str]:
    """The hostile strings for a tokenizer: its added tokens of every kind and pieces of its vocabulary are in them."""
    kinds = defaultdict(list)
    for token in tokenizer.backend.get_added_tokens_decoder().values():
        kinds[token.lstrip, token.rstrip, token.single_word, token.normalized, token.special].append(token.content)
    added = [text for texts in kinds.values() for text in _spread(texts, ADDED)]
    return hostile.strings(added, _spread(sorted(tokenizer.backend.get_vocab()), PIECES))


def _spread(items: list[str], most: int) -> list[str]:
    """At most so many of the items, evenly spread."""
    return items[:: -(-len(items) // most) or 1]


def _verdict_path(tokenizer: Tokenizer, special_in_text: str) -> Path | None:
    key = [tokenizer.fingerprint, special_in_text, fast.version(), tokenizers.__version__, __version__]
    key += [str(hostile.VERSION), platform.machine(), platform.system()]
    name = hashlib.sha256("\0".join(map(str, key)).encode()).hexdigest()[:32]
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "packer", "engines", f"{name}.json") if os.path.isabs(base) else None


def _read(path: Path) -> dict[str, str | None] | None:
    try:
        kept = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) and isinstance(kept.get("reason", 0), str | None) else None


def _keep(path: Path, reason: str | None) -> None:
    """A cache that cannot be written costs the next run a second, and nothing else."""
    unfinished = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            unfinished = Path(file.name)
            json.dump({"reason": reason}, file)
        unfinished.replace(path)
    except OSError:
        if unfinished:
            unfinished.unlink(missing_ok=True)
