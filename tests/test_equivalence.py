"""Packed training is training document by document: the same loss and the same gradients, in float64.

The reference knows nothing of rows: it takes documents from the source, the slices of them that were placed from
`doc_ids` and `doc_starts`, and runs each slice alone through the model, with attention written out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch._dynamo.testing import CompileCounter  # noqa: E402

from packer.cli import main  # noqa: E402
from packer.torch import PackedDataset, PackedLoader, attention_kwargs, collate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")

ROOT = Path(__file__).parents[1]
VOCAB = 50
MAX_LENGTH = 32
STRATEGIES = ("bfd", "ffd", "first-fit", "wrapped", "none")
BATCH = 3  # rows
Batch = dict[str, Any]
Gradients = dict[str, Any]
Document = dict[str, list[int]]


def script(name: str) -> ModuleType:
    """A module of `scripts/`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # torch.compile looks it up
    spec.loader.exec_module(module)
    return module


gpt = script("train_varlen")


# Data


def documents(seed: int, *, longest: int = 3 * MAX_LENGTH, masked: bool = False) -> list[Document]:
    """Random ids of random lengths, with those at which things break."""
    rng = random.Random(seed)
    edges = [1, 1, 2, MAX_LENGTH - 1, MAX_LENGTH, MAX_LENGTH + 1, 2 * MAX_LENGTH, longest]
    lengths = [n for n in edges if n <= longest] + [rng.randint(1, 20) for _ in range(24)]
    rng.shuffle(lengths)
    result = [{"input_ids": [rng.randrange(VOCAB) for _ in range(length)]} for length in lengths]
    if masked:
        for document in result:
            document["loss_mask"] = [rng.randrange(2) for _ in document["input_ids"]]
            document["loss_mask"][-1] = 1
    return result


