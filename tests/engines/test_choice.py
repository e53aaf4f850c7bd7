"""Which engine a run has, what it says of it, and that nothing is loaded in vain."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from packer import attempts, engines, loading
from packer.cli import main
from packer.corpus import ReadOptions, find_sources
from packer.engines import fast, trial
from packer.errors import UsageError
from packer.tokenizer import load

SAMPLES = Path(__file__).parents[2] / "sample_data"
ARTICLES, TOKENIZER = str(SAMPLES / "articles.jsonl"), str(SAMPLES / "tokenizer")
MANY = 1 << 40  # bytes of text


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trial, "strings", lambda _: ["a short trial"])


@pytest.fixture
def words(tmp_path: Path) -> str:
    """A tokenizer that the fast engine does not serve."""
    backend = Backend(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(tmp_path / "words.json"))
    return "words.json"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0), *capsys.readouterr()


def pack(*arguments: str, tokenizer: str = TOKENIZER) -> list[str]:
    return ["pack", ARTICLES, "--tokenizer", tokenizer, "--max-length", "512", "--out", "out", *arguments]


def facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("out/manifest.json").read_bytes())["tokenizer"]
    return found


def test_auto_by_size() -> None:
    tokenizer = load(TOKENIZER)
    below, above = engines.WORTHWHILE_BYTES - 1, engines.WORTHWHILE_BYTES
    assert engines.choose(tokenizer, "auto", "parse", below) == engines.reference()
    chosen = engines.choose(tokenizer, "auto", "parse", above)
    assert (chosen.name, chosen.version, chosen.note) == ("fast", f"fastokens {fast.version()}", None)
    assert engines.choose(tokenizer, "fast", "literal", 0).name == "fast"
    assert engines.choose(tokenizer, "hf", "parse", MANY) == engines.reference()


def test_auto_steps_aside(words: str) -> None:
    chosen = engines.choose(load(words), "auto", "parse", MANY)
    assert (chosen.name, chosen.note) == ("hf", "not the fast one: its model is WordLevel")
    assert engines.choose(load(words), "auto", "parse", 1).note is None  # of a small corpus there is nothing to say
    with pytest.raises(UsageError, match=r"words\.json: its model is WordLevel; auto takes hf then"):
        engines.choose(load(words), "fast", "parse", 1)


@pytest.mark.parametrize(
    ("version", "said"), [(None, "fastokens is not installed"), ("0.3.4", "fastokens 0.3.4 is too old")]
)
def test_without_the_library(version: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "version", lambda: version)
    monkeypatch.setattr(loading, "_load", lambda _: pytest.fail("loaded"))
    chosen = engines.choose(load(TOKENIZER), "auto", "parse", MANY)
    assert chosen.name == "hf"
    assert f"not the fast one: {said}" in (chosen.note or "")
    with pytest.raises(UsageError, match=rf"{said}.*pip install 'packer\[fast\]'"):
        engines.choose(load(TOKENIZER), "fast", "parse", MANY)


def test_versions() -> None:
    assert fast.reason_against("0.3.5") is None
    assert fast.reason_against("0.10.0rc1") is None
    assert fast.reason_against("1.0") is None


def test_size_of_the_text(tmp_path: Path) -> None:
    for name in ("articles.parquet", "compressed.jsonl.gz", "token_ids.jsonl", "stories.txt"):
        shutil.copy(SAMPLES / name, tmp_path / name)

    def size(name: str, limit: int | None = None) -> int:
        return attempts._text_bytes(find_sources([name], ReadOptions()).sources, limit)

    stored = {name: (tmp_path / name).stat().st_size for name in os.listdir(tmp_path)}
    assert size("stories.txt") == stored["stories.txt"]
    assert size("compressed.jsonl.gz") > stored["compressed.jsonl.gz"]
    assert size("articles.parquet") > stored["articles.parquet"]
    assert size("token_ids.jsonl") == 0
    assert size("-") == 0
    assert size("stories.txt", limit=1) < stored["stories.txt"]


def test_fast_on_what_it_does_not_serve(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *pack("--tokenizer-engine", "fast", tokenizer=words))
    assert (code, out) == (2, "")
    assert (
        err == "packer: --tokenizer-engine fast does not serve words.json: its model is WordLevel; auto takes hf then\n"
    )
    assert not Path("out").exists()


def test_the_summary_says_why(words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "WORTHWHILE_BYTES", 1)
    code, out, _ = run(capsys, *pack("--report", "report.json", tokenizer=words))
    assert code == 0
    assert "engine       tokenizers " in out
    assert "(not the fast one: its model is WordLevel)" in out
    assert json.loads(Path("report.json").read_bytes())["engine_note"] == "not the fast one: its model is WordLevel"
    assert facts()["engine"] == "hf"
    code, out, _ = run(capsys, "stats", ARTICLES, "--tokenizer", words, "--json", "-")
    assert json.loads(out)["source"]["engine_note"] == "not the fast one: its model is WordLevel"


def test_the_summary_says_how_many_were_compared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "WORTHWHILE_BYTES", 1)
    code, out, _ = run(capsys, *pack())
    assert code == 0
    assert f"engine       fastokens {fast.version()}; 360 documents compared with tokenizers, all equal\n" in out
    assert facts() | {"engine": "fast", "checked_documents": 360, "differing_documents": 0} == facts()


@pytest.mark.parametrize("engine", ["hf", "auto"])
def test_a_small_corpus_is_left_to_the_reference_without_a_word(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, *pack("--tokenizer-engine", engine))
    assert code == 0
    assert "\nengine " not in out
    assert facts() | {"engine": "hf", "checked_documents": 0} == facts()


def loaded_after(*arguments: str) -> set[str]:
    """Modules that a command has loaded in a process of its own."""
    code = (
        "import sys\nfrom packer.cli import main\ntry: main(sys.argv[1:])\n"
        "finally: print('\\n'.join(sys.modules), file=open('modules', 'w'))"
    )
    subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=True, timeout=120)
    return set(Path("modules").read_text().split())


def test_what_is_loaded() -> None:
    heavy = {"fastokens", "tokenizers", "numpy", "pyarrow"}
    assert not heavy & loaded_after("pack", "--help")
    for engine in ("hf", "auto"):
        assert heavy & loaded_after(*pack("--overwrite", "--tokenizer-engine", engine)) == heavy - {"fastokens"}
    assert heavy <= loaded_after(*pack("--overwrite", "--tokenizer-engine", "fast"))


def test_ready_made_ids_need_no_engine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "WORTHWHILE_BYTES", 1)
    arguments = pack()
    arguments[1] = str(SAMPLES / "token_ids.jsonl")
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "\nengine " not in out


def test_what_names_alone_say_is_loaded_before_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Path] = []
    monkeypatch.setattr(loading, "load_ahead", begun.append)
    monkeypatch.setattr(loading, "WORTHWHILE_BYTES", 1000)
    (tmp_path / "small.jsonl").write_bytes(b"x" * 400)
    (tmp_path / "small.jsonl.gz").write_bytes(b"x" * 400)
    small, packed = str(tmp_path / "small.jsonl"), str(tmp_path / "small.jsonl.gz")
    for inputs, engine, expected in (
        ([small], "auto", False),
        ([small], "fast", True),
        ([small, small, small], "auto", True),
        ([small, small, small], "hf", False),
        ([packed], "auto", True),
        ([str(tmp_path)], "auto", True),
        (["-", "hf:some/name", "s3://bucket/key"], "auto", False),
    ):
        begun.clear()
        loading.guess_ahead(TOKENIZER, inputs, engine)
        assert begun == [Path(TOKENIZER, "tokenizer.json")] * expected, inputs
    begun.clear()
    loading.guess_ahead("no/tokenizer", [small], "fast")
    loading.guess_ahead(None, [small], "fast")
    assert not begun
