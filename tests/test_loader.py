"""Batches as tensors: what each layout holds, the same batches whatever reads them, epochs, and going on after a stop.

The faults that users of other loaders reported are cited by project and number.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer import finish, reader
from packer import manifest as manifests
from packer.cli import main
from packer.errors import DatasetError, UsageError

torch = pytest.importorskip("torch")
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler  # noqa: E402

from packer.torch import PackedDataset, PackedLoader, attention_kwargs, collate  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create .* worker processes in total:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"),
]

IGNORED = -100
MAX_LENGTH = 16
Batch = dict[str, Any]
MakeData = Callable[..., Path]


def write_documents(path: Path, count: int = 90) -> Path:
    """Every document begins with a number of its own, so that rows are told apart."""
    draw = random.Random(count)
    with path.open("w") as file:
        for number in range(count):
            ids = [1000 * count + number, *(draw.randrange(1, 1000) for _ in range(draw.randrange(0, 15)))]
            file.write(json.dumps({"input_ids": ids}) + "\n")
    return path


def pack(out: Path, *arguments: object) -> Path:
    with pytest.raises(SystemExit) as ended:
        main(["pack", "--quiet", "--out", str(out), *map(str, arguments)])
    assert ended.value.code == 0
    return out


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeData]:
    """Data sets by their options, made once: about 45 rows in shards of 20 and groups of 5 or so."""
    folder = tmp_path_factory.mktemp("data")

    @cache
    def made(documents: int, *options: object) -> Path:
        source, out = folder / f"{documents}.jsonl", folder / f"out-{len(list(folder.iterdir()))}"
        write_documents(source, documents)
        return pack(out, source, "--max-length", MAX_LENGTH, "--rows-per-shard", 20, *options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # durability is not what is tested here
        patch.setattr(finish, "GROUP_TOKENS", 80)
        yield lambda *options, documents=90: made(documents, *options)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """What hangs fails instead."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    with time_limit(280):
        yield


def plain(batch: Batch) -> dict[str, Any]:
    """A batch as lists."""
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def taken(batches: list[Batch]) -> list[tuple[int, ...]]:
    """Documents or pieces of them that batches hold: each attention sequence as its tokens; filler left out."""
    found = []
    for batch in batches:
        ids = batch["input_ids"].flatten().tolist()
        ends = batch.get("cu_seqlens", batch.get("cu_seq_lens_q")).tolist()
        found += [tuple(ids[a:b]) for a, b in pairwise(ends)]
    return [one for one in found if one != (0,)]


def everything(out: Path) -> list[tuple[int, ...]]:
    rows = reader.PackedDataset(out)
    return sorted(
        tuple(row["input_ids"][a:b].tolist()) for row in rows for a, b in pairwise(row["cu_seqlens"].tolist())
    )


# --- layouts ---------------------------------------------------------------------------------------------------------

VARLEN = {
    "input_ids": torch.int64,
    "labels": torch.int64,
    "position_ids": torch.int64,
    "cu_seqlens": torch.int32,
    "seq_idx": torch.int32,
    "max_seqlen": int,
    "loss_tokens": int,
}
TRANSFORMERS = {
    "input_ids": torch.int64,
    "labels": torch.int64,
    "position_ids": torch.int64,
    "seq_idx": torch.int32,
    "cu_seq_lens_q": torch.int32,
    "cu_seq_lens_k": torch.int32,
    "max_length_q": int,
    "max_length_k": int,
}
PADDED = {
    "input_ids": torch.int64,
    "labels": torch.int64,
    "position_ids": torch.int64,
    "attention_mask": torch.int64,
    "loss_tokens": int,
}


def kinds(batch: Batch) -> dict[str, Any]:
    return {name: value.dtype if isinstance(value, torch.Tensor) else type(value) for name, value in batch.items()}


@pytest.mark.parametrize("columns", ["full", "compact"])
@pytest.mark.parametrize("file_format", ["parquet", "arrow", "arrow-stream"])
def test_varlen(make: MakeData, file_format: str, columns: str) -> None:
    out = make("--format", file_format, "--columns", columns)
    for batch in PackedLoader(out, rows_per_batch=3):
        assert kinds(batch) == VARLEN
        total = len(batch["input_ids"])
        ends = batch["cu_seqlens"]
        assert batch["input_ids"].shape == batch["labels"].shape == batch["position_ids"].shape == (total,)
        assert batch["seq_idx"].shape == (total,)
        assert (ends[0], ends[-1]) == (0, total)
        assert batch["max_seqlen"] == ends.diff().max()
        assert batch["loss_tokens"] == (batch["labels"] != IGNORED).sum()
        for number, (a, b) in enumerate(pairwise(ends.tolist())):
            assert b > a
            assert set(batch["seq_idx"][a:b].tolist()) == {number}
            assert batch["position_ids"][a:b].tolist() == list(range(b - a))
            assert batch["labels"][a:b].tolist() == [IGNORED, *batch["input_ids"][a + 1 : b].tolist()]