def write(path: Path, records: list[Document]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def pack(source: Path, out: Path, *options: str) -> Path:
    """Pad ids, EOS and the like have no part in it: ready-made ids need no tokenizer."""
    command = ["pack", str(source), "--out", str(out), "--max-length", str(MAX_LENGTH), "--quiet", *options]
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert not ended.value.code
    return out


@dataclass(frozen=True)
class Segment:
    """A slice of a document as it was placed; its ids, and for each the shifted label."""

    ids: list[int]
    shifted: list[int]

    @property
    def aligned(self) -> list[int]:
        """The same without what follows the slice: what the model shifts by itself."""
        return [*self.shifted[:-1], -100]


def rows_of(shard: Path) -> list[dict[str, Any]]:
    """Read without packer."""
    if shard.suffix == ".parquet":
        table = pq.read_table(shard)
    else:
        opened = pa.ipc.open_file if shard.read_bytes().startswith(b"ARROW1") else pa.ipc.open_stream
        table = opened(pa.memory_map(str(shard))).read_all()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def placed(out: Path, source: list[Document]) -> list[Segment]:
    """The slices in the shards, with ids and labels from the source."""
    result = []
    for row in chain(*(rows_of(path) for path in sorted((out / "data").iterdir()))):
        lengths = [stop - start for start, stop in pairwise(row["cu_seqlens"])]
        for number, start, length in zip(row["doc_ids"], row["doc_starts"], lengths, strict=True):
            ids = source[number]["input_ids"]
            mask = source[number].get("loss_mask", [1] * len(ids))
            labels = [token if trained else -100 for token, trained in zip(ids, mask, strict=True)]
            segment = slice(start, start + length)
            result.append(Segment(ids[segment], [*labels[1:], -100][segment]))
    return result


# The reference


def model(seed: int = 0, **size: int) -> Any:
    """In float64, random."""
    torch.manual_seed(seed)
    made = gpt.GPT(VOCAB, **{"dim": 16, "layers": 2, "heads": 2, **size}).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # so that attention is anything but even
    return made


def alone(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of one sequence, written out."""
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    later = torch.ones(len(q), len(q)).triu(1).bool()
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(later, -torch.inf).softmax(-1), v)


def one_by_one(cu_seqlens: Tensor) -> Callable[..., Tensor]:
    """Attention by a loop over sequences."""
    lengths = cu_seqlens.diff().tolist()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = zip(*(x.split(lengths) for x in (q, k, v)), strict=True)
        return torch.cat([alone(*part) for part in parts])

    return attend


def summed(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")


def gradients(net: Any, losses: Iterator[Tensor], tokens: int) -> tuple[float, Gradients]:
    """The mean loss, and its gradient by parameter."""
    net.zero_grad()
    total = 0.0
    for loss in losses:
        loss.backward()
        total += loss.item()
    return total / tokens, {name: parameter.grad / tokens for name, parameter in net.named_parameters()}


def expected(net: Any, segments: list[Segment], convention: str) -> tuple[int, float, Gradients]:
    """Trained tokens, loss and gradients of the segments, each alone."""
    labels = [getattr(segment, convention) for segment in segments]
    tokens = sum(label != -100 for label in chain(*labels))

    def losses() -> Iterator[Tensor]:
        for segment, wanted in zip(segments, labels, strict=True):
            ids = torch.tensor(segment.ids)
            yield summed(net(ids, torch.arange(len(ids)), alone), torch.tensor(wanted))

    return tokens, *gradients(net, losses(), tokens)


# Packed


def attend_by(kernel: str, batch: Batch) -> Callable[..., Tensor]:
    if kernel == "naive":
        return one_by_one(batch.get("cu_seqlens_padded", batch["cu_seqlens"]))
    found: Callable[..., Tensor] = gpt.attention(kernel, batch)
    return found


def loss_of(net: Any, batch: Batch, kernel: str, convention: str) -> Tensor:
    if convention == "shifted":
        loss: Tensor = gpt.summed_loss(net, batch, attend_by(kernel, batch))
        return loss
    logits = net(batch["input_ids"], batch["position_ids"], attend_by(kernel, batch))
    return summed(logits[:-1], batch["labels"][1:])  # the model shifts: over rows and documents, for those are masked


def of_rows(net: Any, out: Path, kernel: str, convention: str, **options: Any) -> tuple[int, float, Gradients]:
    """The same of an epoch of batches."""
    batches = list(PackedLoader(out, rows_per_batch=BATCH, labels=convention, **options))
    tokens = sum(batch["loss_tokens"] for batch in batches)
    return tokens, *gradients(net, (loss_of(net, batch, kernel, convention) for batch in batches), tokens)


def assert_same(found: tuple[int, float, Gradients], wanted: tuple[int, float, Gradients]) -> None:
    assert found[0] == wanted[0]
    assert found[1] == pytest.approx(wanted[1], rel=1e-12)
    for name, gradient in wanted[2].items():
        assert gradient.abs().max() > 1e-6, name
        torch.testing.assert_close(found[2][name], gradient, rtol=1e-9, atol=1e-12)


@dataclass
class Corpus:
    """Documents in a file, packed once for each set of options."""

    folder: Path
    records: dict[str, list[Document]] = field(default_factory=dict)

    def packed(self, name: str, *options: str) -> tuple[Path, list[Document]]:
        if name not in self.records:
            self.records[name] = documents(
                len(name), longest=MAX_LENGTH if name == "short" else 3 * MAX_LENGTH, masked=name == "masked"
            )
            write(self.folder / f"{name}.jsonl", self.records[name])
        out = self.folder / "-".join([name, *(option.strip("-") for option in options)])
        return (out if out.exists() else pack(self.folder / f"{name}.jsonl", out, *options)), self.records[name]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("convention", ["aligned", "shifted"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_train_like_their_segments(corpus: Corpus, strategy: str, convention: str) -> None:
    """Documents longer than a row among them: against the same slices."""
    out, source = corpus.packed("split", "--strategy", strategy)
    net = model()
    wanted = expected(net, placed(out, source), convention)
    for kernel in ("sdpa", "naive"):
        assert_same(of_rows(net, out, kernel, convention), wanted)


@pytest.mark.parametrize("convention", ["aligned", "shifted"])
@pytest.mark.parametrize("strategy", ["bfd", "none"])
def test_rows_of_whole_documents_train_like_the_source(corpus: Corpus, strategy: str, convention: str) -> None:
    """Here the reference does not even ask where documents were placed."""
    out, source = corpus.packed("short", "--strategy", strategy)
    net = model()
    whole = [Segment(ids, [*ids[1:], -100]) for ids in (document["input_ids"] for document in source)]
    assert_same(of_rows(net, out, "sdpa", convention), expected(net, whole, convention))


def test_a_cut_predicts_every_token_but_the_first_if_labels_are_shifted(corpus: Corpus) -> None:
    out, source = corpus.packed("split", "--strategy", "wrapped")
    segments = placed(out, source)
    cut = len(segments) - len(source)
    assert cut > 5
    of = {name: sum(label != -100 for s in segments for label in getattr(s, name)) for name in ("aligned", "shifted")}
    assert of["shifted"] == sum(len(document["input_ids"]) - 1 for document in source) == of["aligned"] + cut


@pytest.mark.parametrize("convention", ["aligned", "shifted"])
@pytest.mark.parametrize(
    "options",
    [
        ("--labels", "shifted"),
        ("--labels", "shifted", "--columns", "compact", "--format", "arrow"),
        ("--positions", "document"),
        ("--positions", "row", "--format", "arrow-stream"),
        ("--max-segments", "2"),
    ],
    ids=" ".join,
)
def test_layouts_on_disk_train_alike(corpus: Corpus, options: tuple[str, ...], convention: str) -> None:
    """Only how far apart positions are counts, so positions that do not restart train alike too."""
    out, source = corpus.packed("split", *options)
    net = model()
    assert_same(of_rows(net, out, "sdpa", convention), expected(net, placed(out, source), convention))


@pytest.mark.parametrize("convention", ["aligned", "shifted"])
@pytest.mark.parametrize("options", [(), ("--columns", "compact"), ("--overlong", "split")], ids=" ".join)
def test_loss_masks_train_alike(corpus: Corpus, options: tuple[str, ...], convention: str) -> None:
    out, source = corpus.packed("masked", *options)
    segments = placed(out, source)
    if "split" not in options:  # truncated: what follows is not predicted
        segments = [Segment(segment.ids, segment.aligned) for segment in segments]
    net = model()
    assert_same(of_rows(net, out, "sdpa", convention), expected(net, segments, convention))


PADDED: list[dict[str, Any]] = [
    {"pad_to": BATCH * MAX_LENGTH},
    {"pad_to": BATCH * MAX_LENGTH + 7},
    {"pad_to": BATCH * MAX_LENGTH + 40, "max_segments_to": 40, "pad_token_id": 3},
    {"segment_multiple": 4},
    {"segment_multiple": 8, "pad_to": 12 * MAX_LENGTH, "max_segments_to": 60},
]


@pytest.mark.parametrize("convention", ["aligned", "shifted"])
@pytest.mark.parametrize("shape", PADDED, ids=str)
def test_padding_changes_nothing(corpus: Corpus, shape: dict[str, Any], convention: str) -> None:
    out, source = corpus.packed("split")
    net = model()
    wanted = expected(net, placed(out, source), convention)
    for kernel in ("sdpa", "naive"):
        assert_same(of_rows(net, out, kernel, convention, **shape), wanted)


def test_padded_rows_of_one_document_train_alike(corpus: Corpus) -> None:
    """The baseline that packing is compared with."""
    out, source = corpus.packed("split", "--strategy", "none")
    net = model()
    wanted = expected(net, placed(out, source), "shifted")
    assert_same(of_rows(net, out, "sdpa", "shifted", layout="padded", pad_to_multiple_of=8), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [{}, PADDED[2], PADDED[3]], ids=str)
def test_flex_attention_gives_the_same_logits(corpus: Corpus, shape: dict[str, Any]) -> None:
    """Forward only: it has no backward on the CPU."""
    out, _ = corpus.packed("split")
    net = model()
    batch = next(iter(PackedLoader(out, rows_per_batch=BATCH, labels="shifted", **shape)))
    with torch.no_grad():
        found, wanted = (
            net(batch["input_ids"], batch["position_ids"], attend_by(kernel, batch)) for kernel in ("flex", "naive")
        )
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kernel", ["sdpa", "naive", pytest.param("flex", marks=pytest.mark.slow)])
def test_a_document_changes_nothing_in_its_neighbours(corpus: Corpus, kernel: str, dtype: Any) -> None:
    """Bit for bit."""
    out, _ = corpus.packed("split")
    net = model().to(dtype)
    batch = collate([PackedDataset(out)[index] for index in range(BATCH)])
    sequences = batch["seq_idx"].unique().tolist()
    assert len(sequences) > 5
    with torch.no_grad():
        attend = attend_by(kernel, batch)
        before = net(batch["input_ids"], batch["position_ids"], attend)
        for sequence in sequences:
            own = batch["seq_idx"] == sequence
            changed = torch.where(own, (batch["input_ids"] + 7) % VOCAB, batch["input_ids"])
            after = net(changed, batch["position_ids"], attend)
            assert torch.equal(after[~own], before[~own])
            assert not (after[own] == before[own]).all(-1).any()


# Several ranks, several batches a step


def together(batches: list[Batch]) -> Batch:
    """Batches end to end, as one."""
    result = {name: torch.cat([batch[name] for batch in batches]) for name in ("input_ids", "labels", "position_ids")}
    lengths = torch.cat([torch.zeros(1, dtype=torch.int64), *(batch["cu_seqlens"].diff() for batch in batches)])
    return {**result, "cu_seqlens": lengths.cumsum(0), "loss_tokens": sum(batch["loss_tokens"] for batch in batches)}


def optimizer_steps(loaders: list[PackedLoader]) -> Iterator[list[Batch]]:
    """The batches of all ranks for each step of the optimizer."""
    held: list[Batch] = []
    for batches in zip(*loaders, strict=True):
        held += batches
        assert len({batch.get("last_in_step", True) for batch in batches}) == 1
        if batches[0].get("last_in_step", True):
            yield held
            held = []
    assert not held


@pytest.mark.parametrize("tokens_per_step", [None, 150])
@pytest.mark.parametrize("balance", [None, "attention"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_and_accumulation_give_the_gradient_of_one_batch(
    corpus: Corpus, world_size: int, balance: str | None, tokens_per_step: int | None
) -> None:
    """Ranks add up what they sum, and divide by the trained tokens of them all. The last step has filler."""
    out, source = corpus.packed("split")
    net = model()
    loaders = [
        PackedLoader(
            out,
            rows_per_batch=2,
            rank=rank,
            world_size=world_size,
            labels="shifted",
            balance=balance,
            tokens_per_step=tokens_per_step,
        )
        for rank in range(world_size)
    ]
    trained = 0
    for batches in optimizer_steps(loaders):
        one = together(batches)
        tokens = one["loss_tokens"]
        wanted = (tokens, *gradients(net, iter([loss_of(net, one, "naive", "shifted")]), tokens))
        losses = (loss_of(net, batch, "sdpa", "shifted") for batch in batches)
        found = (sum(batch["loss_tokens"] for batch in batches), *gradients(net, losses, tokens))
        assert_same(found, wanted)
        trained += tokens
    assert trained == sum(len(document["input_ids"]) - 1 for document in source)


def test_two_ranks_take_what_one_takes(corpus: Corpus) -> None:
    """The steps of two ranks with two rows each are those of one with four, and so are their gradients."""
    out, _ = corpus.packed("split")
    net = model()
    ranks = [PackedLoader(out, rows_per_batch=2, rank=r, world_size=2, labels="shifted") for r in (0, 1)]
    single = PackedLoader(out, rows_per_batch=4, labels="shifted")
    assert len(ranks[0]) == len(ranks[1]) == len(single)
    for batches, one in zip(optimizer_steps(ranks), single, strict=True):
        tokens = one["loss_tokens"]
        wanted = (tokens, *gradients(net, iter([loss_of(net, one, "naive", "shifted")]), tokens))
        losses = (loss_of(net, batch, "sdpa", "shifted") for batch in batches)
        assert_same((sum(batch["loss_tokens"] for batch in batches), *gradients(net, losses, tokens)), wanted)


RANK = """
import importlib.util, sys
import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
path, out, *arguments = sys.argv[1:]
spec = importlib.util.spec_from_file_location("train_varlen", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
trainer = module.Trainer(module.parser().parse_args(arguments))
steps = [trainer.train_step() for _ in range(6)]
torch.save({"steps": steps, "model": trainer.model.state_dict()}, f"{out}-{trainer.rank}.pt")
if trainer.parallel:
    module.dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [(), ("--tokens-per-step", "300")], ids=["each", "accumulated"])
def test_two_processes_train_like_one(corpus: Corpus, tmp_path: Path, accumulate: tuple[str, ...]) -> None:
    """With gloo: the same losses and the same model after six steps, over the end of an epoch and its filler."""
    out, _ = corpus.packed("split")
    size = ("--dim", "16", "--heads", "2", "--lr", "0.01", *accumulate)
    code = [sys.executable, "-c", RANK, str(ROOT / "scripts" / "train_varlen.py")]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [subprocess.Popen([*code, str(tmp_path / "one"), str(out), "--rows", "6", *size])]
    for rank in ("0", "1"):
        env = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [*code, str(tmp_path / "two"), str(out), "--rows", "3", "--ddp", *size]
        started.append(subprocess.Popen(command, env={**os.environ, **env}))
    assert [process.wait(timeout=300) for process in started] == [0, 0, 0]
    one, *two = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("one-0", "two-0", "two-1"))
    assert two[0]["steps"] == two[1]["steps"]
    for rank in two:
        assert [tokens for _, tokens in rank["steps"]] == [tokens for _, tokens in one["steps"]]
        assert [loss for loss, _ in rank["steps"]] == pytest.approx([loss for loss, _ in one["steps"]], rel=1e-9)
        for name, weight in one["model"].items():
            torch.testing.assert_close(rank["model"][name], weight, rtol=1e-6, atol=1e-8)


# Compilation


@torch.library.custom_op("packer_tests::varlen", mutates_args=())
def varlen(q: Tensor, k: Tensor, v: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int) -> Tensor:
    """In place of a kernel that a CPU does not have: what `torch.compile` sees of it is the same."""
    assert torch.equal(cu_seq_q, cu_seq_k)
    assert cu_seq_q.diff().max() <= max_q == max_k
    return one_by_one(cu_seq_q)(q, k, v)


@varlen.register_fake
def _(q: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(q)


def compiled_over_an_epoch(out: Path, attend: str, **shape: Any) -> int:
    """How often the forward pass is compiled."""
    torch._dynamo.reset()
    counter = CompileCounter()
    net = model(layers=1)

    @torch.compile(backend=counter)
    def loss(batch: Batch) -> Tensor:
        def by_kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return varlen(q, k, v, **attention_kwargs(batch, api="torch"))

        found: Tensor = gpt.summed_loss(net, batch, by_kernel if attend == "varlen" else gpt.attention("sdpa", batch))
        return found

    with torch.no_grad():
        for batch in PackedLoader(out, rows_per_batch=BATCH, labels="shifted", **shape):
            plain = gpt.summed_loss(net, batch, attend_by("naive", batch))
            torch.testing.assert_close(loss(batch), plain, rtol=1e-9, atol=1e-9)
    return counter.frame_count


FIXED = {"pad_to": BATCH * MAX_LENGTH + 40, "max_segments_to": 40}


def test_fixed_shapes_compile_once(corpus: Corpus) -> None:
    out, _ = corpus.packed("split")
    assert compiled_over_an_epoch(out, "varlen", **FIXED) == 1


@pytest.mark.slow
def test_only_fixed_shapes_compile_once(corpus: Corpus) -> None:
    out, _ = corpus.packed("split")
    assert compiled_over_an_epoch(out, "sdpa", **FIXED) == 1
    assert compiled_over_an_epoch(out, "sdpa") > 1
    assert compiled_over_an_epoch(out, "varlen") > 1
