"""`scripts/train_varlen.py` as a command: it learns, goes on from a checkpoint, names its kernel, runs on two ranks."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from packer.cli import main

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "train_varlen.py"
SMALL = ("--rows", "2", "--dim", "32", "--layers", "1", "--heads", "2", "--lr", "0.01")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def pack(out: Path, *options: str) -> Path:
    """Ready-made ids of the sample data."""
    command = [
        "pack",
        str(ROOT / "sample_data" / "token_ids.jsonl"),
        "--out",
        str(out),
        "--max-length",
        "64",
        "--quiet",
    ]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--limit", "40", *options])
    assert not ended.value.code
    return out


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("packed") / "out")


def run(*arguments: object, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """In a process of its own, where a warning is an error as it is here."""
    command = [sys.executable, "-W", "error", *launcher, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


def trained(*arguments: object, launcher: tuple[str, ...] = ()) -> str:
    done = run(*SMALL, *arguments, launcher=launcher)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(printed: str) -> dict[int, float]:
    """By step."""
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+)  loss ([\d.]+)  ", printed, re.MULTILINE)}


def test_the_loss_falls_and_the_profile_names_the_kernel(data: Path) -> None:
    """The name comes from what the profiler saw: PyTorch's fused attention for CPUs."""
    printed = trained(data, "--steps", 12, "--profile")
    found = losses(printed)
    assert list(found) == list(range(1, 13))
    assert found[12] < found[1] - 0.5
    assert "attention sdpa on cpu, 1 ranks, from step 0" in printed
    assert re.search(r"^ran aten::_scaled_dot_product_flash_attention_for_cpu, 1 times$", printed, re.MULTILINE)
    assert re.search(r"^[\d,]+ trained tokens/s$", printed, re.MULTILINE)


def test_a_resumed_run_goes_on_as_if_never_stopped(data: Path, tmp_path: Path) -> None:
    """In the middle of an epoch, between steps that gather several batches; the rest in a new process."""
    module = script()
    arguments = [str(data), *SMALL, "--tokens-per-step", "200"]
    checkpoint = ["--checkpoint", str(tmp_path / "state.pt")]
    whole = module.train(module.parser().parse_args([*arguments, "--steps", "7"]))
    first = module.train(module.parser().parse_args([*arguments, "--steps", "4", *checkpoint]))
    assert first == whole[:4]
    rest = losses(trained(data, "--tokens-per-step", 200, "--steps", 7, *checkpoint))
    assert rest == pytest.approx(dict(zip((5, 6, 7), whole[4:], strict=True)), abs=2e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


@pytest.mark.slow
def test_a_resumed_run_goes_on_in_later_epochs(data: Path, tmp_path: Path) -> None:
    """Stopped after each step, over two epochs' ends."""
    module = script()
    arguments = [str(data), *SMALL, "--rows", "16", "--dim", "16"]
    epoch = len(module.PackedLoader(data, rows_per_batch=16))
    whole = module.train(module.parser().parse_args([*arguments, "--steps", str(2 * epoch + 2)]))
    for stop in range(1, 2 * epoch + 2):
        path = tmp_path / f"{stop}.pt"
        first, rest = (
            module.train(module.parser().parse_args([*arguments, "--steps", str(steps), "--checkpoint", str(path)]))
            for steps in (stop, 2 * epoch + 2)
        )
        assert [*first, *rest] == whole


@pytest.mark.slow
def test_a_checkpoint_of_other_data_is_refused(data: Path, tmp_path: Path) -> None:
    other = pack(tmp_path / "other", "--seed", "1")
    trained(data, "--steps", 1, "--checkpoint", tmp_path / "state.pt")
    done = run(other, "--steps", 2, "--checkpoint", tmp_path / "state.pt", *SMALL)
    assert done.returncode
    assert "another data set" in done.stderr


@pytest.mark.slow
def test_two_ranks_train_like_one(data: Path) -> None:
    """Over the end of an epoch, where a rank may get filler."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    steps = ("--steps", 12)
    two = trained(data, *steps, "--ddp", launcher=launcher)
    assert "2 ranks" in two
    assert losses(two) == pytest.approx(losses(trained(data, *steps, "--rows", 4)), rel=1e-4)


@pytest.mark.slow
def test_padded_rows_of_one_document(tmp_path: Path) -> None:
    printed = trained(pack(tmp_path / "out", "--strategy", "none"), "--layout", "padded", "--steps", 8)
    found = losses(printed)
    assert found[8] < found[1]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_varlen", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kernels_that_need_a_gpu_are_refused_without_one(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for kernel in ("flash_attn", "torch", "flex"):
        with pytest.raises(SystemExit, match="trains on a GPU only"):
            module.train(module.parser().parse_args([str(data), "--attention", kernel]))


@pytest.mark.parametrize(
    ("device", "capability", "installed", "expected"),
    [
        ("cpu", None, False, "sdpa"),
        ("cuda", (7, 5), True, "flex"),
        ("cuda", (8, 0), False, "torch"),
        ("cuda", (9, 0), True, "flash_attn"),
    ],
)
def test_the_kernel_is_what_the_machine_has(
    monkeypatch: pytest.MonkeyPatch, device: str, capability: Any, installed: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace() if installed else None)
    assert script().best_kernel(torch.device(device)) == expected


@pytest.mark.parametrize("kernel", ["flash_attn", "torch"])
def test_varlen_kernels_are_called_as_they_are_declared(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """Arguments bind to the real signature of PyTorch's kernel; flash-attn's is written down here."""
    import inspect

    from torch.nn.attention.varlen import varlen_attn

    def flash_attn_varlen_func(  # as flash-attn 2.8 declares it, up to what is used
        q: Any,
        k: Any,
        v: Any,
        cu_seqlens_q: Any,
        cu_seqlens_k: Any,
        max_seqlen_q: Any,
        max_seqlen_k: Any,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
    ) -> None: ...

    fake = SimpleNamespace(flash_attn_varlen_func=flash_attn_varlen_func)
    monkeypatch.setitem(sys.modules, "flash_attn", fake)
    ends = torch.tensor([0, 3, 5], dtype=torch.int32)
    attend = script().attention(kernel, {"cu_seqlens": ends, "max_seqlen": 3})
    declared = flash_attn_varlen_func if kernel == "flash_attn" else varlen_attn
    bound = inspect.signature(declared).bind("q", "k", "v", **attend.keywords).arguments
    assert list(bound.values())[3:7] == [ends, ends, 3, 3]
    assert bound.get("causal") or bound["window_size"] == (-1, 0)
