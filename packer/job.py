"""The nouns of staging: what determines the rows, and what became of a block and of a partition."""

from __future__ import annotations

from dataclasses import dataclass, field

from packer.chat import ChatOptions
from packer.conversation import ChatCounts
from packer.corpus import ReadOptions
from packer.manifest import Totals
from packer.packing import SIMILARITY_THRESHOLD, equalized
from packer.packing.equalized import Trade
from packer.packing.overlong import Losses
from packer.schema import Skipped
from packer.similarity.likeness import Likeness
from packer.windowing import Windowing


@dataclass(frozen=True)
class TokenizerOptions:
    source: str
    bos: bool | None = None
    eos: bool | None = None
    eos_token: str | None = None
    special_in_text: str = "parse"
    engine: str = "auto"  # or hf or fast: one of these once it has been chosen


@dataclass(frozen=True)
class Job:
    """What determines the rows, for every partition alike. Picklable."""

    read: ReadOptions
    tokenizer: TokenizerOptions | None
    strategy: str
    max_length: int
    overlong: str | None
    min_tokens: int
    max_segments: int | None
    seed: int
    order: str
    block_tokens: int
    window: Windowing | None = None
    segment_multiple: int = 1
    chat: ChatOptions | None = None  # None without a tokenizer
    validation: float | None = None
    lengths: tuple[int, ...] = ()  # several row lengths, rising, of which max_length is the last
    gaps: str = "fill"
    epochs: int = 1  # packings of the same documents
    equalize: str | None = None  # "attention": rows of like cost
    plan_effort: int | None = None  # of optimal; None: its default
    plan_seconds: float | None = None  # to plan a block: an error after them, and never another plan
    similarity_threshold: float = SIMILARITY_THRESHOLD  # of semantic

    @property
    def row_lengths(self) -> tuple[int, ...]:
        return self.lengths or (self.max_length,)

    @property
    def cut_later(self) -> bool:
        """Documents are staged whole, and rows cut from them when all partitions are done (see `packer.cutting`)."""
        return self.window is not None or self.strategy == "wrapped"


@dataclass(frozen=True)
class BlockReport:
    """A staged block. folder: relative to the partition's; rows: how many it holds (documents, if rows are cut
    later); masked: it says of each token whether it is trained; digests: of its files, by name; epoch, length: which
    packing and which row length it is of, from 0; lp_bound: rows that no plan of it can go below, where the strategy
    knows."""

    folder: str
    rows: int
    tokens: int
    masked: bool
    digests: dict[str, str] = field(default_factory=dict)
    epoch: int = 0
    length: int = 0
    lp_bound: int | None = None


@dataclass(frozen=True)
class Held:
    """What was staged, of a block or of a partition, or held out of it for validation: documents and tokens, losses,
    blocks of rows, what equalizing them gave, how like each other documents of a row are."""

    totals: Totals = field(default_factory=Totals)
    losses: Losses = field(default_factory=Losses)
    blocks: list[BlockReport] = field(default_factory=list)
    trades: list[Trade] = field(default_factory=list)
    likeness: Likeness = field(default_factory=Likeness)

    def __add__(self, other: Held) -> Held:
        return Held(
            self.totals + other.totals,
            self.losses + other.losses,
            self.blocks + other.blocks,
            equalized.summed(self.trades, other.trades),
            self.likeness + other.likeness,
        )


@dataclass(frozen=True)
class PartitionReport:
    """What became of a partition. records and tokens: by source slice; chats: what its chats and pairs came to;
    checked: documents that both engines encoded; sampling_seconds: what the reference took for these."""

    index: int
    records: list[int]
    tokens: list[int]
    totals: Totals
    losses: Losses
    skipped: list[Skipped]
    blocks: list[BlockReport] = field(default_factory=list)
    chats: ChatCounts = field(default_factory=ChatCounts)
    checked: int = 0
    sampling_seconds: float = 0.0
    held: Held = field(default_factory=Held)
    trades: list[Trade] = field(default_factory=list)
    likeness: Likeness = field(default_factory=Likeness)

    @property
    def all_blocks(self) -> list[BlockReport]:
        return self.blocks + self.held.blocks
