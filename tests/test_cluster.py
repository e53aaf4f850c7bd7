"""What the Ray executor decides, with a stand-in for Ray: requests, retries, order, nodes that lack something.

The real one, with clusters, workers and nodes that are killed: test_ray.py.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packer.corpus import Partition, Slice, Source
from packer.errors import ExecutorError, InputError, UsageError
from packer.executors import RETRIES, Execution, Progress, cluster, connection, probe, ray, threads
from packer.executors.cluster import Node, Request

GB = 10**9


def node(cpus: int, memory_gb: float = 64, name: str = "10.0.0.1") -> Node:
    return Node(name, name, cpus, int(memory_gb * GB))


@pytest.mark.parametrize(
    ("nodes", "tasks", "memory_gb", "cpus", "slots"),
    [
        ([node(16)], 100, 0, 1, 16),  # what a task needs is not known
        ([node(16)], 100, 3, 1, 16),
        ([node(16, 32)], 100, 3, 2, 8),  # memory for 10: 6 CPUs would stand idle
        ([node(16, 32), node(16, 8)], 100, 3, 8, 4),
        ([node(16)], 4, 3, 4, 4),  # fewer tasks than CPUs: a thread on each
        ([node(16)], 1, 3, 16, 1),
        ([node(16), node(4)], 1, 3, 4, 5),  # every node can run a task
        ([node(16), node(0)], 100, 3, 1, 16),  # a head that works on nothing
        ([node(16), node(16, 2)], 100, 3, 1, 16),  # one with too little memory
    ],
)
def test_requests(nodes: list[Node], tasks: int, memory_gb: int, cpus: int, slots: int) -> None:
    asked = cluster.request(nodes, tasks, memory_gb * GB)
    assert asked == Request(cpus, memory_gb * GB)
    assert cluster.slots(nodes, asked) == slots


@pytest.mark.parametrize("nodes", [[], [node(0)], [node(16, 2)]])
def test_a_cluster_that_cannot_run_a_task_is_refused(nodes: list[Node]) -> None:
    with pytest.raises(
        ExecutorError, match=r"no node of the cluster can run a partition, which asks for 1 CPU and 3\.0"
    ):
        cluster.request(nodes, 10, 3 * GB)


@pytest.mark.parametrize(
    "address", ["ray://10.0.0.1:10001", "http://10.0.0.1:8265", "10.0.0.1", "10.0.0.1:x", ":6379", ""]
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(UsageError, match="must be HOST:PORT"):
        connection.Connection(address or "x", debug=False)


def test_without_ray_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Any:
        raise ImportError

    monkeypatch.setattr(connection, "import_module", missing)
    with pytest.raises(UsageError, match=r"pip install 'packer\[ray\]'"):
        connection.Connection("local", debug=False)


@pytest.mark.parametrize(
    ("raised", "becomes", "says"),
    [
        (
            Exception("timed out\nand much more"),
            ExecutorError,
            "cannot be started on this machine: timed out; try again",
        ),
        (SystemError("an exception set"), KeyboardInterrupt, "^$"),
    ],
)
def test_what_ray_raises_where_it_begins(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, becomes: type[BaseException], says: str
) -> None:
    """A signal handler's exception, too, as it comes out of Ray's compiled code."""

    def init(*_: object, **__: object) -> None:
        raise raised from KeyboardInterrupt()

    stand_in = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setattr(connection, "_ray", lambda: stand_in)
    monkeypatch.setattr(connection, "import_module", lambda _: SimpleNamespace())
    before = dict(os.environ)
    with pytest.raises(becomes, match=says), connection.signals_passed():
        connection.Connection("local", debug=False).open()
    assert dict(os.environ) == before


class LostError(Exception):
    """A worker or a node that is gone."""


class RefusedError(LostError):
    """A task that could not begin."""


@dataclass
class StandIn:
    """Ray, as far as it is used here: tasks run when they are looked at, in another order, and die as told."""

    deaths: dict[int, int] = field(default_factory=dict)  # of the partition with that index
    cpus: int = 2
    most: int = 0  # tasks that were there at once
    cancelled: int = 0
    turns: int = 0
    pending: list[Any] = field(default_factory=list)
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(RayError=LostError, RayTaskError=RefusedError),
    )

    def remote(self, function: Callable[..., Any]) -> Any:
        return SimpleNamespace(options=lambda **options: self._task(function, options))

    def _task(self, function: Callable[..., Any], options: dict[str, Any]) -> Any:
        assert options["max_retries"] == 0

        def submit(*arguments: Any) -> object:
            ref = SimpleRef(function, arguments)
            self.pending.append(ref)
            self.most = max(self.most, len(self.pending))
            return ref

        return SimpleNamespace(remote=submit)

    def wait(self, refs: Sequence[Any], *, num_returns: int, timeout: float) -> tuple[Sequence[Any], Sequence[Any]]:
        assert num_returns == len(refs)
        if not self.cpus:
            return [], refs
        if timeout:  # the end of those that were cancelled is waited for
            return refs, []
        self.turns += 1
        chosen = refs[self.turns % len(refs)]
        return [chosen], [ref for ref in refs if ref is not chosen]

    def get(self, ref: Any) -> Any:
        self.pending.remove(ref)
        partition: Partition = pickle.loads(ref.arguments[1])
        if self.deaths.get(partition.index, 0):
            self.deaths[partition.index] -= 1
            raise LostError("the worker died\nand much more is said of it")
        return ref.function(*ref.arguments)

    def cancel(self, ref: Any, *, force: bool) -> None:
        assert force
        assert ref in self.pending
        self.cancelled += 1

    def available_resources(self) -> dict[str, float]:
        return {"CPU": self.cpus}

    def nodes(self) -> list[dict[str, Any]]:
        resources = {"CPU": self.cpus, "memory": 64 * GB}
        return [{"Alive": True, "NodeID": "1", "NodeManagerAddress": "10.0.0.1", "Resources": resources}]

    def is_initialized(self) -> bool:
        return True


class SimpleRef:
    def __init__(self, function: Callable[..., Any], arguments: Any) -> None:
        self.function, self.arguments = function, arguments


@dataclass(frozen=True)
class Square:
    """A work that fails as told."""

    wrong: int = -1

    def __call__(self, partition: Partition, progress: Progress | None = None, /) -> int:
        if partition.index == self.wrong:
            raise InputError(f"part {partition.index} is wrong")
        assert progress is not None
        progress(1, 10)
        return partition.index**2


def partitions(count: int) -> list[Partition]:
    return [
        Partition(i, (Slice(Source(f"part-{i}.jsonl", f"/part-{i}.jsonl", "jsonl", None, 10, None)),))
        for i in range(count)
    ]


def executor(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, **options: Any) -> ray.Cluster:
    monkeypatch.setattr(connection, "_ray", lambda: stand_in)
    monkeypatch.setattr(threads, "limit", lambda _: None)
    made = ray.make(Execution("ray", **options))
    assert isinstance(made, ray.Cluster)
    return made


def test_results_are_in_order_and_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    made = executor(StandIn(), monkeypatch)
    assert list(made.map(Square(), partitions(50), lambda *counts: told.append(counts))) == [i**2 for i in range(50)]
    assert told == [(1, 10)] * 50


@pytest.mark.parametrize(("workers", "most"), [(None, 2 + ray.AHEAD), (1, 1), (7, 7)])
def test_so_many_are_in_flight(monkeypatch: pytest.MonkeyPatch, workers: int | None, most: int) -> None:
    stand_in = StandIn()
    list(executor(stand_in, monkeypatch, workers=workers).map(Square(), partitions(50), None))
    assert stand_in.most == most


def test_what_dies_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = executor(StandIn({3: RETRIES, 4: 1}), monkeypatch)
    assert list(made.map(Square(), partitions(9), None)) == [i**2 for i in range(9)]


def test_what_dies_again_and_again_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn({3: RETRIES + 1})
    with pytest.raises(
        ExecutorError, match=r"^part-3\.jsonl: its task died 4 times, .* LostError: the worker died; [^\n]*$"
    ):
        list(executor(stand_in, monkeypatch).map(Square(), partitions(9), None))
    assert stand_in.cancelled == len(stand_in.pending) > 0


def test_errors_of_the_work_are_the_same_and_end_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn()
    with pytest.raises(InputError, match=r"^part 3 is wrong$") as caught:
        list(executor(stand_in, monkeypatch).map(Square(3), partitions(9), None))
    assert "in __call__" in str(caught.value.__cause__)  # where it happened
    assert stand_in.cancelled == len(stand_in.pending) > 0


def test_closing_ends_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn()
    results = executor(stand_in, monkeypatch).map(Square(), partitions(9), None)
    assert next(results) == 0
    results.close()
    assert stand_in.cancelled == len(stand_in.pending) > 0


def test_nodes_that_are_gone_for_good_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(ray, "GONE_SECONDS", 0.3)
    stand_in = StandIn()
    results = executor(stand_in, monkeypatch).map(Square(), partitions(9), None)
    next(results)
    stand_in.cpus = 0
    with pytest.raises(ExecutorError, match=r"part-\d\.jsonl: waits for a node with 1 CPUs"):
        list(results)


def test_a_busy_cluster_is_told_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stand_in = StandIn()
    monkeypatch.setattr(stand_in, "available_resources", dict)
    list(executor(stand_in, monkeypatch).map(Square(), partitions(2), None))
    assert "the cluster is busy" in caplog.text


def test_a_task_refuses_other_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "limit", lambda _: None)
    versions = probe.versions() | {"numpy": "1.0"}
    done, error, _ = pickle.loads(ray._task(b"", b"", 1, versions))
    assert not done
    assert isinstance(error, ExecutorError)
    assert "where this machine has 1.0" in str(error)


def test_a_pipe_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a pipe"):
        executor(StandIn(), monkeypatch).preflight([Source("-", "", "stdin", None, 0, None)], tmp_path)


def test_what_a_node_has_and_sees(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n")
    found = path.stat()
    file = (str(path), found.st_size, found.st_mtime_ns)
    assert probe.unseen([file, (str(tmp_path), 0, None)]) is None
    assert probe.unseen([(str(tmp_path / "b"), 1, None)]) == f"cannot read {tmp_path}/b (No such file or directory)"
    assert "of 3 bytes where this machine sees 4" in str(probe.unseen([(file[0], 4, file[2])]))
    assert "changed at another time" in str(probe.unseen([(file[0], 3, 1)]))
    assert probe.difference(probe.versions(), probe.versions()) is None
    assert probe.versions()["packer"].startswith("0.")


def test_what_a_node_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SECONDS", 0.1)
    assert "does not see" in str(probe.unwritable(str(tmp_path), "abc", "node"))
    (tmp_path / probe.DRIVER).write_text("abc")
    assert "sees another" in str(probe.unwritable(str(tmp_path), "abd", "node"))
    assert probe.unwritable(str(tmp_path), "abc", "node") is None
    assert (tmp_path / "node").read_text() == "abc"
    assert "cannot write" in str(probe.unwritable(str(tmp_path), "abc", "no/folder"))


def test_the_probe_needs_nothing_of_packer() -> None:
    source = Path(probe.__file__).read_text()
    assert "import packer" not in source
    assert "from packer" not in source
