"""Work a few items ahead in threads, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int
) -> Iterator[Result]:
    """function(item) for each item, in order, with at most `ahead` items taken but not yet given back.

    Items are made by the caller's thread, between results. An error ends it without waiting for what is still running.
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
        pool.shutdown(wait=False, cancel_futures=True)
