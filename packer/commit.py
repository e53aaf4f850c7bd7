"""OUT, from nothing to a finished data set in one step: nobody ever opens half of one, and nothing foreign is deleted.

OUT/.tmp/                everything while a run lasts; goes with it
OUT/.tmp/data, manifest  the finished set, still hidden
OUT/data                 the same folder, renamed
OUT/manifest.json        renamed last: now there is a data set
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from packer import manifest
from packer.errors import DatasetError, OutputError
from packer.staging import sync

TEMPORARY = ".tmp"
MARK = "written-by-packer"  # proves that a left-over OUT/.tmp is ours to delete
REPLACED, REPLACED_DATA = "replaced.json", "replaced"  # where what --overwrite replaces waits to be deleted


class Output:
    """The output folder during one run: `open`, work in `folder`, then `publish` or `abandon`."""

    def __init__(self, out: Path, *, overwrite: bool = False) -> None:
        self.out = out
        self.folder = out / TEMPORARY
        self.overwrite = overwrite
        self._made: list[Path] = []  # folders that did not exist before, innermost first

    def open(self) -> None:
        """Makes OUT and OUT/.tmp, or raises OutputError without having touched anything."""
        self._check()
        missing = self.out
        while not missing.exists():
            self._made.append(missing)
            missing = missing.parent
        if self.folder.exists():
            self._undo()  # a run that was killed while it published: what it was replacing is still there
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        (self.folder / MARK).touch()

    def _check(self) -> None:
        if not self.out.exists():
            return
        if not self.out.is_dir():
            raise OutputError(f"--out {self.out} exists and is not a folder")
        if not any(self.out.iterdir()):
            return
        foreign = _foreign(self.out)
        if foreign:
            raise OutputError(f"--out {self.out} holds {foreign}, which is not packer's; give another folder")
        if not self.overwrite:
            what = "a finished data set" if (self.out / manifest.FILE).exists() else "the remains of an unfinished run"
            raise OutputError(f"--out {self.out} holds {what}; --overwrite replaces it")

    def clear(self) -> None:
        """Drops what was staged: the work begins again."""
        for path in self.folder.iterdir():
            if path.name != MARK:
                shutil.rmtree(path)

    def publish(self, described: manifest.Manifest) -> manifest.Manifest:
        """Makes OUT/.tmp/data and the manifest the data set. What --overwrite replaces goes only now."""
        hidden = self.folder / manifest.FILE
        hidden.write_text(described.to_json(), encoding="utf-8")
        sync(hidden)
        sync(self.folder / manifest.DATA)
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
        shutil.rmtree(self.folder)
        return described

    def abandon(self) -> None:
        """Removes what this run made; a data set that stood here before still does."""
        with contextlib.suppress(OSError):  # the error that brought us here is the one to report
            self._undo()
            shutil.rmtree(self.folder)
            for folder in self._made:
                folder.rmdir()

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


def _foreign(out: Path) -> str | None:
    """The first thing in a folder that packer did not write, as a path to show."""
    known = {manifest.FILE, manifest.DATA, TEMPORARY}
    for path in sorted(out.iterdir()):
        if path.name not in known:
            return path.name
    temporary = out / TEMPORARY
    if temporary.exists() and any(temporary.iterdir()) and not (temporary / MARK).exists():
        return TEMPORARY
    shards: set[str] = set()
    for path in (out / manifest.FILE, temporary / manifest.FILE, temporary / REPLACED):
        if path.exists():
            try:
                shards |= {shard.path for shard in manifest.load_file(path).shards}
            except DatasetError:
                return str(path.relative_to(out))
    data = out / manifest.DATA
    if not data.exists():
        return None
    names = [f"{manifest.DATA}/{path.name}" for path in sorted(data.iterdir())] if data.is_dir() else [manifest.DATA]
    return next((name for name in names if name not in shards), None)
