"""manifest.json: what a finished data set is. Written last; the same data gives the same bytes.

It holds only what determines the data, never a fact of the run (time, machine, speed): those go to the report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from packer.balancing import COSTS
from packer.conversation import ChatCounts
from packer.errors import DatasetError, UsageError
from packer.packing.overlong import Losses
from packer.remote import Place
from packer.schema import FORMAT_NAME, FORMAT_VERSION, FORMAT_VERSIONS, Layout, Skipped
from packer.shards import ShardFile
from packer.similarity.likeness import Similarity
from packer.typed import LATER, at_default, later_fields, typed
from packer.windowing import Coverage, Windowing

FILE = "manifest.json"
DATA = "data"


@dataclass(frozen=True)
class InputFile:
    """One input file: its path as the user named it, the ordinal of its first record, its records, their tokens.

    size, etag: of a file in a store, its bytes and what the store says of its content; the URL has no credentials."""

    path: str
    first_doc: int
    documents: int
    tokens: int
    commit: str | None = None  # of a hub data set
    size: int | None = None
    etag: str | None = None


@dataclass(frozen=True)
class Origin:
    """A packer data set among the inputs: its path; fingerprint, sha256 of its manifest; first_doc, the ordinal of its
    first record; renumbered: documents that had lost their middle are several records, so its ordinals are not kept;
    inputs and origin: what it was made from itself."""

    path: str
    fingerprint: str
    first_doc: int
    renumbered: bool
    inputs: list[InputFile]
    origin: list[Origin]


@dataclass(frozen=True)
class TokenizerFacts:
    """The tokenizer as named on the command line, the sha256 of its tokenizer.json, and what it put around texts.

    engine: "hf" or "fast", with its library's version; checked_documents: those that the reference encoded too, and
    differing_documents, always 0, those of them that had other ids."""

    source: str
    fingerprint: str
    vocab_size: int
    prefix: list[int]
    suffix: list[int]
    summary: str
    engine: str
    engine_version: str
    checked_documents: int = 0
    differing_documents: int = 0


@dataclass(frozen=True)
class Totals:
    """records = documents + skipped + empty. tokens: of all documents; placed_tokens: those of them in rows."""

    records: int = 0
    documents: int = 0
    tokens: int = 0
    skipped: int = 0
    empty: int = 0
    rows: int = 0
    segments: int = 0
    placed_tokens: int = 0
    placed_documents: int = 0
    split_documents: int = 0
    loss_tokens: int = 0
    attention_cost: int = 0
    max_seqlen: int = 0
    max_token_id: int = -1
    masked_documents: int = 0  # with a loss mask

    def __add__(self, other: Totals) -> Totals:
        """Sums of all counts, the larger of the two maxima."""
        both = {name: (getattr(self, name), getattr(other, name)) for name in asdict(self)}
        return Totals(**{name: max(pair) if name.startswith("max_") else sum(pair) for name, pair in both.items()})


@dataclass(frozen=True)
class Options:
    """The options that determine the data and have no place of their own. read: `packer.corpus.ReadOptions` by name."""

    read: dict[str, Any]
    bos: bool | None
    eos: bool | None
    eos_token: str | None
    special_in_text: str | None
    strategy: str
    overlong: str | None
    min_tokens: int
    max_segments: int | None
    segment_multiple: int
    order: str
    block_tokens: int
    rows_per_shard: int | None
    window: Windowing | None
    chat: dict[str, Any] | None  # how chats and pairs were rendered and masked; None where INPUT has none
    gaps: str | None = field(default=None, metadata=LATER)  # what fills the longer rows of several lengths
    equalize: str | None = field(default=None, metadata=LATER)  # what is alike in rows
    plan_effort: int | None = field(default=None, metadata=LATER)  # of optimal


@dataclass(frozen=True)
class LengthGroup:
    """Rows of at most max_length tokens, and longer than the group before can hold: the next `shards` shards."""

    max_length: int
    shards: int
    rows: int
    tokens: int
    lower_bound: int
    efficiency: float


@dataclass(frozen=True)
class BalanceFacts:
    """What `--order balanced --world-size` made: world_size batches of rows_per_batch rows a step, as they lie; cost:
    what is balanced, flops: for a token and a unit of squared length; steps: full ones; of these the costliest rank's
    work over the mean, `shuffled` those of as many steps at random. None without a full step."""

    world_size: int
    rows_per_batch: int
    cost: str
    flops: list[float] | None
    steps: int
    mean: float | None
    p95: float | None
    shuffled_mean: float | None
    shuffled_p95: float | None

    def __post_init__(self) -> None:
        sized = self.world_size > 0 and self.rows_per_batch > 0 and self.cost in COSTS
        priced = (self.cost == "flops") == (self.flops is not None) and len(self.flops or [0, 0]) == 2
        figures = {one is None for one in (self.mean, self.p95, self.shuffled_mean, self.shuffled_p95)}
        if not sized or not priced or figures != {self.steps == 0}:
            raise ValueError("balance does not say of which steps, or what was balanced in them")


@dataclass(frozen=True)
class Split:
    """Documents held out by `--validation`: `ratio` of them, by content, one a row, in the order of the input. Its
    totals have neither records nor what is counted with them, for that is counted once, in the main split's."""

    split: str
    ratio: float
    totals: Totals
    losses: Losses
    lower_bound: int
    efficiency: float
    packing_factor: float
    shards: list[ShardFile]


