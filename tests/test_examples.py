"""The examples for other trainers: packed, they train like the documents one by one.

The reference gives each document of the source alone to the model, all of them in each step. The examples get the
packed rows of all of them as one batch, so after two steps losses and weights must be the same.
"""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from packer.cli import main

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
TOKENIZER = ROOT / "sample_data" / "tokenizer"
VOCAB = 60
STEPS = 2
RATE = 0.05
Trained = tuple[list[float], dict[str, Any]]


def example(name: str) -> ModuleType:
    """A module of `scripts/examples/`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model(attention: str = "sdpa") -> Any:
    """Small, random, and with weights so large that what a token attends to makes a difference."""
    made = example("transformers_model").tiny(VOCAB, attention)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
    return made


def sgd(net: Any) -> Any:
    return torch.optim.SGD(net.parameters(), lr=RATE)


@pytest.fixture(scope="module")
def documents() -> list[list[int]]:
    rng = random.Random(0)
    return [[rng.randrange(VOCAB) for _ in range(length)] for length in [1, 2, 24, 1, *rng.choices(range(3, 24), k=12)]]


@pytest.fixture
def pack(tmp_path: Path, documents: list[list[int]]) -> Callable[..., Path]:
    source = tmp_path / "ids.jsonl"
    source.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in documents))

    def packed(*options: str) -> Path:
        with pytest.raises(SystemExit) as ended:
            main(["pack", str(source), "--out", str(tmp_path / "out"), "--quiet", *options])
        assert not ended.value.code
        return tmp_path / "out"

    return packed


def one_by_one(net: Any, documents: list[list[int]]) -> Trained:
    optimizer = sgd(net)
    tokens = sum(len(ids) - 1 for ids in documents)
    losses = []
    for _ in range(STEPS):
        total = 0.0
        for ids in documents:
            alone = torch.tensor([ids])
            loss = net(input_ids=alone, labels=alone, use_cache=False, num_items_in_batch=tokens).loss
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, net.state_dict()


def assert_same(losses: list[float], net: Any, wanted: Trained, digits: float = 1e-5) -> None:
    assert losses == pytest.approx(wanted[0], rel=digits)
    assert wanted[0][1] != pytest.approx(wanted[0][0], rel=1e-2)  # a step makes a difference
    for name, weight in net.state_dict().items():
        torch.testing.assert_close(weight, wanted[1][name], rtol=1e-3, atol=1e-5)


def all_rows(out: Path, **options: Any) -> Any:
    """Batches of a loader that gives every row in one."""
    from packer.torch import PackedLoader

    return PackedLoader(out, rows_per_batch=1000, layout="transformers", **options)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_transformers_model(pack: Callable[..., Path], documents: list[list[int]], attention: str) -> None:
    loader = all_rows(pack("--max-length", "24"), shift_labels=True)
    assert len(loader) == 1
    net = model(attention)
    train = example("transformers_model").train
    losses = [loss for _ in range(STEPS) for loss in train(net, sgd(net), loader)]
    assert_same(losses, net, one_by_one(model(attention), documents))


def test_transformers_model_predicts_across_cuts(pack: Callable[..., Path], documents: list[list[int]]) -> None:
    """With `shift_labels`: documents cut in two have one label more than their parts."""
    loader = all_rows(pack("--max-length", "10"), shift_labels=True)
    batch = next(iter(loader))
    assert (batch["shift_labels"] != -100).sum() == sum(len(ids) - 1 for ids in documents)
    assert (batch["labels"] != -100).sum() < (batch["shift_labels"] != -100).sum()
    net = model()
    (loss,) = example("transformers_model").train(net, sgd(net), loader)
    logits = model()(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    wanted = torch.nn.functional.cross_entropy(logits[0], batch["shift_labels"][0], ignore_index=-100)
    assert loss == pytest.approx(wanted.item(), rel=1e-5)


def test_with_a_cache_the_model_does_not_keep_documents_apart(
    pack: Callable[..., Path], documents: list[list[int]]
) -> None:
    """Why the example says use_cache=False. Should this fail one day, that is no longer needed."""
    batch = next(iter(all_rows(pack("--max-length", "24"))))
    with torch.no_grad():
        apart, mixed = (model()(**batch, use_cache=cached).loss.item() for cached in (False, True))
    assert apart == pytest.approx(one_by_one(model(), documents)[0][0], rel=1e-5)
    assert mixed != pytest.approx(apart, rel=1e-3)


def options_of_training(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder / "trainer"),
        "max_steps": STEPS,
        "per_device_train_batch_size": 1000,
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "dataloader_pin_memory": False,
    }


def logged(trainer: Any) -> list[float]:
    return [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


def test_hf_trainer(pack: Callable[..., Path], documents: list[list[int]], tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    net = model()
    out = pack("--max-length", "24", "--format", "arrow", "--labels", "shifted")
    trainer = example("hf_trainer").trainer(net, out, **options_of_training(tmp_path))
    trainer.train()
    assert_same(logged(trainer), net, one_by_one(model(), documents), digits=1e-4)


def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(TOKENIZER)


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")  # TRL's own use of it
def test_trl_sft(pack: Callable[..., Path], documents: list[list[int]], tmp_path: Path) -> None:
    pytest.importorskip("trl")
    net = model()
    options = {**options_of_training(tmp_path), "cache": tmp_path / "cache"}
    trainer = example("trl_sft").trainer(net, tokenizer(), pack("--max-length", "24"), **options)
    trainer.train()
    assert_same(logged(trainer), net, one_by_one(model(), documents), digits=1e-4)


@pytest.mark.parametrize("options", [("--labels", "shifted"), ("--columns", "compact"), ("--boundaries", "row")])
def test_trl_is_not_given_rows_it_would_misread(
    pack: Callable[..., Path], tmp_path: Path, options: tuple[str, ...]
) -> None:
    pytest.importorskip("trl")
    with pytest.raises(ValueError, match="--labels aligned --boundaries document --columns full"):
        example("trl_sft").trainer(model(), tokenizer(), pack("--max-length", "24", *options), tmp_path)
