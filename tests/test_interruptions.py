"""Runs that are killed, interrupted, starved of room, read or doubled while they write: the bytes of an undisturbed
run, or no data set. Real processes and real signals.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from packer.errors import DatasetError
from packer.verify import verify

OPTIONS = [
    "--quiet",
    "--max-length",
    "64",
    "--partition-bytes",
    "60000",
    "--block-tokens",
    "3000",
    "--rows-per-shard",
    "50",
]
MOMENTS = 20


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 16 partitions."""
    path = tmp_path_factory.mktemp("source") / "docs.jsonl"
    draw = random.Random(5)
    with open(path, "w") as file:
        for n in range(6000):
            file.write(json.dumps({"input_ids": [draw.randrange(50_000) for _ in range(n % 43 + 1)]}) + "\n")
    return path


@pytest.fixture(scope="module")
def whole(source: Path) -> dict[str, str]:
    out = source.with_name("whole")
    assert run(source, out).returncode == 0
    return hashes(out)


def command(source: Path, out: Path, *options: object) -> list[str]:
    return [sys.executable, "-P", "-m", "packer", "pack", *map(str, (source, "--out", out, *OPTIONS, *options))]


def run(source: Path, out: Path, *options: object, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(source, out, *options), capture_output=True, text=True, timeout=300, **how)  # type: ignore[call-overload,no-any-return]


