"""The files: all there, none extra, each with the size, checksum and schema that the manifest says."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from packer.errors import DatasetError
from packer.manifest import DATA, Manifest
from packer.remote import Place, names_in, size_of
from packer.shards import arrow_schema, shard_schema


def check(out: Place, manifest: Manifest) -> None:
    shards = manifest.all_shards
    listed = {shard.path for shard in shards}
    if len(listed) != len(shards):
        raise DatasetError("manifest.json: files: a shard is listed twice")
    names = names_in(out / DATA)
    present = listed if names is None else {f"{DATA}/{name}" for name in names}  # no listing: missing ones show below
    for extra in sorted(present - listed):
        raise DatasetError(f"{extra}: files: the manifest does not know this file")
    by_length = [part for packing in manifest.parts for part in packing.by_length]
    expected = {shard.path: expected_schema(part) for part in by_length for shard in part.shards}
    for shard in shards:
        path = out / shard.path
        if shard.path not in present:
            raise DatasetError(f"{shard.path}: files: the shard is missing")
        size = size_of(path)
        if size != shard.bytes:
            raise DatasetError(f"{shard.path}: size: {size} bytes, the manifest says {shard.bytes}")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                raise DatasetError(f"{shard.path}: checksum: its bytes are not those that were written")
        _check_schema(shard.path, shard_schema(path, manifest.file_format), expected[shard.path])


def expected_schema(manifest: Manifest) -> pa.Schema:
    fingerprint = manifest.tokenizer.fingerprint if manifest.tokenizer else "none"
    return arrow_schema(manifest.layout, {"max_length": str(manifest.max_length), "tokenizer": fingerprint})


def _check_schema(path: str, found: pa.Schema, expected: pa.Schema) -> None:
    if not found.equals(expected):
        names = [field.name for field in found]
        for field in expected:
            if field.name not in names:
                raise DatasetError(f"{path}: columns: {field.name} is missing")
            if not found.field(field.name).equals(field):
                raise DatasetError(f"{path}: columns: {found.field(field.name)}, not {field}")
        raise DatasetError(f"{path}: columns: {', '.join(names)}, not {', '.join(f.name for f in expected)}")
    for key, value in (expected.metadata or {}).items():
        if (found.metadata or {}).get(key) != value:
            raise DatasetError(f"{path}: metadata: {key.decode()} is not {value.decode()!r} as the manifest says")
