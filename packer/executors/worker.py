"""A worker process: it is given the work, then partitions, and answers each with its progress and its result.

Messages come and go over one socket. That the driver is gone shows as its end, even while a partition is being worked
on: a thread waits for it and ends the process, so that a killed driver leaves nothing behind.
"""

from __future__ import annotations

import os
import pickle
import traceback
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any

from packer.executors import threads

REPORT_SECONDS = 0.1  # between two messages of progress
PROGRESS, DONE, FAILED = "progress", "done", "failed"  # what an answer is


def main(descriptor: int, thread_count: int) -> None:
    """Serves the socket until it ends."""
    threads.limit(thread_count)
    connection: Connection[Any, Any] = Connection(descriptor)
    messages: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(connection, messages), name="listen", daemon=True).start()
    work = messages.get()
    while True:
        answer = _answer(work, messages.get(), _Progress(connection))
        try:
            connection.send_bytes(answer)
        except OSError:
            os._exit(1)  # nobody is there


def _listen(connection: Connection[Any, Any], messages: SimpleQueue[bytes]) -> None:
    while True:
        try:
            messages.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)  # in the middle of what it does: nothing that is half done has a name


def _answer(work: bytes, task: bytes, progress: _Progress) -> bytes:
    try:
        result = pickle.loads(work)(pickle.loads(task), progress.add)
        progress.send()
        return pickle.dumps((DONE, result))
    except BaseException as error:
        return pickle.dumps((FAILED, portable(error), traceback.format_exc()))


def portable(error: BaseException) -> BaseException:
    """The error, or one that says the same where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class _Progress:
    """Adds up what is done, and says so now and then."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._documents = self._tokens = 0
        self._sent = monotonic()

    def add(self, documents: int, tokens: int) -> None:
        self._documents += documents
        self._tokens += tokens
        if monotonic() - self._sent >= REPORT_SECONDS:
            self.send()

    def send(self) -> None:
        self._connection.send((PROGRESS, self._documents, self._tokens))
        self._documents = self._tokens = 0
        self._sent = monotonic()
