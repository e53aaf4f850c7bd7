"""Whole runs of --strategy semantic and --group-field: the same bytes however they run, and what they report."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner

from packer import manifest as manifests
from packer.cli import cli
from packer.manifest import Manifest
from packer.shards import read_shard

SMALL = ["--max-length", "256", "--block-tokens", "20000", "--partition-bytes", "60000", "--quiet"]
OPTIONS = {
    "tokens": ["--strategy", "semantic"],
    "vectors": ["--strategy", "semantic", "--embedding-field", "v"],
    "vectors and groups": ["--strategy", "semantic", "--embedding-field", "v", "--group-field", "topic"],
    "groups": ["--strategy", "semantic", "--group-field", "topic"],
    "first fit": ["--strategy", "first-fit", "--group-field", "topic", "--segment-multiple", "8"],
    "all else": [
        *("--strategy", "semantic", "--max-segments", "3", "--segment-multiple", "4", "--order", "plan"),
        *("--overlong", "truncate", "--min-tokens", "30", "--validation", "0.1", "--similarity-threshold", "0.5"),
    ],
}


def record(rng: random.Random, number: int) -> dict[str, object]:
    """Ready-made ids in which a topic's own are a third, and a vector that is the topic's, with noise."""
    topic = rng.randrange(8)
    length = min(max(int(rng.lognormvariate(4, 0.8)), 5), 600)
    ids = [1000 + 50 * topic + rng.randrange(50) if rng.random() < 0.3 else rng.randrange(1000) for _ in range(length)]
    vector = [round((3 if i == topic else 0) + rng.gauss(0, 1), 4) for i in range(12)]
    return {"input_ids": ids, "topic": f"topic {topic}", "v": vector, "number": number}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(0)
    folder = tmp_path_factory.mktemp("corpus")
    lines = [json.dumps(record(rng, number)) + "\n" for number in range(700)]
    for part in range(2):
        (folder / f"part-{part}.jsonl").write_text("".join(lines[350 * part : 350 * (part + 1)]))
    return folder


def pack(corpus: Path, out: Path, *options: str) -> Manifest:
    done = CliRunner().invoke(cli, ["pack", str(corpus), "--out", str(out), *SMALL, *options])
    assert done.exit_code == 0, done.output
    return manifests.load(out)


def hashes(out: Path) -> dict[str, str]:
    return {str(p.relative_to(out)): sha256(p.read_bytes()).hexdigest() for p in out.rglob("*") if p.is_file()}


def topics_of_rows(corpus: Path, out: Path) -> list[list[int]]:
    """The topic of each segment of each row."""
    records = [json.loads(line) for path in sorted(corpus.iterdir()) for line in path.read_text().splitlines()]
    topics = [int(one["topic"].split()[1]) for one in records]
    facts = manifests.load(out)
    rows = [
        row for shard in facts.shards for b in read_shard(out / shard.path, facts.file_format) for row in b.to_pylist()
    ]
    return [[topics[doc] for doc in row["doc_ids"]] for row in rows]


@pytest.mark.parametrize("name", OPTIONS)
def test_runs_are_right(corpus: Path, tmp_path: Path, name: str) -> None:
    facts = pack(corpus, tmp_path / "out", *OPTIONS[name])
    done = CliRunner().invoke(cli, ["verify", str(tmp_path / "out"), str(corpus)])
    assert done.exit_code == 0, done.output
    rows = topics_of_rows(corpus, tmp_path / "out")
    if "groups" in name or name == "first fit":
        assert all(len(set(row)) == 1 for row in rows)
    if name == "first fit":
        assert facts.similarity is None
        return
    assert facts.similarity is not None
    assert facts.similarity.rows == facts.totals.rows == len(rows)
    if name == "groups":
        assert facts.similarity.in_row is None
        return
    assert facts.similarity.in_row is not None
    assert facts.similarity.random is not None
    assert facts.similarity.in_row > 1.5 * facts.similarity.random
    if not facts.options.read["group_field"]:
        assert facts.similarity.rows <= 1.03 * facts.similarity.best_fit_rows + 4
        share = [sum(a == b for a in row for b in row) - len(row) for row in rows]
        pairs = sum(len(row) * (len(row) - 1) for row in rows)
        assert sum(share) / pairs > 0.3, "eight topics at random: 0.125"


def test_figures_of_the_shards(corpus: Path, tmp_path: Path) -> None:
    """The same for best fit: what the manifest says it would need is what it needs."""
    facts = pack(corpus, tmp_path / "a", "--strategy", "semantic", "--max-segments", "4", "--segment-multiple", "8")
    best_fit = pack(corpus, tmp_path / "b", "--max-segments", "4", "--segment-multiple", "8")
    assert facts.similarity is not None
    assert facts.similarity.best_fit_rows == best_fit.totals.rows


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("tokens", "2"),
        pytest.param("tokens", "4", marks=pytest.mark.slow),
        pytest.param("vectors and groups", "2", marks=pytest.mark.slow),
    ],
)
def test_workers_change_no_byte(corpus: Path, tmp_path: Path, name: str, workers: str) -> None:
    pack(corpus, tmp_path / "one", *OPTIONS[name])
    pack(corpus, tmp_path / "several", *OPTIONS[name], "--workers", workers)
    assert hashes(tmp_path / "several") == hashes(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokens", "vectors"])
def test_threads_of_the_blas_change_no_byte(corpus: Path, tmp_path: Path, name: str) -> None:
    for threads in ("1", "2"):
        command = [sys.executable, "-m", "packer", "pack", str(corpus), "--out", str(tmp_path / threads), *SMALL]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        subprocess.run([*command, *OPTIONS[name]], env=environment, check=True, timeout=60)
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")


def test_a_data_set_gives_the_same_rows(corpus: Path, tmp_path: Path) -> None:
    """From its tokens; vectors and groups are not kept."""
    pack(corpus, tmp_path / "plain", "--max-length", "512")
    pack(corpus, tmp_path / "direct", "--strategy", "semantic")
    pack(tmp_path / "plain", tmp_path / "again", "--strategy", "semantic")
    assert [one.sha256 for one in manifests.load(tmp_path / "direct").shards] == [
        one.sha256 for one in manifests.load(tmp_path / "again").shards
    ]
    done = CliRunner().invoke(
        cli, ["pack", str(tmp_path / "plain"), "--out", str(tmp_path / "c"), *SMALL, "--group-field", "x"]
    )
    assert done.exit_code != 0
    assert "is a packer data set, which keeps none" in str(done.exception or done.output)


def test_resume_notices_another_field() -> None:
    """What documents are planned by is among the settings of a partition."""
    from packer import committed
    from packer.corpus import ReadOptions
    from packer.job import Job

    def settings(**read: str) -> dict[str, object]:
        job = Job(ReadOptions(**read), None, "semantic", 8, None, 0, None, 0, "plan", 9)
        return committed.settings_of(job, None, None)

    assert settings(group_field="a") != settings(group_field="b")
    assert settings(embedding_field="a") != settings(embedding_field="b")


def test_the_summary_says_how_much_alike(corpus: Path, tmp_path: Path) -> None:
    arguments = ["pack", str(corpus), "--out", str(tmp_path / "out"), *SMALL[:-1], *OPTIONS["vectors"]]
    report = tmp_path / "report.json"
    done = CliRunner().invoke(cli, [*arguments, "--report", str(report)])
    [line] = [line for line in done.output.splitlines() if line.startswith("alike")]
    assert re.match(
        r"alike +0\.\d{3} in a row, -?0\.\d{3} at random, by field v; \d\.\d\d pairs a row above 0\.9;", line
    )
    assert re.search(r"; \d+ rows, \d+ by best fit alone$", line)
    assert json.loads(report.read_text())["similarity"]["by"] == "field v"


USAGE = {
    "--embedding-field v": "--embedding-field is for --strategy semantic, not for bfd",
    "--similarity-threshold 0.5": "--similarity-threshold is for --strategy semantic, not for bfd",
    "--group-field topic --strategy wrapped": "--group-field cannot hold for --strategy wrapped",
    "--strategy semantic --group-field topic --similarity-threshold 0.5": "needs vectors",
    "--strategy semantic --similarity-threshold 0": "0",
    "--strategy semantic --similarity-threshold nan": "'nan' is no number",
}


@pytest.mark.parametrize("options", USAGE)
def test_usage(corpus: Path, tmp_path: Path, options: str) -> None:
    done = CliRunner().invoke(cli, ["pack", str(corpus), "--out", str(tmp_path / "out"), *SMALL, *options.split()])
    assert done.exit_code == 2
    assert USAGE[options] in done.output
