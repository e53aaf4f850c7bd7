"""manifest.json: what a finished data set is. Written last; the same data gives the same bytes.

It holds only what determines the data, never a fact of the run (time, machine, speed): those go to the report.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import PurePosixPath
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from packer.conversation import ChatCounts
from packer.errors import DatasetError, UsageError
from packer.packing.overlong import Losses
from packer.remote import Place
from packer.schema import FORMAT_NAME, FORMAT_VERSION, Layout, Skipped
from packer.shards import ShardFile
from packer.similarity.likeness import Similarity
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
    plan_effort: int | None  # of optimal
    rows_per_shard: int | None
    window: Windowing | None
    chat: dict[str, Any] | None  # how chats and pairs were rendered and masked; None where INPUT has none


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
class Manifest:
    """totals to shards, but for the records, are those of the split named first; validation: the split held out.
    command: `pack` or `window`; origin: of the inputs that are packer data sets; partitions: records of each;
    coverage: of windows, None for `pack`; similarity: None for all strategies but `semantic`."""

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
    lp_bound: int | None  # rows that no plan of the same blocks can go below, where the strategy is optimal
    efficiency: float
    packing_factor: float
    shards: list[ShardFile] = field(default_factory=list)
    validation: Split | None = None
    similarity: Similarity | None = None
    format: str = FORMAT_NAME
    format_version: int = FORMAT_VERSION

    @property
    def splits(self) -> list[Manifest]:
        """Each split as a data set of its own, the main one first."""
        return [self] if self.validation is None else [self, self.of(self.validation.split)]

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
        )

    def to_json(self) -> str:
        body = asdict(self)
        head = {key: body.pop(key) for key in ("format", "format_version")}
        return json.dumps(head | body, indent=1, ensure_ascii=False) + "\n"


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
    if body.get("format_version") != FORMAT_VERSION:
        raise DatasetError(
            f"{path} has format version {body.get('format_version')}; this packer reads version {FORMAT_VERSION}"
        )
    try:
        manifest: Manifest = typed(Manifest, body)
    except ValueError as error:
        raise DatasetError(f"{path} is damaged: {error}") from error
    for shard in manifest.shards + (manifest.validation.shards if manifest.validation else []):
        parts = PurePosixPath(shard.path)
        if parts.is_absolute() or ".." in parts.parts:
            raise DatasetError(f"{path}: shard path {shard.path!r} leaves the data set")
    return manifest


def typed(kind: Any, value: Any, where: str = "") -> Any:
    """The value as its annotated type says: dataclasses are built from objects. Raises ValueError naming the place."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ValueError(f"{where or 'it'} does not have the keys {', '.join(hints)}")
        return kind(**{name: typed(hint, value[name], f"{where}.{name}".lstrip(".")) for name, hint in hints.items()})
    if origin is list and isinstance(value, list):
        return [typed(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: typed(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is UnionType:
        return None if value is None else typed(arguments[0], value, where)
    if kind is Any or (origin is Literal and value in arguments) or type(value) is kind:
        return value
    raise ValueError(f"{where} is {value!r}, not {getattr(kind, '__name__', kind)}")


def shard_name(split: str, index: int, count: int, extension: str) -> str:
    """train-00000-of-00012.parquet: the form by which `datasets` finds a split."""
    return f"{split}-{index:05d}-of-{count:05d}.{extension}"
