"""What a task asks of a cluster, and how many fit on it: figures only, nothing of Ray.

16 CPUs and 32 GB, 16 CPUs and 8 GB, a task needs 3 GB     ->  2 fit on the second node: 8 CPUs each, 4 at once
16 CPUs, 4 partitions                                      ->  4 CPUs each: the tokenizer has a thread on each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packer.errors import ExecutorError


@dataclass(frozen=True)
class Node:
    """A machine of the cluster. id: as the cluster calls it; address: for people; memory: bytes."""

    id: str
    address: str
    cpus: int
    memory: int


@dataclass(frozen=True)
class Request:
    """What one task asks for. memory: bytes, 0 where it is not known."""

    cpus: int
    memory: int

    def fits(self, node: Node) -> int:
        """How many run on that node at once."""
        by_memory = node.memory // self.memory if self.memory else node.cpus
        return min(node.cpus // self.cpus, by_memory)


def request(nodes: Sequence[Node], tasks: int, memory: int) -> Request:
    """For so many tasks that shall run at once, as far as there is room: CPUs that would stand idle, for want of memory
    or of tasks, go to the tokenizer's threads. Raises ExecutorError where no node can run a task."""
    one = Request(1, memory)
    able = [node for node in nodes if one.fits(node)]
    if not able:
        raise ExecutorError(
            f"no node of the cluster can run a partition, which asks for 1 CPU{_memory(memory)}: {_offers(nodes)}; "
            "start nodes that can, or lower --block-tokens for less memory"
        )
    crowded = max(-(-node.cpus // one.fits(node)) for node in able)
    spread = sum(node.cpus for node in able) // max(1, tasks)
    return Request(max(1, min(*(node.cpus for node in able), max(crowded, spread))), memory)


def slots(nodes: Sequence[Node], asked: Request) -> int:
    """How many tasks run at once."""
    return sum(asked.fits(node) for node in nodes)


def _memory(memory: int) -> str:
    return f" and {memory / 1e9:.1f} GB" if memory else ""


def _offers(nodes: Sequence[Node]) -> str:
    if not nodes:
        return "it has none that is alive"
    best = max(nodes, key=lambda node: (node.cpus > 0, node.memory))
    return f"of {len(nodes)}, {best.address} offers most, {best.cpus} CPUs and {best.memory / 1e9:.1f} GB"
