"""Contenders in turns, round after round, so that a busy minute disturbs all of them alike.

round 1   A B C slow1 A'      A, the yardstick, ends each round too: the others are divided by the mean of the two
round 2   A B C slow2 A'      slow contenders are spread over the rounds, each in as many as it is worth
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from statistics import mean, median
from typing import Any

from benchmarks.clock import FailedError, run_process

SCRIPTS = Path(__file__).parents[1]
MAX_LENGTH = 2048
Figures = dict[str, Any]  # wall, cpu, peak of a run; tokens where it says them; stages: seconds by name


@dataclass(frozen=True)
class Contender:
    """command: given the folder to write to, which is new each time; read: what its output and that folder say of the
    run; slow: runs in fewer rounds; against: the contender whose time its own is divided by."""

    name: str
    command: Callable[[Path], Sequence[str]]
    read: Callable[[Path, str, Figures], Figures] = lambda out, output, figures: figures  # noqa: ARG005
    slow: bool = False
    against: str | None = None
    fresh_cache: bool = False


@dataclass
class Results:
    """Runs of each contender by round, and the errors of those that ended with one."""

    runs: dict[str, dict[int, list[Figures]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def of(self, name: str, figure: str = "wall") -> list[float]:
        return [run[figure] for turn in self.runs.get(name, {}).values() for run in turn if figure in run]

    def typical(self, name: str, figure: str = "wall") -> float:
        return median(self.of(name, figure))

    def ratios(self, name: str, other: str, figure: str = "wall", own: str | None = None) -> list[float]:
        """Of each round in which both ran: the one's time by the other's mean. own: another figure of the one's."""
        found = []
        for turn, runs in self.runs.get(name, {}).items():
            beside = [run[figure] for run in self.runs.get(other, {}).get(turn, [])]
            found += [run[own or figure] / mean(beside) for run in runs if beside and (own or figure) in run]
        return found

    def to_json(self) -> dict[str, Any]:
        return {"runs": self.runs, "failed": self.failed}


def compete(contenders: Iterable[Contender], rounds: int, slow_rounds: int, warm: Sequence[Contender] = ()) -> Results:
    """Runs them all. The first is the yardstick and ends each round once more. warm: run once before, and not counted,
    whatever comes of it."""
    quick = [one for one in contenders if not one.slow]
    slow = [one for one in contenders if one.slow]
    places = {one.name: i for i, one in enumerate(slow)}  # with what it is divided by, in its rounds
    places |= {one.against: places.get(one.against, 0) for one in slow if one.against}
    results = Results()
    with tempfile.TemporaryDirectory() as folder:
        for one in warm:
            with suppress(FailedError):
                run_once(one, Path(folder))
        for turn in range(rounds):
            due = [one for one in slow if (turn - places[one.against or one.name]) % rounds < slow_rounds]
            for one in [*quick, *due, *quick[:1]]:
                if one.name in results.failed:
                    continue
                print(f"round {turn + 1} of {rounds}: {one.name}", end=" ", file=sys.stderr, flush=True)
                try:
                    figures = run_once(one, Path(folder))
                except FailedError as error:
                    results.failed[one.name] = str(error)
                    print(f"failed: {error}", file=sys.stderr, flush=True)
                    continue
                print(f"{figures['wall']:.2f} s", file=sys.stderr, flush=True)
                results.runs.setdefault(one.name, {}).setdefault(turn, []).append(figures)
    return results


def run_once(one: Contender, folder: Path) -> Figures:
    """In an empty folder of its own; what packer remembers between runs is kept beside it, or not for a fresh cache."""
    out, cache = folder / "out", folder / ("fresh" if one.fresh_cache else "cache")
    for path in (out, folder / "fresh"):
        rmtree(path, ignore_errors=True)
    paths = filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")])
    environment = {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join(paths)}
    run = run_process(one.command(out), folder, environment)
    figures = one.read(out, run.output, {"wall": run.wall, "cpu": run.cpu, "peak": run.peak})
    rmtree(out, ignore_errors=True)
    return figures


# Commands


def packer(name: str, files: Sequence[Path], source: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "packer", name, *map(str, files), "--tokenizer", source, *options]


def pack_command(corpus: Path, source: str, out: Path, *more: str) -> list[str]:
    return packer("pack", [corpus], source, "--max-length", str(MAX_LENGTH), "--out", str(out), *more)


def alone(engine: str, files: Sequence[Path], source: str) -> Contender:
    command = [sys.executable, "-m", "benchmarks.alone", engine, "--tokenizer", source, *map(str, files)]
    return Contender(f"tokenizer alone, {engine}", lambda _: command, read_alone, slow=engine == "hf")


def peer(name: str, script: str, files: Sequence[Path], source: str, workers: int) -> Contender:
    options = ["--tokenizer", source, "--max-length", str(MAX_LENGTH), "--workers", str(workers)]
    command = [sys.executable, "-m", f"benchmarks.peers.{script}", *options, *map(str, files)]
    return Contender(name, lambda out: [*command, "--out", str(out)], read_peer, slow=True)


# What they say


def read_alone(out: Path, output: str, figures: Figures) -> Figures:  # noqa: ARG001
    """Its own clock: the calls, without loading texts and tokenizer."""
    return {**figures, **json.loads(output)}


def read_peer(out: Path, output: str, figures: Figures) -> Figures:  # noqa: ARG001
    found = json.loads(output.strip().splitlines()[-1])
    return {**figures, "tokens": found.pop("tokens"), "steady": found["steady"], "stages": found}


def read_packer(out: Path, output: str, figures: Figures) -> Figures:  # noqa: ARG001
    """The stages of `pack` and `window`, from the report that they write beside OUT."""
    facts = json.loads(report_of(out).read_bytes())
    before = [facts[f"{name}_seconds"] for name in ("loading", "trial", "waiting")]
    stages = {
        "start-up": figures["wall"] - facts["seconds"],
        "loading": before[0],
        "trial": before[1],
        "waiting for the engine": before[2],
        "staging": facts["staging_seconds"] - sum(before),
        "finalisation": facts["finishing_seconds"],
        "sampling (in threads)": facts["sampling_seconds"],
    }
    steady = stages["staging"] + stages["finalisation"]
    return {**figures, "tokens": facts["totals"]["placed_tokens"], "steady": steady, "stages": stages}


def report_of(out: Path) -> Path:
    return out.with_name("report.json")
