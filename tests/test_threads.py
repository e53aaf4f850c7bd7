"""Items made ahead in a thread: in order, bounded, errors in their place, and no thread left waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from packer.threads import made_ahead


def ended(name: str = "made-ahead") -> bool:
    """Whether no thread of that name is left, within a second or so."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not any(thread.name == name for thread in threading.enumerate()):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
@pytest.mark.parametrize("ahead", [1, 2, 7])
def test_all_items_in_order(count: int, ahead: int) -> None:
    assert list(made_ahead(iter(range(count)), ahead)) == list(range(count))
    assert ended()


def test_no_more_are_made_than_asked_for() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            yield i

    source = made_ahead(items(), 3)
    assert next(source) == 0
    time.sleep(0.2)
    assert len(made) <= 1 + 3 + 1  # given, waiting, and the one that waits for room
    source.close()
    assert ended()
    assert len(made) <= 7


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("third")

    source = made_ahead(items(), 1)
    assert [next(source), next(source)] == [1, 2]
    with pytest.raises(ValueError, match="third"):
        next(source)
    assert ended()


@pytest.mark.parametrize("taken", [1, 2, 50])
def test_ending_early_ends_the_thread(taken: int) -> None:
    source = made_ahead(iter(range(100_000)), 2)
    for _ in range(taken):
        next(source)
    source.close()
    assert ended()
