"""Rows of several lengths, several packings and steps of even work, from the plan to what a rank reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from packer import manifest, packing
from packer.balancing import Balance
from packer.cli import cli
from packer.errors import DatasetError, PackerError, UsageError
from packer.packing import by_length, equalized, varied
from packer.plan import Plan
from packer.reader import PackedDataset
from packer.reader.epochs import Epochs
from packer.sampling import Sampling
from packer.verify import verify

SIZES = (16, 32, 64)
OPTIONS: dict[str, list[object]] = {
    "lengths": [option for size in SIZES for option in ("--max-length", size)],
    "epochs": ["--max-length", 64, "--epochs", 3],
    "balanced": ["--max-length", 64, "--order", "balanced", "--world-size", 4, "--rows-per-batch", 2],
}
OPTIONS["all"] = [*OPTIONS["lengths"], *OPTIONS["epochs"][2:], *OPTIONS["balanced"][2:], "--validation", 0.1]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def documents(count: int) -> list[int]:
    return np.clip(rng().lognormal(2.5, 1, count), 1, 150).astype(int).tolist()


def ids(path: Path, lengths: list[int]) -> Path:
    """Documents of ready-made ids, each with a number of its own."""
    path.write_text("".join(json.dumps({"input_ids": [i] * n}) + "\n" for i, n in enumerate(lengths)), encoding="utf-8")
    return path


def run(*command: object) -> str:
    done = CliRunner().invoke(cli, [*map(str, command)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("packings")
    source = ids(folder / "ids.jsonl", documents(2000))

    @cache
    def make(name: str) -> Path:
        out = folder / name
        summary = run("pack", source, "--out", out, "--block-tokens", 9000, "--rows-per-shard", 128, *OPTIONS[name])
        (folder / f"{name}.txt").write_text(summary)
        run("verify", out, source)
        return out

    return make


# --- steps of even work ----------------------------------------------------------------------------------------------

COSTS = st.lists(st.integers(1, 10_000), max_size=120)


@given(COSTS, st.integers(1, 5), st.integers(1, 4), st.integers(0, 9))
def test_every_row_once_in_steps_of_like_runs(costs: list[int], ranks: int, each: int, seed: int) -> None:
    """A slow reference: each step is some runs of the sorted rows, of which every rank has one row each."""
    balance, cost = Balance(ranks, each), np.array(costs, np.float64)
    order = balance.order(cost, rng(seed))
    assert sorted(order.tolist()) == list(range(len(costs)))
    full = len(costs) // balance.step_rows * balance.step_rows
    assert order[full:].tolist() == list(range(full, len(costs)))
    ranked = sorted(costs[:full], reverse=True)
    runs = Counter(tuple(ranked[start : start + ranks]) for start in range(0, full, ranks))
    for step in cost[order[:full]].reshape(-1, ranks, each):
        for place in range(each):
            run_of = tuple(sorted(map(int, step[:, place]), reverse=True))
            assert runs[run_of] > 0
            runs[run_of] -= 1
    work = [[sum(batch) for batch in step] for step in cost[order[:full]].reshape(-1, ranks, each).tolist()]
    expected = [max(step) / (sum(step) / ranks) for step in work]
    assert balance.spreads(cost[order]).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("ranks", "each"), [(8, 1), (8, 4), (16, 2)])
def test_ranks_are_evener_than_at_random_and_steps_stay_mixed(ranks: int, each: int) -> None:
    cost, balance = rng().lognormal(0, 1, 64 * ranks * each), Balance(ranks, each)
    order = balance.order(cost, rng())
    even, plain = balance.spreads(cost[order]).mean() - 1, balance.spreads(cost).mean() - 1
    assert even < plain / 4
    if each > 1:  # not steps of costly and steps of cheap rows
        steps = cost[order].reshape(-1, ranks * each).mean(axis=1)
        alike = np.sort(cost).reshape(-1, ranks * each).mean(axis=1)
        assert steps.std() < 0.8 * alike.std()


@pytest.mark.parametrize("cost", ["attention", "tokens", "flops"])
def test_the_figures_are_those_of_the_shards(cost: str, tmp_path: Path) -> None:
    out, options = tmp_path / "out", [*OPTIONS["balanced"], "--balance-cost", cost]
    model = ["--model", "64,2"] * (cost == "flops")
    run("pack", ids(tmp_path / "ids.jsonl", documents(1500)), "--out", out, "--strategy", "none", *options, *model)
    data = PackedDataset(out)
    facts, work = data.manifest.balance, data.work()
    assert facts is not None
    per_token, per_square = {"attention": (0, 1), "tokens": (1, 0), "flops": (6 * 2 * 12 * 64**2, 6 * 2 * 64)}[cost]
    steps = []
    epochs = [epoch_of(data, rank, shuffle=False, world_size=4, rows_per_batch=2, drop_last=True) for rank in range(4)]
    for batches in zip(*(one.rows(0) for one in epochs), strict=True):
        by_rank = [float((per_token * work.tokens[rows] + per_square * work.attention[rows]).sum()) for rows in batches]
        steps.append(max(by_rank) / (sum(by_rank) / 4))
    assert facts.steps == len(steps)
    assert (facts.mean, facts.p95) == pytest.approx((np.mean(steps), np.percentile(steps, 95)))
    assert facts.shuffled_mean is not None
    assert facts.mean is not None
    assert facts.mean - 1 < (facts.shuffled_mean - 1) / 2
    run("verify", out)


# --- several row lengths ---------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 64), max_size=60), st.sampled_from(["bfd", "ffd", "first-fit", "none"]))
def test_each_document_once_and_each_row_needs_its_length(lengths: list[int], strategy: str) -> None:
    array = np.array(lengths, np.int32)
    for gaps in packing.GAPS:
        plans = by_length.pack(packing.load(strategy), array, SIZES, gaps=gaps, rng=rng())
        assert sorted(doc for plan in plans for doc in plan.doc.tolist()) == list(range(len(lengths)))
        for plan, size, below in zip(plans, SIZES, (0, *SIZES), strict=False):
            plan.validate(array, size)
            rows = np.split(plan.length, plan.row_offsets[1:-1]) if plan.rows else []
            assert all(max(row) > below for row in rows)
            if gaps == "leave":
                assert all(min(row) > below for row in rows)


def test_filled_gaps_save_rows() -> None:
    array = np.array(documents(3000), np.int32).clip(max=64)
    room = {}
    for gaps in packing.GAPS:
        plans = by_length.pack(packing.load("bfd"), array, SIZES, gaps=gaps, rng=rng())
        room[gaps] = sum(plan.rows * size for plan, size in zip(plans, SIZES, strict=True))
    assert room["fill"] < 0.95 * room["leave"]


def test_groups_are_those_of_the_shards(made: Callable[[str], Path]) -> None:
    data = PackedDataset(made("lengths"))
    facts, work = data.manifest, data.work()
    assert [group.max_length for group in facts.groups] == list(SIZES) == data.row_lengths
    first = 0
    for group, stretch in zip(facts.groups, data.shards.stretches[0], strict=True):
        assert (stretch.first, stretch.stop - stretch.first) == (first, group.rows)
        tokens = work.tokens[stretch.first : stretch.stop]
        assert tokens.max() <= group.max_length
        assert (tokens.sum(), -(-tokens.sum() // group.max_length)) == (group.tokens, group.lower_bound)
        first = stretch.stop
    assert (first, len(work.tokens)) == (facts.totals.rows, facts.totals.rows)
    assert facts.lower_bound == sum(group.lower_bound for group in facts.groups)


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_a_length_that_no_document_needs(file_format: str, tmp_path: Path) -> None:
    source, out = ids(tmp_path / "ids.jsonl", [9] * 20 + [60]), tmp_path / "out"
    run("pack", source, "--out", out, "--format", file_format, "--gaps", "leave", "--epochs", 2, *OPTIONS["lengths"])
    run("verify", out, source)
    data = PackedDataset(out)
    assert [group.rows for group in data.manifest.groups] == [20, 0, 1]
    for schedule in (None, "grow:2", "descending"):
        at = epoch_of(data, rows_per_batch=2, world_size=2, schedule=schedule)
        assert len(at.steps) == 6
        assert sorted(at.steps.rows.tolist()) == list(range(21))


# --- several packings ------------------------------------------------------------------------------------------------


def pairs(plan: Plan) -> set[tuple[int, int]]:
    rows = np.split(plan.doc, plan.row_offsets[1:-1])
    return {(a, b) for row in rows for a in row.tolist() for b in row.tolist() if a < b}


@given(st.lists(st.integers(1, 40), max_size=80), st.sampled_from(["bfd", "ffd", "first-fit"]), st.integers(0, 9))
def test_another_packing_places_each_document_once(lengths: list[int], strategy: str, seed: int) -> None:
    array = np.array(lengths, np.int32)
    plan = varied.of(packing.load(strategy))(array, 40, max_segments=5, rng=rng(seed))
    plan.validate(array, 40)
    assert sorted(plan.doc.tolist()) == list(range(len(lengths)))
    assert np.diff(plan.row_offsets).max(initial=0) <= 5


def test_another_packing_has_other_rows_and_no_more() -> None:
    """Ties alone leave half of the pairs of few documents as they are."""
    array = rng().lognormal(6.3, 1.1, 3000).clip(1, 2048).astype(np.int32)
    first, ties = (packing.load("bfd")(array, 2048, rng=rng(seed)) for seed in (0, 1))
    other = varied.of(packing.load("bfd"))(array, 2048, rng=rng(1))
    assert other.rows <= first.rows
    assert len(pairs(other) & pairs(first)) < len(pairs(ties) & pairs(first)) / 2


@pytest.mark.parametrize("name", ["epochs", "all"])
def test_each_epoch_has_every_document_once(name: str, made: Callable[[str], Path]) -> None:
    data = PackedDataset(made(name))
    seen, rows = [], set()
    for epoch in range(3):
        data.set_epoch(epoch)
        found: Counter[int] = Counter()
        for row in data:
            tokens = tuple(np.asarray(row["input_ids"]).tolist())
            found.update(tokens)
            rows.add((epoch, tokens))
        seen.append(found)
    assert seen[0] == seen[1] == seen[2]
    assert seen[0].total() == data.manifest.totals.placed_tokens
    assert len({tokens for _, tokens in rows}) > 2 * len(rows) / 3
    data.set_epoch(4)
    assert np.array_equal(data[0]["input_ids"], PackedDataset(made(name), epoch=1)[0]["input_ids"])


# --- rows of like cost -----------------------------------------------------------------------------------------------


def costs(plan: Plan) -> list[int]:
    return [sum(n * n for n in row.tolist()) for row in np.split(plan.length, plan.row_offsets[1:-1])]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=120), st.sampled_from([None, 3]))
def test_equalized_places_each_document_once_in_few_rows(lengths: list[int], most: int | None) -> None:
    array = np.array(lengths, np.int32)
    plan, trades = equalized.traded(array, 40, max_segments=most, rng=rng())
    best_fit = packing.load("bfd")(array, 40, max_segments=most, rng=rng())
    plan.validate(array, 40)
    assert sorted(plan.doc.tolist()) == list(range(len(lengths)))
    assert np.diff(plan.row_offsets).max() <= (most or len(lengths))
    assert plan.rows <= best_fit.rows * 1.01
    assert trades[0].rows == best_fit.rows
    assert [trade.rows for trade in trades if trade.chosen] == [plan.rows]
    assert np.std(costs(plan)) / np.mean(costs(plan)) <= np.std(costs(best_fit)) / np.mean(costs(best_fit)) + 1e-9


def test_equalized_as_in_the_docs() -> None:
    array = np.array([4, 4, 2, 2, 1, 1, 1, 1], np.int32)
    assert costs(packing.load("bfd")(array, 8, rng=rng())) == [32, 12]
    assert costs(equalized.pack(array, 8, rng=rng())) == [22, 22]


def test_equalized_rows_are_more_alike() -> None:
    array = rng().lognormal(5, 1, 20_000).clip(1, 1000).astype(np.int32)
    _, trades = equalized.traded(array, 2048, rng=rng())
    taken = next(trade for trade in trades if trade.chosen)
    plain, even = (one.step_spread / one.steps - 1 for one in (trades[0], taken))
    assert even < 0.7 * plain


def test_the_summary_shows_what_equalizing_costs(tmp_path: Path) -> None:
    source, out = ids(tmp_path / "ids.jsonl", documents(1500)), tmp_path / "out"
    options = ["--max-length", 256, "--equalize", "attention", "--report", tmp_path / "report.json"]
    summary = run("pack", source, "--out", out, *options)
    trades = json.loads((tmp_path / "report.json").read_text())["trades"]
    assert summary.count("% full, step ") == len(trades) == 5
    assert sum(trade["chosen"] for trade in trades) == 1
    assert next(trade for trade in trades if trade["chosen"])["rows"] == manifest.load(out).totals.rows
    run("verify", out, source)


# --- reading ---------------------------------------------------------------------------------------------------------


def epoch_of(data: PackedDataset, rank: int = 0, *, shuffle: bool = True, **sampling: Any) -> Epochs:
    return Epochs([data], [1.0], Sampling(**sampling), rank=rank, seed=3, shuffle=shuffle, buffer_groups=2)


def batches_of(data: PackedDataset, state: Any = None, stop: int | None = None, **sampling: Any) -> tuple[Any, Any]:
    """Batches by step and rank, up to `stop` steps, and the state then."""
    ranks = []
    for rank in range(sampling.get("world_size", 1)):
        at = epoch_of(data, rank, **sampling)
        if state is not None:
            at.load_state_dict(json.loads(json.dumps(state)))
        ranks.append([rows.tolist() for rows in at.rows(at.done)][:stop])
        for _ in ranks[-1]:
            at.advance()
    return [list(step) for step in zip(*ranks, strict=True)], at.state_dict()


SCHEDULES = [None, "random", "ascending", "descending", "grow", "shrink:3"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("balance", [None, "attention"])
def test_an_epoch_in_parts_by_other_ranks(
    schedule: str | None, balance: str | None, made: Callable[[str], Path]
) -> None:
    """All rows once, one length a step, whoever reads which part."""
    data = PackedDataset(made("all"))
    sampling: dict[str, Any] = {"schedule": schedule, "balance": balance}
    lengths = np.repeat(SIZES, [one.stop - one.first for one in data.shards.stretches[0]])
    first, state = batches_of(data, None, 9, rows_per_batch=3, world_size=2, scale_rows=True, **sampling)
    second, state = batches_of(data, state, 7, tokens_per_batch=150, world_size=3, **sampling)
    third, _ = batches_of(data, state, None, rows_per_batch=2, world_size=1, **sampling)
    steps = first + second + third
    assert sorted(row for step in steps for batch in step for row in batch) == list(range(len(data)))
    sizes = [{int(lengths[row]) for batch in step for row in batch} for step in steps]
    assert all(len(size) == 1 for size in sizes)
    order = [next(iter(size)) for size in sizes]
    if schedule == "ascending":
        assert order == sorted(order)
    if schedule == "descending":
        assert order == sorted(order, reverse=True)
    if schedule == "grow":
        assert np.mean(order[: len(order) // 2]) < 0.8 * np.mean(order[len(order) // 2 :])
    again, _ = batches_of(data, None, 9, rows_per_batch=3, world_size=2, scale_rows=True, **sampling)
    assert again == first


def test_scaled_rows_are_as_many_tokens(made: Callable[[str], Path]) -> None:
    data = PackedDataset(made("lengths"))
    at = epoch_of(data, rows_per_batch=2, scale_rows=True, drop_last=True)
    lengths = np.repeat(SIZES, [one.stop - one.first for one in data.shards.stretches[0]])
    assert all(lengths[rows].sum() == 2 * SIZES[-1] for rows in at.rows(0))


def test_unshuffled_is_as_stored(made: Callable[[str], Path]) -> None:
    data = PackedDataset(made("lengths"))
    at = epoch_of(data, shuffle=False, rows_per_batch=1)
    assert [int(row) for rows in at.rows(0) for row in rows] == list(range(len(data)))


def test_an_epoch_reads_its_packing(made: Callable[[str], Path]) -> None:
    data = PackedDataset(made("epochs"))
    at = epoch_of(data, rows_per_batch=1)
    for epoch in range(5):
        at.set_epoch(epoch)
        stretch = data.shards.stretches[epoch % 3][0]
        assert sorted(int(row) for rows in at.rows(0) for row in rows) == list(range(stretch.first, stretch.stop))


def test_a_loader_goes_on_in_a_schedule_with_other_ranks(made: Callable[[str], Path]) -> None:
    """The tensors of a loader, through a state: each token of the epoch's packing once."""
    loader = pytest.importorskip("packer.torch").PackedLoader

    def read(state: Any, stop: int | None, world_size: int) -> tuple[list[Any], Any]:
        batches, states = [], []
        for rank in range(world_size):
            at = loader(
                made("all"), rows_per_batch=2, world_size=world_size, rank=rank, schedule="grow:2", scale_rows=True
            )
            if state is None:
                at.set_epoch(1)
            else:
                at.load_state_dict(state)
            for number, batch in enumerate(at, 1):
                batches.append(batch)
                if number == stop:
                    break
            states.append(at.state_dict())
        return batches, states[0]

    first, state = read(None, 5, 2)
    second, _ = read(state, None, 3)
    found = Counter(token for batch in first + second if batch["loss_tokens"] for token in batch["input_ids"].tolist())
    expected = Counter(token for row in PackedDataset(made("all"), epoch=1) for token in np.asarray(row["input_ids"]))
    assert found.total() >= expected.total() - len(expected)  # rows of single tokens have no label
    assert not found - expected


