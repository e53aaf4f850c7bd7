"""Peak memory of `packer pack` by the size of its input: it should follow the block, not the corpus."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

from benchmarks.clock import run_process
from benchmarks.contest import pack_command
from benchmarks.inputs import ARTICLES, TOKENIZER, texts_of, write_generated
from benchmarks.page import table
from packer import tokenizer

BLOCKS = (1, 10)
BLOCK_TOKENS = 8_000_000


def sample_block_bytes() -> int:
    """Bytes of generated JSON Lines that hold a little less than a block's tokens."""
    backend = tokenizer.load(str(TOKENIZER)).backend
    encodings = backend.encode_batch_fast(texts_of(ARTICLES), add_special_tokens=False)
    bytes_per_token = ARTICLES.stat().st_size / sum(len(encoding) + 1 for encoding in encodings)
    return int(0.9 * BLOCK_TOKENS * bytes_per_token)


def measure(rounds: int) -> dict[str, Any]:
    block_bytes = sample_block_bytes()
    more = ["--block-tokens", str(BLOCK_TOKENS), "--partition-bytes", str(block_bytes + 100_000)]
    peaks: dict[int, list[float]] = {blocks: [] for blocks in BLOCKS}
    tokens: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        for blocks in BLOCKS:
            write_generated(Path(folder, f"{blocks}.jsonl"), blocks * block_bytes)
        for _ in range(rounds):
            for blocks, found in peaks.items():
                command = pack_command(Path(folder, f"{blocks}.jsonl"), str(TOKENIZER), out, *more)
                found.append(run_process(command, Path(folder)).peak)
                tokens[blocks] = json.loads((out / "manifest.json").read_bytes())["totals"]["tokens"]
                rmtree(out)
        start = [sys.executable, "-c", "import packer.pipeline"]
        return {"rounds": rounds, "peaks": peaks, "tokens": tokens, "imports": run_process(start, Path(folder)).peak}


def report(result: dict[str, Any]) -> str:
    medians = {blocks: median(peaks) for blocks, peaks in result["peaks"].items()}
    rows = [
        [
            f"{blocks}",
            f"{result['tokens'][blocks]:,}",
            f"{peak:.0f} MB ({min(result['peaks'][blocks]):.0f} to {max(result['peaks'][blocks]):.0f})",
            f"{peak / medians[BLOCKS[0]]:.2f}",
        ]
        for blocks, peak in medians.items()
    ]
    return f"""## Memory

Peak resident memory of the `packer pack` process over generated text with the sample tokenizer,
`--block-tokens {BLOCK_TOKENS}`, a partition a block; medians of {result["rounds"]} runs each, taking turns.
Importing the library alone takes {result["imports"]:.0f} MB.

{table(["blocks", "tokens", "peak: median (range)", "ratio"], rows)}
"""
