"""What a node of a cluster has and sees, found out over there.

Only the standard library, and nothing of packer's when it is loaded: it is sent as code, so that it also runs, and says
so, where packer or a library is missing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

LIBRARIES = ("numpy", "pyarrow", "tokenizers", "fastokens")  # what decides the bytes that are made, besides packer
DRIVER = "driver"  # the driver's file in the folder that all are to see
SECONDS = 10.0  # in which a network file system has to show what another machine has just made
MISSING = "none"

File = tuple[str, int, int | None]  # path, bytes, time of change in ns, if that is known


@cache
def versions() -> dict[str, str]:
    """Of what has to be the same everywhere, by name. packer's own is its code's checksum too: two checkouts may have
    the same version and make different data."""
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}", "packer": _packer()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = MISSING
    return found


def difference(expected: dict[str, str], found: dict[str, str]) -> str | None:
    """The first that differs, for errors.   "numpy 2.2.0 where this machine has 2.4.6" """
    for name, version in expected.items():
        if found.get(name) != version:
            return f"{name} {found.get(name, MISSING)} where this machine has {version}"
    return None


def unseen(files: Sequence[File]) -> str | None:
    """The first that is not here or not the same. A folder has to be there."""
    for path, size, modified in files:
        try:
            there = os.stat(path)
        except OSError as error:
            return f"cannot read {path} ({error.strerror})"
        if os.path.isfile(path):
            if there.st_size != size:
                return f"sees another {path}, of {there.st_size} bytes where this machine sees {size}"
            if modified is not None and there.st_mtime_ns != modified:
                return f"sees another {path}, changed at another time; if it is a copy, copy times too (cp -p)"
        if not os.access(path, os.R_OK):
            return f"cannot read {path} (no permission)"
    return None


def unwritable(folder: str, token: str, name: str) -> str | None:
    """Why this node does not share the folder, in which the driver has put a file that holds the token; None where it
    does, and then a file `name` stands there with the same content."""
    path = Path(folder, DRIVER)
    if not appears(path):
        return f"does not see {path}, which this machine has just written"
    try:
        if path.read_text(encoding="utf-8") != token:
            return f"sees another {path} than this machine"
        Path(folder, name).write_text(token, encoding="utf-8")
    except OSError as error:
        return f"cannot write {folder} ({error.strerror})"
    return None


def look(files: Sequence[File], folder: str, token: str, name: str) -> tuple[dict[str, str], str | None]:
    """The node's versions, and what it lacks of the files and of the folder."""
    return versions(), unseen(files) or unwritable(folder, token, name)


def appears(path: Path) -> bool:
    """Whether the path is there, at once or after a moment."""
    ends = time.monotonic() + SECONDS
    while not path.exists():
        if time.monotonic() > ends:
            return False
        time.sleep(0.2)
    return True


def _packer() -> str:
    spec = importlib.util.find_spec("packer")
    if spec is None or spec.origin is None:
        return MISSING
    root = Path(spec.origin).parent
    code = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        code.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{importlib.import_module('packer').__version__} ({code.hexdigest()[:12]})"