@dataclass(frozen=True)
class Epoch:
    """A further packing of the documents of the main split, in shards of its own. Its totals have neither records nor
    what is counted with them."""

    split: str  # in the names of its files
    totals: Totals
    lower_bound: int
    efficiency: float
    packing_factor: float
    groups: list[LengthGroup]
    balance: BalanceFacts | None
    shards: list[ShardFile]


@dataclass(frozen=True)
class Manifest:
    """totals to shards, but for the records, are those of the split named first; validation: the split held out.
    command: `pack` or `window`; origin: of the inputs that are packer data sets; partitions: records of each;
    coverage: of windows, None for `pack`; groups: of the shards by row length, none where there is one length;
    further_epochs: other packings of the same documents, the first is the main split itself; lp_bound: rows that no
    plan of the same blocks can go below, where the strategy is optimal; similarity: where it is semantic."""

    command: str
    split: str
    file_format: str
    compression: str
    layout: Layout
    max_length: int
    seed: int
    options: Options
    versions: dict[str, str]
    tokenizer: TokenizerFacts | None
    inputs: list[InputFile]
    origin: list[Origin]
    partitions: list[int]
    totals: Totals
    losses: Losses
    chats: ChatCounts | None  # None where INPUT has none
    coverage: Coverage | None
    skipped_records: list[Skipped]
    lower_bound: int
    efficiency: float
    packing_factor: float
    shards: list[ShardFile] = field(default_factory=list)
    validation: Split | None = None
    format: str = FORMAT_NAME
    format_version: int = FORMAT_VERSION
    groups: list[LengthGroup] = field(default_factory=list, metadata=LATER)
    balance: BalanceFacts | None = field(default=None, metadata=LATER)
    further_epochs: list[Epoch] = field(default_factory=list, metadata=LATER)
    lp_bound: int | None = field(default=None, metadata=LATER)
    similarity: Similarity | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        older = all(len(at_default(of)) == len(later_fields(of)) for of in (self, self.options))
        object.__setattr__(self, "format_version", FORMAT_VERSION if older else FORMAT_VERSIONS[-1])

    @property
    def splits(self) -> list[Manifest]:
        """Each split as a data set of its own, the main one first, with its first packing."""
        return [self] if self.validation is None else [self, self.of(self.validation.split)]

    @property
    def epochs(self) -> list[Manifest]:
        """Each packing of this split as a data set of its own."""
        return [self.at(epoch) for epoch in range(1 + len(self.further_epochs))]

    @property
    def parts(self) -> list[Manifest]:
        """Each packing of each split as a data set of its own."""
        return self.epochs + self.splits[1:]

    @property
    def all_shards(self) -> list[ShardFile]:
        return [shard for part in self.parts for shard in part.shards]

    @property
    def by_length(self) -> list[Manifest]:
        """The rows of each length, with their shards and `max_length`; all else is that of the whole."""
        views, first = [], 0
        for group in self.groups:
            shards = self.shards[first : first + group.shards]
            views.append(replace(self, max_length=group.max_length, shards=shards, groups=[]))
            first += group.shards
        return views or [self]

    def at(self, epoch: int) -> Manifest:
        """The packing that an epoch reads, modulo their number."""
        index = epoch % (1 + len(self.further_epochs))
        if not index:
            return replace(self, further_epochs=[]) if self.further_epochs else self
        own = self.further_epochs[index - 1]
        counted = {name: getattr(self.totals, name) for name in ("records", "skipped", "empty")}
        return replace(
            self,
            split=own.split,
            totals=replace(own.totals, **counted),
            **{name: getattr(own, name) for name in _MEASURED},
            further_epochs=[],
        )

    @property
    def whole(self) -> Totals:
        """Totals over all splits."""
        return self.totals if self.validation is None else self.totals + self.validation.totals

    def of(self, split: str | None) -> Manifest:
        """One split as a data set of its own (None: the main one), its documents counted over the whole input."""
        held = self.validation
        if split is None or split == self.split:
            return self
        if held is None or split != held.split:
            known = self.split if held is None else f"{self.split} and {held.split}"
            raise UsageError(f"there is no split {split}; the data set has {known}")
        return replace(
            self,
            split=held.split,
            options=replace(self.options, strategy="none", order="plan", max_segments=None, plan_effort=None),
            totals=replace(held.totals, records=self.totals.records),
            losses=held.losses,
            lower_bound=held.lower_bound,
            lp_bound=None,
            efficiency=held.efficiency,
            packing_factor=held.packing_factor,
            shards=held.shards,
            validation=None,
            similarity=None,
            groups=[],
            balance=None,
            further_epochs=[],
        )

    def renamed(self, paths: Mapping[str, str]) -> Manifest:
        """The same with other names of some shards."""

        def named(shards: list[ShardFile]) -> list[ShardFile]:
            return [replace(one, path=paths.get(one.path, one.path)) for one in shards]

        held = self.validation and replace(self.validation, shards=named(self.validation.shards))
        further = [replace(one, shards=named(one.shards)) for one in self.further_epochs]
        return replace(self, shards=named(self.shards), validation=held, further_epochs=further)

    def to_json(self) -> str:
        body = asdict(self)
        for of, values in ((self, body), (self.options, body["options"])):
            for one in at_default(of):
                del values[one]
        head = {key: body.pop(key) for key in ("format", "format_version")}
        return json.dumps(head | body, indent=1, ensure_ascii=False) + "\n"


