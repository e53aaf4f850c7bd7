"""The Ray executor on real clusters, on loopback: one node and two, workers and nodes that are killed, nodes that lack
something. Whatever happens, what comes out is what comes out without Ray, byte for byte, or one line of error.

Every process of a cluster is ended by its own id: `ray stop` would end other people's clusters, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import packer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs loopback addresses and /proc"),
]

ROOT = Path(packer.__file__).parent.parent
TOKENIZER = ROOT / "sample_data" / "tokenizer"
ARTICLES = ROOT / "sample_data" / "articles.jsonl"
LIMIT = 180  # seconds, for anything
NET = "127.0." + os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")  # parallel tests do not meet


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY")}
    return kept | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"} | variables


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of each that runs."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text()
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        if state != "Z":
            found[int(path.name)] = (int(parent), command)
    return found


def below(pids: set[int]) -> set[int]:
    """These and all their descendants."""
    while more := {pid for pid, (parent, _) in processes().items() if parent in pids} - pids:
        pids = pids | more
    return pids


def kill(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def killed(pids: set[int]) -> set[int]:
    """The same, for those who wait until there are some to kill."""
    kill(pids)
    return pids


def tasks(pids: set[int]) -> set[int]:
    """Those that work on a partition right now."""
    return {
        pid for pid, (_, command) in processes().items() if pid in pids and command.startswith("ray::packer partition")
    }


def wait_for(what: Callable[[], object]) -> None:
    ends = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.05)


class Cluster:
    """Nodes on addresses of the loopback network, with a token that only who is told has."""

    def __init__(self, head: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ray"))  # short: sockets lie in it
        self.head = head
        self.environment = environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
        with socket.socket() as probe:
            probe.bind((f"{NET}.{head}", 0))
            self.address = f"{NET}.{head}:{probe.getsockname()[1]}"
        self._started: dict[str, set[int]] = {}

    def start(self, host: int, *, wrapper: tuple[str, ...] = (), **variables: str) -> set[int]:
        """Starts the head, if it is that host, or another node. Returns all its processes."""
        before = self.pids()
        head = ["--head", "--port", self.address.partition(":")[2], "--include-dashboard=false"]
        head += ["--temp-dir", str(self.folder)]
        command = [*wrapper, sys.executable, "-m", "ray.scripts.scripts", "start"]
        command += head if host == self.head else ["--address", self.address]
        command += ["--node-ip-address", f"{NET}.{host}", "--num-cpus=1", f"--object-store-memory={80 << 20}"]
        command += ["--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"]
        log = self.folder / f"{host}.log"
        with open(log, "w") as output:  # a pipe would be held open by the node
            done = subprocess.run(
                command, env=self.environment | variables, cwd=self.folder, stdout=output, stderr=output, timeout=LIMIT
            )
        assert done.returncode == 0, log.read_text()
        return self.pids() - before

    def pids(self) -> set[int]:
        return below({pid for pid, (_, command) in processes().items() if str(self.folder) in command})

    def end(self) -> None:
        while pids := self.pids():
            kill(pids)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The head alone; tests add nodes, and take them away again."""
    made = Cluster()
    try:
        made.start(made.head)
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What keeps one core busy for some time."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    rng = random.Random(0)
    words = ARTICLES.read_text().split()
    with open(path, "w") as file:
        while file.tell() < 6 << 20:
            file.write(json.dumps({"text": " ".join(rng.choices(words, k=rng.randint(5, 800)))}) + "\n")
    return path


def command(source: Path, out: str, *options: object) -> list[str]:
    arguments = [source, "--tokenizer", TOKENIZER, "--max-length", 1024, "--out", out, *options]
    return [sys.executable, "-m", "packer", "pack", *map(str, arguments)]


SLOW = ("--tokenizer-engine", "hf", "--partition-bytes", 3 << 19, "--block-tokens", 1 << 17)
QUICK = ("--partition-bytes", 50_000)


def run(arguments: list[str], folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT)


