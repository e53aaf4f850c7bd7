"""The local executor's processes. Each is a new interpreter, never a fork: forked tokenizer threads hang.

    driver  ── work, partition, partition, ... ──▶  worker      (one socket each; `packer.executors.worker`)
            ◀── progress, ..., result or error ──

A new interpreter runs nothing of the caller's own script: that needs no `if __name__ == "__main__"`, and what it
imports is not imported again. A worker that dies costs its own partition, which another one then does; the others go
on. Workers stand in process groups of their own, so that a Ctrl-C reaches the driver alone, which then ends them.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, TypeVar

from packer.corpus import Partition, Source
from packer.errors import ExecutorError
from packer.executors import RETRIES, Progress, Work, files_of, threads
from packer.executors.worker import DONE, FAILED, PROGRESS

Result = TypeVar("Result")

START = (  # without the current folder on the path: what lies there is not to be taken for a library
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from packer.executors.worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


class WorkerError(Exception):
    """The traceback of an error in a worker, as its cause."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Pool:
    """So many worker processes, started by `map` and ended by it."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def preflight(self, sources: Sequence[Source], folder: Path) -> None:
        """The workers see what this process sees."""

    def map(
        self, work: Work[Result], partitions: Sequence[Partition], progress: Progress | None
    ) -> Generator[Result, None, None]:
        run = _Run(pickle.dumps(work), partitions, min(self._workers, len(partitions)))
        try:
            yield from run.results(progress or (lambda *_: None))
        finally:
            run.end()


class _Run:
    """One map: who works on what, and what is left to do."""

    def __init__(self, work: bytes, partitions: Sequence[Partition], count: int) -> None:
        self._work, self._partitions, self._count = work, partitions, count
        self._threads = max(1, threads.cores() // max(1, count))
        self._left = deque(range(len(partitions)))
        self._deaths: Counter[int] = Counter()
        self._workers: list[_Worker] = []
        self._results: dict[int, Any] = {}

    def results(self, progress: Progress) -> Iterator[Any]:
        for index in range(len(self._partitions)):
            while index not in self._results:
                self._employ()
                self._listen(progress)
            yield self._results.pop(index)

    def end(self) -> None:
        """Ends all at once, whatever they are doing."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
            worker.connection.close()
        self._workers.clear()

    def _employ(self) -> None:
        """Gives partitions to idle workers, and to new ones up to their number."""
        while self._left:
            worker = next((worker for worker in self._workers if worker.partition is None), None)
            if worker is None:
                if len(self._workers) == self._count:
                    return
                worker = _Worker(self._work, self._threads)
                self._workers.append(worker)
            worker.give(self._left.popleft(), self._partitions)

    def _listen(self, progress: Progress) -> None:
        """Waits until some worker says something, or dies."""
        for worker in wait_for(self._workers):
            assert worker.partition is not None
            try:
                kind, *content = worker.connection.recv()
            except (EOFError, OSError):
                self._died(worker, worker.partition)
                continue
            if kind == PROGRESS:
                progress(*content)
            elif kind == DONE:
                self._results[worker.partition], worker.partition = content[0], None
            elif kind == FAILED:
                error, text = content
                raise error from WorkerError(text)

    def _died(self, worker: _Worker, index: int) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        how = _ending(worker.process.wait())
        self._deaths[index] += 1
        if self._deaths[index] > RETRIES:
            raise ExecutorError(
                f"{files_of(self._partitions[index])}: its worker {how}, {self._deaths[index]} times; fewer --workers "
                "or smaller --block-tokens need less memory"
            )
        self._left.appendleft(index)


class _Worker:
    """A process, the socket to it, and the number of the partition that it is at, None while it is idle."""

    def __init__(self, work: bytes, thread_count: int) -> None:
        self.partition: int | None = None
        self.connection: Connection[Any, Any]
        self.connection, theirs = Pipe()
        with theirs:
            arguments = [json.dumps(sys.path), str(theirs.fileno()), str(thread_count)]
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | threads.environment(thread_count),
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        self._send(self.connection.send_bytes, work)

    def give(self, index: int, partitions: Sequence[Partition]) -> None:
        self.partition = index
        self._send(self.connection.send, partitions[index])

    def _send(self, send: Callable[[Any], None], message: Any) -> None:
        """To a worker that has just died nothing can be sent: that shows when it is listened to."""
        try:
            send(message)
        except OSError:
            return


def wait_for(workers: Sequence[_Worker]) -> list[_Worker]:
    """Those busy ones that have said something, or died."""
    busy = {worker.connection: worker for worker in workers if worker.partition is not None}
    return [busy[ready] for ready in wait(list(busy)) if isinstance(ready, Connection)]


def _ending(code: int) -> str:
    """-9 -> "was killed by SIGKILL (which the system does when memory runs out)" """
    if code >= 0:
        return f"ended with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}" + " (which the system does when memory runs out)" * (-code == signal.SIGKILL)