def start(source: Path, out: Path, *options: object) -> subprocess.Popen[str]:
    arguments = command(source, out, *options)
    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def hashes(out: Path) -> dict[str, str]:
    files = (path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def visible(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob("*") if not path.name.startswith("."))


def children(pid: int) -> list[int]:
    try:
        return [
            int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
        ]
    except OSError:
        return []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> bool:
    """Whether it came true, before the process ended."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        if process is not None and process.poll() is not None:
            return False
        time.sleep(0.002)
    return True


def committed(out: Path, count: int) -> bool:
    return len(list((out / ".tmp").glob("part-?????"))) >= count


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["in process", "workers"])
def test_killed_at_random_moments_and_gone_on_with(
    tmp_path: Path, source: Path, whole: dict[str, str], workers: list[str]
) -> None:
    """Each time the driver alone is killed, as the system would; its workers end by themselves."""
    out, draw, kills = tmp_path / "out", random.Random(1), 0
    while kills < MOMENTS:
        process = start(source, out, *workers, "--resume")
        count = draw.randrange(20)  # of partitions; there are not so many: the rest is while shards are written
        wait_until(lambda count=count: committed(out, count) or any((out / ".tmp" / "data").glob("*")), process)
        time.sleep(draw.uniform(0, 0.4))
        below = children(process.pid)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        wait_until(lambda below=below: not any(map(alive, below)))
        if (out / "manifest.json").exists():  # it was done, or killed after it had published
            assert {name: digest for name, digest in hashes(out).items() if not name.startswith(".")} == whole
            shutil.rmtree(out)
    if not (out / "manifest.json").exists():
        done = run(source, out, *workers, "--resume")
        assert done.returncode == 0, done.stderr
    assert hashes(out) == whole


@pytest.mark.slow
def test_workers_killed_at_random_moments(tmp_path: Path, source: Path, whole: dict[str, str]) -> None:
    """Never the same partition four times in a row: it is done again, and the run goes on."""
    out, draw = tmp_path / "out", random.Random(2)
    for _ in range(5):
        process, kills = start(source, out, "--workers", "2"), 0
        while process.poll() is None and kills < 3:
            time.sleep(draw.uniform(0.2, 0.8))
            if below := children(process.pid):
                os.kill(draw.choice(below), signal.SIGKILL)
                kills += 1
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert kills
        assert hashes(out) == whole
        shutil.rmtree(out)


@pytest.mark.parametrize(
    ("number", "code", "to_all"),
    [
        pytest.param(signal.SIGINT, 130, True, id="terminal"),
        pytest.param(signal.SIGINT, 130, False, id="interrupt", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, True, id="terminate all", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, False, id="terminate", marks=pytest.mark.slow),
    ],
)
def test_interrupted_with_workers(
    tmp_path: Path, source: Path, whole: dict[str, str], number: int, code: int, to_all: bool
) -> None:
    """One line, no process, no visible file; a terminal's Ctrl-C goes to the whole group."""
    out = tmp_path / "out"
    process = start(source, out, "--workers", "2")
    assert wait_until(lambda: committed(out, 2), process)
    below = children(process.pid)
    began = time.monotonic()
    (partial(os.killpg, process.pid) if to_all else process.send_signal)(number)
    printed, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert (process.returncode, printed) == (code, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith("packer: interrupted; ")
    assert errors.rstrip().endswith("partitions are kept: --resume goes on from there")
    assert below
    assert not any(map(alive, below))
    assert visible(out) == []
    assert run(source, out, "--resume").returncode == 0
    assert hashes(out) == whole


@pytest.mark.parametrize(
    "workers", [[], pytest.param(["--workers", "2"], marks=pytest.mark.slow)], ids=["in process", "workers"]
)
def test_no_room_for_a_file(tmp_path: Path, source: Path, whole: dict[str, str], workers: list[str]) -> None:
    """The last partition's file is too large, so that those before it are kept."""
    out, larger = tmp_path / "out", tmp_path / "docs.jsonl"
    larger.write_text(source.read_text() + json.dumps({"input_ids": list(range(1, 9000))}) + "\n")
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (30_000, 30_000))
    done = run(larger, out, *workers, preexec_fn=limit)
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert f"--out {out}: there is no room left to write (File too large); make some there; " in done.stderr
    assert "partitions are kept: --resume goes on from there" in done.stderr
    assert visible(out) == []
    assert run(larger, out, *workers, "--resume").returncode == 0
    assert run(larger, tmp_path / "whole").returncode == 0
    assert hashes(out) == hashes(tmp_path / "whole") != whole


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() or not mount:
        pytest.skip("only root may mount a file system")
    if subprocess.run([mount, "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk(small_disk: Path, source: Path, whole: dict[str, str]) -> None:
    out = small_disk / "out"
    done = run(source, out)
    assert done.returncode == 1
    assert f"--out {out}: there is no room left to write (No space left on device); make some" in done.stderr
    assert "partitions are kept" in done.stderr
    assert visible(out) == []
    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    assert run(source, out, "--resume").returncode == 0
    assert hashes(out) == whole


@pytest.mark.slow
def test_a_reader_at_the_same_time(tmp_path: Path, source: Path, whole: dict[str, str]) -> None:
    """While a data set is replaced a reader sees the old one, the new one, or an error: nothing that passes for one."""
    out, seen = tmp_path / "out", set()
    assert run(source, out, "--seed", 1).returncode == 0
    process = start(source, out, "--overwrite")
    while process.poll() is None:
        try:
            seen.add(verify(out).manifest.seed)
        except DatasetError:
            continue
    process.communicate()
    assert process.returncode == 0
    assert seen <= {0, 1}
    assert 1 in seen
    assert hashes(out) == whole


def test_two_writers_at_once(tmp_path: Path, source: Path, whole: dict[str, str]) -> None:
    out = tmp_path / "out"
    first = start(source, out)
    assert wait_until(lambda: committed(out, 1), first)
    second = run(source, out, "--overwrite")
    assert second.returncode == 1
    assert "another run is writing there" in second.stderr
    assert first.wait(timeout=120) == 0
    first.communicate()
    assert hashes(out) == whole


@pytest.mark.slow
@pytest.mark.parametrize("block", [1500, 40_000])
@pytest.mark.parametrize("interrupted", [False, True], ids=["whole", "interrupted"])
def test_the_grid(tmp_path: Path, source: Path, block: int, interrupted: bool) -> None:
    """The same block size, the same bytes: of every shard and of the manifest."""
    reference = tmp_path / "reference"
    assert run(source, reference, "--block-tokens", block).returncode == 0
    for workers in (1, 2, 4):
        out = tmp_path / f"workers-{workers}"
        options = ["--block-tokens", block, "--workers", workers]
        if interrupted:
            process = start(source, out, *options)
            wait_until(partial(committed, out, 1 + 3 * workers), process)
            process.kill()
            process.communicate()
        done = run(source, out, *options, *(["--resume"] if interrupted else []))
        assert done.returncode == 0, done.stderr
        assert hashes(out) == hashes(reference)
