"""`store` is fsspec's memory file system, empty; `packer` runs a command line on it in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from packer import cli
from packer.remote import trying

Packer = Callable[..., int]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryFileSystem]:
    _empty()
    monkeypatch.setattr(trying, "WAITS", (0.0, 0.0, 0.0))
    yield MemoryFileSystem()
    _empty()


def _empty() -> None:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture
def packer() -> Packer:
    def run(*arguments: object) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        return int(ended.value.code or 0)

    return run


@pytest.fixture
def documents() -> bytes:
    """Documents of ready-made ids, as JSON Lines."""
    records = [{"input_ids": [n + 1] * (n % 7 + 1)} for n in range(60)]
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@pytest.fixture
def listing(store: MemoryFileSystem) -> Callable[[str], dict[str, bytes]]:
    """Every file below a folder of the store, with its bytes."""
    return lambda folder: {name.removeprefix(f"{folder}/"): store.cat_file(name) for name in store.find(folder)}


@pytest.fixture
def copy(store: MemoryFileSystem) -> Callable[[Path, str], None]:
    """Copies a folder from here into the store."""

    def run(folder: Path, target: str) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                store.pipe_file(f"{target}/{path.relative_to(folder)}", path.read_bytes())

    return run
