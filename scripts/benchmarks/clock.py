"""Processes and calls timed: seconds of wall time, CPU seconds over all threads and children, peak memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

# Between the benchmark and the process that is measured: a child's peak counts what its parent held when it began, and
# the time that it takes to start this is not in the time that it measures. $1: where to put the figures.
LAUNCHER = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.call(sys.argv[2:])
wall = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([code, wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6], file)
"""


class FailedError(Exception):
    """A contender ended with an error. Its last words are the message."""


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time, and of CPU over all threads and finished children."""

    wall: float
    cpu: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.wall - other.wall, self.cpu - other.cpu)


@dataclass(frozen=True)
class Run:
    """A whole process. peak: MB that its largest process held; output: what it printed."""

    wall: float
    cpu: float
    peak: float
    output: str


def now() -> Cost:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Cost(perf_counter(), sum(usage.ru_utime + usage.ru_stime for usage in usages))


def measured(function: Callable[[], object]) -> Cost:
    """What the call costs; freeing what it returns is not in it."""
    start = now()
    kept = function()
    cost = now() - start
    del kept
    return cost


def run_process(command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> Run:
    """Runs it to its end, from the start of the interpreter on. folder: for scratch. Raises FailedError."""
    figures = folder / "figures.json"
    launched = [sys.executable, "-S", "-c", LAUNCHER, str(figures), *command]
    done = subprocess.run(launched, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    if done.returncode:
        raise FailedError(done.stderr.strip())
    code, wall, cpu, peak = json.loads(figures.read_bytes())
    if code:
        raise FailedError("\n".join(done.stderr.strip().splitlines()[-5:]) or f"exit code {code}")
    return Run(wall, cpu, peak, done.stdout)
