"""From files to a data set: packer, the tokenizer's own call, and what users do otherwise."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contest import MAX_LENGTH, Contender, Results, alone, compete, packer, peer, read_packer, report_of
from benchmarks.inputs import Corpus
from benchmarks.page import spread, table

FAST, HF = "tokenizer alone, fast", "tokenizer alone, hf"
PACK = "packer pack"
STEADY = "steady"
PEERS = {
    "datasets + TRL": "by_trl",
    "datatrove, without packing": "by_datatrove",
    "litData, without packing": "by_litdata",
    "as Megatron, without packing": "by_pool",
}


def contenders(corpus: Corpus, source: str) -> list[Contender]:
    length = ("--max-length", str(MAX_LENGTH))

    def pack(name: str, *options: str, **more: Any) -> Contender:
        return _writer(name, "pack", corpus, source, *length, *options, **more)

    windows = ("--context-size", str(MAX_LENGTH), "--overlap", "0")
    workers = os.cpu_count() or 1
    return [
        alone("fast", corpus.plain, source),
        Contender("packer stats", lambda _: packer("stats", corpus.files, source), against=FAST),
        pack("packer pack --format arrow", "--format", "arrow"),
        pack(PACK),
        pack("packer pack --columns compact", "--columns", "compact"),
        _writer("packer window", "window", corpus, source, *windows),
        pack("packer pack, a tokenizer's first run", fresh_cache=True),
        alone("hf", corpus.plain, source),
        pack("packer pack --tokenizer-engine hf", "--tokenizer-engine", "hf", slow=True, against=HF),
        *(peer(name, script, corpus.plain, source, workers) for name, script in PEERS.items()),
    ]


def _writer(name: str, command: str, corpus: Corpus, source: str, *options: str, **more: Any) -> Contender:
    def arguments(out: Path) -> list[str]:
        return packer(command, corpus.files, source, *options, "--out", str(out), "--report", str(report_of(out)))

    return Contender(name, arguments, read_packer, **{"against": FAST, **more})


def measure(corpus: Corpus, source: str, rounds: int, slow_rounds: int, only: Sequence[str] = ()) -> dict[str, Any]:
    """only: words of which a contender's name must hold one; the yardsticks of those that do come along."""
    found = contenders(corpus, source)
    if only:
        chosen = [one for one in found if any(word in one.name for word in only)]
        wanted = {FAST, *(one.name for one in chosen), *(one.against for one in chosen)}
        found = [one for one in found if one.name in wanted]
    results = compete(found, rounds, slow_rounds, warm=[_trial(corpus, source)])
    return {
        "documents": corpus.documents,
        "megabytes": corpus.megabytes,
        "files": len(corpus.files),
        "rounds": rounds,
        "slow_rounds": slow_rounds,
        "against": {one.name: one.against for one in found},
        "results": results,
    }


def _trial(corpus: Corpus, source: str) -> Contender:
    """Has packer try the fast engine, so that its verdict is kept: what that takes has a contender of its own."""
    options = ("--max-length", str(MAX_LENGTH), "--limit", "1", "--tokenizer-engine", "fast")
    return _writer("trial", "pack", corpus, source, *options)


def report(result: dict[str, Any], label: str) -> str:
    results: Results = result["results"]
    tokens = int((results.of(PACK, "tokens") or [0])[0])
    pack = results.typical(PACK) if results.of(PACK) else None
    rows = []
    for name in results.runs:
        walls, against = results.of(name), result["against"][name]
        ratios = results.ratios(name, against) if against else []
        steady = results.ratios(name, against, own=STEADY) if against else []
        rows.append(
            [
                f"`{name}`" if name.startswith("packer") else name,
                spread(walls),
                f"{result['megabytes'] / median(walls):.1f}",
                spread(results.of(name, "cpu")),
                f"{results.typical(name, 'peak'):,.0f} MB" if "alone" not in name else "",
                f"{written[0] / 1e6:.2f} M" if (written := results.of(name, "tokens")) else "",
                spread(ratios) if ratios else "",
                spread(steady) if steady else "",
                f"{median(walls) / pack:.1f}" if pack else "",
                f"{results.typical(name, 'cpu') / results.typical(PACK, 'cpu'):.1f}" if pack else "",
            ]
        )
    head = [
        "",
        "wall, s",
        "MB/s",
        "CPU, s",
        "peak",
        "tokens",
        "by the tokenizer alone",
        "same, steady",
        "times `packer pack`",
        "same, CPU",
    ]
    failed = "".join(f"\n\n{name} ended with an error: `{text}`" for name, text in results.failed.items())
    return f"""## {label}

{result["documents"]:,} documents in {result["files"]} files, {result["megabytes"]:.1f} MB of text, {tokens:,} tokens,
`--max-length {MAX_LENGTH}`, other options at their defaults; {result["rounds"]} rounds,
{result["slow_rounds"]} of the slow ones (hf and the peers). Each is a whole process, from the start of Python to the
last file; the tokenizer alone is its call on the same texts, 4 M characters at a time, on all cores, in a new process
that has loaded texts and tokenizer before the clock starts. Peak is that of the largest process; tokens are those
written: TRL truncates long documents, and the tokenizer alone adds no EOS. The column after them is a run's time by
that of the tokenizer alone in the same round (fast, or hf for the run with hf); steady leaves out start-up, loading,
trial and waiting, as below. The peers are given unpacked files. Medians, with their range.

{table(head, rows)}{failed}

{_stages(results)}
"""


def _stages(results: Results) -> str:
    """Where the time of packer's runs goes, medians in seconds."""
    names: list[str] = []
    rows = []
    for name, turns in results.runs.items():
        stages = [run["stages"] for turn in turns.values() for run in turn if "start-up" in run.get("stages", {})]
        if stages:
            names = list(stages[0])
            rows.append([f"`{name}`", *(f"{median(stage[part] for stage in stages):.2f}" for part in names)])
    return table(["seconds", *names], rows) if rows else ""
