"""How a run's memory and time grow: with the corpus (replicated), with the block, with worker processes.

    python scripts/bench_scale.py CORPUS.jsonl TOKENIZER [--times 1 10] [--block-tokens 4194304 ...] [--workers 0 2]

Each figure is of one run of the command line in a process of its own. Peak memory is what the kernel says of the
largest process (resident); with workers that of one of them or of the driver, so the whole is at most that times one
more than their number. `--workers 0` is without worker processes. Nothing is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

MEBI = 1 << 20
MEASURED = """
import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(json.dumps([code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""


@dataclass(frozen=True)
class Run:
    """One run's figures. staging, finishing: seconds; peak: bytes of the largest process; size: bytes of all shards."""

    tokens: int
    seconds: float
    staging: float
    finishing: float
    peak: int
    size: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--times", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--block-tokens", type=int, nargs="+", default=[4 << 20, 32 << 20])
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    parser.add_argument("--partition-bytes", type=int, default=32 << 20)
    parser.add_argument("--max-length", type=int, default=2048)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    titles = ("times", "block", "workers", "tokens", "seconds", "staging", "tokens/s", "finishing", "tokens/s")
    widths = (7, 10, 8, 11, 8, 8, 9, 10, 9)
    print(*(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True)), "  peak MiB  bytes/token")
    with tempfile.TemporaryDirectory() as folder:
        for times in arguments.times:
            corpus = replicated(arguments.corpus, times, Path(folder))
            for block in arguments.block_tokens:
                for workers in arguments.workers:
                    options = ["--max-length", arguments.max_length, "--block-tokens", block]
                    options += ["--partition-bytes", arguments.partition_bytes]
                    options += ["--workers", workers] if workers else []
                    show(times, block, workers, measured(corpus, arguments.tokenizer, options, Path(folder)))


def replicated(corpus: Path, times: int, folder: Path) -> Path:
    path = folder / f"{times}.jsonl"
    content = corpus.read_bytes()
    with open(path, "wb") as file:
        for _ in range(times):
            file.write(content)
    return path


def measured(corpus: Path, tokenizer: Path, options: list[object], folder: Path) -> Run:
    out, report = folder / "out", folder / "report.json"
    command = [sys.executable, "-m", "packer", "pack", corpus, "--tokenizer", tokenizer, "--out", out, "--overwrite"]
    command += ["--quiet", "--report", report, *options]
    began = perf_counter()
    done = subprocess.run([sys.executable, "-c", MEASURED, *map(str, command)], capture_output=True, text=True)
    seconds = perf_counter() - began
    code, peak = json.loads(done.stdout)
    if code:
        raise SystemExit(done.stderr)
    facts = json.loads(report.read_text())
    size = sum(path.stat().st_size for path in out.glob("data/*"))
    return Run(
        facts["totals"]["tokens"], seconds, facts["staging_seconds"], facts["finishing_seconds"], peak << 10, size
    )


def show(times: int, block: int, workers: int, run: Run) -> None:
    print(
        f"{times:>7} {block:>10,} {workers:>8} {run.tokens:>11,} {run.seconds:>8.1f} {run.staging:>8.1f} "
        f"{run.tokens / run.staging:>9,.0f} {run.finishing:>10.1f} {run.tokens / run.finishing:>9,.0f} "
        f"{run.peak / MEBI:>10,.0f} {run.size / run.tokens:>12.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
