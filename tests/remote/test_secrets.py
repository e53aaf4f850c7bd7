"""Credentials, in URLs and in the environment, never reach the manifest, a report, a page, the terminal or an error."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from packer.remote import stores

Packer = Callable[..., int]
KEY, SECRET, SIGNATURE = "AKIAEXAMPLEKEY", "wJalrXUtn/FEMI+bPxRfi", "c2lnbmF0dXJl"
SAMPLE = Path(__file__).parents[2] / "sample_data"
INPUT = f"s3://{KEY}:{SECRET}@bucket/in/docs.jsonl"
TOKENIZER = f"s3://{KEY}:{SECRET}@bucket/tok"
OUT = f"s3://{KEY}:{SECRET}@bucket/out"
SIGNED = f"https://{KEY}:{SECRET}@host/in/docs.jsonl?X-Amz-Signature={SIGNATURE}"


@pytest.fixture
def credentials(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every URL is answered by the memory file system, which wants credentials; returns those it was given."""
    given: list[tuple[str, str]] = []

    class Guarded(MemoryFileSystem):
        protocol = "guarded"

        def __init__(self, key: str = "", secret: str = "", **options: Any) -> None:
            given.append((key, secret))
            super().__init__(**options)

        def info(self, path: str, **options: Any) -> dict[str, Any]:
            if "denied" in path:
                raise PermissionError(f"{KEY} with {SECRET} may not see {SIGNED}")
            return super().info(path, **options)

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.rpartition("://")[2].rpartition("@")[2].partition("?")[0].strip("/")

    for kind in ("s3", "https"):
        monkeypatch.setitem(_registry, kind, Guarded)
    monkeypatch.setattr(stores, "EXTRAS", {})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secretOfTheEnvironment")
    text = "".join(f'{{"text": "Document {n} is about fog and frost."}}\n' for n in range(30))
    store.pipe_file("/bucket/in/docs.jsonl", text.encode())
    store.pipe_file("/host/in/docs.jsonl", text.encode())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        store.pipe_file(f"/bucket/tok/{name}", (SAMPLE / "tokenizer" / name).read_bytes())
    return given


def assert_clean(*texts: str) -> None:
    for text in texts:
        for secret in (KEY, SECRET, SIGNATURE, "secretOfTheEnvironment"):
            assert secret not in text


@pytest.mark.parametrize("source", [INPUT, SIGNED, INPUT.replace("docs", "*")])
def test_they_are_nowhere_in_what_is_written(
    credentials: list[tuple[str, str]],
    store: MemoryFileSystem,
    packer: Packer,
    tmp_path: Path,
    source: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = tmp_path / "report.json"
    options = ["--tokenizer", TOKENIZER, "--max-length", 64]
    assert packer("pack", source, *options, "--out", OUT, "--report", report) == 0
    assert packer("verify", OUT, source, "--tokenizer", TOKENIZER) == 0
    assert packer("inspect", OUT, "--decode", "--tokenizer", TOKENIZER) == 0
    command = ["stats", source, *map(str, options), "--json", str(tmp_path / "stats.json")]
    monkeypatch.setattr("sys.argv", ["packer", *command])
    assert packer(*command) == 0
    assert (KEY, SECRET) in credentials
    written = [content.decode("latin-1") for content in map(store.cat_file, store.find("/bucket/out"))]
    files = [path.read_text() for path in tmp_path.glob("*.json")]
    assert len(files) == 2
    assert_clean(*written, *files, *capsys.readouterr())


@pytest.mark.parametrize(
    "arguments",
    [
        ["pack", INPUT.replace("docs", "denied"), "--max-length", "8", "--out", "out"],
        ["pack", INPUT.replace("docs", "nothing"), "--max-length", "8", "--out", "out"],
        ["pack", SIGNED.replace("docs", "denied"), "--max-length", "8", "--out", "out"],
        ["pack", INPUT.replace("docs", "denied/*"), "--max-length", "8", "--out", "out"],
        ["pack", INPUT, "--max-length", "8", "--out", OUT.replace("out", "denied")],
        ["pack", INPUT, "--max-length", "8", "--tokenizer", TOKENIZER, "--chat-template", SIGNED, "--out", OUT],
        ["pack", INPUT, "--max-length", "8", "--out", OUT, "--tokenizer", TOKENIZER.replace("tok", "denied")],
        ["pack", INPUT, "--max-length", "8", "--out", OUT, "--tokenizer", TOKENIZER.replace("tok", "nothing")],
        ["verify", OUT.replace("out", "denied")],
        ["inspect", OUT.replace("out", "nothing")],
        ["stats", f"nosuch::{INPUT}", "--tokenizer", TOKENIZER],
        ["pack", "--no-such", INPUT, "--max-length", "8", "--out", OUT],
    ],
    ids=lambda arguments: " ".join(arguments[:1]),
)
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.usefixtures("credentials")
def test_they_are_nowhere_in_errors(
    packer: Packer,
    tmp_path: Path,
    arguments: list[str],
    debug: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if not debug:
        assert packer(*arguments) in (1, 2)
        printed = capsys.readouterr()
        assert len(printed.err.splitlines()) == 1
        assert_clean(printed.out, printed.err)
        return
    try:
        packer(*arguments, "--debug")
    except Exception as error:
        assert_clean("".join(traceback.format_exception(error)))
