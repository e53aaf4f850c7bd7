"""What every peer is given, and how it says what it did."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Given:
    files: list[Path]
    tokenizer: str
    eos: str | None
    out: Path
    max_length: int
    workers: int


def given() -> Given:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-length", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=2)
    found = parser.parse_args()
    config = json.loads((Path(found.tokenizer) / "tokenizer_config.json").read_text(encoding="utf-8"))
    eos = config.get("eos_token")
    eos = eos["content"] if isinstance(eos, dict) else eos
    return Given(found.files, found.tokenizer, eos, found.out, found.max_length, found.workers)


def done(**figures: float) -> None:
    """Prints figures as the last line: tokens written, seconds of its parts."""
    print(json.dumps(figures))
