"""A Ray cluster: one task a partition, nothing else of Ray (no actors, no data sets, no objects in its store).

    driver  ── preflight ──▶  every node: the same versions, sees INPUT, shares OUT
            ── partition ──▶  a task, on whatever node has room
            ◀── report ─────  a few hundred bytes; the rows themselves are in OUT, which all nodes share

Ray's own retries are off: they have no limit where memory runs out, and do not say which files a task had. What dies
is counted here. The driver has to be on a node of the cluster (or start one: "local").
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import secrets
import shutil
import socket
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

from packer.corpus import Partition, Source
from packer.errors import ExecutorError, InputError
from packer.executors import RETRIES, Execution, Executor, Progress, Work, cluster, files_of, probe, threads
from packer.executors.connection import LOCAL, LOST_SECONDS, Connection, first_line, signals_passed
from packer.executors.pool import WorkerError
from packer.executors.worker import portable

Result = TypeVar("Result")

PREFLIGHT_SECONDS = 120  # in which each node has to answer: it may have to start an interpreter first
POLL_SECONDS = 0.05  # between two looks at what has come back
CHECK_SECONDS = 5.0  # between two looks at the nodes
GONE_SECONDS = 60.0  # without any node that can run a task: then none will come
END_SECONDS = 30.0  # in which cancelled tasks have to be gone
AHEAD = 2  # tasks that wait at the cluster, so that no node has to wait for the driver

log = logging.getLogger("packer")


def make(execution: Execution) -> Executor:
    return Cluster(Connection(execution.ray_address or LOCAL, debug=execution.debug), execution)


class Cluster:
    """Connected from the preflight to the end of a map."""

    def __init__(self, connection: Connection, execution: Execution) -> None:
        self._connection, self._ray, self._execution = connection, connection.ray, execution

    def preflight(self, sources: Sequence[Source], folder: Path) -> None:
        if any(source.format == "stdin" for source in sources):
            raise InputError("a pipe can be read by this process alone: run with --executor local")
        with signals_passed():
            self._connection.open()
            try:
                self._preflight(sources, folder)
            except BaseException:
                self._connection.close()
                raise

    def _preflight(self, sources: Sequence[Source], folder: Path) -> None:
        nodes = [node for node in self._nodes() if node.cpus]
        cluster.request(nodes, 1, self._execution.task_memory or 0)
        files = [
            (source.location, source.size, source.modified) for source in sources if os.path.isabs(source.location)
        ]
        shared, token = folder.absolute() / f"nodes-{secrets.token_hex(8)}", secrets.token_hex(16)
        shared.mkdir()
        try:
            (shared / probe.DRIVER).write_text(token, encoding="utf-8")
            self._look(nodes, files, shared, token)
        finally:
            shutil.rmtree(shared, ignore_errors=True)

    def map(
        self, work: Work[Result], partitions: Sequence[Partition], progress: Progress | None
    ) -> Generator[Result, None, None]:
        with signals_passed():
            self._connection.open()
            run = _Run(self._connection, self._nodes, pickle.dumps(work), partitions, self._execution)
            try:
                yield from run.results(progress or (lambda *_: None))
            finally:
                run.end()
                self._connection.close()

    def _nodes(self) -> list[cluster.Node]:
        return [
            cluster.Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                int(node["Resources"].get("CPU", 0)),
                int(node["Resources"].get("memory", 0)),
            )
            for node in self._ray.nodes()
            if node["Alive"]
        ]

    def _look(self, nodes: Sequence[cluster.Node], files: Sequence[probe.File], shared: Path, token: str) -> None:
        """Asks every node at once."""
        ray = self._ray
        affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        ray.cloudpickle.register_pickle_by_value(probe)
        try:
            task = ray.remote(probe.look)
            asked = {
                task.options(
                    num_cpus=0,
                    max_retries=0,
                    name="packer preflight",
                    scheduling_strategy=affinity(node.id, soft=False),
                ).remote(list(files), str(shared), token, node.id): node
                for node in nodes
            }
        finally:
            ray.cloudpickle.unregister_pickle_by_value(probe)
        silent: Sequence[Any] = list(asked)
        ends = monotonic() + PREFLIGHT_SECONDS
        while silent and monotonic() < ends:
            sleep(POLL_SECONDS)
            answered, silent = _ready(ray, silent)
            for ref in answered:
                self._judge(asked[ref], ref, shared)
        if silent:
            raise ExecutorError(
                f"node {asked[silent[0]].address} has not answered in {PREFLIGHT_SECONDS} s; see its log in Ray's "
                "session folder, or take it out of the cluster"
            )

    def _judge(self, node: cluster.Node, ref: Any, shared: Path) -> None:
        """Raises ExecutorError where a node's answer is no good one. One that is gone by now, which a cluster notices
        late, is none of ours any more."""
        try:
            versions, lacking = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            if node.id not in {alive.id for alive in self._nodes()}:
                return
            raise ExecutorError(f"node {node.address} cannot run a task: {first_line(error)}") from error
        if differs := probe.difference(probe.versions(), versions):
            raise ExecutorError(f"node {node.address} has {differs}; the same versions have to be on every node")
        if lacking is None and not probe.appears(shared / node.id):
            lacking = f"wrote a file to {shared}, and this machine does not see it"
        if lacking:
            raise ExecutorError(
                f"node {node.address} {lacking}; every node has to see the same INPUT and OUT at one path"
            )


class _Run:
    """One map: what runs, what is left to do, and what has come back."""

    def __init__(
        self,
        connection: Connection,
        nodes: Callable[[], list[cluster.Node]],
        work: bytes,
        partitions: Sequence[Partition],
        execution: Execution,
    ) -> None:
        self._connection, self._ray = connection, connection.ray
        self._nodes, self._work, self._partitions = nodes, work, partitions
        self._workers = execution.workers
        at_once = min(len(partitions), self._workers or len(partitions))
        self._asked = cluster.request(nodes(), at_once, execution.task_memory or 0)
        self._task = self._ray.remote(_task).options(
            num_cpus=self._asked.cpus, memory=self._asked.memory or None, max_retries=0, name="packer partition"
        )
        self._left = deque(range(len(partitions)))
        self._deaths: Counter[int] = Counter()
        self._running: dict[Any, int] = {}
        self._results: dict[int, Any] = {}
        self._checked = self._possible = self._answered = monotonic()
        self._limit = self._workers or cluster.slots(nodes(), self._asked) + AHEAD

    def results(self, progress: Progress) -> Iterator[Any]:
        if self._ray.available_resources().get("CPU", 0) < self._asked.cpus:
            log.warning("packer: the cluster is busy with other work; waiting for it")
        for index in range(len(self._partitions)):
            while index not in self._results:
                self._submit()
                self._listen(progress)
                self._check()
            yield self._results.pop(index)

    def end(self) -> None:
        """Ends all at once, whatever they are doing."""
        refs = list(self._running)
        self._running.clear()
        if not refs:
            return
        with contextlib.suppress(Exception):  # a cluster that is lost too; the error that brought us here is the one
            for ref in refs:
                self._ray.cancel(ref, force=True)
            self._ray.wait(refs, num_returns=len(refs), timeout=END_SECONDS)

    def _submit(self) -> None:
        while self._left and len(self._running) < self._limit:
            index = self._left.popleft()
            message = pickle.dumps(self._partitions[index])
            self._running[self._task.remote(self._work, message, self._asked.cpus, probe.versions())] = index

    def _listen(self, progress: Progress) -> None:
        ready, _ = _ready(self._ray, list(self._running))
        if not ready:
            sleep(POLL_SECONDS)
        for ref in ready:
            index = self._running.pop(ref)
            try:
                done, *content = pickle.loads(self._ray.get(ref))
            except self._ray.exceptions.RayTaskError as refused:
                raise ExecutorError(f"a task could not begin: {first_line(refused)}") from refused
            except self._ray.exceptions.RayError as death:
                self._died(index, death)
                continue
            if not done:
                error, text = content
                raise error from WorkerError(text)
            self._results[index], documents, tokens = content
            progress(documents, tokens)

    def _died(self, index: int, error: Exception) -> None:
        self._deaths[index] += 1
        if self._deaths[index] > RETRIES:
            raise ExecutorError(
                f"{files_of(self._partitions[index])}: its task died {self._deaths[index]} times, the last time with "
                f"{type(error).__name__}: {first_line(error)}; smaller --block-tokens need less memory"
            ) from error
        self._left.appendleft(index)

    def _check(self) -> None:
        """Nodes come and go. A task that no node can run any more would wait forever."""
        now = monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        if not self._connection.answers():
            if now - self._answered > LOST_SECONDS:
                self._running.clear()
                raise self._connection.lost()
            return
        self._answered = now
        room = cluster.slots(self._nodes(), self._asked)
        self._limit = self._workers or room + AHEAD
        if room:
            self._possible = now
        elif now - self._possible > GONE_SECONDS:
            raise ExecutorError(
                f"{files_of(self._partitions[min(self._running.values())])}: waits for a node with "
                f"{self._asked.cpus} CPUs, and for {GONE_SECONDS:.0f} s the cluster has had none; those that it had at "
                "the start are gone"
            )


def _task(work: bytes, partition: bytes, thread_count: int, versions: Mapping[str, str]) -> bytes:
    """A partition, on some node: pickled (True, result, documents, tokens) or (False, error, traceback).

    Errors come back as values: Ray would wrap them in types of its own. The versions are looked at here too, for a node
    may have joined after the preflight.
    """
    try:
        threads.limit(thread_count)
        if differs := probe.difference(dict(versions), probe.versions()):
            node = socket.gethostname()
            raise ExecutorError(f"node {node} has {differs}; the same versions have to be on every node")
        count = _Count()
        result = pickle.loads(work)(pickle.loads(partition), count)
        return pickle.dumps((True, result, count.documents, count.tokens))
    except Exception as error:
        return pickle.dumps((False, portable(error), traceback.format_exc()))


def _ready(ray: Any, refs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Those that have come back, and those that have not. Looks and does not wait: a signal's exception, unless it is
    KeyboardInterrupt, would be lost in Ray's compiled code."""
    ready: tuple[Sequence[Any], Sequence[Any]] = ray.wait(refs, num_returns=len(refs), timeout=0)
    return ready


class _Count:
    """What a task has done, told when it is over."""

    def __init__(self) -> None:
        self.documents = self.tokens = 0

    def __call__(self, documents: int, tokens: int) -> None:
        self.documents += documents
        self.tokens += tokens
