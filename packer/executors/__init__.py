"""Executors: an ordered map of a pure function over partitions. Which one runs never changes the result.

    local     in this process, where the tokenizer's threads use every core; or N processes of this machine
    ray       tasks of a Ray cluster

    threads   how many threads the libraries may use in a process that shares its machine with others
    pool      the processes of `local`
    worker    what runs in each of them

One partition is one call of the work. A call may be cut short at any point, by a kill, and made again, even while the
first one is not quite dead yet: so the work has to write where nobody else does, and to give its result a name last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from concurrent.futures import Future

    from packer.corpus import Partition, Source
    from packer.threads import Behind

EXECUTORS = {"local": "this machine", "ray": "a Ray cluster"}
RETRIES = 3  # of a partition whose worker was killed
SHOWN = 3  # files of a partition that are named

Progress = Callable[[int, int], None]  # documents and tokens that have just been done
Result = TypeVar("Result")


class Work(Protocol[Result]):
    """The function: frozen, picklable, pure but for the files that it writes. Its result is small and picklable."""

    def __call__(self, partition: Partition, progress: Progress | None = None, /) -> Result: ...

    def begin(self, partition: Partition, progress: Progress | None, behind: Behind, /) -> Future[Result]:
        """The same, but leaves its last part to `behind`, as what comes after all that this has been given before."""


@dataclass(frozen=True)
class Execution:
    """How work is run. executor: a name in EXECUTORS; workers: processes, or tasks at once (None: local, in this
    process; ray, as the cluster can); ray_address: of a running cluster; task_memory: bytes that a call is expected to
    need at most; debug: show what workers print."""

    executor: str = "local"
    workers: int | None = None
    ray_address: str | None = None
    task_memory: int | None = None
    debug: bool = False


class Executor(Protocol):
    """One run's executor, made from an `Execution`. It can be used again after an error."""

    def preflight(self, sources: Sequence[Source], folder: Path) -> None:
        """Raises a PackerError where the work cannot be done: a source or the folder (which exists) is not seen by all
        who will work, or their versions differ. Called once, before anything is staged."""

    def map(
        self, work: Work[Result], partitions: Sequence[Partition], progress: Progress | None
    ) -> Generator[Result, None, None]:
        """work(partition) for each, in the order of the partitions, a bounded number of them at once.

        `progress` is called in the caller's thread while results are waited for. An error of the work is raised as the
        same product error that it was. A partition whose worker dies is tried RETRIES times more, then an
        ExecutorError names its files. On an error, and when the generator is closed, everything that runs is ended
        before that returns.
        """


def make(execution: Execution) -> Executor:
    """The executor of that name. Its module is loaded only now."""
    made: Any = import_module(f"packer.executors.{execution.executor}")
    return cast(Executor, made.make(execution))


def files_of(partition: Partition) -> str:
    """The partition's files, for errors.   "corpus/a.jsonl (bytes 0 to 268435456)" """
    names = []
    for piece in partition.slices[:SHOWN]:
        unit = "bytes" if piece.source.format in ("jsonl", "text") else "parts"
        cut = f" ({unit} {piece.start} to {piece.stop})" if piece.stop is not None else ""
        names.append(piece.source.path + cut)
    more = len(partition.slices) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
