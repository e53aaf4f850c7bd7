"""OUT, from nothing to a finished data set in one step: nobody ever opens half of one, and nothing foreign is deleted.

OUT/.tmp/                everything while a run lasts; goes with it, unless --resume can go on from there
OUT/.tmp/inputs          packer data sets as INPUT, put together (packer.stored)
OUT/.tmp/part-*          partitions (packer.committed)
OUT/.tmp/data, manifest  the finished set, still hidden
OUT/data                 the same folder, renamed
OUT/manifest.json        renamed last: now there is a data set
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from packer import committed, manifest
from packer.errors import DatasetError, OutputError
from packer.staging import sync

TEMPORARY = ".tmp"
MARK = "written-by-packer"  # proves that a left-over OUT/.tmp is ours to delete; locked while a run writes there
OWN = re.compile(
    r"written-by-packer|inputs|part-\d+(-\w+)?|nodes-\w+|data|manifest\.json|replaced|replaced\.json"
)  # names in there
REPLACED, REPLACED_DATA = "replaced.json", "replaced"  # where what --overwrite replaces waits to be deleted


class Output:
    """The output folder during one run: `open`, work in `folder`, then `publish`, `keep` or `abandon`."""

    def __init__(self, out: Path, *, overwrite: bool = False, resume: bool = False) -> None:
        self.out = out
        self.folder = out / TEMPORARY
        self.overwrite, self.resume = overwrite, resume
        self._made: list[Path] = []  # folders that did not exist before, innermost first
        self._lock: int | None = None
        self._ready = False  # the new data set is complete, in OUT/.tmp

    def open(self) -> None:
        """Makes OUT and OUT/.tmp and locks it, or raises OutputError without having touched anything."""
        self._check()
        missing = self.out
        while not missing.exists():
            self._made.append(missing)
            missing = missing.parent
        while self._lock is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.folder / MARK)
        try:
            self._check()  # another run may have ended here meanwhile
            self._undo()  # a run that was killed while it published: what it was replacing is still there
            self.clear(committed.committed(self.folder) if self.resume else ())
        except BaseException:
            self._release()
            raise

    def _check(self) -> None:
        if not self.out.exists():
            return
        if not self.out.is_dir():
            raise OutputError(f"--out {self.out} exists and is not a folder")
        foreign = _foreign(self.out)
        if foreign:
            raise OutputError(f"--out {self.out} holds {foreign}, which is not packer's; give another folder")
        if self._lock is None and (self.folder / MARK).exists():
            with contextlib.suppress(PermissionError):
                self._lock = _locked(self.folder / MARK)
                self._release()
        if self.overwrite or not _begun(self.out):
            return
        if (self.out / manifest.FILE).exists():
            raise OutputError(f"--out {self.out} holds a finished data set; --overwrite replaces it")
        if not self.resume:
            raise OutputError(
                f"--out {self.out} holds the remains of an unfinished run; --resume goes on from there, --overwrite "
                "replaces it"
            )

    def clear(self, but: Collection[Path] = ()) -> None:
        """Drops what was staged: the work begins again, or goes on from some partitions."""
        for path in self.folder.iterdir():
            if path.name == MARK or not OWN.fullmatch(path.name) or path in but:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _remove(self) -> None:
        """Removes OUT/.tmp, unless somebody put something there."""
        self.clear()
        (self.folder / MARK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def publish(self, described: manifest.Manifest) -> manifest.Manifest:
        """Makes OUT/.tmp/data and the manifest the data set. What --overwrite replaces goes only now."""
        hidden = self.folder / manifest.FILE
        hidden.write_text(described.to_json(), encoding="utf-8")
        sync(hidden)
        sync(self.folder / manifest.DATA)
        if foreign := _foreign_data(self.out):
            raise OutputError(f"--out {self.out} holds {foreign} now, which is not packer's; move it elsewhere")
        self._ready = True
        old = self.out / manifest.FILE
        if old.exists():
            old.rename(self.folder / REPLACED)
        data = self.out / manifest.DATA
        if data.exists():
            data.rename(self.folder / REPLACED_DATA)
        (self.folder / manifest.DATA).rename(data)
        sync(self.out)
        hidden.rename(self.out / manifest.FILE)
        sync(self.out)
        self._remove()
        self._release()
        return described

    def keep(self) -> int:
        """Leaves the partitions that are committed, and nothing else, for another run. Returns how many; of none,
        everything is removed."""
        kept = committed.committed(self.folder)
        published = self._ready and not (self.folder / manifest.FILE).exists()
        if published or not kept:
            self.abandon()
            return 0
        with contextlib.suppress(OSError):  # the error that brought us here is the one to report
            self._undo()
            self.clear(kept)
        self._release()
        return len(kept)

    def abandon(self) -> None:
        """Removes what this run made; a data set that stood here before still does."""
        with contextlib.suppress(OSError):
            self._undo()
            self._remove()
            for folder in self._made:
                folder.rmdir()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _undo(self) -> None:
        """Takes back an unfinished `publish`, as far as the folders show that it had come. The manifest goes last, so
        while it is still hidden nothing is published; and before it is written nothing has been moved."""
        if not (self.folder / manifest.FILE).exists():
            return
        for now, back in (
            (self.out / manifest.DATA, self.folder / manifest.DATA),  # the new data
            (self.folder / REPLACED_DATA, self.out / manifest.DATA),
            (self.folder / REPLACED, self.out / manifest.FILE),
        ):
            if now.exists() and not back.exists():
                now.rename(back)
        sync(self.out)


def _locked(path: Path) -> int | None:
    """Makes the file and locks it until its descriptor is closed, which the end of the process does, however it ends.
    None where another run has removed it in between. Raises OutputError where a run holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except BlockingIOError:
        os.close(descriptor)
        raise OutputError(f"--out {path.parent.parent}: another run is writing there; wait for it, or end it") from None
    except FileNotFoundError:
        pass
    os.close(descriptor)
    return None


def _begun(out: Path) -> bool:
    """Whether there is anything of a data set, finished or not."""
    own = (path.name for path in (out / TEMPORARY).glob("*"))
    return any(path.name != TEMPORARY for path in out.iterdir()) or any(name != MARK for name in own)


def _foreign(out: Path) -> str | None:
    """The first thing in a folder that packer did not write, as a path to show."""
    known = {manifest.FILE, manifest.DATA, TEMPORARY}
    for path in sorted(out.iterdir()):
        if path.name not in known:
            return path.name
    temporary = out / TEMPORARY
    if temporary.exists() and any(temporary.iterdir()) and not (temporary / MARK).exists():
        return TEMPORARY
    for path in temporary.glob("*"):
        if not OWN.fullmatch(path.name):
            return f"{TEMPORARY}/{path.name}"
    return _foreign_data(out)


def _foreign_data(out: Path) -> str | None:
    """The same of OUT/data, which is replaced as a whole."""
    temporary = out / TEMPORARY
    shards: set[str] = set()
    for path in (out / manifest.FILE, temporary / manifest.FILE, temporary / REPLACED):
        if path.exists():
            try:
                shards |= {shard.path for shard in manifest.load_file(path).all_shards}
            except DatasetError:
                return str(path.relative_to(out))
    data = out / manifest.DATA
    if not data.exists():
        return None
    names = [f"{manifest.DATA}/{path.name}" for path in sorted(data.iterdir())] if data.is_dir() else [manifest.DATA]
    return next((name for name in names if name not in shards), None)
