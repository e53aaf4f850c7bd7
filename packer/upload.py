"""OUT in a store that cannot rename: a data set is there from the moment its manifest is, and not before.

The work is done in a folder here, as for an OUT here. Then

    OUT/.tmp/written-by-packer   put first, when the run begins: it holds the run's name, and the names of the shards
                                 that will be put or removed, so that what an interrupted run leaves is known as ours
    OUT/data/*                   the shards, each compared with its file: size, and checksum where the store gives one
    OUT/manifest.json            put last: it names all shards, and a part of it is no manifest
    OUT/.tmp/written-by-packer   removed

What --overwrite replaces stays whole until the new manifest is there, and is removed after it. A new shard of which the
name is taken gets the beginning of its checksum into its name, as in train-00000-of-00012-1f3870be274f6c49.parquet, a
form in which `datasets` finds a split too. The store cannot lock: a second run is refused by the first one's mark, and
one that takes OUT over (--overwrite) makes the first one fail before it puts its manifest.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import shutil
import tempfile
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from packer import commit, manifest
from packer.errors import DatasetError, OutputError, PackerError, UsageError
from packer.manifest import Manifest
from packer.remote import Place, RemotePath, filesystem, listed, reason_of
from packer.remote.trying import tried
from packer.remote.urls import WEB, scheme
from packer.schema import FORMAT_NAME
from packer.shards import ShardFile
from packer.threads import ordered_ahead

MARK = f"{commit.TEMPORARY}/{commit.MARK}"
BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci")  # these have no folders to be made
UPLOADS = 4  # at once, where the store's package allows it
SUFFIX = 16  # characters of a checksum


class Target(Protocol):
    """OUT during one run: `open`, work in `folder`, then `publish`, `keep` or `abandon`."""

    resume: bool

    @property
    def out(self) -> Place: ...

    @property
    def folder(self) -> Path: ...

    def open(self) -> None: ...

    def clear(self, but: Collection[Path] = ()) -> None: ...

    def keep(self) -> int: ...

    def publish(self, described: Manifest) -> Manifest: ...

    def abandon(self) -> None: ...


def output(out: Place, *, overwrite: bool, resume: bool = False, staging: Path | None = None) -> Target:
    """What makes a data set at `out`, here or in a store."""
    if isinstance(out, RemotePath):
        if resume and staging is None:
            raise UsageError(f"--resume: {out} keeps nothing to go on from; partitions are kept in --staging DIR")
        return RemoteOutput(out, overwrite=overwrite, resume=resume, staging=staging)
    if staging is not None:
        raise UsageError(f"--staging {staging} is for an --out that is a URL; {out} has its own, beside the data")
    return commit.Output(out, overwrite=overwrite, resume=resume)


class RemoteOutput:
    """OUT in a store during one run. Raises OutputError, one line without secrets."""

    def __init__(
        self, out: RemotePath, *, overwrite: bool = False, resume: bool = False, staging: Path | None = None
    ) -> None:
        self.out, self.overwrite, self.resume, self._staging = out, overwrite, resume, staging
        self.run = secrets.token_hex(8)
        self._local: commit.Output | None = None
        self._made: Path | None = None  # a temporary folder of our own
        self._ours: set[str] = set()  # what this run may have put, to be removed if it ends early
        self._marked = False

    @property
    def folder(self) -> Path:
        if self._local is None:
            raise AssertionError("open comes first")
        return self._local.folder

    def open(self) -> None:
        """Refuses what must not be replaced, marks OUT as being written to, and makes the folder to work in."""
        if scheme(self.out.url) in WEB:
            raise UsageError(f"--out {self.out}: a web server cannot be written to; name a store or a folder")
        self._fs, self._path = filesystem(self.out.url)
        self._check()
        self._put_mark([])
        if self._staging is None:
            self._made = Path(tempfile.mkdtemp(prefix="packer-"))
            local = self._made / "out"
        else:
            # One folder for each OUT: what an interrupted run has left there is found again, and replaced.
            local = self._staging / f"packer-{hashlib.sha256(str(self.out).encode()).hexdigest()[:SUFFIX]}"
        self._local = commit.Output(local, overwrite=True, resume=self.resume)
        try:
            self._local.open()
        except BaseException:
            self.abandon()
            raise

    def clear(self, but: Collection[Path] = ()) -> None:
        if self._local:
            self._local.clear(but)

    def publish(self, described: Manifest) -> Manifest:
        """Puts the staged shards and then the manifest, with the shards' names as they are in the store."""
        self._check_mark()
        before = self._data_set()
        old = {shard.path: shard for shard in before.all_shards} if before else {}
        shards = [self._named(shard, old) for shard in described.all_shards]
        gone = sorted((self._ours | set(old)) - {shard.path for shard in shards})
        new = [
            (self.folder / was.path, now)
            for was, now in zip(described.all_shards, shards, strict=True)
            if now.path not in old  # the same content already has this name
        ]
        self._put_mark([*(shard.path for _, shard in new), *gone])
        self._ours = {shard.path for _, shard in new}
        threads = UPLOADS if getattr(self._fs, "async_impl", False) else 1
        with closing(
            ordered_ahead(self._put_shard, new, threads=threads, ahead=threads, abort=lambda: None)
        ) as uploads:
            for _ in uploads:
                pass
        names = {was.path: now.path for was, now in zip(described.all_shards, shards, strict=True)}
        published = described.renamed(names)
        self._check_ours(new)
        self._do("written", lambda: self._pipe(manifest.FILE, published.to_json().encode()))
        self._ours, self._marked = set(), False
        self._leave()
        try:
            for name in gone:
                self._remove(name)
            self._remove(MARK)
        except OutputError as error:
            raise OutputError(f"{error} (the data set there is complete, and is the new one)") from None
        return published

    def keep(self) -> int:
        """Removes what this run has put, but not the partitions in --staging. Returns how many these are."""
        kept = 0
        if self._local is not None and self._staging is not None:
            kept = self._local.keep()
            self._local = None
        self.abandon()
        return kept

    def abandon(self) -> None:
        """Removes what this run has put; a data set that stood here before still does."""
        with suppress(Exception):  # the error that brought us here is the one to report
            if self._marked and self._mark().get("run") == self.run:
                for _ in range(2):  # an upload that was under way may have ended meanwhile
                    for name in sorted(self._ours & set(listed(self.out.url))):
                        self._remove(name)
                self._remove(MARK)
        self._leave()

    # What is there

    def _check(self) -> None:
        names = self._do("listed", lambda: set(listed(self.out.url)))
        try:
            before = self._data_set() if manifest.FILE in names else None
        except DatasetError:
            raise OutputError(
                f"--out {self.out} holds {manifest.FILE}, which is not packer's; give another folder"
            ) from None
        marked = self._mark() if MARK in names else {}
        left = {str(name) for name in marked.get("shards", []) if _is_shard(str(name))}
        known = {manifest.FILE} | left | ({shard.path for shard in before.all_shards} if before else set())
        if marked.get("format") == FORMAT_NAME:
            known.add(MARK)
        if foreign := sorted(names - known):
            raise OutputError(f"--out {self.out} holds {foreign[0]}, which is not packer's; give another folder")
        going_on = self.resume and manifest.FILE not in names
        if names and not self.overwrite and not going_on:
            what = "a finished data set"
            if MARK in names:
                what = "the remains of an unfinished run, if it is not still being written"
            raise OutputError(f"--out {self.out} holds {what}; --overwrite replaces it")
        self._ours = (left & names) - ({shard.path for shard in before.all_shards} if before else set())

    def _data_set(self) -> Manifest | None:
        file = self.out / manifest.FILE
        return manifest.load_file(file) if file.exists() else None

    def _mark(self) -> dict[str, Any]:
        """What OUT's mark says; nothing where there is none, or it is not ours."""
        file = self.out / MARK
        try:
            content = json.loads(file.read_bytes()) if file.exists() else {}
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}

    def _check_ours(self, new: list[tuple[Path, ShardFile]]) -> None:
        """Just before the manifest: the mark is still this run's, and every shard is there."""
        self._check_mark()
        present = self._do("listed", lambda: listed(self.out.url))
        for _, shard in new:
            found = present.get(shard.path, {}).get("size")
            if found != shard.bytes:
                raise OutputError(f"--out {self.out}: {shard.path} was changed by somebody else while it was written")

    def _check_mark(self) -> None:
        if self._do("read", self._mark).get("run") != self.run:
            self._marked, self._ours = False, set()  # what lies there now is the other run's
            raise OutputError(f"--out {self.out}: another run is writing there too; this one has published nothing")

    # Putting and removing

    def _named(self, shard: ShardFile, old: dict[str, ShardFile]) -> ShardFile:
        taken = old.get(shard.path)
        if taken is None or (taken.sha256, taken.bytes) == (shard.sha256, shard.bytes):
            return shard
        path = PurePosixPath(shard.path)
        return replace(shard, path=str(path.with_name(f"{path.stem}-{shard.sha256[:SUFFIX]}{path.suffix}")))

    def _put_mark(self, shards: list[str]) -> None:
        content = {"format": FORMAT_NAME, "run": self.run, "shards": sorted({*shards, *self._ours})}
        self._do("written", lambda: self._pipe(MARK, json.dumps(content, indent=1).encode()))
        self._marked = True

    def _put_shard(self, task: tuple[Path, ShardFile]) -> None:
        file, shard = task

        def put() -> None:
            self._make_folder(shard.path)
            self._fs.put_file(str(file), self._at(shard.path))
            self._compare(file, shard)

        self._do("written", put, shard.path)

    def _compare(self, file: Path, shard: ShardFile) -> None:
        self._fs.invalidate_cache()
        info = self._fs.info(self._at(shard.path))
        if info.get("size") != shard.bytes:
            raise OSError(f"{info.get('size')} bytes arrived of {shard.bytes}")
        stated = stated_md5(info)
        if stated is None:
            return
        with open(file, "rb") as local:
            same = hashlib.file_digest(local, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == stated
        if not same and self._read_back(shard) != shard.sha256:  # an ETag may be something else, as with encryption
            raise OSError("its content arrived changed")

    def _read_back(self, shard: ShardFile) -> str:
        with (self.out / shard.path).open() as stored:
            return hashlib.file_digest(stored, "sha256").hexdigest()

    def _pipe(self, name: str, content: bytes) -> None:
        self._make_folder(name)
        self._fs.pipe_file(self._at(name), content)

    def _make_folder(self, name: str) -> None:
        if scheme(self.out.url) not in BUCKETS:
            self._fs.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._do("removed", lambda: self._fs.rm_file(self._at(name)))
        if name == MARK and scheme(self.out.url) not in BUCKETS:
            with suppress(Exception):  # empty, where there are folders at all
                self._fs.rmdir(self._at(commit.TEMPORARY))

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def _do(self, what: str, action: Any, name: str | None = None) -> Any:
        """What `action` gives; tries again after a failure that may pass, then raises OutputError."""
        where = f"--out {self.out}: {name}" if name else f"--out {self.out}"
        try:
            return tried(action)
        except PackerError:
            raise
        except Exception as error:  # each store has its own
            if what == "removed" and isinstance(error, FileNotFoundError):
                raise
            raise OutputError(f"{where} cannot be {what}: {reason_of(error, self.out.url)}") from None

    def _leave(self) -> None:
        """Nothing remains of the folder that this run worked in."""
        if self._local is not None:
            self._local.abandon()
            with suppress(OSError):
                self._local.out.rmdir()
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)


def stated_md5(info: dict[str, Any]) -> str | None:
    """The MD5 that a store says it has of a file, in hexadecimal; None where it says none, as S3 of large files."""
    settings = info.get("content_settings") or {}
    for value in (info.get("md5Hash"), settings.get("content_md5")):
        if isinstance(value, str | bytes | bytearray) and value:
            return (base64.b64decode(value) if isinstance(value, str) else bytes(value)).hex()
    etag = str(info.get("ETag") or "").strip('"').lower()
    return etag if len(etag) == 32 and all(digit in "0123456789abcdef" for digit in etag) else None


def _is_shard(name: str) -> bool:
    """Whether a name in a mark can be a shard's: nothing else is ever removed."""
    return name.startswith(f"{manifest.DATA}/") and ".." not in PurePosixPath(name).parts
