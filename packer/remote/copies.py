"""A tokenizer's files, fetched into a temporary folder that goes when the process ends: engines want them as files.

s3://bucket/tok                  the folder's tokenizer.json and what stands beside it
s3://bucket/tok/tokenizer.json   the same
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packer.errors import TokenizerError
from packer.remote.stores import filesystem, listed, reason_of
from packer.remote.urls import WEB, scheme, shown

FILE = "tokenizer.json"
BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
MORE_TEMPLATES = "additional_chat_templates"

_folders: list[TemporaryDirectory[str]] = []


@cache
def fetch_tokenizer(url: str) -> Path:
    """Where its tokenizer.json lies now, with the files beside it. Raises TokenizerError."""
    url = url.rstrip("/")
    file = url if url.partition("?")[0].endswith(".json") else f"{url}/{FILE}"
    above = file.rpartition("/")[0]
    folder = Path(_new_folder())
    copy = folder / Path(file.partition("?")[0]).name
    try:
        if not _fetch(file, copy):
            raise TokenizerError(
                f"tokenizer {shown(url)} has no {FILE}; name the folder or the file, and set the store's credentials"
            )
        more = [] if scheme(url) in WEB else sorted(listed(f"{above}/{MORE_TEMPLATES}"))
        for name in (*BESIDE, *(f"{MORE_TEMPLATES}/{name}" for name in more if name.endswith(".jinja"))):
            _fetch(f"{above}/{name}", folder / name)
    except TokenizerError:
        raise
    except Exception as error:  # each store has its own
        raise TokenizerError(f"tokenizer {shown(url)} cannot be fetched: {reason_of(error, url)}") from None
    return copy


def _fetch(url: str, copy: Path) -> bool:
    """Copies a file; False if it is not there."""
    fs, path = filesystem(url)
    try:
        content: Any = fs.cat_file(path)
    except FileNotFoundError:
        return False
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(content)
    return True


def _new_folder() -> str:
    _folders.append(TemporaryDirectory(prefix="packer-tokenizer-"))
    return _folders[-1].name


def remove_copies() -> None:
    """For a process that ends without Python's own way of ending."""
    while _folders:
        _folders.pop().cleanup()
