"""Faults that users of other packers reported, as small inputs with the right value here. Through the command line.

The names say which project's report each comes from. Documents are ready-made ids; E is the end token, C max_length.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tokenizers
from click.testing import CliRunner
from tokenizers import models, pre_tokenizers, processors

from packer import shards
from packer.cli import cli
from packer.corpus import batches
from packer.errors import DatasetError

E = 2
IGNORED = -100
Row = dict[str, Any]


class Packed:
    """`pack` on records, its rows in plan order unless told otherwise, proved by `verify` with the source."""

    def __init__(self, folder: Path) -> None:
        self.source, self.out = folder / "in.jsonl", folder / "out"

    def run(self, command: str, *arguments: object) -> str:
        done = CliRunner().invoke(cli, [command, *map(str, arguments)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def __call__(self, records: list[Any], length: int, *options: object) -> list[Row]:
        records = [record if isinstance(record, dict) else {"input_ids": record} for record in records]
        self.source.write_text("".join(json.dumps(record) + "\n" for record in records))
        arguments = ["--max-length", length, "--out", self.out, "--overwrite", "--order", "plan", *options]
        self.output = self.run("pack", self.source, *arguments)
        self.manifest = json.loads((self.out / "manifest.json").read_text())
        self.run("verify", self.out, self.source)
        rows: list[Row] = []
        for shard in self.manifest["shards"]:
            rows += pq.read_table(self.out / shard["path"]).to_pylist()
        return rows


@pytest.fixture
def pack(tmp_path: Path) -> Packed:
    return Packed(tmp_path)


def tokens(rows: list[Row]) -> list[int]:
    return sorted(token for row in rows for token in row["input_ids"])


def test_trl_784_documents_do_not_attend_to_each_other(pack: Packed) -> None:
    (row,) = pack([[7, 8, 9], [5, 6]], 5)
    assert row["cu_seqlens"] == [0, 3, 5]


def test_nanovlm_201_positions_restart_with_the_document(pack: Packed) -> None:
    (row,) = pack([[7, 8, 9], [5, 6]], 5)
    assert row["position_ids"] == [0, 1, 2, 0, 1]
    assert row["seq_lengths"] == [3, 2]


def test_transformers_46634_no_attention_mask_is_stored(pack: Packed) -> None:
    (row,) = pack([[7, 8, 9], [5, 6]], 5)
    assert not [name for name in row if "mask" in name]


def test_transformers_39814_every_segment_of_a_cut_document_has_a_position_0(pack: Packed) -> None:
    rows = pack([list(range(8))], 5)
    assert [row["position_ids"] for row in rows] == [[0, 1, 2, 3, 4], [0, 1, 2]]
    assert [row["doc_starts"] for row in rows] == [[0], [5]]


def test_flash_attention_1537_no_segment_without_tokens(pack: Packed) -> None:
    (row,) = pack([[], [4], [], [5]], 8)
    assert row["cu_seqlens"] == [0, 1, 2]
    assert row["doc_ids"] == [1, 3]
    assert pack.manifest["totals"]["empty"] == 2
    assert "2 empty left out" in pack.output


@pytest.mark.parametrize("content", ["", "\n\n", '{"input_ids": []}\n'])
def test_verl_1270_nothing_to_pack_is_an_error(tmp_path: Path, content: str) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text(content)
    done = CliRunner().invoke(cli, ["pack", str(source), "--max-length", "8", "--out", str(out)])
    assert done.exit_code == 1
    assert "nothing to pack" in str(done.exception)
    assert not out.exists()


def test_flashdeberta_11_offsets_are_checked_before_they_become_int32() -> None:
    offsets = np.array([0, 40, 100], np.int64)
    assert shards._int32_offsets(offsets, limit=100).dtype == np.int32
    with pytest.raises(DatasetError, match="100 tokens exceeds Arrow's limit of 99"):
        shards._int32_offsets(offsets, limit=99)


def test_torchtune_1177_eos_is_not_trained_to_predict_the_next_document(pack: Packed) -> None:
    (row,) = pack([[7, 8, E], [9, E]], 5)
    assert row["labels"] == [IGNORED, 8, E, IGNORED, E]
    (row,) = pack([[7, 8, E], [9, E]], 5, "--labels", "shifted")
    assert row["labels"] == [8, E, IGNORED, E, IGNORED]


@pytest.mark.parametrize(("convention", "labels"), [("aligned", [IGNORED, 2, 3]), ("shifted", [2, 3, IGNORED])])
def test_llm_recipes_5_the_convention_is_named(pack: Packed, convention: str, labels: list[int]) -> None:
    (row,) = pack([[1, 2, 3]], 3, "--labels", convention)
    assert row["labels"] == labels
    assert pack.manifest["layout"]["labels"] == convention
    assert (
        pq.read_schema(pack.out / pack.manifest["shards"][0]["path"]).metadata[b"packer.labels"] == convention.encode()
    )


def test_ms_swift_6961_the_first_label_after_a_cut_on_the_left_is_dead(pack: Packed) -> None:
    (row,) = pack([[1, 2, 3, 4, 5, 6]], 4, "--overlong", "truncate-left")
    assert row["input_ids"] == [3, 4, 5, 6]
    assert row["labels"] == [IGNORED, 4, 5, 6]
    assert row["doc_starts"] == [2]


def test_trl_4554_tokens_beyond_the_row_are_kept(pack: Packed) -> None:
    rows = pack([[1, 2, 3, 4], [5, 6, 7, 8, 9]], 1)
    assert tokens(rows) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert "nothing: every token is in a row" in pack.output
    pack([[1, 2, 3, 4], [5, 6, 7, 8, 9]], 1, "--overlong", "truncate")
    assert "7 tokens: 2 documents truncated" in pack.output


def test_trl_5075_a_masked_record_is_truncated_not_requeued(pack: Packed) -> None:
    (row,) = pack([{"input_ids": list(range(13)), "loss_mask": [0] * 8 + [1] * 5}], 10)
    assert row["input_ids"] == list(range(10))
    assert row["labels"] == [IGNORED] * 8 + [8, 9]
    assert pack.manifest["losses"]["truncated_tokens"] == 3


def test_a_masked_record_with_nothing_left_to_train_is_dropped_and_counted(pack: Packed) -> None:
    records = [{"input_ids": [1, 2, 3, 4], "loss_mask": [0, 0, 0, 1]}, {"input_ids": [5, 6], "loss_mask": [0, 1]}]
    (row,) = pack(records, 3)
    assert row["input_ids"] == [5, 6]
    assert pack.manifest["losses"]["untrained_documents"] == 1
    assert pack.manifest["losses"]["untrained_tokens"] == 4


def test_trl_3728_the_mask_travels_with_the_tokens(pack: Packed) -> None:
    records = [
        {"input_ids": [7, 8, 9], "completion_mask": [0, 0, 1]},
        {"input_ids": [5, 6], "completion_mask": [0, 1]},
    ]
    (row,) = pack(records, 5)
    assert row["labels"] == [IGNORED, IGNORED, 9, IGNORED, 6]
    assert row["loss_tokens"] == 2


def test_trl_976_an_eos_that_equals_pad_is_trained(pack: Packed) -> None:
    rows = pack([[5, E], [1, E, 2, 3]], 4)
    labels = {tuple(row["input_ids"]): row["labels"] for row in rows}
    assert labels == {(5, E): [IGNORED, E], (1, E, 2, 3): [IGNORED, E, 2, 3]}


def test_nemo_14437_lengths_are_stored_not_found_by_eos(pack: Packed) -> None:
    (row,) = pack([[4, E, E]], 8)
    assert (row["num_tokens"], row["cu_seqlens"], row["doc_lengths"]) == (3, [0, 3], [3])


def test_torchtitan_3130_boundaries_need_no_eos(pack: Packed) -> None:
    (row,) = pack([[4, 5], [6]], 8)
    assert row["cu_seqlens"] == [0, 2, 3]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Words as tokens, BOS by the post-processor, EOS named only."""
    words = {"<s>": 0, "<unk>": 1, "</s>": E, "a": 3, "b": 4, "c": 5, "d": 6, "e": 7}
    made = tokenizers.Tokenizer(models.WordLevel(words, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": {"content": "</s>"}}')
    return folder


def test_transformers_23198_exactly_one_eos(pack: Packed, tokenizer: Path) -> None:
    (row,) = pack([{"text": "a b"}, {"text": "c </s>"}], 8, "--tokenizer", tokenizer)
    assert row["input_ids"] == [0, 3, 4, E, 0, 5, E]
    assert "post-processor adds <s> before; EOS </s> after" in pack.output


def test_openrlhf_393_one_bos(pack: Packed, tokenizer: Path) -> None:
    (row,) = pack([{"text": "<s> a"}, {"text": "b"}], 8, "--tokenizer", tokenizer)
    assert row["input_ids"] == [0, 3, E, 0, 4, E]


def test_qlora_pipe_40_a_bos_costs_no_token(pack: Packed, tokenizer: Path) -> None:
    rows = pack([{"text": "a b c d e"}], 4, "--tokenizer", tokenizer)
    assert tokens(rows) == sorted([0, 3, 4, 5, 6, 7, E])


def test_trl_1337_less_than_a_row_is_one_short_row(pack: Packed) -> None:
    (row,) = pack([[1, 2, 3]], 1024)
    assert row["input_ids"] == [1, 2, 3]


def test_energon_114_the_last_batch_is_placed(pack: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_DOCUMENTS", 4)
    rows = pack([[1], [2], [3], [4], [5]], 2)
    assert tokens(rows) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("strategy", ["bfd", "ffd", "first-fit", "wrapped", "none"])
def test_bagel_308_no_sample_is_lost(pack: Packed, strategy: str) -> None:
    documents = [[1] * 6, [2] * 6, [3] * 3, [4] * 6]
    rows = pack(documents, 10, "--strategy", strategy)
    assert tokens(rows) == [1] * 6 + [2] * 6 + [3] * 3 + [4] * 6
    assert len(rows) == {"wrapped": 3, "none": 4}.get(strategy, 3)


def test_arctic_155_partitions_leave_one_short_row_in_all(pack: Packed) -> None:
    documents = [[i] * 3 for i in range(5)]
    rows = pack(documents, 4, "--strategy", "wrapped", "--partition-bytes", 20, "--block-tokens", 1)
    assert [len(row["input_ids"]) for row in rows] == [4, 4, 4, 3]
    assert pack.manifest["totals"]["split_documents"] == 2


def test_nanochat_590_long_documents_are_split_into_full_rows(pack: Packed) -> None:
    documents = [[1] * 20 if i % 4 == 0 else [2] * 3 for i in range(40)]
    rows = pack(documents, 8)
    assert tokens(rows) == [1] * 200 + [2] * 90
    assert len(rows) == 20 + 10 + 10  # two full rows of each long one, its rest of 4 with a 3, the other 3s in pairs
    assert all(row["loss_tokens"] for row in rows)


def test_axolotl_3401_truncation_is_applied_and_counted(pack: Packed) -> None:
    (row,) = pack([[1, 2, 3, 4, 5, 6, 7, 8, 9]], 4, "--overlong", "truncate")
    assert row["input_ids"] == [1, 2, 3, 4]
    assert row["doc_lengths"] == [9]
    assert pack.manifest["losses"]["truncated_documents"] == 1
    assert pack.manifest["losses"]["truncated_tokens"] == 5


def test_axolotl_3849_and_3152_figures_are_exact(pack: Packed) -> None:
    rows = pack([[1] * 4, [2] * 4, [3] * 2], 4)
    assert len(rows) == pack.manifest["totals"]["rows"] == pack.manifest["shards"][0]["rows"] == 3
    assert pack.manifest["efficiency"] == 10 / 12


def test_bridge_4237_twice_the_same_bytes(pack: Packed) -> None:
    documents = [[i] * (i % 7 + 1) for i in range(100)]
    hashes = set()
    for _ in range(2):
        pack(documents, 8, "--order", "shuffle")
        hashes.add(pack.manifest["shards"][0]["sha256"])
    assert len(hashes) == 1
