"""Fails when packer has become slower beside the raw tokenizer call, or beside what users do otherwise.

    python scripts/bench_check.py [--rounds R] [--megabytes M] [--record]

Measures a short version of scripts/bench.py on generated text, in some minutes, without network and without anything
but packer's own dependencies, and holds its ratios against scripts/benchmarks/recorded.json. What looks worse is
measured again, and fails only if all rounds together still say so. Exit code 1: worse; 2: nothing to compare with.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import end_to_end, gate, inputs, page
from benchmarks.contest import Results

RECORDED = Path(__file__).parent / "benchmarks" / "recorded.json"
PEER = "as Megatron, without packing"  # needs no more than packer does
MEASURED = ("packer", "alone", PEER)
CLOCKS = {"wall": "wall", "cpu": "CPU"}


def ratios_of(results: Results) -> dict[str, list[float]]:
    """By what they compare, a value a round: packer's contenders by the tokenizer alone, and by the peer."""
    found = {}
    for clock, label in CLOCKS.items():
        for name in results.runs:
            if name.startswith("packer") and "first run" not in name:
                by = end_to_end.HF if name.endswith(" hf") else end_to_end.FAST
                found[f"{name} / {by} ({label})"] = results.ratios(name, by, clock)
        found[f"{end_to_end.PACK} / {PEER} ({label})"] = results.ratios(end_to_end.PACK, PEER, clock)
    return {name: values for name, values in found.items() if values}


def measure(megabytes: float, rounds: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "generated.jsonl")
        inputs.write_generated(path, int(megabytes * 1e6))
        corpus = inputs.corpus_of([path], Path(folder))
        result = end_to_end.measure(corpus, str(inputs.TOKENIZER), rounds, rounds, MEASURED)
    results: Results = result["results"]
    if results.failed:
        raise SystemExit("\n".join(f"{name} ended with an error: {text}" for name, text in results.failed.items()))
    return ratios_of(results)


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold packer's speed against the recorded one.")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender (default: %(default)s)")
    parser.add_argument("--megabytes", type=float, default=16, help="of text (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="record what is found, on a quiet machine")
    given = parser.parse_args()
    cores = os.cpu_count() or 1
    if not given.record:
        if not RECORDED.exists():
            print(f"nothing is recorded in {RECORDED}: run with --record on a quiet machine", file=sys.stderr)
            return 2
        recorded = gate.load(RECORDED)
        if recorded["cores"] != cores:
            print(
                f"recorded on {recorded['cores']} cores, and here are {cores}: ratios of wall time differ by that; "
                "compare on such a machine, or run with --record at the commit to compare with, then without",
                file=sys.stderr,
            )
            return 2
    found = measure(given.megabytes, given.rounds)
    if given.record:
        gate.save(RECORDED, found, cores, page.versions())
        print(f"recorded {len(found)} ratios in {RECORDED}")
        return 0
    verdicts = gate.compare(recorded["ratios"], found)
    if any(verdict.worse for verdict in verdicts):
        print("something looks worse: measuring again", file=sys.stderr)
        verdicts = gate.compare(recorded["ratios"], gate.pooled(found, measure(given.megabytes, given.rounds)))
    for verdict in verdicts:
        print(verdict.line())
    worse = [verdict for verdict in verdicts if verdict.worse]
    print(f"{len(worse)} of {len(verdicts)} ratios are worse than recorded by more than noise")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