def test_transformers_46634_48353_no_attention_mask_and_lengths_that_are_ints(make: MakeData) -> None:
    for batch in PackedLoader(make(), rows_per_batch=3, layout="transformers"):
        assert kinds(batch) | TRANSFORMERS == kinds(batch)
        assert set(batch) - set(TRANSFORMERS) <= {"loss_tokens"}
        assert not [name for name in batch if "mask" in name]
        assert batch["input_ids"].dim() == 2
        assert {batch[name].shape for name in ("input_ids", "labels", "position_ids", "seq_idx")} == {
            batch["input_ids"].shape
        }
        assert batch["cu_seq_lens_q"].tolist() == batch["cu_seq_lens_k"].tolist()
        assert batch["cu_seq_lens_q"][-1] == batch["input_ids"].numel()
        assert batch["max_length_q"] == batch["max_length_k"] == batch["cu_seq_lens_q"].diff().max()
    for batch in PackedLoader(make(), rows_per_batch=3):
        assert type(batch["max_seqlen"]) is int
        assert not [name for name in batch if "mask" in name]


@pytest.mark.parametrize("stored", ["aligned", "shifted"])
def test_llm_recipes_5_transformers_get_aligned_labels(make: MakeData, stored: str) -> None:
    """Whatever is stored; and beside them the shifted ones, which know what follows a cut."""
    out = make("--labels", stored, "--strategy", "wrapped")
    options: dict[str, Any] = {"rows_per_batch": 2, "shuffle": False}
    loaders = [
        PackedLoader(out, layout="transformers", shift_labels=True, **options),
        PackedLoader(out, labels="aligned", **options),
        PackedLoader(out, labels="shifted", **options),
    ]
    for batch, aligned, shifted in zip(*loaders, strict=True):
        assert batch["labels"][0].tolist() == aligned["labels"].tolist()
        assert batch["shift_labels"][0].tolist() == shifted["labels"].tolist()
        assert batch["shift_labels"].shape == batch["labels"].shape
    crossing = [
        row["next_tokens"].tolist()
        for row in reader.PackedDataset(out, labels="shifted")
        if row["next_tokens"][-1] != IGNORED
    ]
    assert crossing, "some documents are cut"
    default = next(iter(PackedLoader(out, rows_per_batch=2, shuffle=False)))
    assert default["labels"].tolist() == next(iter(loaders[1 if stored == "aligned" else 2]))["labels"].tolist()


@pytest.mark.parametrize("multiple", [1, 8])
def test_padded(make: MakeData, multiple: int) -> None:
    out = make("--strategy", "none")
    loader = PackedLoader(out, rows_per_batch=4, layout="padded", pad_to_multiple_of=multiple, pad_token_id=9)
    seen = []
    for batch in loader:
        assert kinds(batch) == PADDED
        lengths = batch["attention_mask"].sum(1).tolist()
        assert batch["input_ids"].shape[1] == -(-max(lengths) // multiple) * multiple
        for row, length in enumerate(lengths):
            assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (batch["input_ids"].shape[1] - length)
            assert set(batch["input_ids"][row, length:].tolist()) <= {9}
            assert set(batch["labels"][row, length:].tolist()) <= {IGNORED}
            seen.append(tuple(batch["input_ids"][row, :length].tolist()))
    assert sorted(seen) == everything(out)


def test_padded_rows_of_several_documents_are_refused(make: MakeData) -> None:
    with pytest.raises(UsageError, match="one document a row"):
        list(PackedLoader(make(), rows_per_batch=4, layout="padded"))


def test_padded_batches_by_tokens_stay_in_their_budget(make: MakeData) -> None:
    out = make("--strategy", "none")
    for balance in (None, "tokens"):
        batches = list(PackedLoader(out, tokens_per_batch=64, layout="padded", balance=balance))
        assert max(batch["input_ids"].numel() for batch in batches) <= 64
        assert len(batches) > 5


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
def test_nested(make: MakeData) -> None:
    out = make()
    varlen = PackedLoader(out, rows_per_batch=3)
    for batch, expected in zip(PackedLoader(out, rows_per_batch=3, layout="nested"), varlen, strict=True):
        ends = expected["cu_seqlens"].tolist()
        for name in ("input_ids", "labels", "position_ids"):
            assert batch[name].is_nested
            assert batch[name].layout == torch.jagged
            assert [part.tolist() for part in batch[name].unbind()] == [
                expected[name][a:b].tolist() for a, b in pairwise(ends)
            ]
        assert (batch["max_seqlen"], batch["loss_tokens"]) == (expected["max_seqlen"], expected["loss_tokens"])


def test_segment_multiple(make: MakeData) -> None:
    out = make()
    plain_batches = PackedLoader(out, rows_per_batch=3)
    loader = PackedLoader(out, rows_per_batch=3, segment_multiple=4, pad_token_id=9)
    for batch, expected in zip(loader, plain_batches, strict=True):
        assert kinds(batch) == VARLEN | {"cu_seqlens_padded": torch.int32}
        assert batch["cu_seqlens"].tolist() == expected["cu_seqlens"].tolist()
        ends = batch["cu_seqlens_padded"]
        assert ends[-1] == len(batch["input_ids"])
        assert (ends % 4).tolist() == [0] * len(ends)
        assert batch["max_seqlen"] == ends.diff().max()
        assert batch["loss_tokens"] == expected["loss_tokens"] == (batch["labels"] != IGNORED).sum()
        kwargs = attention_kwargs(batch)
        assert kwargs["cu_seqlens_q"] is ends
        assert kwargs["max_seqlen_q"] == batch["max_seqlen"]


@pytest.mark.parametrize("layout", ["varlen", "transformers"])
def test_fixed_shapes(make: MakeData, layout: str) -> None:
    loader = PackedLoader(
        make(), rows_per_batch=2, world_size=4, pad_to=64, max_segments_to=24, pad_token_id=9, layout=layout
    )
    ends_name, longest = ("cu_seqlens", "max_seqlen") if layout == "varlen" else ("cu_seq_lens_q", "max_length_q")
    for batch in loader:
        ends = batch[ends_name]
        assert batch["input_ids"].numel() == batch["seq_idx"].numel() == ends[-1] == 64
        assert len(ends) == 25
        assert (ends.diff() > 0).all()
        assert batch[longest] == 64
        assert type(batch[longest]) is int


def test_a_batch_that_does_not_fit_is_refused(make: MakeData) -> None:
    with pytest.raises(UsageError, match="does not fit pad_to=20"):
        list(PackedLoader(make(), rows_per_batch=2, pad_to=20))
    with pytest.raises(UsageError, match="raise max_segments_to or pad_to"):
        list(PackedLoader(make(), rows_per_batch=2, pad_to=64, max_segments_to=2))


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "flat"},
        {"max_segments_to": 4},
        {"layout": "padded", "pad_to": 64},
        {"layout": "nested", "segment_multiple": 4},
        {"rows_per_batch": None},
        {"tokens_per_batch": 5},
        {"rank": 1},
        {"balance": "flops"},
    ],
    ids=str,
)
def test_options_that_make_no_sense(make: MakeData, options: Batch) -> None:
    with pytest.raises(UsageError):
        PackedLoader(make(), **({"rows_per_batch": 2} | options))


