"""The columns of a row on disk, and the conventions that give them their meaning. docs/format.md is this in prose.

T tokens, A attention sequences, S segments a row; A = S unless the row is one attention sequence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, get_args

IGNORE_INDEX = -100  # a label that is not trained: the default ignore_index of torch's cross_entropy
FORMAT_NAME = "packer"
FORMAT_VERSION = 1  # of rows, and of manifests that need no later one
FORMAT_VERSIONS = (1, 2)  # of manifests; 2: several row lengths, balanced steps, several epochs
VALIDATION = "validation"  # the split of what `--validation` holds out

Labels = Literal["aligned", "shifted"]
Boundaries = Literal["document", "row"]
Positions = Literal["segment", "row", "document"]
Columns = Literal["full", "compact"]
Scope = Literal["document", "corpus"]  # what windows slide over
Tail = Literal["keep", "drop", "align"]  # what becomes of the tokens after the last window with all labels

SCOPES, TAILS = map(get_args, (Scope, Tail))
LABELS, BOUNDARIES, POSITIONS, COLUMNS = map(get_args, (Labels, Boundaries, Positions, Columns))
FORMATS = {"parquet": "parquet", "arrow": "arrow", "arrow-stream": "arrow"}  # name: file extension
COMPRESSIONS = ("zstd", "lz4", "none")


@dataclass(frozen=True)
class Layout:
    """The conventions of a data set. `masked`: some token is not trained, by a loss mask or `--mask-overlap`."""

    labels: Labels = "aligned"
    boundaries: Boundaries = "document"
    positions: Positions = "segment"
    columns: Columns = "full"
    masked: bool = False

    def as_metadata(self) -> dict[str, str]:
        return {name: str(value).lower() for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Column:
    """name, NumPy type of its numbers, and whether a row holds a list of them or one."""

    name: str
    dtype: Literal["int32", "int64"]
    is_list: bool


_ALL = (
    Column("input_ids", "int32", True),  # T
    Column("labels", "int32", True),  # T, ids or IGNORE_INDEX
    Column("loss_spans", "int32", True),  # compact and masked only: start and stop of each run of trained tokens
    Column("cu_seqlens", "int32", True),  # A + 1, from 0 to T
    Column("position_ids", "int32", True),  # T
    Column("seq_lengths", "int32", True),  # A, diff(cu_seqlens)
    Column("doc_ids", "int64", True),  # S, ordinal of the source document in the whole input
    Column("doc_starts", "int32", True),  # S, where in its document the segment begins
    Column("doc_lengths", "int32", True),  # S, tokens of the whole document, before truncation
    Column("next_tokens", "int32", True),  # S, shifted label of the segment's last position
    Column("num_tokens", "int32", False),  # T
    Column("loss_tokens", "int32", False),  # labels that are not IGNORE_INDEX
    Column("max_seqlen", "int32", False),  # longest attention sequence
    Column("attention_cost", "int64", False),  # sum of squared attention-sequence lengths
)
_DERIVED = {"labels", "position_ids", "seq_lengths"}  # what `compact` leaves out


def columns_of(layout: Layout) -> tuple[Column, ...]:
    """The columns that a data set of this layout has on disk, in order."""
    if layout.columns == "full":
        return tuple(c for c in _ALL if c.name != "loss_spans")
    return tuple(c for c in _ALL if c.name not in _DERIVED and (c.name != "loss_spans" or layout.masked))


@dataclass(frozen=True)
class Skipped:
    """A bad record that `--on-error skip` left out. `where` is its place in the file: "line 17", "row 4"."""

    path: str
    where: str
    reason: str
