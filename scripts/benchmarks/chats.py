"""Short chats: packer, TRL's own preparation, and the chat template alone."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contest import MAX_LENGTH, Contender, Results, compete, packer, peer, read_packer, report_of
from benchmarks.inputs import Corpus
from benchmarks.page import spread, table

PACK = "packer pack"
COUNT, CHARACTERS = 20_000, 300


def contenders(chats: Corpus, source: str) -> list[Contender]:
    def pack(out: Path) -> list[str]:
        options = ["--max-length", str(MAX_LENGTH), "--out", str(out), "--report", str(report_of(out))]
        return packer("pack", chats.files, source, *options)

    workers = os.cpu_count() or 1
    return [
        Contender(PACK, pack, read_packer),
        peer("transformers, apply_chat_template alone", "by_template", chats.plain, source, 1),
        peer("TRL, as its SFT trainer prepares chats", "by_trl_chats", chats.plain, source, workers),
    ]


def measure(chats: Corpus, source: str, rounds: int, slow_rounds: int) -> dict[str, Any]:
    results = compete(contenders(chats, source), rounds, slow_rounds)
    return {
        "documents": chats.documents,
        "megabytes": chats.megabytes,
        "rounds": rounds,
        "slow_rounds": slow_rounds,
        "results": results,
    }


def report(result: dict[str, Any], label: str) -> str:
    results: Results = result["results"]
    rows = []
    for name in results.runs:
        walls, steady = results.of(name), results.of(name, "steady")
        rows.append(
            [
                f"`{name}`" if name == PACK else name,
                spread(walls),
                f"{result['documents'] / median(walls):,.0f}",
                spread(results.of(name, "cpu")),
                spread(steady),
                f"{median(walls) / results.typical(PACK):.1f}",
                f"{median(steady) / results.typical(PACK, 'steady'):.1f}",
            ]
        )
    head = ["", "wall, s", "chats/s", "CPU, s", "steady, s", "times `packer pack`", "same, steady"]
    failed = "".join(f"\n\n{name} ended with an error: `{text}`" for name, text in results.failed.items())
    return f"""## {label}

{result["documents"]:,} generated chats of a question and an answer, {result["megabytes"]:.1f} MB of text;
{result["rounds"]} rounds, {result["slow_rounds"]} of the others. packer and TRL render, tokenize, mask, pack and write;
`apply_chat_template` renders and tokenizes only. Whole processes; steady is without start-up and loading. Medians, with
their range.

{table(head, rows)}{failed}
"""