def contents(out: Path) -> dict[str, str]:
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What comes out without Ray."""
    folder = tmp_path_factory.mktemp("local")
    done = run(command(corpus, "out", *SLOW), folder, environment())
    assert done.returncode == 0, done.stderr
    return contents(folder / "out")


class Run:
    """A run on the cluster, while it runs."""

    def __init__(self, cluster: Cluster, corpus: Path, folder: Path, *options: str) -> None:
        self.out = folder / "out"
        on_it = ("--executor", "ray", "--ray-address", cluster.address)
        self.process = subprocess.Popen(
            command(corpus, "out", *SLOW, *on_it, *options),
            cwd=folder,
            env=cluster.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_for(self, what: Callable[[], object]) -> None:
        wait_for(lambda: what() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()

    def end(self) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, stdout, stderr

    def succeeds(self, expected: dict[str, str]) -> None:
        code, stdout, stderr = self.end()
        assert (code, stderr) == (0, "")
        assert "(raylet)" not in stdout  # what Ray says of it
        assert contents(self.out) == expected


def test_a_cluster_of_its_own_leaves_nothing_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name, options in (("local", ()), ("ray", ("--executor", "ray", "--workers", 2))):
        done = run(command(ARTICLES, name, *QUICK, *options), tmp_path, environment(HOME=str(home)))
        assert not done.returncode, done.stderr
        assert done.stderr == ""
    assert contents(tmp_path / "local") == contents(tmp_path / "ray")
    assert list(home.iterdir()) == []  # no token, which would change how other clusters behave


def test_two_nodes(cluster: Cluster, corpus: Path, expected: dict[str, str], tmp_path: Path) -> None:
    second = cluster.start(3)
    try:
        with Run(cluster, corpus, tmp_path) as running:
            running.wait_for(lambda: tasks(below(second)))
            running.succeeds(expected)
    finally:
        kill(below(second))


def test_a_worker_is_killed(cluster: Cluster, corpus: Path, expected: dict[str, str], tmp_path: Path) -> None:
    with Run(cluster, corpus, tmp_path) as running:
        running.wait_for(lambda: list(running.out.glob(".tmp/part-*-*/block-*")) and killed(tasks(cluster.pids())))
        running.succeeds(expected)


def test_a_node_is_killed(cluster: Cluster, corpus: Path, expected: dict[str, str], tmp_path: Path) -> None:
    second = cluster.start(3)
    try:
        with Run(cluster, corpus, tmp_path) as running:
            running.wait_for(lambda: list(running.out.glob(".tmp/part-*-*/block-*")) and killed(tasks(below(second))))
            kill(below(second))
            running.succeeds(expected)
    finally:
        kill(below(second))


def test_a_worker_is_killed_again_and_again(cluster: Cluster, corpus: Path, tmp_path: Path) -> None:
    with Run(cluster, corpus, tmp_path) as running:
        while running.process.poll() is None:
            kill(tasks(cluster.pids()))
            time.sleep(0.02)
        code, _, stderr = running.end()
    assert code == 1
    assert stderr.startswith(f"packer: {corpus} (bytes ")
    assert "its task died 4 times" in stderr
    assert stderr.count("\n") == 1
    assert not running.out.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_tasks(
    cluster: Cluster, corpus: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with Run(cluster, corpus, tmp_path) as running:
        running.wait_for(lambda: tasks(cluster.pids()))
        running.process.send_signal(number)
        began = time.monotonic()
        ended = running.end()
        assert time.monotonic() - began < 30
    assert ended[0] == code
    assert ended[2].startswith("packer: interrupted")
    assert ended[2].count("\n") == 1
    assert tasks(cluster.pids()) == set()
    assert len(cluster.pids()) > 1  # it is not ours to end


def committed(out: Path) -> list[Path]:
    return list(out.glob(".tmp/part-?????/report.json"))


def test_resumed_on_the_cluster(cluster: Cluster, corpus: Path, expected: dict[str, str], tmp_path: Path) -> None:
    with Run(cluster, corpus, tmp_path) as running:
        running.wait_for(lambda: committed(running.out) and tasks(cluster.pids()))
        running.process.send_signal(signal.SIGINT)
        assert running.end()[0] == 130
    kept = len(committed(running.out))
    with Run(cluster, corpus, tmp_path, "--resume") as running:
        code, stdout, stderr = running.end()
    assert (code, stderr) == (0, "")
    assert f"resumed      {kept} of " in stdout
    assert contents(running.out) == expected


def test_the_head_is_killed_then_resumed_without_a_cluster(
    corpus: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    made = Cluster(head=7)
    try:
        made.start(made.head)
        with Run(made, corpus, tmp_path) as running:
            running.wait_for(lambda: committed(running.out) and tasks(made.pids()))
            kill(made.pids())
            code, _, stderr = running.end()
    finally:
        made.end()
    assert code == 1
    assert stderr.splitlines()[-1].startswith("packer: ")
    assert "--resume goes on from there" in stderr.splitlines()[-1]
    assert sorted(path.name for path in running.out.iterdir()) == [".tmp"]
    done = run(command(corpus, "out", *SLOW, "--resume"), tmp_path, environment())
    assert done.returncode == 0, done.stderr
    assert contents(running.out) == expected


def test_an_interrupt_ends_a_cluster_of_its_own(corpus: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(corpus, "out", *SLOW, "--executor", "ray"),
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        wait_for(lambda: tasks(below({process.pid})))
        ours = below({process.pid})
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all
        _, stderr = process.communicate(timeout=LIMIT)
    finally:
        kill(below({process.pid}))
    assert process.returncode == 130
    assert stderr.startswith("packer: interrupted")
    wait_for(lambda: not ours & processes().keys())


def refused(cluster: Cluster, source: Path, folder: Path, *options: object, **variables: str) -> str:
    """The one line with which a run is refused that leaves nothing behind."""
    on_it = ("--executor", "ray", "--ray-address", cluster.address)
    done = run(command(source, "out", *QUICK, *on_it, *options), folder, cluster.environment | variables)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("packer: ")
    assert not (folder / "out").exists()
    return last


def test_more_memory_than_any_node_has(cluster: Cluster, tmp_path: Path) -> None:
    line = refused(cluster, ARTICLES, tmp_path, "--block-tokens", 10**12)
    assert "no node of the cluster can run a partition, which asks for 1 CPU and 30000.6 GB" in line
    assert f"{NET}.2 offers most, 1 CPUs" in line


def test_a_wrong_record_is_named_as_without_ray(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": 1}\n')
    line = refused(cluster, Path("bad.jsonl"), tmp_path)
    assert line.startswith("packer: bad.jsonl, line 2: ")


def test_another_token(cluster: Cluster, tmp_path: Path) -> None:
    line = refused(cluster, ARTICLES, tmp_path, RAY_AUTH_TOKEN=secrets.token_hex(32))
    assert f"--ray-address {cluster.address}: " in line
    assert "RAY_AUTH_MODE and the token have to be the same" in line


def test_nothing_at_the_address(tmp_path: Path) -> None:
    done = run(command(ARTICLES, "out", "--executor", "ray", "--ray-address", f"{NET}.9:1"), tmp_path, environment())
    assert done.returncode == 1
    assert f"--ray-address {NET}.9:1: nothing answers there" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_node_that_is_gone_without_the_cluster_knowing_yet(
    cluster: Cluster, corpus: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    kill(below(cluster.start(6)))
    with Run(cluster, corpus, tmp_path) as running:
        running.succeeds(expected)


def test_another_packer_on_a_node(cluster: Cluster, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "packer", tmp_path / "other" / "packer")
    with open(tmp_path / "other" / "packer" / "stage.py", "a") as file:
        file.write("# changed\n")
    node = cluster.start(4, PYTHONPATH=str(tmp_path / "other"))
    try:
        line = refused(cluster, ARTICLES, tmp_path)
    finally:
        kill(below(node))
    assert f"packer: node {NET}.4 has packer {packer.__version__} (" in line
    assert "the same versions have to be on every node" in line


def test_a_node_that_does_not_see_it(cluster: Cluster, tmp_path: Path) -> None:
    """It has a mount of its own over a folder, in which INPUT lies, or OUT, or both but another INPUT."""
    hidden, seen = tmp_path / "hidden", tmp_path / "seen"
    hidden.mkdir()
    seen.mkdir()
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", str(hidden)], capture_output=True).returncode:
        pytest.skip("mounts are not allowed here")
    shutil.copy(ARTICLES, hidden / "a.jsonl")
    shell = f'mount -t tmpfs none "{hidden}" && exec "$@"'
    node = cluster.start(5, wrapper=("unshare", "-m", "sh", "-c", shell, "sh"))
    try:
        without_input = refused(cluster, hidden / "a.jsonl", seen)
        without_out = refused(cluster, ARTICLES, hidden)
    finally:
        kill(below(node))
    assert f"node {NET}.5 cannot read {hidden}/a.jsonl (No such file or directory); every node has to" in without_input
    assert f"node {NET}.5 does not see {hidden}/out/.tmp/" in without_out