def test_names_of_the_kernels() -> None:
    ends = torch.tensor([0, 3], dtype=torch.int32)
    batch = {"cu_seqlens": ends, "max_seqlen": 3}
    flash, own = attention_kwargs(batch), attention_kwargs(batch, api="torch")
    assert flash == {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 3, "max_seqlen_k": 3}
    assert own == {"cu_seq_q": ends, "cu_seq_k": ends, "max_q": 3, "max_k": 3}
    with pytest.raises(UsageError, match="flash_attn, torch"):
        attention_kwargs(batch, api="other")


def test_filler_is_not_trained(make: MakeData) -> None:
    """Fewer rows than ranks: some have nothing, in every layout and shape."""
    out = make("--strategy", "none", documents=3)
    shapes: list[Batch] = [
        {},
        {"layout": "transformers", "shift_labels": True},
        {"layout": "padded", "pad_to_multiple_of": 8},
        {"segment_multiple": 4},
        {"pad_to": 32, "max_segments_to": 4},
    ]
    for shape in shapes:
        ranks = [list(PackedLoader(out, rows_per_batch=2, rank=r, world_size=8, **shape)) for r in range(8)]
        assert [len(batches) for batches in ranks] == [1] * 8
        fillers = [batches[0] for batches in ranks[3:]]
        assert all((batch["labels"] == IGNORED).all() for batch in fillers)
        assert all((batch.get("shift_labels", batch["labels"]) == IGNORED).all() for batch in fillers)
        assert all(batch.get("loss_tokens", 0) == 0 for batch in fillers)
        assert not any((batches[0]["labels"] == IGNORED).all() for batches in ranks[:3])


def test_ids_beyond_the_vocabulary_are_refused(make: MakeData) -> None:
    largest = manifests.load(make()).totals.max_token_id
    PackedLoader(make(), rows_per_batch=1, vocab_size=largest + 1)
    for refused in (PackedLoader, PackedDataset):
        with pytest.raises(UsageError, match="vocab_size"):
            refused(make(), vocab_size=largest, **({"rows_per_batch": 1} if refused is PackedLoader else {}))


