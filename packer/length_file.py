"""Lengths without text: what `--lengths FILE` reads.

one length a line                       the order is known
{"12": 3, "13": 5}                      documents by length; so too under `count_of_length`, or as `length.histogram`
                                        in what `packer stats --json` wrote
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from packer.errors import InputError
from packer.lengths import Histogram
from packer.plan import Int32Array

LIMIT = 2**31 - 1
BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class LengthFile:
    """histogram: None where lengths came in order; empty: lengths of 0, which are left out."""

    histogram: Histogram | None
    empty: int


def read(path: Path, add: Callable[[Int32Array], None]) -> LengthFile:
    """Lengths in order are given to `add`, int32 (n,) at a time. Raises InputError, which names the line or key."""
    try:
        with open(path, "rb") as file:
            start = file.read(1 << 10).lstrip(b"\xef\xbb\xbf \t\r\n")
    except OSError as error:
        raise InputError(f"--lengths {path}: {error.strerror}") from error
    if start[:1] == b"{":
        return _histogram(path)
    if start[:1] == b"[":
        raise InputError(f"--lengths {path}: a JSON list; give one length a line, or an object of {{length: count}}")
    return LengthFile(None, _lines(path, add))


def _lines(path: Path, add: Callable[[Int32Array], None]) -> int:
    """Returns how many lengths are 0."""
    empty = 0
    try:
        batches = pyarrow.csv.open_csv(
            path,
            pyarrow.csv.ReadOptions(column_names=["length"], block_size=BLOCK_BYTES),
            pyarrow.csv.ParseOptions(delimiter=",", quote_char=False),
            pyarrow.csv.ConvertOptions(column_types={"length": pa.int64()}, null_values=[]),
        )
        for batch in batches:
            lengths = np.from_dlpack(batch.column(0))  # to_numpy would load pandas, and swallow an interrupt meanwhile
            if len(lengths) and not (lengths.min() >= 0 and lengths.max() <= LIMIT):
                raise pa.ArrowInvalid
            full = lengths > 0
            empty += int((~full).sum())
            add(lengths[full].astype(np.int32))
    except pa.ArrowInvalid:
        raise InputError(f"--lengths {path}{_wrong_line(path)}") from None
    return empty


def _wrong_line(path: Path) -> str:
    """Which line is no length. Only asked for when one is known to be wrong."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").strip()
            if line.strip(b"\r\n") and not (text.isdigit() and _number(text) <= LIMIT):
                shown = text[:40].decode("utf-8", "backslashreplace")
                return f", line {number}: {shown!r} is no length (a whole number up to {LIMIT}, one a line)"
    return ": is no file of one length a line"


def _number(digits: str | bytes) -> int:
    """Of digits, however many: what is longer than any length need not be exact."""
    return int(digits) if len(digits) < 1000 else LIMIT + 1


def _histogram(path: Path) -> LengthFile:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"--lengths {path}: is not valid JSON: {error}") from error
    counts = content
    if isinstance(content.get("count_of_length"), dict):
        counts = content["count_of_length"]
    elif isinstance(content.get("length"), dict) and isinstance(content["length"].get("histogram"), dict):
        counts = content["length"]["histogram"]
    numbers = [_entry(path, key, value) for key, value in counts.items()]
    lengths, times = np.array(numbers, np.int64).reshape(-1, 2).T
    return LengthFile(Histogram.of(lengths, times), int(times[lengths == 0].sum()))


def _entry(path: Path, key: str, value: Any) -> tuple[int, int]:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    if not (key.isascii() and key.isdigit() and _number(key) <= LIMIT and whole):
        raise InputError(
            f"--lengths {path}: {key[:40]!r}: {str(value)[:40]!r} is not a length and how many documents have it "
            '({"length": count})'
        )
    return int(key), value
