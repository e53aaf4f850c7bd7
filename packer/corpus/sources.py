"""The nouns of reading: options, a source, a slice of one, a partition. All are frozen, picklable and hold no state."""

from __future__ import annotations

from dataclasses import dataclass

from packer.remote import is_url


@dataclass(frozen=True)
class ReadOptions:
    """What determines how documents are read; with the sources it decides every document and every partition.

    schema: "text", "input_ids", "messages", "prompt_completion", "alpaca", or None to detect it for each source
    text_field: the field that holds the text; implies schema "text"
    messages_field: the field that holds a chat's messages; implies schema "messages"
    prompt_field, completion_field: those of a prompt and its completion; imply schema "prompt_completion", and with
        schema "alpaca" stand for instruction and output
    split_text: a text file is one document ("file"), one a line ("line") or one a block of lines ("paragraph")
    on_error: a bad record stops the reading ("fail") or is counted and left out ("skip")
    max_record_bytes: a longer record is a bad record, and is never held in memory
    partition_bytes: size a partition aims at, in bytes as stored
    limit: records read of a partition, None for all
    allow_lossy: a packer data set that lost tokens is read all the same
    embedding_field, group_field: the fields of what documents are put together by (see `packer.corpus.traits`)
    """

    schema: str | None = None
    text_field: str | None = None
    messages_field: str | None = None
    prompt_field: str | None = None
    completion_field: str | None = None
    split_text: str = "file"
    on_error: str = "fail"
    max_record_bytes: int = 1 << 30
    partition_bytes: int = 256 << 20
    limit: int | None = None
    allow_lossy: bool = False
    embedding_field: str | None = None
    group_field: str | None = None


@dataclass(frozen=True)
class Schema:
    """Where a record's content is. kind: as in `ReadOptions`; field: its key or column ("" in a free-text file), the
    prompt's where there is one; completion: the key of the completion, "" where there is none."""

    kind: str
    field: str
    completion: str = ""

    @property
    def rendered(self) -> bool:
        """Whether the content has to be rendered before it is a text to tokenize."""
        return self.kind in ("messages", "prompt_completion", "alpaca")

    @property
    def fields(self) -> tuple[str, ...]:
        """The keys or columns that a record must have."""
        return (self.field, self.completion) if self.completion else (self.field,)


@dataclass(frozen=True)
class Table:
    """The documents of a packer data set, put together again in `folder` (see `packer.corpus.packed`): raw arrays.

    records: how many; masked: whether some, all or none ("no") of the documents have a loss mask; renumbered: they
    have other ordinals than in the data set
    """

    folder: str
    records: int
    masked: str
    renumbered: bool = False


@dataclass(frozen=True)
class Source:
    """One file, here or in a store, stdin, hub data set or packer data set.

    path: as shown to users: what they gave, below a folder `folder/relative`; a URL without credentials
    location: absolute path of the file, so that a worker may have another current directory ("" for stdin and
        the hub; of a packer data set its manifest), or its URL with all that the store needs: never to be shown
    format: "jsonl", "json", "parquet", "arrow", "csv", "tsv", "text", "stdin", "hub" or "packed"
    compression: None, "gzip", "bzip2", "xz" or "zstd"
    size: bytes as stored, 0 for stdin and hub
    schema: None until the first records are seen, which only stdin leaves to the reader
    commit: the hub's commit, for a data set from the hub
    modified: when a file of this machine was last changed, in ns
    stamp: of a file in a store, what changes with its content (see `packer.remote.Stat`)
    table: of a packer data set, once its documents have been put together
    """

    path: str
    location: str
    format: str
    compression: str | None
    size: int
    schema: Schema | None
    commit: str | None = None
    modified: int | None = None
    stamp: str | None = None
    table: Table | None = None

    @property
    def remote(self) -> bool:
        return is_url(self.location)

    @property
    def etag(self) -> str | None:
        """The store's own checksum or version of the content, where it has one."""
        return self.stamp.removeprefix("etag:") if self.stamp and self.stamp.startswith("etag:") else None


@dataclass(frozen=True)
class Slice:
    """[start, stop) of a source: bytes of JSON Lines and line-split text, row groups of Parquet, record batches of an
    Arrow file, records of a packer data set. `stop` None is the source's end."""

    source: Source
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Partition:
    """The unit of scheduling and resuming: slices in input order, about `partition_bytes` together."""

    index: int
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Found:
    """The sources in input order, and the files of folders that were left out, as shown to users."""

    sources: list[Source]
    left_out: list[str]
