"""A connection to a Ray cluster, made so that it changes nothing else in the caller's process.

Ray takes over SIGTERM where it is imported and where it connects, writes a token to the home folder where it starts a
cluster, and without an address joins whatever cluster it finds: none of that happens here.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from packer.errors import ExecutorError, UsageError
from packer.executors import threads

LOCAL, AUTO = "local", "auto"
OBJECT_STORE_BYTES = 80 << 20  # of a cluster started here, near Ray's least: nothing is put there
CONNECT_SECONDS = 10
LOST_SECONDS = 20.0  # without the head; Ray gives up after 60
AUTHENTICATION = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


class Connection:
    """To the cluster at an address: HOST:PORT of its head, "auto" as Ray finds one, "local" for a new one on this
    machine, which ends with the connection. Raises UsageError for what cannot be an address, or where Ray is not
    installed."""

    def __init__(self, address: str, *, debug: bool) -> None:
        self._address = address
        self._port = _checked(address)
        self._own = False
        self._debug = debug
        self._options = {"log_to_driver": debug, "logging_level": logging.INFO if debug else logging.ERROR}
        self.ray = _ray()

    def open(self) -> None:
        """Raises ExecutorError where the cluster is not to be had. Where the process is connected already, that is the
        connection, and it is left open."""
        if self.ray.is_initialized():
            return
        with _signals_kept(), self._silence():
            if self._address == LOCAL:
                self._start()
            else:
                self._join()
        self._own = True

    def answers(self) -> bool:
        """Whether the head is there. Ray itself would wait for it, and then end this process."""
        if self._port is None:
            return True
        try:
            socket.create_connection(self._port, CONNECT_SECONDS).close()
        except OSError:
            return False
        return True

    def lost(self) -> ExecutorError:
        """The error of a head that is gone. Nothing more is asked of Ray: it would wait, then crash."""
        self._own = False
        atexit.register(_leave)  # before what Ray has registered
        return ExecutorError(
            f"--ray-address {self._address}: the cluster's head has been gone for {LOST_SECONDS:.0f} s"
        )

    def close(self) -> None:
        if self._own:
            self._own = False
            self.ray.shutdown()

    def _start(self) -> None:
        """A cluster that ends with this process, however that ends. Its token is its own, too: one in the home folder,
        where Ray would put it, changes how clusters behave that are started later."""
        variables: dict[str, str | None] = {"RAY_USAGE_STATS_ENABLED": "0"}
        if not os.environ.keys() & set(AUTHENTICATION):
            variables |= {"RAY_AUTH_TOKEN": _token(), "RAY_AUTH_MODE": None}  # Ray sets the mode itself
        instead = "try again when the machine is less busy, or give --ray-address of a cluster that runs; "
        with _environment(variables), self._errors("a Ray cluster cannot be started on this machine", instead):
            self.ray.init(
                LOCAL,
                num_cpus=threads.cores(),
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                **self._options,
            )

    def _join(self) -> None:
        where = f"--ray-address {self._address}"
        if self._port is not None:
            try:
                socket.create_connection(self._port, CONNECT_SECONDS).close()
            except OSError as error:
                raise ExecutorError(f"{where}: nothing answers there ({error}); is the cluster running?") from error
        agree = "RAY_AUTH_MODE and the token have to be the same here and on every node; "
        with self._errors(f"{where}: this machine cannot join", agree):
            self.ray.init(self._address, **self._options)

    @contextmanager
    def _silence(self) -> Iterator[None]:
        """Without this a lost node's last lines of log come out on the driver's stdout, `log_to_driver` or not: a
        thread that begins with the connection prints them."""
        worker: Any = import_module("ray._private.worker")
        printing = getattr(worker, "listen_error_messages", None)
        if self._debug or printing is None:
            yield
            return
        worker.listen_error_messages = lambda *_, **__: None
        try:
            yield
        finally:
            worker.listen_error_messages = printing

    @contextmanager
    def _errors(self, what: str, remedy: str = "") -> Iterator[None]:
        """Ray's own errors, many lines long, as one line."""
        try:
            yield
        except SystemError:  # see `signals_passed`
            raise
        except Exception as error:  # some of Ray's are of no narrower type, such as a node's that starts too slowly
            raise ExecutorError(f"{what}: {first_line(error)}; {remedy}--debug shows all that Ray says") from error


@contextmanager
def signals_passed() -> Iterator[None]:
    """What a signal handler raises in Ray's compiled code comes out of there as the cause of a SystemError."""
    try:
        yield
    except SystemError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None


def first_line(error: BaseException) -> str:
    """What Ray says, without what it says then."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _leave() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _checked(address: str) -> tuple[str, int] | None:
    """The head's host and port, None for the names."""
    if address in (LOCAL, AUTO):
        return None
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(
            f"--ray-address {address}: must be HOST:PORT of the cluster's head (not its dashboard nor ray://), "
            f"{AUTO} or {LOCAL}"
        )
    return host.strip("[]"), int(port)


@cache
def _token() -> str:
    """One a process: Ray reads it once."""
    return secrets.token_hex(32)


def _ray() -> Any:
    try:
        with _signals_kept():
            return import_module("ray")
    except ImportError as error:
        raise UsageError("--executor ray needs Ray: pip install 'packer[ray]'") from error


@contextmanager
def _signals_kept() -> Iterator[None]:
    """The caller's handlers are put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that was not set from Python cannot be
                signal.signal(number, handler)


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """They are set for what is started inside, and as they were after it. None: not set, but it may be inside."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
