"""INPUT arguments to sources in order: files, folders, globs, `datasets` folders, packer data sets, URLs of files and
folders, hub names, stdin."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator, Sequence

from packer import remote
from packer.corpus import hub, stored
from packer.corpus import schema as schemas
from packer.corpus.identify import identify, kind_by_name
from packer.corpus.sources import Found, ReadOptions, Source
from packer.corpus.streams import input_errors
from packer.errors import InputError, UsageError


def find_sources(inputs: Sequence[str], options: ReadOptions, *, out: str | None = None) -> Found:
    """The sources that the arguments name, in order; a folder's files in bytewise order of their relative paths.

    Raises UsageError for arguments that make no sense (nothing, `-` twice, `out` in conflict with an input), InputError
    for what is missing, unreadable or no data.
    """
    schemas.check_options(options)
    if not inputs:
        raise UsageError("no INPUT given")
    if list(inputs).count("-") > 1:
        raise UsageError("- (stdin) can be read only once")
    found = Found([], [])
    walk = _Walk(options, None if out is None else remote.canonical(out))
    for argument in inputs:
        walk.argument(remote.local_path(argument), found)
    _check_traits(found.sources, options)
    return found


def _check_traits(sources: Sequence[Source], options: ReadOptions) -> None:
    for name, field in (("--embedding-field", options.embedding_field), ("--group-field", options.group_field)):
        for source in sources:
            if field is not None and source.format in ("text", "packed"):
                what = "a text file" if source.format == "text" else "a packer data set, which keeps none"
                raise UsageError(f"{name} {field}: {source.path} is {what}; only records have fields")


class _Walk:
    def __init__(self, options: ReadOptions, out: str | None) -> None:
        self._options, self._out = options, out

    def argument(self, argument: str, found: Found) -> None:
        if argument == "-":
            schema = schemas.asked_for(self._options)
            found.sources.append(Source("-", "", "stdin", None, 0, schema))
        elif os.path.lexists(argument):
            self._path(argument, found)
        elif remote.is_url(argument):
            self._url(argument, found)
        elif argument.startswith("hf:"):
            found.sources.append(hub.find(argument, self._options))
        elif glob.has_magic(argument):
            self._glob(argument, found)
        else:
            raise InputError(f"{remote.shown_in(argument, argument) or repr(argument)}: no such file or folder")

    def _glob(self, pattern: str, found: Found) -> None:
        matches = sorted(glob.glob(pattern, recursive=True), key=os.fsencode)
        if "**" in pattern:  # which matches a folder's files as well as the folder
            matches = [match for match in matches if not os.path.isdir(match)]
        if not matches:
            raise InputError(f"{pattern}: no file matches")
        for match in matches:
            self._path(match, found)

    def _path(self, path: str, found: Found) -> None:
        self._refuse_output(path, os.path.realpath(path))
        if os.path.isdir(path):
            self._folder(path, found)
        else:
            found.sources.append(identify(path, self._options))

    def _url(self, url: str, found: Found) -> None:
        self._refuse_output(url, remote.canonical(url))
        for match in stored.expand(url):
            self._refuse_output(match, remote.canonical(match))
            if (files := stored.files_of(match, self._out, _is_packed, _saved_files)) is None:
                found.sources.append(identify(match, self._options))
            elif files.saved:
                found.sources.extend(identify(file, self._options) for file in files.names)
            else:
                found.left_out.extend(map(remote.shown, files.packed))
                self._chosen(remote.shown(match), files.names, found)

    def _refuse_output(self, name: str, real: str) -> None:
        if self._out is not None and (real == self._out or real.startswith(f"{self._out}/")):
            raise UsageError(f"{remote.shown(name)}: the output folder is or contains this INPUT; choose another --out")

    def _folder(self, folder: str, found: Found) -> None:
        if _is_packed(folder):
            found.sources.append(self._packed(folder))
            return
        if (saved := _saved_files(folder)) is not None:
            found.sources.extend(identify(path, self._options) for path in saved)
            return
        files = sorted(self._files(folder, (os.path.realpath(folder),), found), key=os.fsencode)
        self._chosen(folder, files, found)

    def _chosen(self, folder: str, files: Sequence[str], found: Found) -> None:
        """Of a folder's files those that hold records, or if none does the texts."""
        kinds = [kind_by_name(path) for path in files]
        wanted = "record" if "record" in kinds else "text"
        chosen = [path for path, kind in zip(files, kinds, strict=True) if kind == wanted]
        if not chosen:
            raise InputError(f"{folder}: holds no file of a known kind (JSON Lines, Parquet, CSV, text, ...)")
        found.left_out.extend(remote.shown(path) for path, kind in zip(files, kinds, strict=True) if kind != wanted)
        found.sources.extend(identify(path, self._options) for path in chosen)

    def _packed(self, folder: str) -> Source:
        """A packer data set. `packer.stored.inputs` puts its documents together before they are read."""
        real = os.path.realpath(folder)
        if self._out is not None and os.path.commonpath([real, self._out]) == real:
            raise UsageError(f"{folder}: the output folder lies within this packer data set; choose another --out")
        path = os.path.join(os.path.abspath(folder), "manifest.json")
        found = os.stat(path)
        return Source(folder, path, "packed", None, found.st_size, schemas.READY, modified=found.st_mtime_ns)

    def _files(self, folder: str, above: tuple[str, ...], found: Found) -> Iterator[str]:
        """Files below the folder; `above` are the real paths of it and the folders around it, to end loops of links.
        Packer data sets are left out, and named so."""
        with input_errors(folder):
            names = os.listdir(folder)
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            real = os.path.realpath(path)
            if name.startswith(".") or real == self._out:
                continue
            if not os.path.isdir(path):
                yield path
            elif (saved := _saved_files(path)) is not None:
                yield from saved
            elif _is_packed(path):
                found.left_out.append(path)
            elif real not in above:
                yield from self._files(path, (*above, real), found)


def _is_packed(folder: str) -> bool:
    manifest = _json_of(os.path.join(folder, "manifest.json"))
    return isinstance(manifest, dict) and manifest.get("format") == "packer"


def _saved_files(folder: str) -> list[str] | None:
    """The Arrow files of a folder made by `datasets`' save_to_disk, in their order; None for another folder."""
    splits = _json_of(os.path.join(folder, "dataset_dict.json"))
    if isinstance(splits, dict) and isinstance(names := splits.get("splits"), list) and names:
        inner = os.path.join(folder, str(names[0]))
        if len(names) > 1:
            raise InputError(
                f"{remote.shown(folder)}: has the splits {schemas.shorten(names)}; name one: {remote.shown(inner)}"
            )
        folder = inner
    state = _json_of(os.path.join(folder, "state.json"))
    if not isinstance(state, dict) or "_data_files" not in state:
        return None
    if state.get("_indices_data_files"):
        raise InputError(
            f"{remote.shown(folder)}: is a selection of its Arrow files' rows; save it flattened: "
            "flatten_indices().save_to_disk(...)"
        )
    return [os.path.join(folder, file["filename"]) for file in state["_data_files"]]


def _json_of(path: str) -> object:
    """A small JSON file of a folder; None if it is not there or is something else."""
    try:
        if remote.is_url(path):
            stored_file = remote.RemotePath(path)
            return json.loads(stored_file.read_bytes()) if stored_file.exists() else None
        with open(path, "rb") as file:
            return json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