def test_pyarrow_to_torch_batches_are_writable_and_change_nothing_else(make: MakeData) -> None:
    """Neither the file behind a memory map nor what a later epoch gives."""
    for file_format, columns in product(("arrow", "arrow-stream", "parquet"), ("full", "compact")):
        out = make("--format", file_format, "--columns", columns)
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        for options in ({}, {"pad_to": 64}, {"layout": "transformers", "shift_labels": True}, {"labels": "shifted"}):
            loader = PackedLoader(out, rows_per_batch=3, shuffle=False, **options)
            expected = [plain(batch) for batch in loader]
            loader.set_epoch(0)
            for batch in loader:
                for value in batch.values():
                    if isinstance(value, torch.Tensor):
                        value.fill_(77)
            loader.set_epoch(0)
            assert [plain(batch) for batch in loader] == expected
        assert {path: path.read_bytes() for path in before} == before


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator is found:UserWarning")
def test_pin_memory_is_harmless_without_a_gpu(make: MakeData) -> None:
    for workers in (0, 2):
        loader = PackedLoader(make(), rows_per_batch=3, pin_memory=True, num_workers=workers)
        expected = PackedLoader(make(), rows_per_batch=3)
        for batch, other in zip(loader, expected, strict=True):
            assert plain(batch) == plain(other)
            assert type(batch["max_seqlen"]) is int


# --- the same batches whatever reads them ----------------------------------------------------------------------------

WORKERS: list[tuple[int, str | None, bool]] = [
    (workers, context, persistent)
    for workers, context, persistent in product((1, 2, 4), ("fork", "spawn"), (False, True))
]
QUICK = {(2, "fork", True), (4, "fork", False)}


def loader_options(workers: int, context: str | None = "fork", persistent: bool = False) -> Batch:
    if not workers:
        return {}
    return {
        "num_workers": workers,
        "loader_options": {"multiprocessing_context": context, "persistent_workers": persistent},
    }


def three_epochs(loader: PackedLoader) -> list[list[Batch]]:
    """As lists; `len` is exact in each."""
    epochs = []
    for _ in range(3):
        expected = len(loader)
        epochs.append([plain(batch) for batch in loader])
        assert len(epochs[-1]) == expected
    return epochs


@pytest.mark.parametrize(
    ("workers", "context", "persistent"),
    [pytest.param(*one, marks=[] if one in QUICK else pytest.mark.slow) for one in WORKERS],
)
def test_streaming_617_three_epochs_are_the_same_with_any_workers(
    make: MakeData, workers: int, context: str, persistent: bool
) -> None:
    """And pytorch 31771: each epoch has its own order, also with workers that stay."""
    for file_format in ("parquet", "arrow") if context == "fork" and workers < 4 else ("parquet",):
        out = make("--format", file_format)
        options: Batch = {"rows_per_batch": 2, "world_size": 3, "rank": 1, "seed": 5}
        expected = three_epochs(PackedLoader(out, **options))
        assert expected[0] != expected[1] != expected[2] != expected[0]
        with time_limit(200):
            found = three_epochs(PackedLoader(out, **options, **loader_options(workers, context, persistent)))
        assert found == expected


def test_a_spawned_worker(make: MakeData) -> None:
    """One epoch, to go with the quick tests."""
    loader = PackedLoader(make(), rows_per_batch=4, **loader_options(1, "spawn"))
    assert [plain(batch) for batch in loader] == [plain(batch) for batch in PackedLoader(make(), rows_per_batch=4)]


def test_datasets_3423_each_row_once_with_four_workers(make: MakeData) -> None:
    out = make("--format", "arrow")
    assert sorted(taken(list(PackedLoader(out, rows_per_batch=1, **loader_options(4))))) == everything(out)


def test_litdata_823_polars_24162_two_forked_workers_after_the_parent_has_read(make: MakeData) -> None:
    """Threads and locks of the parent are not there in a fork: neither pyarrow's nor the tokenizer's."""
    import pyarrow.parquet as pq
    import tokenizers

    out = make()
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a")).encode_batch(["a"] * 1000)
    pq.read_table(out / manifests.load(out).shards[0].path, use_threads=True)
    loader = PackedLoader(out, rows_per_batch=2, balance="attention", **loader_options(2))
    list(reader.PackedDataset(out))
    with time_limit(60):
        for _ in range(2):
            assert sorted(taken(list(loader))) == everything(out)