def test_refused_by_the_reader(made: Callable[[str], Path]) -> None:
    several, single = PackedDataset(made("lengths")), PackedDataset(made("epochs"))
    for data, schedule, said in ((several, "up", "one of random"), (single, "grow", "several row lengths")):
        with pytest.raises(UsageError, match=said):
            epoch_of(data, rows_per_batch=1, schedule=schedule)
    with pytest.raises(UsageError, match="mixture"):
        Epochs([several, single], [1.0, 1.0], Sampling(rows_per_batch=1), rank=0, seed=0, shuffle=True, buffer_groups=1)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_bytes_for_any_workers(made: Callable[[str], Path], tmp_path: Path) -> None:
    source, out = made("all").parent / "ids.jsonl", tmp_path / "out"
    common = ["--block-tokens", 9000, "--rows-per-shard", 128, "--partition-bytes", 20_000]
    for workers in (1, 3):
        place = tmp_path / str(workers) / "out"
        run("pack", source, "--out", place, *common, *OPTIONS["all"], "--workers", workers)
    contents = [
        {path.relative_to(tmp_path / workers): path.read_bytes() for path in (tmp_path / workers).rglob("*.*")}
        for workers in ("1", "3")
    ]
    assert contents[0] == contents[1]
    assert not out.exists()


