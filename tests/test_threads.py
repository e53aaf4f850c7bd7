"""Items made ahead in a thread: in order, bounded, errors in their place, and no thread left waiting; work behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from packer.threads import Behind, made_ahead


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


def test_what_is_given_is_done_in_order_beside_its_owner() -> None:
    here, seen = threading.get_ident(), list[tuple[int, int]]()

    def work(i: int) -> int:
        seen.append((i, threading.get_ident()))
        return i

    with Behind() as behind:
        given = [behind.give(partial(work, i)) for i in range(9)]
        behind.wait()
    assert [future.result() for future in given] == [i for i, _ in seen] == list(range(9))
    assert {thread for _, thread in seen} != {here}
    assert len({thread for _, thread in seen}) == 1


def test_an_error_behind_is_raised_at_the_next_look() -> None:
    def fails() -> None:
        raise ValueError("behind")

    with Behind() as behind:
        behind.look()
        failed = behind.give(fails)
        while not failed.done():
            time.sleep(0.001)
        with pytest.raises(ValueError, match="behind"):
            behind.look()
        behind.look()  # once
        behind.give(fails)
        with pytest.raises(ValueError, match="behind"):
            behind.wait()


def test_an_error_of_the_owner_leaves_nothing_undone() -> None:
    done: list[int] = []
    go = threading.Event()

    def owner() -> None:
        with Behind() as behind:
            behind.give(go.wait)
            for i in range(3):
                behind.give(partial(done.append, i))
            go.set()
            raise ValueError("the owner's")

    with pytest.raises(ValueError, match="the owner's"):
        owner()
    assert done == [0, 1, 2]


def until_unwanted(behind: Behind, begun: threading.Event, ended: threading.Event) -> None:
    """Long work."""
    begun.set()
    try:
        while True:
            behind.check()
            time.sleep(0.001)
    finally:
        ended.set()


def test_an_interrupt_ends_what_is_being_done_and_leaves_the_rest() -> None:
    begun, ended, later = threading.Event(), threading.Event(), list[int]()

    def owner() -> None:
        with Behind() as behind:
            behind.give(partial(until_unwanted, behind, begun, ended))
            behind.give(lambda: later.append(1))
            begun.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        owner()
    assert ended.is_set()
    assert later == []


def test_an_interrupt_while_the_rest_is_being_done_ends_it() -> None:
    begun, ended = threading.Event(), threading.Event()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        behind = Behind()
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt), behind:
            behind.give(partial(until_unwanted, behind, begun, ended))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended.is_set()
