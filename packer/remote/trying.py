"""Trying again what a network or a store failed to do."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import TypeVar

from packer.errors import PackerError

Result = TypeVar("Result")

WAITS = (1.0, 4.0, 16.0)  # seconds before each new try
# No use in trying again: what is not there, what is not allowed, what a store or its package cannot do.
FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError, ValueError, PackerError)


def tried(action: Callable[[], Result], failed: Callable[[], None] = lambda: None) -> Result:
    """What `action` gives; the error of its last try, where it is final or there were enough. failed: called after
    each that failed."""
    for wait in (*WAITS, None):
        try:
            return action()
        except Exception as error:  # each store has its own
            failed()
            if wait is None or isinstance(error, FINAL) or type(error).__name__ == "NoCredentialsError":
                raise
        sleep(wait)
    raise AssertionError("the last try returns or raises")