def test_a_manifest_without_the_new_keys_is_version_1(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("pack", ids(tmp_path / "ids.jsonl", [5] * 12), "--out", out, "--max-length", 16)
    body = json.loads((out / "manifest.json").read_bytes())
    assert body["format_version"] == 1
    assert not {"groups", "balance", "further_epochs"} & body.keys()
    assert "gaps" not in body["options"]
    loaded = manifest.load(out)
    assert (loaded.groups, loaded.balance, loaded.further_epochs) == ([], None, [])
    assert loaded.to_json() == (out / "manifest.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(OPTIONS))
def test_a_manifest_with_them_is_version_2(name: str, made: Callable[[str], Path]) -> None:
    loaded = manifest.load(made(name))
    assert loaded.format_version == 2
    assert loaded.to_json() == (made(name) / "manifest.json").read_text(encoding="utf-8")
    assert "right" in run("verify", made(name))
    assert "of at most" in run("inspect", made(name))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("balanced", lambda body: body["balance"].update(mean=1.0), "balance: "),
        ("balanced", lambda body: body["balance"].update(steps=1), "balance: "),
        ("balanced", lambda body: body["balance"].update(world_size=-1), "balance does not say"),
        ("balanced", lambda body: body["balance"].update(cost="x"), "balance does not say"),
        ("balanced", lambda body: body["balance"].update(cost="flops", flops=[1.0]), "balance does not say"),
        ("balanced", lambda body: body["balance"].update(shuffled_p95=None), "balance does not say"),
        ("lengths", lambda body: body.update(max_length=65), "row lengths do not rise"),
        ("lengths", lambda body: body["groups"][0].update(max_length=-1), "row lengths do not rise"),
        ("lengths", lambda body: body["groups"][0].update(rows=1), "groups"),
        ("lengths", lambda body: body["groups"][0].update(shards=9), "other shards"),
        ("lengths", lambda body: body["groups"][1].update(max_length=33), "max_length"),
        ("lengths", lambda body: body["options"].update(gaps="leave"), "every segment of a row needs its length"),
        ("lengths", lambda body: body["groups"][0].update(max_length=20), "metadata"),
        ("epochs", lambda body: body["further_epochs"][0]["totals"].update(rows=1), "rows is 1"),
        ("epochs", lambda body: body["further_epochs"].pop(), "does not know this file"),
        ("epochs", lambda body: body["further_epochs"][1].update(shards=body["shards"]), "listed twice"),
    ],
)
def test_verify_finds_a_wrong_manifest(
    name: str, change: Callable[[Any], None], said: str, made: Callable[[str], Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "data").symlink_to(made(name) / "data")
    body = json.loads((made(name) / "manifest.json").read_bytes())
    change(body)
    (out / "manifest.json").write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(DatasetError, match=said):
        verify(out)


def test_packed_again_from_several_packings(made: Callable[[str], Path], tmp_path: Path) -> None:
    """A data set as INPUT gives each document once, however often it was packed."""
    again = tmp_path / "again"
    run("pack", made("all"), "--out", again, "--max-length", 64)
    first, second = manifest.load(made("all")), manifest.load(again)
    assert second.totals.tokens == first.whole.tokens


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-length", 8, "--max-length", 4, "--strategy", "wrapped"], "one --max-length"),
        (["--max-length", 8, "--epochs", 2, "--strategy", "none"], "same rows"),
        (["--max-length", 8, "--equalize", "attention", "--strategy", "ffd"], "--strategy bfd"),
        (["--max-length", 8, "--max-length", 4, "--equalize", "attention"], "one --max-length"),
        (["--max-length", 8, "--world-size", 2], "--order balanced"),
        (["--max-length", 8, "--order", "balanced", "--rows-per-batch", 2], "needs --world-size"),
        (["--max-length", 8, "--order", "balanced", "--world-size", 2, "--balance-cost", "flops"], "go together"),
        (["--max-length", 8, "--order", "balanced", "--world-size", 2, "--rows-per-shard", 3], "multiple of their 2"),
        (["--max-length", 8, "--max-length", 6, "--segment-multiple", 4], "--max-length 6 is no multiple"),
    ],
)
def test_refused(options: list[object], said: str, tmp_path: Path) -> None:
    command = ["pack", ids(tmp_path / "ids.jsonl", [5]), "--out", tmp_path / "out", *options]
    done = CliRunner().invoke(cli, [*map(str, command)], standalone_mode=True)
    message = done.output
    if isinstance(done.exception, PackerError):
        message = str(done.exception)
    assert done.exit_code
    assert said in message