_MEASURED = ("lower_bound", "efficiency", "packing_factor", "groups", "balance", "shards")  # of an epoch by itself


def load(out: Place) -> Manifest:
    """Reads and checks OUT/manifest.json."""
    path = out / FILE
    if not path.exists():
        raise DatasetError(f"{out} is no packer data set: it has no {FILE} (it is written last, when a run ends)")
    return load_file(path)


def load_file(path: Place) -> Manifest:
    """Reads a manifest; DatasetError where it is not one, or a value in it is not of its type."""
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT_NAME:
        raise DatasetError(f'{path} is not packer\'s: it has no "format": "{FORMAT_NAME}"')
    if body.get("format_version") not in FORMAT_VERSIONS:
        known = " and ".join(map(str, FORMAT_VERSIONS))
        raise DatasetError(f"{path} has format version {body.get('format_version')}; this packer reads version {known}")
    try:
        manifest: Manifest = typed(Manifest, body)
    except ValueError as error:
        raise DatasetError(f"{path} is damaged: {error}") from error
    if any(sum(group.shards for group in part.groups) != len(part.shards) for part in manifest.parts if part.groups):
        raise DatasetError(f"{path} is damaged: its groups of row lengths have other shards than are listed")
    lengths = [[group.max_length for group in part.groups] for part in manifest.parts if part.groups]
    if any(one[0] < 1 or one != sorted({*one}) or one[-1] != manifest.max_length for one in lengths):
        raise DatasetError(f"{path} is damaged: its row lengths do not rise from 1 or more to max_length")
    for shard in manifest.all_shards:
        parts = PurePosixPath(shard.path)
        if parts.is_absolute() or ".." in parts.parts:
            raise DatasetError(f"{path}: shard path {shard.path!r} leaves the data set")
    return manifest


def shard_name(split: str, index: int, count: int, extension: str) -> str:
    """train-00000-of-00012.parquet: the form by which `datasets` finds a split."""
    return f"{split}-{index:05d}-of-{count:05d}.{extension}"
