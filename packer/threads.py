"""Work a few items ahead in threads, results in order; items made ahead in a thread; work left to a thread behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from queue import Queue
from threading import Event, Thread
from types import TracebackType
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    threads: int,
    ahead: int,
    abort: Callable[[], None] | None = None,
) -> Generator[Result, None, None]:
    """function(item) for each item, in order, with at most `ahead` items taken but not yet given back.

    Items are made by the caller's thread, between results. When it ends early, by an error or by `close`, what is still
    running is left to itself; with `abort`, that is called and then waited for.
    """
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        if abort:
            abort()
        pool.shutdown(wait=abort is not None, cancel_futures=True)


def made_ahead(items: Iterable[Item], ahead: int) -> Generator[Item, None, None]:
    """The items, made by a thread of their own, at most `ahead` of them before they are asked for.

    An error is raised where its item would be. When the caller ends early the thread is left to itself: it may be
    waiting for a pipe, and ends after the item that it is at.
    """
    queue: Queue[Any] = Queue(ahead)
    ended = object()
    given_up: list[bool] = []

    def make() -> None:
        last: Any = ended
        try:
            for item in items:
                queue.put((item, None))
                if given_up:
                    return
        except BaseException as error:  # the caller's to raise
            last = error
        queue.put((ended, last))

    Thread(target=make, name="made-ahead", daemon=True).start()
    try:
        while True:
            item, error = queue.get()
            if item is not ended:
                yield item
            elif error is ended:
                return
            else:
                raise error
    finally:
        given_up.append(True)
        while not queue.empty():  # wakes a thread that waits to put
            queue.get_nowait()


class Behind:
    """A thread that does what it is given, in order, while its owner goes on: a context manager.

    At its end all is done, after an error of the owner too. Only where the owner is interrupted is what has not begun
    left undone, and what is being done is ended at its next `check`.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="behind")
        self._given: deque[Future[Any]] = deque()  # whose errors nobody has seen
        self._all: list[Future[Any]] = []  # that may not be done
        self._closed = Event()

    def give(self, function: Callable[[], Result]) -> Future[Result]:
        """It is called whether or not what was given before has failed."""
        future = self._pool.submit(function)
        self._given.append(future)
        self._all = [*(one for one in self._all if not one.done()), future]
        return future

    def look(self) -> None:
        """Raises the error of what has failed by now."""
        while self._given and self._given[0].done():
            self._given.popleft().result()

    def wait(self) -> None:
        """The same, when all is done."""
        while self._given:
            self._given.popleft().result()

    def check(self) -> None:
        """For what takes long, to call now and then: raises CancelledError when nobody wants it any more."""
        if self._closed.is_set():
            raise CancelledError

    def __enter__(self) -> Behind:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is not None and not issubclass(kind, Exception):
                self._closed.set()
            else:
                wait(self._all)
        except BaseException:
            self._closed.set()
            raise
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            wait([one for one in self._all if not one.cancelled()])  # a thread's `join` is wrong once interrupted
