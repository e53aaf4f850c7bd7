"""This machine: in this process by default, one partition after another, for the tokenizer's threads already use every
core, which beats a pool of processes in memory and usually in time. The last block of each is planned and written
while the next one is being tokenized. With `workers`, that many processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from packer.corpus import Partition, Source
from packer.executors import Execution, Executor, Progress, Work
from packer.threads import Behind

Result = TypeVar("Result")


class InProcess:
    def preflight(self, sources: Sequence[Source], folder: Path) -> None:
        """Nothing to find out: what this process can do shows when it is done."""

    def map(
        self, work: Work[Result], partitions: Sequence[Partition], progress: Progress | None
    ) -> Generator[Result, None, None]:
        with Behind() as behind:
            begun: deque[Future[Result]] = deque()
            for partition in partitions:
                begun.append(work.begin(partition, progress, behind))
                while begun[0].done():
                    yield begun.popleft().result()
                    if not begun:
                        break
            for report in begun:
                yield report.result()


def make(execution: Execution) -> Executor:
    if execution.workers is None:
        return InProcess()
    from packer.executors.pool import Pool

    return Pool(execution.workers)
