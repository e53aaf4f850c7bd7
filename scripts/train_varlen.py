"""Trains a small GPT from packed shards: what a training loop has to do with them, and nothing else.

    packer pack TEXTS --tokenizer T --max-length 1024 --out OUT
    python scripts/train_varlen.py OUT --steps 100 --profile
    torchrun --nproc-per-node 2 scripts/train_varlen.py OUT --steps 100 --ddp

Batches are flat: (T,) tokens, no padding. `position_ids` turn queries and keys (RoPE), and the attention kernel is told
where documents begin: flash-attn's, else PyTorch's varlen kernel, else FlexAttention with a document mask, else SDPA
with a block-diagonal mask, which is what a CPU has. The loss is summed and divided by the trained tokens of all ranks
and batches of the step, so it does not matter how documents were dealt to them.

`--layout padded` trains from rows of one document (`pack --strategy none`) the ordinary way, to compare with.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from packer import manifest
from packer.torch import PackedLoader, attention_kwargs

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # queries, keys, values (T, heads, head_dim) to the same
KERNELS = ("flash_attn", "torch", "flex", "sdpa")
PROFILED_STEP = 2  # the second: the first compiles and warms up. Those after it are timed.
ATTENTION = re.compile(r"attention|attn|flash|fmha", re.IGNORECASE)

# Attention


def best_kernel(device: torch.device) -> str:
    """The fastest that this machine has."""
    if device.type != "cuda":
        return "sdpa"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "flex"
    try:
        import flash_attn  # noqa: F401
    except ImportError:
        return "torch"
    return "flash_attn"


def attention(kernel: str, batch: dict[str, Any]) -> Attend:
    """Causal attention within each sequence of the batch."""
    if kernel == "flash_attn":
        from flash_attn import flash_attn_varlen_func

        return partial(flash_attn_varlen_func, causal=True, **attention_kwargs(batch))
    if kernel == "torch":
        from torch.nn.attention.varlen import varlen_attn

        causal: Any = partial(varlen_attn, window_size=(-1, 0), **attention_kwargs(batch, api="torch"))
        return causal  # type: ignore[no-any-return]
    if "attention_mask" in batch:  # layout padded: what pads comes last, where nothing real looks
        return partial(with_sdpa, is_causal=True)
    if kernel == "flex":
        return partial(with_flex, block_mask=document_mask(batch["seq_idx"]))
    same = batch["seq_idx"][:, None] == batch["seq_idx"][None, :]
    return partial(with_sdpa, attn_mask=same.tril())


def with_sdpa(q: Tensor, k: Tensor, v: Tensor, **where: Any) -> Tensor:
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))  # (..., heads, T, head_dim)
    flat = q.dim() == 3
    if flat:  # the fused kernels want a batch
        q, k, v = q[None], k[None], v[None]
    out = F.scaled_dot_product_attention(q, k, v, **where).transpose(-3, -2)
    return out[0] if flat else out


def with_flex(q: Tensor, k: Tensor, v: Tensor, block_mask: Any) -> Tensor:
    out: Tensor = flex(q.is_cuda)(*(x.transpose(0, 1)[None] for x in (q, k, v)), block_mask=block_mask)
    return out[0].transpose(0, 1)


def document_mask(seq_idx: Tensor) -> Any:
    def within(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (seq_idx[query] == seq_idx[key]) & (query >= key)

    return create_block_mask(within, None, None, len(seq_idx), len(seq_idx), device=seq_idx.device)


@cache
def flex(compiled: bool) -> Any:
    return torch.compile(flex_attention) if compiled else flex_attention


# The model


def rotations(position_ids: Tensor, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of RoPE: (..., T, 1, head_dim / 2)."""
    dtype = torch.promote_types(dtype, torch.float32)
    exponents = torch.arange(0, head_dim, 2, device=position_ids.device, dtype=dtype) / head_dim
    angles = (position_ids[..., None] * 10000.0**-exponents)[..., None, :]
    return angles.cos(), angles.sin()


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate_up, self.down = nn.Linear(dim, 8 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        x = x + self.out(attend(turned(q, cos, sin), turned(k, cos, sin), v).flatten(-2))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        out: Tensor = self.down(F.silu(gate) * up)
        return x + out


class GPT(nn.Module):
    """RMSNorm, RoPE, SwiGLU. It knows nothing of documents but their positions: `attend` keeps them apart."""

    def __init__(self, vocab_size: int, dim: int = 128, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.head_dim = dim // heads
        self.embed = nn.Embedding(vocab_size, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, input_ids: Tensor, position_ids: Tensor, attend: Attend) -> Tensor:
        x = self.embed(input_ids)
        cos, sin = rotations(position_ids, self.head_dim, x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin, attend)
        logits: Tensor = self.head(self.norm(x))
        return logits


def summed_loss(model: nn.Module, batch: dict[str, Any], attend: Attend) -> Tensor:
    """The loss of all trained tokens of a batch with shifted labels. Zero for filler, which has none."""
    logits = model(batch["input_ids"], batch["position_ids"], attend)
    return F.cross_entropy(logits.flatten(0, -2), batch["labels"].flatten(), ignore_index=-100, reduction="sum")


# Training


class Trainer:
    """One rank's model, optimizer and loader, and the steps they have taken."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.rank, self.world = 0, 1
        if args.ddp:
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cpu")
        if torch.cuda.is_available():
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(self.device)
        self.kernel = best_kernel(self.device) if args.attention == "auto" else args.attention
        if self.device.type == "cpu" and self.kernel != "sdpa":
            raise SystemExit(f"--attention {self.kernel} trains on a GPU only; sdpa does on a CPU")
        if args.layout == "padded":
            self.kernel = "sdpa"
        self.loader = PackedLoader(
            args.data,
            rows_per_batch=args.rows,
            rank=self.rank,
            world_size=self.world,
            seed=args.seed,
            tokens_per_step=args.tokens_per_step,
            labels="shifted",  # the model need not shift, and the token after a cut is predicted too
            layout=args.layout,
            num_workers=args.workers,
            pin_memory=self.device.type == "cuda",
        )
        if not len(self.loader):
            raise SystemExit(f"{args.data} has no rows")
        torch.manual_seed(args.seed)
        vocab_size = manifest.load(args.data).totals.max_token_id + 1
        self.model: nn.Module = GPT(vocab_size, args.dim, args.layers, args.heads).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, betas=(0.9, 0.95))
        self.step = 0
        self.checkpoint: Path | None = args.checkpoint
        if self.checkpoint and self.checkpoint.exists():
            self.load(self.checkpoint)
        self.parallel = DistributedDataParallel(self.model) if args.ddp else None
        self.batches = self._endless()

    def _endless(self) -> Iterator[dict[str, Any]]:
        while True:
            for batch in self.loader:
                yield {
                    name: value.to(self.device, non_blocking=True) if isinstance(value, Tensor) else value
                    for name, value in batch.items()
                }

    def train_step(self) -> tuple[float, int]:
        """One step of the optimizer: the mean loss of its trained tokens on all ranks, and their number."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        last = False
        while not last:
            batch = next(self.batches)
            last = batch.get("last_in_step", True)
            with self._unsynced(last), torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
                loss = summed_loss(self.parallel or self.model, batch, attention(self.kernel, batch))
                loss.backward()  # type: ignore[no-untyped-call]
            sums += torch.tensor([loss.item(), batch["loss_tokens"]], device=self.device)
        if self.parallel:
            dist.all_reduce(sums)
        total, tokens = sums.tolist()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(self.world / max(tokens, 1))  # DDP has divided by the ranks
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return total / max(tokens, 1), int(tokens)

    def _unsynced(self, last: bool) -> AbstractContextManager[None]:
        return self.parallel.no_sync() if self.parallel and not last else nullcontext()

    def load(self, path: Path) -> None:
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        self.step = state["step"]

    def save(self, path: Path) -> None:
        """On rank 0: the others hold the same."""
        if self.rank == 0:
            parts: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "loader": self.loader}
            state = {name: part.state_dict() for name, part in parts.items()}
            unfinished = path.with_name(f"{path.name}.new")
            torch.save({**state, "step": self.step}, unfinished)
            unfinished.replace(path)

    def log(self, line: str) -> None:
        if self.rank == 0:
            print(line, flush=True)


def attention_events(events: Any) -> list[Any]:
    """What the profiler saw run as attention, the longest first: the GPU's kernels if there are any, else operators."""
    found = [event for event in events if ATTENTION.search(event.key)]
    on_device = [event for event in found if event.device_type.name == "CUDA"]
    return sorted(on_device or found, key=lambda e: -(e.self_device_time_total or e.self_cpu_time_total))


def train(args: argparse.Namespace) -> list[float]:
    """The loss of each step."""
    trainer = Trainer(args)
    trainer.log(f"attention {trainer.kernel} on {trainer.device.type}, {trainer.world} ranks, from step {trainer.step}")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if trainer.device.type == "cuda" else [])]
    losses: list[float] = []
    tokens, seconds = 0, 0.0
    while trainer.step < args.steps:
        profiled = args.profile and len(losses) + 1 == PROFILED_STEP
        with profile(activities=activities) if profiled else nullcontext() as recorded:
            start = perf_counter()
            loss, trained = trainer.train_step()
        losses.append(loss)
        if len(losses) > PROFILED_STEP:
            tokens, seconds = tokens + trained, seconds + perf_counter() - start
        trainer.log(f"step {trainer.step}  loss {loss:.6f}  tokens {trained}")
        if recorded:
            for event in attention_events(recorded.key_averages())[:3]:
                trainer.log(f"ran {event.key}, {event.count} times")
    if args.profile and seconds:
        trainer.log(f"{tokens / seconds:,.0f} trained tokens/s")
    if trainer.checkpoint:
        trainer.save(trainer.checkpoint)
    if args.ddp:
        dist.destroy_process_group()
    return losses


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    result.add_argument("data", type=Path, help="folder that packer pack wrote")
    result.add_argument("--steps", type=int, default=20, help="in all, those before a checkpoint included")
    result.add_argument("--rows", type=int, default=4, help="rows a batch on each rank")
    result.add_argument("--tokens-per-step", type=int, help="accumulate batches of all ranks to so many tokens")
    result.add_argument("--dim", type=int, default=128)
    result.add_argument("--layers", type=int, default=2)
    result.add_argument("--heads", type=int, default=4)
    result.add_argument("--lr", type=float, default=1e-3)
    result.add_argument("--seed", type=int, default=0)
    result.add_argument("--attention", choices=("auto", *KERNELS), default="auto")
    result.add_argument("--layout", choices=("varlen", "padded"), default="varlen")
    result.add_argument("--workers", type=int, default=0, help="processes that read ahead")
    result.add_argument("--checkpoint", type=Path, help="go on from it if it is there; written at the end")
    result.add_argument("--profile", action="store_true", help="say which kernel ran, and tokens a second")
    result.add_argument("--ddp", action="store_true", help="one rank of several, under torchrun")
    return result


if __name__ == "__main__":
    train(parser().parse_args())
