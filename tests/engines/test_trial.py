"""The verdict on a tokenizer: kept by what it depends on, and only ever a saving of time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from packer.engines import EngineError, FastEngine, HfEngine, fast, trial
from packer.plan import Int32Array, Int64Array
from packer.tokenizer import Tokenizer, load

SAMPLE = Path(__file__).parents[2] / "sample_data" / "tokenizer"


@pytest.fixture
def tokenizer() -> Tokenizer:
    return load(str(SAMPLE))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a short list of strings so that a trial takes no time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "strings", lambda _: ["one two", "three\r\n\0", "", "é" * 50])
    return tmp_path / "cache"


class Counted(FastEngine):
    """The fast engine, and how often it was asked."""

    calls = 0

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        Counted.calls += 1
        return super().encode(texts)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    Counted.calls = 0
    monkeypatch.setattr(trial, "FastEngine", Counted)
    return Counted


def kept(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def test_a_verdict_is_kept(tokenizer: Tokenizer, cache: Path, calls: type[Counted]) -> None:
    assert trial.reason_against(tokenizer, "parse") is None
    assert trial.reason_against(tokenizer, "parse") is None
    assert calls.calls == 1
    (path,) = kept(cache)
    assert json.loads(path.read_bytes()) == {"reason": None}
    path.write_text('{"reason": "kept"}')
    assert trial.reason_against(tokenizer, "parse") == "kept"


def test_by_all_that_it_depends_on(
    tokenizer: Tokenizer, cache: Path, calls: type[Counted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.reason_against(tokenizer, "parse")
    trial.reason_against(tokenizer, "literal")
    assert calls.calls == 2
    (tmp_path / "tokenizer.json").write_bytes((SAMPLE / "tokenizer.json").read_bytes() + b"\n")
    trial.reason_against(load(str(tmp_path / "tokenizer.json")), "parse")
    assert calls.calls == 3
    for place, name, value in (
        (fast, "version", lambda: "9.9.9"),
        (trial.tokenizers, "__version__", "9.9.9"),
        (trial, "__version__", "9.9.9"),
        (trial.hostile, "VERSION", 999),
        (trial.platform, "machine", lambda: "other"),
    ):
        before = calls.calls
        with monkeypatch.context() as patched:
            patched.setattr(place, name, value)
            trial.reason_against(tokenizer, "parse")
        assert calls.calls == before + 1, name
    assert len(kept(cache)) == 8
    (tmp_path / "elsewhere").mkdir()  # the same file under another name is the same tokenizer
    (tmp_path / "elsewhere" / "tokenizer.json").write_bytes((SAMPLE / "tokenizer.json").read_bytes())
    trial.reason_against(load(str(tmp_path / "elsewhere")), "parse")
    assert calls.calls == 8


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[]", b'"x"', b"{}", b'{"reason": 3}', b"\xff\xfe", b"\0" * 99]
)
def test_a_damaged_verdict_is_made_anew(
    tokenizer: Tokenizer, cache: Path, calls: type[Counted], content: bytes
) -> None:
    trial.reason_against(tokenizer, "parse")
    (path,) = kept(cache)
    path.write_bytes(content)
    assert trial.reason_against(tokenizer, "parse") is None
    assert calls.calls == 2
    assert json.loads(path.read_bytes()) == {"reason": None}
    assert kept(cache) == [path]


def test_a_folder_in_its_place(tokenizer: Tokenizer, cache: Path, calls: type[Counted]) -> None:
    trial.reason_against(tokenizer, "parse")
    (path,) = kept(cache)
    path.unlink()
    path.mkdir()
    assert trial.reason_against(tokenizer, "parse") is None
    assert calls.calls == 2
    assert kept(cache) == []  # nothing unfinished is left either


@pytest.mark.parametrize("what", ["a file", "no rights", "relative", "empty", "no home"])
def test_without_a_cache(
    tokenizer: Tokenizer, cache: Path, calls: type[Counted], what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    if what == "a file":
        cache.write_text("not a folder")
    elif what == "no rights":
        cache.mkdir(mode=0o500)
        if os.access(cache, os.W_OK):  # root may write anywhere
            monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    elif what == "relative":
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    elif what == "empty":
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        monkeypatch.setenv("HOME", "relative")
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "relative")
    assert trial.reason_against(tokenizer, "parse") is None
    assert trial.reason_against(tokenizer, "parse") is None
    assert calls.calls == 2
    assert not (tmp_path / "relative").exists()


def test_a_failure_that_may_pass_is_not_kept(
    tokenizer: Tokenizer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaks(FastEngine):
        cause: Exception = ImportError("no such library")

        def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:  # noqa: ARG002
            raise EngineError("broken") from self.cause

    monkeypatch.setattr(trial, "FastEngine", Breaks)
    assert trial.reason_against(tokenizer, "parse") == "it refuses: broken"
    assert kept(cache) == []
    monkeypatch.setattr(Breaks, "cause", ValueError("what it does not know"))
    assert trial.reason_against(tokenizer, "parse") == "it refuses: broken"
    assert len(kept(cache)) == 1


class Double:
    name = "double"

    def __init__(self, answer: tuple[Int32Array, Int64Array]) -> None:
        self.answer = answer

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:  # noqa: ARG002
        return self.answer


@pytest.mark.usefixtures("cache")
def test_difference(tokenizer: Tokenizer) -> None:
    reference = HfEngine(tokenizer)
    ids, offsets = reference.encode(trial.strings(tokenizer))
    assert trial.difference(tokenizer, Double((ids, offsets)), reference) is None
    last = ids.copy()
    last[-1] += 1
    reason = trial.difference(tokenizer, Double((last, offsets)), reference)
    assert reason is not None
    assert "'\\xe9\\xe9" in reason
    assert reason.isascii()
    moved = offsets.copy()
    moved[1] -= 1
    assert "one two" in (trial.difference(tokenizer, Double((ids, moved)), reference) or "")
    assert "offsets" in (trial.difference(tokenizer, Double((ids, offsets[:-1])), reference) or "")
    assert "int64" in (trial.difference(tokenizer, Double((ids.astype(np.int64), offsets)), reference) or "")  # type: ignore[arg-type]


INTERRUPTED = """
import os, signal, sys
from packer import loading
from packer.engines import trial
trial.strings = lambda _: ["one"]
class Slow:
    def encode_batch_flat(self, texts, split_special_tokens):
        os.kill(os.getpid(), signal.SIGINT)
        import time; time.sleep(1)
        raise RuntimeError("it went on")
load = loading._load
loading._load = lambda *file: (Slow(), load(*file)[1])
from packer.cli import main
main(sys.argv[1:])
"""


def test_an_interrupt_during_the_trial_ends_the_run_and_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    arguments = ["pack", "a.jsonl", "--tokenizer", str(SAMPLE), "--max-length", "8", "--out", "out"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *arguments, "--tokenizer-engine", "fast"],
        cwd=tmp_path,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "packer: interrupted\n")
    assert kept(tmp_path / "cache") == []
    assert not (tmp_path / "out").exists()
