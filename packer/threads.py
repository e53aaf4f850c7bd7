"""Work a few items ahead in threads, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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
