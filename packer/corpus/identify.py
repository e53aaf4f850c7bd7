"""What a file is: by its content where that tells, by its name otherwise, and where its records keep their content."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace

from packer import remote
from packer.corpus import arrow, json_stream, jsonl, parquet, tables
from packer.corpus import schema as schemas
from packer.corpus.sources import ReadOptions, Schema, Source
from packer.corpus.streams import BOM, CHUNK, input_errors, open_bytes
from packer.errors import InputError, PackerError
from packer.remote import is_url, reason_of, shown

RECORD_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "tsv",
}
TEXT_SUFFIX = re.compile(
    r"\.(txt|text|md|markdown|rst|tex|org|adoc|html|htm|xml|css|srt|vtt|py|pyi|c|h|cc|cpp|cxx|hpp|hh|cu|cuh|java|kt|scala"
    r"|rs|go|js|mjs|jsx|ts|tsx|rb|php|pl|lua|r|jl|hs|ml|swift|cs|sh|bash|sql|toml|yaml|yml|ini|cfg)"
)
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd")
# What stands beside data in many folders and holds no records.
NO_RECORDS = {
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("config.json", "generation_config.json", "dataset_info.json", "dataset_infos.json", "merges.txt"),
}
HEAD = 512
REFUSED = (  # offset, magic, what it is and what to do
    (0, b"version https://git-lfs.github.com/spec/", "is a Git LFS pointer, not data: run git lfs pull"),
    (0, b"FEA1", "is Feather V1, which is no longer written: save it again as Feather V2 or Parquet"),
    (0, b"PK\x03\x04", "is a zip archive: unpack it first"),
    (257, b"ustar", "is a tar archive: unpack it first"),
)


def kind_by_name(path: str) -> str | None:
    """ "record", "text", or None for a file that a folder's reading leaves out."""
    suffix = _suffix(path)
    if os.path.basename(path) in NO_RECORDS:
        return None
    if suffix in RECORD_SUFFIXES:
        return "record"
    return "text" if TEXT_SUFFIX.fullmatch(suffix) else None


def identify(path: str, options: ReadOptions) -> Source:
    """The source in a file. Raises InputError where it is missing, is no data, or has no known field."""
    source = _remote(path) if is_url(path) else _local(path)
    with open_bytes(source) as stream:
        head = stream.read(HEAD)
    if compression := _compression(head):
        source = replace(source, compression=compression)
        with open_bytes(source) as stream:
            head = stream.read(HEAD)
    source = replace(source, format=_format(source, head))
    return replace(source, schema=_schema(source, options) if head else _of_nothing(source))


def _local(path: str) -> Source:
    with input_errors(path):
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path}: is not a regular file (JSON Lines can be piped in with - as INPUT)")
    return Source(path, os.path.abspath(path), "text", None, found.st_size, None, modified=found.st_mtime_ns)


def _remote(url: str) -> Source:
    try:
        found = remote.stat(url)
    except PackerError:
        raise
    except Exception as error:  # each store has its own
        raise InputError(f"{shown(url)}: cannot be read: {reason_of(error, url)}") from None
    return Source(shown(url), url, "text", None, found.size, None, stamp=found.stamp)


def _suffix(path: str) -> str:
    """The suffix that tells the format, below that of a compression.   "A.JSONL.gz" -> ".jsonl" """
    path = path.partition("?")[0] if is_url(path) else path  # what follows says which version is meant
    stem, suffix = os.path.splitext(os.path.basename(path).lower())
    return os.path.splitext(stem)[1] if suffix in COMPRESSED_SUFFIXES else suffix


def _compression(head: bytes) -> str | None:
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    # "BZh1" to "BZh9" alone could begin a text: what follows is a block's magic, or that of an empty file's end.
    if head.startswith(b"BZh") and head[4:10] in (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90"):
        return "bzip2"
    if head.startswith(b"\xfd7zXZ\0"):
        return "xz"
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return "zstd"
    return None


def _format(source: Source, head: bytes) -> str:
    path = source.path
    for offset, magic, advice in REFUSED:
        if head.startswith(magic, offset):
            raise InputError(f"{path}: {advice}")
    named = RECORD_SUFFIXES.get(_suffix(path), "text")
    found = _columnar(head)
    if source.compression and (found or _compression(head)):
        inner = "a compressed file" if not found else f"a {found} file"
        raise InputError(f"{path}: is {inner} compressed once more ({source.compression}): decompress it first")
    if head and named in ("parquet", "arrow") and not found:
        raise InputError(f"{path}: does not begin as {named.capitalize()}; fetch it again, or name it for what it is")
    if found:
        return found
    return _json_format(source) if named == "jsonl" else named


def _columnar(head: bytes) -> str | None:
    if head.startswith(b"PAR1"):
        return "parquet"
    return "arrow" if head.startswith((arrow.FILE_MAGIC, b"\xff\xff\xff\xff")) else None


def _json_format(source: Source) -> str:
    """ "jsonl", or "json" for an array, one object over several lines, or several of these."""
    with open_bytes(source) as stream:
        data = stream.read(CHUNK)
        ended = len(data) < CHUNK
    # Bytes that are not UTF-8 are the reader's affair; what matters here is the shape.
    text = data.removeprefix(BOM).decode("utf-8", "surrogateescape").lstrip(json_stream.SPACE)
    line, _, rest = text.partition("\n")
    following = rest.lstrip(json_stream.SPACE).partition("\n")[0]
    bracket = "json" if line.startswith("[") else "jsonl"
    if _ends(line):
        return "jsonl" if following or not ended else bracket
    if not following:
        return bracket  # one line, cut off or longer than what is looked at
    if _begins_whole(text):
        return "json"
    # The first line is broken, or begins what is too long to be seen whole or is broken further down.
    return "json" if _breaks_at_end(line) and (bracket == "json" or not _ends(following)) else "jsonl"


def _ends(line: str) -> bool:
    """Whether the line is one whole JSON value."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _begins_whole(text: str) -> bool:
    """Whether the text begins with one whole JSON value."""
    try:
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _breaks_at_end(line: str) -> bool:
    """Whether the line begins an array or object and is right as far as it goes: the next lines may complete it."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return error.pos >= len(line.rstrip(json_stream.SPACE)) and line[:1] in ("[", "{")
    except (ValueError, RecursionError):
        return False
    return False


def _schema(source: Source, options: ReadOptions) -> Schema:
    if source.format == "parquet":
        return parquet.columns_of(source, options).schema
    if source.format == "arrow":
        return arrow.columns_of(source, options).schema
    if source.format in ("csv", "tsv", "text"):
        schema = schemas.PLAIN_TEXT
        if source.format != "text":
            schema = schemas.of_columns(tables.columns(source, options), source.path, options)
        if "input_ids" in (schema.kind, options.schema):
            raise InputError(f"{source.path}: {source.format} files hold no token ids; give JSON Lines or Parquet")
        return schema
    with open_bytes(source) as stream:
        if source.format == "jsonl":
            return schemas.of_records(jsonl.head(stream, options), source.path, options)
        return schemas.of_records(json_stream.head(stream, source.path, options), source.path, options)


def _of_nothing(source: Source) -> Schema:
    return schemas.PLAIN_TEXT if source.format == "text" else schemas.DEFAULT
