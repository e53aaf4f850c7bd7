"""`pack --order balanced` and `--segment-multiple`: the same tokens in rows that suit ranks and context parallelism."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from packer.cli import cli
from packer.errors import PackerError
from packer.interleave import RUN, in_like_runs
from packer.reader import PackedDataset
from packer.reader.batch import with_multiple


def ids(path: Path, lengths: list[int]) -> Path:
    """Documents of ready-made ids, each with a number of its own."""
    path.write_text("".join(json.dumps({"input_ids": [i] * n}) + "\n" for i, n in enumerate(lengths)), encoding="utf-8")
    return path


def packed(source: Path, out: Path, *options: object) -> PackedDataset:
    for command in (["pack", source, "--out", out, "--quiet", *options], ["verify", out, source]):
        done = CliRunner().invoke(cli, [*map(str, command)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    return PackedDataset(out)


def lengths_of(count: int) -> list[int]:
    drawn = np.random.default_rng(0).lognormal(3, 1, count)
    return np.clip(drawn, 1, 256).astype(int).tolist()


@given(st.lists(st.integers(1, 1000), max_size=200), st.integers(0, 9))
def test_runs_hold_rows_of_like_cost(costs: list[int], seed: int) -> None:
    array = np.array(costs, np.int64)
    order = in_like_runs(array, np.random.default_rng(seed)) if costs else np.empty(0, np.int64)
    assert sorted(order.tolist()) == list(range(len(costs)))
    ranked = sorted(costs)
    runs = {tuple(ranked[start : start + RUN]) for start in range(0, len(costs), RUN)}
    place = 0
    while place < len(costs):
        size = next(len(run) for run in runs if tuple(array[order[place : place + len(run)]].tolist()) == run)
        place += size


def test_balanced_has_the_rows_of_shuffle_and_evener_ranks(tmp_path: Path) -> None:
    source = ids(tmp_path / "ids.jsonl", lengths_of(8000))
    spread = {}
    rows = {}
    for order in ("shuffle", "balanced"):
        data = packed(source, tmp_path / order, "--max-length", 256, "--order", order)
        rows[order] = Counter(tuple(row["input_ids"].tolist()) for row in data)
        cost = data.work().attention
        steps = cost[: len(cost) // 8 * 8].reshape(-1, 8)
        spread[order] = float((steps.max(axis=1) / steps.mean(axis=1)).mean())
    assert rows["balanced"] == rows["shuffle"]
    assert spread["balanced"] - 1 < (spread["shuffle"] - 1) / 3


@pytest.mark.parametrize("strategy", ["bfd", "ffd", "first-fit", "none"])
@pytest.mark.parametrize("multiple", [2, 8])
def test_padded_segments_fit_their_row(strategy: str, multiple: int, tmp_path: Path) -> None:
    source = ids(tmp_path / "ids.jsonl", [*lengths_of(300), 200, 65, 64, 1])
    options = ["--max-length", 64, "--strategy", strategy, "--segment-multiple", multiple]
    data = packed(source, tmp_path / "out", *options)
    assert sum(int(n) for n in data.work().tokens) == data.manifest.totals.tokens, "none is lost"
    for index in range(len(data)):
        batch = with_multiple(data.batch(np.array([index])), multiple, 0)
        assert len(batch.input_ids) <= 64


def test_plain_rows_do_not_leave_that_room(tmp_path: Path) -> None:
    """What the option is for."""
    data = packed(ids(tmp_path / "ids.jsonl", [5] * 12), tmp_path / "out", "--max-length", 10)
    assert len(with_multiple(data.batch(np.array([0])), 8, 0).input_ids) == 16


def test_verify_finds_rows_without_the_room(tmp_path: Path) -> None:
    source, out = ids(tmp_path / "ids.jsonl", [5] * 12), tmp_path / "out"
    packed(source, out, "--max-length", 16)
    path = out / "manifest.json"
    content = json.loads(path.read_bytes())
    content["options"]["segment_multiple"] = 8
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(PackerError, match=r"num_tokens is the row's tokens, 1 to max_length"):
        CliRunner().invoke(cli, ["verify", str(out)], catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--max-length", "10"], "no multiple"), (["--max-length", "16", "--strategy", "wrapped"], "leaves none")],
)
def test_refused(options: list[str], said: str, tmp_path: Path) -> None:
    source = ids(tmp_path / "ids.jsonl", [5])
    command = ["pack", str(source), "--out", str(tmp_path / "out"), "--segment-multiple", "8", *options]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2
    assert said in done.output
