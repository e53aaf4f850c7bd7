"""Real corpora with real tokenizers, against counts that were made elsewhere with plain Python and HF tokenizers.

They are not part of the repository: PACKER_HANDED names the folder that holds `corpora/` and `tokenizers/`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from packer.batching import Batches
from packer.cli import cli
from packer.pricing import Terms
from packer.pricing.padded import padded_to_longest

HANDED = os.environ.get("PACKER_HANDED")
if not HANDED:
    pytest.skip("PACKER_HANDED names no folder of handed corpora", allow_module_level=True)

CORPORA, TOKENIZERS = Path(HANDED) / "corpora", Path(HANDED) / "tokenizers"
TRUTH: dict[str, Any] = json.loads((CORPORA / "truth.json").read_text(encoding="utf-8"))["files"]
NAMES = ("gpt2", "olmo_neox", "qwen3", "mistral_v3")
VIEWS = {
    "whole_file_as_one_document (BOM removed, line ends kept)": "file",
    "one_document_per_non_blank_line (CR stripped)": "line",
    "one_document_per_paragraph (blank-line separated, CRLF->LF, not stripped)": "paragraph",
}
PERCENTILES = ("p50", "p90", "p95", "p99")
BINS = {"bfd": "best_fit_decreasing", "ffd": "first_fit_decreasing", "first-fit": "first_fit"}


def packer(*arguments: str | Path) -> str:
    """Runs a command in this process, which keeps its tokenizers, and returns what it prints."""
    done = CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def failing(*arguments: str | Path) -> str:
    """Runs a command that must fail, as a user does, and returns its one line."""
    command = [sys.executable, "-m", "packer", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def manifest(out: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((out / "manifest.json").read_bytes())
    return result


def text_cases() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """(file, expected, options) of every way in which a file holds plain texts without a fault."""
    for name, truth in TRUTH.items():
        for field, expected in truth.get("fields", {}).items():
            if not expected["bad_count"] and not expected["empty_count"]:
                yield name, expected, ["--text-field", field]
        for view, expected in truth.get("views", {}).items():
            yield name, expected, ["--split-text", VIEWS[view]]


CASES = [pytest.param(*case, id=f"{case[0]}:{case[2][1]}") for case in text_cases()]


@pytest.mark.parametrize(("name", "expected", "options"), CASES)
def test_counts_and_verify(name: str, expected: dict[str, Any], options: list[str], tmp_path: Path) -> None:
    source = CORPORA / name
    for tokenizer in NAMES:
        out = tmp_path / tokenizer
        folder = TOKENIZERS / tokenizer
        arguments = [source, "--tokenizer", folder, "--max-length", "2048", "--no-bos", "--no-eos", "--out", out]
        packer("pack", *arguments, *options)
        totals = manifest(out)["totals"]
        counts = expected["tokens"][tokenizer]
        assert (totals["documents"], totals["tokens"]) == (counts["n"], counts["sum"])
        assert totals["placed_tokens"] == totals["tokens"]
        packer("verify", out, source, "--tokenizer", folder)


@pytest.mark.parametrize(("name", "expected", "options"), [c for c in CASES if "packing_gpt2_plus_eos" in c.values[1]])
def test_rows(name: str, expected: dict[str, Any], options: list[str], tmp_path: Path) -> None:
    """Rows of each strategy at each length equal those of textbook implementations."""
    source, tokenizer = CORPORA / name, TOKENIZERS / "gpt2"
    for length, truth in expected["packing_gpt2_plus_eos"].items():
        for overlong in ("split", "truncate"):
            for strategy, key in BINS.items():
                out = tmp_path / f"{length}-{overlong}-{strategy}"
                arguments = ["--tokenizer", tokenizer, "--max-length", length, "--strategy", strategy]
                packer("pack", source, *arguments, "--overlong", overlong, "--out", out, *options)
                found = manifest(out)
                assert found["totals"]["rows"] == truth[overlong][key]
                assert found["totals"]["placed_tokens"] == truth[overlong]["tokens"]
                assert found["lower_bound"] == truth[overlong]["lower_bound_ceil"]
        out = tmp_path / f"{length}-wrapped"
        arguments = ["--tokenizer", tokenizer, "--max-length", length, "--strategy", "wrapped", "--out", out]
        packer("pack", source, *arguments, *options)
        assert manifest(out)["totals"]["rows"] == truth["wrapped_rows"]


@pytest.mark.parametrize("options", [[], ["--mask-overlap"], ["--scope", "corpus"], ["--tail", "drop"]], ids=" ".join)
def test_windows_of_a_long_text(options: list[str], tmp_path: Path) -> None:
    source, tokenizer = CORPORA / "text_long/tinyshakespeare.txt", TOKENIZERS / "gpt2"
    out = tmp_path / "out"
    arguments = ["--tokenizer", tokenizer, "--no-eos", "--context-size", "1024", "--stride", "512", "--out", out]
    packer("window", source, *arguments, *options)
    found, n = manifest(out), 338_025
    assert found["totals"]["tokens"] == n
    full = (n - 1024 - 1) // 512 + 1
    assert found["totals"]["rows"] == full + ("drop" not in options)
    assert found["coverage"]["unseen_tokens"] == (n - (full - 1) * 512 - 1024 if "drop" in options else 0)
    if "--mask-overlap" in options:
        assert found["totals"]["loss_tokens"] == n - 1
    told = (full - 1) * 512 + 1024 + 1 if "drop" in options else n  # the last label too
    assert f"{told:,} tokens compared" in packer("verify", out, source)


def test_a_fault_on_each_line(tmp_path: Path) -> None:
    source, truth = CORPORA / "messy_made/faults.jsonl", TRUTH["messy_made/faults.jsonl"]
    bad = truth["fields"]["text"]["bad"]
    for tokenizer in NAMES:
        out = tmp_path / tokenizer
        arguments = [
            "--tokenizer",
            TOKENIZERS / tokenizer,
            "--max-length",
            "1024",
            "--no-eos",
            "--no-bos",
            "--out",
            out,
        ]
        printed = packer("pack", source, *arguments, "--on-error", "skip")
        found = manifest(out)
        assert [int(record["where"].removeprefix("line ")) for record in found["skipped_records"]] == bad
        assert found["totals"]["records"] == truth["rows"]
        assert found["totals"]["skipped"] == len(bad)
        assert "17 bad records skipped" in printed
        # The truth counts a text of white space as empty; here it is text, and only "" is empty.
        assert found["totals"]["empty"] == 1
        assert found["totals"]["documents"] == truth["ok_rows_only"]["docs"] + 1
        ok = truth["ok_rows_only"]["tokens"][tokenizer]["sum"]
        assert ok < found["totals"]["tokens"] <= ok + 5
        packer("verify", out, source, "--tokenizer", TOKENIZERS / tokenizer)
    arguments = ["--tokenizer", TOKENIZERS / "gpt2", "--max-length", "9", "--out", tmp_path / "out"]
    assert "faults.jsonl, line 4: " in failing("pack", source, *arguments)


REFUSED = {
    "messy_made/empty.jsonl": "no document",
    "messy_made/only_newlines.jsonl": "no document",
    "messy_made/empty_array.json": "no document",
    "messy_real/lfs_pointer_sft_sample.jsonl": "git lfs pull",
    "messy_real/blns.json": "string",
    "messy_encodings/sample-chinese.txt": "byte 0",
    "messy_encodings/sample-korean.txt": "byte 0",
    "messy_encodings/sample-french-1.txt": "byte",
    "text_web/test.jsonl.gz": "message",
    "text_web/test.jsonl.zst": "message",
    "code/HumanEval.jsonl.gz": "task_id",
    "sft_turns/question.jsonl": "question_id, category, turns",
    "sft_seed/seed_tasks.jsonl": "instances",
    "sft_prompt/gsm8k_test.jsonl": "question, answer",
}


@pytest.mark.parametrize(("name", "said"), REFUSED.items())
def test_refused_with_a_reason(name: str, said: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--tokenizer", TOKENIZERS / "gpt2", "--max-length", "128", "--out", out]
    line = failing("pack", CORPORA / name, *arguments)
    assert said in line
    assert Path(name).name in line or "no document" in said
    assert not out.exists()


@pytest.mark.parametrize("name", ["messy_encodings/sample-arabic.txt", "messy_encodings/sample-english.bom.txt"])
def test_accepted_text(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    packer("pack", CORPORA / name, "--tokenizer", TOKENIZERS / "gpt2", "--max-length", "128", "--out", out)
    packer("verify", out, CORPORA / name)


@pytest.mark.parametrize("mode", ["parse", "literal"])
def test_special_tokens_in_text(mode: str, tmp_path: Path) -> None:
    line = (CORPORA / "messy_made/faults.jsonl").read_bytes().split(b"\n")[37]
    source = tmp_path / "special.jsonl"
    source.write_bytes(line)
    key = {"parse": "default", "literal": "encode_special_tokens=True"}[mode]
    for tokenizer, truth in TRUTH["messy_made/faults.jsonl"]["special_token_text_row"].items():
        out = tmp_path / tokenizer
        arguments = ["--tokenizer", TOKENIZERS / tokenizer, "--max-length", "128", "--no-bos", "--no-eos", "--out", out]
        packer("pack", source, *arguments, "--special-in-text", mode)
        assert manifest(out)["totals"]["tokens"] == truth[key]


def test_a_datasets_folder(tmp_path: Path) -> None:
    for task, rows in (("mrpc", 408), ("rte", 277)):
        out = tmp_path / task
        arguments = [
            "--tokenizer",
            TOKENIZERS / "gpt2",
            "--max-length",
            "512",
            "--text-field",
            "sentence1",
            "--out",
            out,
        ]
        packer("pack", CORPORA / "columnar/hf_disk/glue" / task, *arguments)
        assert manifest(out)["totals"]["documents"] == rows
        packer("verify", out, CORPORA / "columnar/hf_disk/glue" / task)


def test_a_vocabulary_without_the_named_eos(tmp_path: Path) -> None:
    arguments = ["--tokenizer", TOKENIZERS / "tt_2k_ignore_merges", "--max-length", "128", "--out", tmp_path / "out"]
    line = failing("pack", CORPORA / "text_web/c4_demo.jsonl", *arguments)
    assert "--eos-token" in line
    assert "--no-eos" in line


# packer stats

LENGTHS = CORPORA / "lengths"


def stats(*arguments: str | Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(packer("stats", *arguments, "--json", "-"))
    return result


@pytest.mark.parametrize(("name", "expected", "options"), CASES)
def test_documents_tokens_and_percentiles(name: str, expected: dict[str, Any], options: list[str]) -> None:
    for tokenizer in NAMES:
        folder = TOKENIZERS / tokenizer
        found = stats(CORPORA / name, "--tokenizer", folder, "--no-bos", "--no-eos", "--max-length", "2048", *options)
        counts = expected["tokens"][tokenizer]
        assert (found["documents"], found["tokens"]) == (counts["n"], counts["sum"])
        length = found["length"]
        assert (length["min"], length["max"]) == (counts["min"], counts["max"])
        assert round(length["mean"], 4) == counts["mean"]
        for percentile in PERCENTILES:
            assert round(length[percentile], 4) == counts[f"{percentile}_linear"]


def check_prices(found: dict[str, Any], truth: dict[str, Any], policy: str, max_length: int) -> None:
    """`found`: of `stats --overlong policy`; `truth`: of one capacity."""
    at = {price["strategy"]: price for price in found["strategies"] if price["max_length"] == max_length}
    expected = truth[policy]
    for strategy, key in BINS.items():
        assert at[strategy]["rows"] == expected[key]
        assert at[strategy]["real_tokens"] == expected["tokens"]
        assert at[strategy]["lower_bound"] == expected["lower_bound_L2"]
    assert round(1 - at["bfd"]["pad_ratio"], 6) == expected["bfd_efficiency"]
    whole = truth["wrapped_rows"] if policy == "split" else expected["lower_bound_ceil"]  # truncated first, as in pack
    assert at["wrapped"]["rows"] == whole
    lost = next(loss for loss in found["truncation"] if loss["max_length"] == max_length)
    assert (lost["documents"], lost["tokens"]) == (truth["docs_over_capacity"], truth["tokens_lost_if_truncated"])
    static = at["static"]
    if policy == "truncate":
        assert static["real_tokens"] + static["padded_tokens"] == truth["pad_to_capacity_tokens"]
        assert static["tokens_dropped"] == truth["tokens_lost_if_truncated"]


def check_padding(lengths: np.ndarray[Any, np.dtype[np.int32]], truth: dict[str, Any], max_length: int) -> None:
    """Batches in two orders that can be named, priced by the function that prices shuffled ones."""
    kept = np.minimum(lengths, max_length)
    orders = {"input_order": np.arange(len(kept)), "sorted_desc": np.argsort(-kept, kind="stable")}
    for order_name, order in orders.items():
        for size in (8, 32):
            batches = Batches(order, np.append(np.arange(0, len(kept), size), len(kept)))
            tokens, _, _ = padded_to_longest(batches, kept, Terms())
            assert int(tokens.sum()) == truth[f"pad_to_longest_b{size}_{order_name}_tokens"]


@pytest.mark.parametrize(("name", "expected", "options"), [c for c in CASES if "packing_gpt2_plus_eos" in c.values[1]])
def test_packing_and_padding(name: str, expected: dict[str, Any], options: list[str]) -> None:
    truth = expected["packing_gpt2_plus_eos"]
    wanted = [option for length in truth for option in ("--max-length", length)]
    for policy in ("split", "truncate"):
        arguments = ["--tokenizer", TOKENIZERS / "gpt2", "--overlong", policy, *wanted, *options]
        found = stats(CORPORA / name, *arguments)
        for length in truth:
            check_prices(found, truth[length], policy, int(length))


@pytest.mark.parametrize("name", ["azure_conv_2023_context", "azure_conv_2023_generated"])
def test_real_lengths(name: str) -> None:
    path = LENGTHS / f"{name}.lengths.txt"
    expected = TRUTH[f"lengths/{path.name}"]
    wanted = [option for length in expected["packing"] for option in ("--max-length", length)]
    lengths = np.loadtxt(path, np.int32)
    for policy in ("split", "truncate"):
        found = stats("--lengths", path, "--overlong", policy, *wanted)
        counts = expected["lengths"]
        assert (found["documents"], found["tokens"]) == (counts["n"], counts["sum"])
        for percentile in PERCENTILES:
            assert found["length"][percentile] == counts[f"{percentile}_linear"]
        for length, truth in expected["packing"].items():
            check_prices(found, truth, policy, int(length))
            check_padding(lengths, truth, int(length))
        assert not any(price["estimated"] for price in found["strategies"])


def test_sixteen_million_sequences_from_a_histogram() -> None:
    path = LENGTHS / "wikipedia_bert512_histogram.json"
    expected = TRUTH[f"lengths/{path.name}"]["lengths"]
    for max_length, truth in expected["packing"].items():
        begin = time.perf_counter()
        found = stats("--lengths", path, "--max-length", max_length)
        assert time.perf_counter() - begin < 20  # about one second; a loaded machine is no failure
        assert (found["documents"], found["tokens"]) == (expected["n"], expected["sum"])
        at = {price["strategy"]: price for price in found["strategies"]}
        assert at["bfd"]["rows"] == truth["best_fit_decreasing"]
        assert at["bfd"]["lower_bound"] == truth["lower_bound_L2"]
        assert at["wrapped"]["rows"] == truth["lower_bound_ceil"]
        if max_length == "512":
            static = at["static"]
            assert round((static["real_tokens"] + static["padded_tokens"]) / static["real_tokens"], 4) == 2.0013
            assert (at["bfd"]["rows"], at["bfd"]["lower_bound"]) == (8_138_483, 8_135_727)