def test_litdata_823_importing_leaves_the_environment_alone() -> None:
    code = """
import os
before = dict(os.environ)
import torch
torches = dict(os.environ)
import packer, packer.torch
import sys
assert dict(os.environ) == torches
print(sorted({"tokenizers", "datasets", "click", "orjson"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_webdataset_188_one_shard_four_ranks_three_workers(make: MakeData) -> None:
    out = make("--rows-per-shard", 1000)
    assert len(manifests.load(out).shards) == 1
    options: Batch = {"rows_per_batch": 3, "world_size": 4, **loader_options(3)}
    with time_limit(120):
        ranks = [list(PackedLoader(out, rank=rank, **options)) for rank in range(4)]
    assert len({len(batches) for batches in ranks}) == 1
    assert sorted(piece for batches in ranks for piece in taken(batches)) == everything(out)


@pytest.mark.slow
def test_litdata_233_datasets_6437_every_small_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1..50 rows, 1..8 ranks, from files: as many batches as `len` says, on every rank. (The grid: test_sampling.)"""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(finish, "GROUP_TOKENS", 80)
    for rows in range(1, 51):
        out = pack(tmp_path / str(rows), write_documents(tmp_path / "in.jsonl", rows), "--max-length", 16,
                   "--strategy", "none", "--format", ("parquet", "arrow")[rows % 2])  # fmt: skip
        expected = everything(out)
        for ranks in range(1, 9):
            each, balance = 1 + (rows + ranks) % 4, (None, "attention", "tokens")[rows % 3]
            loaders = [
                PackedLoader(out, rows_per_batch=each, rank=rank, world_size=ranks, balance=balance)
                for rank in range(ranks)
            ]
            batches = [list(loader) for loader in loaders]
            assert {len(of) for of in batches} == {-(-rows // (ranks * each))}
            assert sorted(piece for of in batches for piece in taken(of)) == expected


def test_len_is_exact(make: MakeData) -> None:
    """axolotl 3152: the number of steps is no estimate."""
    several: list[Batch] = [
        {"rows_per_batch": 2},
        {"rows_per_batch": 4, "drop_last": True},
        {"tokens_per_batch": 40},
        {"tokens_per_batch": 40, "drop_last": True, "balance": "attention"},
        {"rows_per_batch": 2, "balance": "flops", "flops": (6.0, 0.5)},
    ]
    for options, ranks in product(several, (1, 3)):
        loaders = [PackedLoader(make(), rank=rank, world_size=ranks, **options) for rank in range(ranks)]
        for _ in range(2):
            lengths = {len(loader) for loader in loaders}
            assert lengths == {len(list(loader)) for loader in loaders}
            assert len(lengths) == 1


def test_the_first_error_survives_workers_and_closing(make: MakeData) -> None:
    """datasets 6917. In the loop's body, and in a worker, where it names the shard."""
    loader = PackedLoader(make(), rows_per_batch=2, **loader_options(2))
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        for _ in loader:
            _ = 1 // 0
    gc.collect()
    with pytest.raises(UsageError, match="does not fit pad_to=4"):
        list(PackedLoader(make(), rows_per_batch=2, pad_to=4, **loader_options(2)))


def test_damage_met_in_a_worker_names_the_shard(make: MakeData, tmp_path: Path) -> None:
    out = Path(shutil.copytree(make("--compression", "none"), tmp_path / "out"))
    path = out / manifests.load(out).shards[1].path
    spoiled = bytearray(path.read_bytes())
    ids = reader.PackedDataset(out)[25]["input_ids"].astype(np.int32).tobytes()
    spoiled[spoiled.index(ids)] ^= 1
    path.write_bytes(bytes(spoiled))
    for workers in (0, 2):
        with pytest.raises(DatasetError, match=f"shard {path}, group"):
            list(PackedLoader(out, rows_per_batch=2, **loader_options(workers)))


# --- going on after a stop -------------------------------------------------------------------------------------------

RESUMED: dict[str, Batch] = {
    "parquet": {"rows_per_batch": 2},
    "balanced": {"rows_per_batch": 2, "balance": "attention"},
    "flops": {"rows_per_batch": 2, "balance": "flops", "flops": (6.0, 0.5)},
    "tokens": {"tokens_per_batch": 50},
    "two ranks": {"rows_per_batch": 3, "world_size": 2, "rank": 1},
    "transformers": {"rows_per_batch": 2, "layout": "transformers", "shift_labels": True},
    "by steps of tokens": {"rows_per_batch": 2, "tokens_per_step": 100},
}


def stopped(loader: PackedLoader, count: int) -> tuple[list[Batch], Batch]:
    """So many batches, and the state then, as a file would hold it."""
    batches = [plain(batch) for batch in islice(iter(loader), count)]
    return batches, json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize("name", RESUMED)
def test_datasets_7538_8145_stopped_after_every_batch(make: MakeData, name: str) -> None:
    """In the second epoch; it goes on with the next batch, and then with the third epoch."""
    out, options = make(), RESUMED[name]
    whole = PackedLoader(out, **options)
    epochs = [[plain(batch) for batch in whole] for _ in range(3)]
    for stop in range(len(epochs[1]) + 1):
        loader = PackedLoader(out, **options)
        loader.set_epoch(1)
        before, state = stopped(loader, stop)
        assert before == epochs[1][:stop]
        resumed = PackedLoader(out, **options)
        resumed.load_state_dict(state)
        assert [plain(batch) for batch in resumed] == epochs[1][stop:]
        if stop % 5 == 0:
            assert [plain(batch) for batch in resumed] == epochs[2]


@pytest.mark.parametrize("persistent", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_what_was_read_ahead_does_not_count_as_taken(make: MakeData, workers: int, persistent: bool) -> None:
    out = make("--format", "arrow")
    epochs = [[plain(batch) for batch in one] for one in [PackedLoader(out, rows_per_batch=3)] * 2]
    loader = PackedLoader(out, rows_per_batch=3, **loader_options(workers, persistent=persistent))
    states = []
    for batch in loader:
        assert plain(batch) == epochs[0][len(states)]
        states.append(json.loads(json.dumps(loader.state_dict())))
    for stop, state in list(enumerate(states, 1))[:: 1 if workers == 2 else 5]:
        resumed = PackedLoader(out, rows_per_batch=3)
        resumed.load_state_dict(state)
        assert [plain(batch) for batch in resumed] == epochs[0][stop:]
    for stop in (1, 7):
        loader.load_state_dict(states[stop - 1])
        assert [plain(batch) for batch in loader] == epochs[0][stop:]
    assert [plain(batch) for batch in loader] == epochs[1]


def test_workers_that_stay_after_a_break(make: MakeData) -> None:
    """What they had read ahead is not given to the next loop."""
    out = make()
    loader = PackedLoader(out, rows_per_batch=3, **loader_options(2, persistent=True))
    whole = [plain(batch) for batch in PackedLoader(out, rows_per_batch=3)]
    for stop in (1, 2, 5):
        for number, batch in enumerate(loader, 1):
            assert plain(batch) == whole[number - 1]
            if number == stop:
                break
    assert [plain(batch) for batch in loader] == whole


@pytest.mark.parametrize("workers", [(0, 2), (2, 0), pytest.param((4, 1), marks=pytest.mark.slow)], ids=str)
def test_litdata_24_251_resumed_with_other_workers(make: MakeData, workers: tuple[int, int]) -> None:
    out = make()
    whole = [plain(batch) for batch in PackedLoader(out, rows_per_batch=3)]
    for stop in (1, 4, len(whole)):
        before, state = stopped(PackedLoader(out, rows_per_batch=3, **loader_options(workers[0])), stop)
        resumed = PackedLoader(out, rows_per_batch=3, **loader_options(workers[1]))
        resumed.load_state_dict(state)
        assert before + [plain(batch) for batch in resumed] == whole


def on_all_ranks(out: Any, ranks: int, state: Batch | None, count: int | None, **options: Any) -> tuple[list, Batch]:
    """What all ranks take in so many steps, and the one state that they all have then."""
    pieces, states, lengths = [], [], set()
    for rank in range(ranks):
        loader = PackedLoader(out, rank=rank, world_size=ranks, **options)
        if state is not None:
            loader.load_state_dict(state)
        batches = list(islice(iter(loader), count))
        pieces += taken(batches)
        lengths.add(len(batches))
        states.append(json.loads(json.dumps(loader.state_dict())))
    assert len(lengths) == 1
    assert count is None or all(one == states[0] for one in states)
    return pieces, states[0]


@pytest.mark.parametrize("options", [{"rows_per_batch": 1}, {"rows_per_batch": 2, "balance": "attention"},
                                     {"tokens_per_batch": 40}], ids=str)  # fmt: skip
def test_torchtitan_816_bridge_5637_maxtext_1760_ranks_4_2_8_1(make: MakeData, options: Batch) -> None:
    out = make()
    for turns in ((1, 1, 1), (2, 3, 1), (0, 2, 1), (3, 0, 0)):
        state, seen = None, []
        for ranks, count in zip((4, 2, 8), turns, strict=True):
            pieces, state = on_all_ranks(out, ranks, state, count, **options)
            seen += pieces
        seen += on_all_ranks(out, 1, state, None, **options)[0]
        assert sorted(seen) == everything(out)


def test_resumed_with_other_batch_sizes_and_balance(make: MakeData) -> None:
    out = make("--format", "arrow")
    several: list[Batch] = [
        {"rows_per_batch": 3},
        {"tokens_per_batch": 40},
        {"rows_per_batch": 1, "balance": "attention"},
        {"rows_per_batch": 2, "layout": "transformers"},
    ]
    for first, then, stop in product(several, several, (1, 3)):
        seen, state = on_all_ranks(out, 2, None, stop, **first)
        rest, _ = on_all_ranks(out, 3, state, None, **then)
        assert sorted(seen + rest) == everything(out)


def test_len_after_a_resume_under_other_options_is_of_what_is_left(make: MakeData) -> None:
    out = make()
    _, state = stopped(PackedLoader(out, rows_per_batch=2), 5)
    resumed = PackedLoader(out, rows_per_batch=3)
    whole = len(resumed)
    resumed.load_state_dict(state)
    assert len(resumed) == -(-(len(reader.PackedDataset(out)) - 10) // 3) < whole
    assert len(list(resumed)) == -(-(len(reader.PackedDataset(out)) - 10) // 3)
    assert len(resumed) == whole == len(list(resumed))


def test_streaming_880_the_first_row_after_a_load_is_not_row_0(make: MakeData) -> None:
    out = make()
    rows = [row["input_ids"].tolist() for row in PackedDataset(out)]
    _, state = stopped(PackedLoader(out, rows_per_batch=1, shuffle=False), 3)
    for workers in (0, 2):
        resumed = PackedLoader(out, rows_per_batch=1, shuffle=False, **loader_options(workers))
        resumed.load_state_dict(state)
        assert next(iter(resumed))["input_ids"].tolist() == rows[3]


def test_veomni_853_a_state_of_other_data_is_refused(make: MakeData) -> None:
    _, state = stopped(PackedLoader(make(), rows_per_batch=1), 3)
    with pytest.raises(DatasetError, match="another data set"):
        PackedLoader(make("--seed", 9), rows_per_batch=1).load_state_dict(state)
    with pytest.raises(DatasetError, match="version"):
        PackedLoader(make(), rows_per_batch=1).load_state_dict(state | {"version": 0})


def test_a_state_from_the_end_of_an_epoch(make: MakeData) -> None:
    """After the loop has ended it is the start of the next epoch."""
    out = make()
    loader = PackedLoader(out, rows_per_batch=3)
    list(loader)
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = PackedLoader(out, rows_per_batch=3)
    resumed.load_state_dict(state)
    second = [plain(batch) for batch in loader]
    assert [plain(batch) for batch in resumed] == second != []


def test_set_epoch(make: MakeData) -> None:
    out = make()
    loader = PackedLoader(out, rows_per_batch=3)
    epochs = [[plain(batch) for batch in loader] for _ in range(3)]
    for epoch in (2, 0, 1, 1):
        loader.set_epoch(epoch)
        assert [plain(batch) for batch in loader] == epochs[epoch]
    loader.set_epoch(0)
    next(iter(loader))
    loader.set_epoch(2)
    assert [plain(batch) for batch in loader] == epochs[2]


def test_set_epoch_after_a_load_keeps_the_place_in_its_epoch(make: MakeData) -> None:
    """The usual loop says set_epoch(first_epoch) once more after loading."""
    out = make()
    loader = PackedLoader(out, rows_per_batch=3)
    loader.set_epoch(4)
    whole = [plain(batch) for batch in loader]
    loader.set_epoch(4)
    _, state = stopped(loader, 2)
    resumed = PackedLoader(out, rows_per_batch=3)
    resumed.load_state_dict(state)
    resumed.set_epoch(4)
    assert [plain(batch) for batch in resumed] == whole[2:]


# --- several data sets, and accumulating by tokens -------------------------------------------------------------------


@pytest.fixture
def mixture(make: MakeData) -> dict[Path, float]:
    return {make("--format", "arrow"): 0.7, make("--strategy", "none", documents=60): 0.3}


def test_mixture(mixture: dict[Path, float]) -> None:
    """By tokens, each row at most once, until one set ends; the same again; each epoch another order."""
    loader = PackedLoader(mixture, rows_per_batch=1)
    epochs = [[plain(batch) for batch in loader] for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert [plain(batch) for batch in PackedLoader(mixture, rows_per_batch=1)] == epochs[0]
    rows = [
        {tuple(row["input_ids"].tolist()): number for number, row in enumerate(reader.PackedDataset(out))}
        for out in mixture
    ]
    for epoch in epochs:
        clocks, seen = [0.0, 0.0], []
        for batch in epoch:
            ids = tuple(batch["input_ids"])
            source = 0 if ids in rows[0] else 1
            seen.append((source, rows[source][ids]))
            clocks[source] += len(ids) / list(mixture.values())[source]
            assert abs(clocks[0] - clocks[1]) <= MAX_LENGTH / 0.3
        assert len(set(seen)) == len(seen)
        assert any(sum(source == i for source, _ in seen) == len(rows[i]) for i in range(2))


def test_mixture_with_workers_ranks_and_a_resume(mixture: dict[Path, float]) -> None:
    whole = [plain(batch) for batch in PackedLoader(mixture, rows_per_batch=2)]
    assert [plain(batch) for batch in PackedLoader(mixture, rows_per_batch=2, **loader_options(2))] == whole
    everything_mixed = sorted(on_all_ranks(mixture, 1, None, None, rows_per_batch=2)[0])
    for balance in (None, "attention"):
        seen, state = on_all_ranks(mixture, 2, None, 5, rows_per_batch=2, balance=balance)
        seen += on_all_ranks(mixture, 3, state, None, rows_per_batch=1)[0]
        assert sorted(seen) == everything_mixed
    other = dict(zip(mixture, (0.5, 0.5), strict=True))
    with pytest.raises(DatasetError, match="another data set"):
        PackedLoader(other, rows_per_batch=2).load_state_dict(state)


def test_mixture_of_two_conventions_needs_a_choice(make: MakeData) -> None:
    sources = {make(): 1.0, make("--labels", "shifted", "--strategy", "none"): 1.0}
    with pytest.raises(UsageError, match="choose one with labels="):
        PackedLoader(sources, rows_per_batch=1)
    for labels in ("aligned", "shifted"):
        for batch in PackedLoader(sources, rows_per_batch=2, labels=labels):
            first = batch["cu_seqlens"][:-1].tolist()
            assert labels == "shifted" or set(batch["labels"][first].tolist()) == {IGNORED}


@pytest.mark.parametrize("ranks", [1, 2])
def test_tokens_per_step(make: MakeData, ranks: int) -> None:
    """All ranks say the same, when together they have had so many tokens, and at the epoch's end."""
    out = make()
    all_ranks = [
        list(PackedLoader(out, rows_per_batch=1, rank=rank, world_size=ranks, tokens_per_step=100))
        for rank in range(ranks)
    ]
    held = 0
    for step in zip(*all_ranks, strict=True):
        flags = {batch["last_in_step"] for batch in step}
        assert len(flags) == 1
        before = held
        held += sum(len(batch["input_ids"]) for batch in step if batch["loss_tokens"])
        if step[0]["last_in_step"]:
            assert before < 100
            held = 0
        else:
            assert held < 100
    assert all_ranks[0][-1]["last_in_step"] is True
    assert "last_in_step" not in next(iter(PackedLoader(out, rows_per_batch=1)))


# --- DataLoaders of others -------------------------------------------------------------------------------------------


def test_packed_dataset_gives_tensors(make: MakeData) -> None:
    dataset, rows = PackedDataset(make()), reader.PackedDataset(make())
    assert len(dataset) == len(rows)
    for found, row in zip((dataset[i] for i in range(len(dataset))), rows, strict=True):
        assert {name: np.asarray(value).tolist() for name, value in found.items()} == {
            name: np.asarray(value).tolist() for name, value in row.items()
        }
        assert all(found[name].dtype == torch.int64 for name in ("input_ids", "labels", "position_ids"))
    with pytest.raises(IndexError):
        dataset[len(dataset)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_dataloader_gives_the_same_batches(make: MakeData, workers: int) -> None:
    """Order and disjointness; it cannot tell what was yielded, so no resume."""
    out = make()
    for options in ({}, {"layout": "transformers"}, {"segment_multiple": 4}, {"pad_to": 64}):
        plain_loader = DataLoader(
            PackedDataset(out), batch_size=3, collate_fn=partial(collate, **options), num_workers=workers
        )
        own = PackedLoader(out, rows_per_batch=3, shuffle=False, **options)
        found, expected = [plain(batch) for batch in plain_loader], [plain(batch) for batch in own]
        assert found[:-1] == expected[:-1]
        assert found[-1]["input_ids"] == expected[-1]["input_ids"]


def test_samplers_of_torch(make: MakeData) -> None:
    out = make("--format", "arrow")
    dataset = PackedDataset(out)
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(dataset, batch_size=3, sampler=RandomSampler(dataset, generator=generator), collate_fn=collate)
    assert sorted(taken(list(loader))) == everything(out)
    batches = BatchSampler(range(len(dataset)), 4, drop_last=False)
    loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate)
    assert sorted(taken(list(loader))) == everything(out)


def test_distributed_sampler(make: MakeData) -> None:
    """Disjoint but for the rows that it repeats itself to even out ranks."""
    out = make()
    dataset = PackedDataset(out)
    for epoch in range(2):
        ranks = []
        for rank in range(4):
            sampler = DistributedSampler(dataset, num_replicas=4, rank=rank, seed=1, drop_last=True)
            sampler.set_epoch(epoch)
            ranks.append(taken(list(DataLoader(dataset, batch_size=2, sampler=sampler, collate_fn=collate))))
        seen = [piece for of in ranks for piece in of]
        assert len(seen) == len(set(seen))
        assert set(seen) <= set(everything(out))
        assert len({piece[0] for piece in everything(out)} - {piece[0] for piece in seen}) < 4 * MAX_LENGTH


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_stateful_dataloader_goes_on_with_the_next_batch(make: MakeData, workers: int) -> None:
    """torchdata counts what it yielded, so a map-style data set resumes: under the same options, not under others."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    out = make()
    dataset = PackedDataset(out)

    def made() -> Any:
        sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(3))
        return stateful.StatefulDataLoader(
            dataset, batch_size=3, sampler=sampler, collate_fn=collate, num_workers=workers
        )

    whole = [plain(batch) for batch in made()]
    assert sorted(piece for batch in made() for piece in taken([batch])) == everything(out)
    for stop in (1, 4, len(whole) - 1):
        loader = made()
        iterator = iter(loader)
        before = [plain(next(iterator)) for _ in range(stop)]
        state = loader.state_dict()
        resumed = made()
        resumed.load_state_dict(state)
        assert before + [plain(batch) for batch in resumed] == whole
        del iterator


def test_collate_of_rows_that_were_pickled(make: MakeData) -> None:
    dataset = PackedDataset(make())
    rows = pickle.loads(pickle.dumps([dataset[i] for i in range(4)]))
    assert plain(collate(rows)) == plain(collate([dataset[i] for i in range(4)]))
    again = pickle.loads(pickle.dumps(dataset))
    assert plain(again[7]) == plain(dataset[7])


def test_collate_of_shifted_rows(make: MakeData) -> None:
    out = make("--strategy", "wrapped")
    shifted, aligned = PackedDataset(out, labels="shifted"), PackedDataset(out)
    rows = list(range(5))
    from_shifted = collate([shifted[i] for i in rows], "transformers", labels="shifted", shift_labels=True)
    from_aligned = collate([aligned[i] for i in rows], "transformers", shift_labels=True)
    assert from_shifted["shift_labels"].tolist() == from_aligned["shift_labels"].tolist()
