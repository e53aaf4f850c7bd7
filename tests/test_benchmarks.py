"""What surrounds the figures of the benchmarks: the gate's judgement, the turns, the plot and the page. No timing."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

SCRIPTS = Path(__file__).parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))
from benchmarks import contest, gate, inputs, page, plot, strategies  # noqa: E402
from benchmarks.clock import FailedError, run_process  # noqa: E402

from packer.reader import PackedDataset  # noqa: E402

NAME = "packer pack / tokenizer alone"
RECORDED = {NAME: [1.50, 1.45, 1.55, 1.49, 1.52]}


def verdict(found: list[float]) -> gate.Verdict:
    return gate.compare(RECORDED, {NAME: found})[0]


def test_the_gate_fails_what_is_worse_and_says_by_how_much() -> None:
    worse = verdict([1.90, 1.85, 1.95, 1.88, 1.91])
    assert worse.worse
    assert worse.line().startswith(f"{NAME}: 1.900, recorded 1.500 (+26.7%, noise ")
    assert worse.line().endswith("WORSE")


def test_the_gate_passes_noise_and_what_is_better() -> None:
    assert not verdict([1.52, 1.46, 1.58, 1.50, 1.55]).worse
    assert not verdict([1.20, 1.21, 1.19, 1.20, 1.22]).worse
    assert not verdict([1.70, 1.10, 2.60, 1.95, 1.40]).worse  # 13% up, in rounds that differ by more than twice


def test_a_small_difference_passes_however_exact_it_is() -> None:
    exact = {NAME: [1.5] * 5}
    assert not gate.compare(exact, {NAME: [1.5 * 1.04] * 5})[0].worse
    assert gate.compare(exact, {NAME: [1.5 * 1.06] * 5})[0].worse


def test_of_a_single_round_nothing_is_known() -> None:
    assert gate.standard_error([1.5]) == math.inf
    assert not gate.compare({NAME: [1.5]}, {NAME: [9.0]})[0].worse


def test_only_what_is_in_both_is_compared() -> None:
    assert [one.name for one in gate.compare({"a": [1, 1], "b": [1, 1]}, {"b": [1, 1], "c": [9, 9]})] == ["b"]
    with pytest.raises(ValueError, match="no ratio that was recorded"):
        gate.compare({"a": [1, 1]}, {"b": [1, 1]})


def test_the_estimated_error_is_that_of_medians_drawn_many_times() -> None:
    rng = np.random.default_rng(0)
    for rounds in (3, 5, 9):
        drawn = rng.normal(1.0, 0.1, (4000, rounds))
        true = np.median(drawn, axis=1).std()
        estimated = np.mean([gate.standard_error(row) for row in drawn.tolist()])
        assert estimated == pytest.approx(true, rel=0.15)


@given(st.lists(st.floats(0.5, 5), min_size=2, max_size=10), st.lists(st.floats(0.5, 5), min_size=2, max_size=10))
def test_what_was_recorded_is_never_worse_than_itself(first: list[float], second: list[float]) -> None:
    assert not gate.compare({NAME: first}, {NAME: first})[0].worse
    both = gate.compare({NAME: first}, {NAME: second})[0], gate.compare({NAME: second}, {NAME: first})[0]
    assert not (both[0].worse and both[1].worse)


def test_rounds_are_pooled() -> None:
    assert gate.pooled({"a": [1.0]}, {"a": [2.0], "b": [3.0]}) == {"a": [1.0, 2.0], "b": [3.0]}


def test_a_record_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    gate.save(path, RECORDED, 2, {"Python": "3.11"})
    assert gate.load(path) == {"cores": 2, "versions": {"Python": "3.11"}, "ratios": RECORDED}
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no recorded ratios"):
        gate.load(path)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """`bench_check` without measuring: `found` is what each measurement gives, in turn."""
    import bench_check

    state = SimpleNamespace(found=[], path=tmp_path / "recorded.json", run=bench_check.main)
    monkeypatch.setattr(bench_check, "RECORDED", state.path)
    monkeypatch.setattr(bench_check, "measure", lambda megabytes, rounds: state.found.pop(0))  # noqa: ARG005
    monkeypatch.setattr(bench_check.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sys, "argv", ["bench_check.py"])
    return state


def test_the_check_fails_only_if_a_second_measurement_agrees(
    check: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.save(check.path, RECORDED, 2, {})
    bad, good = {NAME: [1.9, 1.85, 1.95, 1.88, 1.91]}, {NAME: [1.51, 1.46, 1.55, 1.49, 1.53]}
    check.found = [good]
    assert check.run() == 0
    check.found = [bad, good]
    assert check.run() == 0
    check.found = [bad, bad]
    assert check.run() == 1
    assert "1 of 1 ratios are worse than recorded by more than noise" in capsys.readouterr().out


def test_the_check_refuses_to_compare_what_cannot_be(
    check: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.run() == 2
    gate.save(check.path, RECORDED, 16, {})
    assert check.run() == 2
    assert "recorded on 16 cores, and here are 2" in capsys.readouterr().err


def contender(name: str, code: str, **more: object) -> contest.Contender:
    return contest.Contender(name, lambda out: [sys.executable, "-S", "-c", code, str(out)], **more)


def test_contenders_take_turns_and_slow_ones_are_spread() -> None:
    touch = "import os, sys; assert not os.path.exists(sys.argv[1]); os.mkdir(sys.argv[1])"
    alone = contender("alone", "")
    slow = [contender("slow alone", "", slow=True), contender("slow", "", slow=True, against="slow alone")]
    other = contender("other", "", slow=True)
    broken = contender("broken", "raise SystemExit('no such thing')")
    results = contest.compete([alone, contender("pack", touch), *slow, other, broken], 3, 1)
    turns = {name: {turn: len(runs) for turn, runs in of.items()} for name, of in results.runs.items()}
    assert turns["alone"] == {0: 2, 1: 2, 2: 2}
    assert turns["pack"] == {0: 1, 1: 1, 2: 1}
    assert turns["slow"] == turns["slow alone"]  # or there would be no ratio
    assert len(turns["slow"]) == len(turns["other"]) == 1
    assert turns["other"] != turns["slow"]
    assert results.failed == {"broken": "no such thing"}


def test_a_ratio_is_by_the_mean_of_the_same_round() -> None:
    results = contest.Results(
        {
            "alone": {0: [{"wall": 1.0}, {"wall": 3.0}], 1: [{"wall": 10.0}]},
            "pack": {0: [{"wall": 4.0, "steady": 3.0}], 1: [{"wall": 10.0}], 2: [{"wall": 7.0}]},
        }
    )
    assert results.ratios("pack", "alone") == [2.0, 1.0]
    assert results.ratios("pack", "alone", own="steady") == [1.5]


def test_a_process_is_measured_with_its_children(tmp_path: Path) -> None:
    spin = "x = bytearray(80_000_000)\nimport time\nwhile time.process_time() < 0.3: pass"
    child = f"import subprocess, sys; print('said'); subprocess.run([sys.executable, '-S', '-c', {spin!r}], check=True)"
    run = run_process([sys.executable, "-S", "-c", child], tmp_path)
    assert run.output == "said\n"
    assert run.cpu >= 0.3
    assert run.wall >= 0.3
    assert run.peak >= 80
    with pytest.raises(FailedError, match="exit code 3"):
        run_process([sys.executable, "-S", "-c", "raise SystemExit(3)"], tmp_path)


def test_generated_text_and_chats_are_the_same_at_each_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        inputs.write_generated(tmp_path / f"{name}.jsonl", 50_000)
        inputs.write_chats(tmp_path / f"{name}-chats.jsonl", 50, 300)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (tmp_path / "a-chats.jsonl").read_bytes() == (tmp_path / "b-chats.jsonl").read_bytes()
    corpus = inputs.corpus_of([tmp_path / "a-chats.jsonl"], tmp_path)
    assert corpus.documents == 50
    assert 280 <= corpus.megabytes * 1e6 / 50 <= 600


def test_compressed_files_are_unpacked_for_those_that_need_it(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "one"}\n{"text": "\xc3\xa9"}\n'))
    corpus = inputs.corpus_of([tmp_path / "in"], tmp_path)
    assert corpus.files == [tmp_path / "in" / "a.jsonl.gz"]
    assert corpus.plain == [tmp_path / "a.jsonl"]
    assert (corpus.documents, corpus.megabytes) == (2, 5e-6)
    assert corpus.plain[0].read_bytes() == b'{"text": "one"}\n{"text": "\xc3\xa9"}\n'


def test_bars_are_as_long_as_their_values() -> None:
    root = ElementTree.fromstring(plot.bars('MB/s of "A" & B', [("ours", 20.0, True), ("<theirs>", 5.0, False)]))
    space = "{http://www.w3.org/2000/svg}"
    ours, theirs = root.findall(f"{space}rect")
    assert float(ours.get("width", 0)) == pytest.approx(4 * float(theirs.get("width", 0)))
    assert (ours.get("class"), theirs.get("class")) == ("own", "other")
    assert [text.text for text in root.findall(f"{space}text")] == [
        'MB/s of "A" & B',
        "ours",
        "20.0",
        "<theirs>",
        "5.0",
    ]
    assert "prefers-color-scheme: dark" in (root.findtext(f"{space}style") or "")


def test_a_section_takes_the_place_of_its_older_self() -> None:
    text = page.with_section("# Title\n\n## One\n\nold\n\n## Two\n\nkept\n", "## One\n\nnew\n")
    assert text == "# Title\n\n## One\n\nnew\n\n## Two\n\nkept\n"
    assert page.with_section(text, "## Three\n\nadded").endswith("kept\n\n## Three\n\nadded\n")


def test_panels_have_scales_of_their_own_and_no_bar_for_nothing() -> None:
    drawn = plot.panels(
        "T", ["a", "b"], ["x", "<y>"], {"one": [[2.0, 1.0], [None, 8.0]], "two": [[0.0, 4.0], [4.0, 2.0]]}
    )
    root = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    bars = root.findall(f"{space}rect")[2:]  # after the two of the legend
    widths = [float(bar.get("width", -1)) for bar in bars]
    assert widths == [width / 8 * max(widths) for width in (4, 2, 8, 0, 8, 4, 2)]
    assert [bar.get("class") for bar in bars] == ["own", "other", "other", "own", "other", "own", "other"]
    assert {"one", "two", "<y>", "8.00", "0"} <= {text.text for text in root.findall(f"{space}text")}


def test_the_comparison_of_strategies_goes_into_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import bench_strategies

    path, drawing = tmp_path / "strategies.md", tmp_path / "strategies.svg"
    path.write_text("# Strategies\n\n## All of them, measured\n\nold\n\n## Kept\n\nas it is\n", encoding="utf-8")
    monkeypatch.setattr(bench_strategies, "PAGE", path)
    monkeypatch.setattr(bench_strategies, "PLOT", drawing)
    options = "--megabytes 0.1 --documents 200 --max-length 512 --rounds 1 --write --plot"
    monkeypatch.setattr(sys, "argv", ["bench_strategies.py", *options.split()])
    bench_strategies.main()
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Strategies\n\n## All of them, measured\n\nDocuments")
    assert text.endswith("## Kept\n\nas it is\n")
    assert text.split("\n## Kept")[0].strip().endswith(capsys.readouterr().out.strip())
    ElementTree.fromstring(drawing.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == 2 * list(strategies.CONTENDERS)
    rows = {line.split("`")[1]: int(line.split(" | ")[1].replace(",", "")) for line in lines[len(lines) // 2 :]}
    assert rows["wrapped"] < rows["optimal"] < rows["bfd"] < rows["none"] == 200
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))


def test_figures_of_a_strategy_are_those_of_its_rows(tmp_path: Path) -> None:
    source = tmp_path / "uniform.parquet"
    strategies.write_uniform(source, 60, 256)
    given = tmp_path / "given"
    documents = strategies.documents_of(given, strategies.pack(source, given, ["--max-length", "100"]))
    wrapped = strategies.pack(given, tmp_path / "out", ["--max-length", "100", "--strategy", "wrapped"])
    found = strategies.figures_of(tmp_path / "out", wrapped, documents, 1.0)
    costs = [sum(int(n) ** 2 for n in row["seq_lengths"]) for row in PackedDataset(str(tmp_path / "out"))]
    steps = [costs[i : i + 8] for i in range(0, len(costs) - 7, 8)]
    assert found.rows == len(costs)
    assert found.busiest[8] == pytest.approx(np.mean([max(step) / (sum(step) / 8) for step in steps]))
    assert found.busiest[64] is None
    lists = strategies.pq.read_table(source)["input_ids"].to_pylist()
    own = sum(len(ids[i : i + 100]) ** 2 for ids in lists for i in range(0, len(ids), 100))
    assert found.attention == pytest.approx(sum(costs) / own)
    assert documents.longer == sum(len(ids) > 100 for ids in lists)
    flat, offsets = np.concatenate(lists).astype(np.int32), np.cumsum([0, *map(len, lists)])
    np.testing.assert_array_equal(documents.vectors, strategies.vectors_of(flat, offsets))
