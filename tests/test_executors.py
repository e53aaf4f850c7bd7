"""Worker processes: the same results in the same order, whatever dies on the way; and nothing left afterwards."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packer import errors
from packer.corpus import Partition, Slice, Source
from packer.engines.errors import DifferenceError, EngineError
from packer.errors import ExecutorError, PackerError, RecordError
from packer.executors import RETRIES, Execution, files_of, make

WORKS = '''
import os, signal, sys, time
from dataclasses import dataclass
from pathlib import Path

import pyarrow
from packer.errors import RecordError

@dataclass(frozen=True)
class Facts:
    def __call__(self, partition, progress=None):
        progress(1, partition.index)
        return partition.index, os.getpid(), os.environ["RAYON_NUM_THREADS"], pyarrow.cpu_count()

@dataclass(frozen=True)
class Modules:
    def __call__(self, partition, progress=None):
        import packer.committed
        return sorted(set(sys.modules) & {"torch", "datasets", "transformers", "pandas"})

@dataclass(frozen=True)
class Dies:
    """Kills its process at partition 1, so many times."""
    folder: Path
    times: int
    def __call__(self, partition, progress=None):
        mark = self.folder / f"{partition.index}-{time.time_ns()}"
        mark.touch()
        if partition.index == 1 and len(list(self.folder.glob("1-*"))) <= self.times:
            os.kill(os.getpid(), signal.SIGKILL)
        return partition.index

@dataclass(frozen=True)
class Fails:
    kind: str
    def __call__(self, partition, progress=None):
        if partition.index == 1:
            if self.kind == "record":
                raise RecordError("b.jsonl", "line 3", "is bad")
            error = ValueError("not to be sent")
            error.lock = open(os.devnull)
            raise error
        return partition.index

@dataclass(frozen=True)
class Sleeps:
    folder: Path
    def __call__(self, partition, progress=None):
        (self.folder / str(os.getpid())).touch()
        if partition.index:
            time.sleep(60)
        return partition.index
'''


@pytest.fixture
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Functions in a module that a worker can import."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "works_of_a_test.py").write_text(WORKS)
    monkeypatch.syspath_prepend(str(folder))
    import works_of_a_test  # type: ignore[import-not-found]

    yield works_of_a_test
    del sys.modules["works_of_a_test"]


def partitions(count: int) -> list[Partition]:
    return [Partition(i, (Slice(Source(f"{i}.jsonl", "", "jsonl", None, 1, None)),)) for i in range(count)]


def mapped(work: Any, count: int, workers: int, progress: Callable[[int, int], None] | None = None) -> list[Any]:
    return list(make(Execution(workers=workers)).map(work, partitions(count), progress))


def gone(pid: int) -> bool:
    """Whether the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_results_in_order_from_other_processes(works: Any) -> None:
    told: list[tuple[int, int]] = []
    results = mapped(works.Facts(), 7, 2, lambda *done: told.append(done))
    assert [index for index, *_ in results] == list(range(7))
    pids = {pid for _, pid, *_ in results}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    assert all(map(gone, pids))
    assert [sum(column) for column in zip(*told, strict=True)] == [7, sum(range(7))]
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert {tuple(threads) for _, _, *threads in results} == {(str(share), share)}


def test_no_partition_needs_no_worker(works: Any) -> None:
    assert mapped(works.Facts(), 0, 2) == []


def test_workers_load_nothing_that_they_do_not_need(works: Any) -> None:
    assert mapped(works.Modules(), 1, 1) == [[]]


@pytest.mark.parametrize("times", [1, RETRIES])
def test_a_killed_worker_is_replaced(works: Any, tmp_path: Path, times: int) -> None:
    """Its partition is done again, those of others are not."""
    marks = tmp_path / "marks"
    marks.mkdir()
    assert mapped(works.Dies(marks, times), 4, 2) == [0, 1, 2, 3]
    begun = sorted(path.name.split("-")[0] for path in marks.iterdir())
    assert begun == sorted(["0", "2", "3"] + ["1"] * (times + 1))


def test_a_partition_that_kills_its_workers_is_given_up(works: Any, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with pytest.raises(ExecutorError, match=r"^1\.jsonl: its worker was killed by SIGKILL .*, 4 times; fewer"):
        mapped(works.Dies(marks, RETRIES + 1), 4, 2)


def test_an_error_arrives_as_it_was(works: Any) -> None:
    with pytest.raises(RecordError) as raised:
        mapped(works.Fails("record"), 4, 2)
    assert (raised.value.path, raised.value.where, raised.value.reason) == ("b.jsonl", "line 3", "is bad")
    assert "in __call__" in str(raised.value.__cause__)


def test_an_error_that_cannot_be_sent_is_told(works: Any) -> None:
    with pytest.raises(RuntimeError, match="ValueError: not to be sent"):
        mapped(works.Fails("other"), 4, 2)


def test_ending_early_ends_the_workers(works: Any, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    results = make(Execution(workers=2)).map(works.Sleeps(pids), partitions(3), None)
    assert next(results) == 0
    wait_until(lambda: len(list(pids.iterdir())) == 2)
    began = time.monotonic()
    results.close()
    assert time.monotonic() - began < 10
    assert all(gone(int(path.name)) for path in pids.iterdir())


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import works_of_a_test as works
from packer.corpus import Partition
from packer.executors import Execution, make
from pathlib import Path
print(list(make(Execution(workers=2)).map(works.Sleeps(Path(sys.argv[2])), [Partition(i, ()) for i in range(3)], None)))
"""


def test_workers_end_with_a_killed_driver(works: Any, tmp_path: Path) -> None:  # noqa: ARG001  its module is there
    """A script without `if __name__ == "__main__"`, whose workers are in the middle of something."""
    pids, script = tmp_path / "pids", tmp_path / "script.py"
    pids.mkdir()
    script.write_text(SCRIPT)
    driver = subprocess.Popen([sys.executable, str(script), str(tmp_path / "modules"), str(pids)])
    wait_until(lambda: len(list(pids.iterdir())) == 2)
    driver.kill()
    driver.wait()
    wait_until(lambda: all(gone(int(path.name)) for path in pids.iterdir()), 20)


def test_every_error_of_the_product_can_be_sent() -> None:
    special: dict[type[PackerError], PackerError] = {
        RecordError: RecordError("a.jsonl", "line 7", "is no JSON"),
        DifferenceError: DifferenceError(5, "token 3 differs"),
    }
    kinds = {EngineError, DifferenceError}
    kinds |= {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PackerError)}
    assert len(kinds) > 8
    for kind in kinds:
        error = special.get(kind) or kind("what, where, and what to do")
        error.add_note("kept") if kind not in special else None
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == str(error)
        assert vars(copy) == vars(error)


def test_files_of_a_partition() -> None:
    sources = [Source(f"{i}.jsonl", "", "jsonl", None, 9, None) for i in range(5)]
    assert files_of(Partition(0, (Slice(sources[0], 3, 9),))) == "0.jsonl (bytes 3 to 9)"
    assert files_of(Partition(0, tuple(map(Slice, sources)))) == "0.jsonl, 1.jsonl, 2.jsonl and 2 more"
