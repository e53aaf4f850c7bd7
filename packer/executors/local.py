"""This machine: in this process by default, one partition after another, for the tokenizer's threads already use every
core, which beats a pool of processes in memory and usually in time. With `workers`, that many processes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TypeVar

from packer.corpus import Partition, Source
from packer.executors import Execution, Executor, Progress, Work

Result = TypeVar("Result")


class InProcess:
    def preflight(self, sources: Sequence[Source], folder: Path) -> None:
        """Nothing to find out: what this process can do shows when it is done."""

    def map(
        self, work: Work[Result], partitions: Sequence[Partition], progress: Progress | None
    ) -> Generator[Result, None, None]:
        for partition in partitions:
            yield work(partition, progress)


def make(execution: Execution) -> Executor:
    if execution.workers is None:
        return InProcess()
    from packer.executors.pool import Pool

    return Pool(execution.workers)
