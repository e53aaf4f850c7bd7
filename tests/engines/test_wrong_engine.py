"""An engine that is wrong, or breaks: the data set is right all the same, and the report says what happened."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from packer import engines, manifest, pipeline, stats, verify
from packer.corpus import ReadOptions
from packer.engines import EngineError, HfEngine, Watch, fast, trial
from packer.errors import DatasetError, InputError
from packer.finish import Output
from packer.job import Job, TokenizerOptions
from packer.plan import Int32Array, Int64Array
from packer.pricing import Terms
from packer.schema import Layout
from packer.tokenizer import Tokenizer, load
from packer.windowing import Windowing

SAMPLES = Path(__file__).parents[2] / "sample_data"
ARTICLES, TOKENIZER = "articles.jsonl", "tokenizer"
AT = 20  # the changed document: record 21
Answer = tuple[Int32Array, Int64Array]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(SAMPLES / ARTICLES, tmp_path / ARTICLES)
    shutil.copytree(SAMPLES / "tokenizer", tmp_path / TOKENIZER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trial, "strings", lambda _: ["a short trial"])


def marked() -> str:
    """The text of the document that the doubles are wrong about."""
    record: dict[str, str] = json.loads(Path(ARTICLES).read_text(encoding="utf-8").split("\n")[AT])
    return record["text"]


class Double:
    """The reference, but for the batch that holds the marked document."""

    name = "fast"
    change: Callable[[Int32Array, Int64Array, int], Answer]
    text: str = ""  # the marked document's

    def __init__(self, tokenizer: Tokenizer, *, special_in_text: str = "parse") -> None:
        self.reference = HfEngine(tokenizer, special_in_text=special_in_text)
        self.text = self.text or marked()

    def encode(self, texts: Sequence[str]) -> Answer:
        ids, offsets = self.reference.encode(texts)
        if self.text not in texts:
            return ids, offsets
        return type(self).change(ids.copy(), offsets.copy(), texts.index(self.text))


def one_id(ids: Int32Array, offsets: Int64Array, at: int) -> Answer:
    ids[offsets[at] + 1] ^= 1
    return ids, offsets


def one_id_less(ids: Int32Array, offsets: Int64Array, at: int) -> Answer:
    offsets[at + 1 :] -= 1
    return np.delete(ids, offsets[at + 1]), offsets


def boundary_moved(ids: Int32Array, offsets: Int64Array, at: int) -> Answer:
    offsets[at + 1] -= 1
    return ids, offsets


def refuses(*_: object) -> Answer:
    raise EngineError("it cannot")


DIFFERENT = {
    "one id": (one_id, f"{ARTICLES}, record 21: token 1 differs between the engines"),
    "one id less": (one_id_less, f"{ARTICLES}, record 21: token "),
    "a boundary moved": (boundary_moved, f"{ARTICLES}, record 21: token "),
    "refuses": (refuses, f"{ARTICLES}, record 1: in the 360 documents from here on: it cannot"),
    "decreasing": (lambda i, o, at: (i, np.concatenate([o[:at], o[at:][::-1]])), "record 1: in the 360 documents"),
    "too few": (lambda i, o, _: (i, o[:-1]), "record 1: in the 360 documents"),
    "beyond": (lambda i, o, _: (i[:-7], o), "record 1: in the 360 documents"),
    "int64": (lambda i, o, _: (i.astype(np.int64), o), "ids and offsets come as int64 and int64"),
    "outside": (lambda i, o, _: (i + np.int32(1 << 20), o), "an id is outside the vocabulary of 4096"),
}


def use(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    double = type("Changed", (Double,), {"change": staticmethod(change)})
    monkeypatch.setattr(engines, "FastEngine", double)


def job(engine: str, window: bool = False, **read: Any) -> Job:
    return Job(
        read=ReadOptions(**read),
        tokenizer=TokenizerOptions(TOKENIZER, engine=engine),
        strategy="none" if window else "bfd",
        max_length=256,
        overlong=None,
        min_tokens=0,
        max_segments=None,
        seed=0,
        order="shuffle",
        block_tokens=20_000,
        window=Windowing(128) if window else None,
    )


LAYOUT = Layout(labels="shifted", boundaries="document", positions="segment", columns="full")
OUTPUT = Output(split="train", file_format="parquet", compression="zstd", rows_per_shard=None)


class Progress:
    documents = tokens = calls = 0

    def __call__(self, documents: int, tokens: int) -> None:
        self.documents, self.tokens, self.calls = self.documents + documents, self.tokens + tokens, self.calls + 1


def make(
    engine: str, out: str, window: bool = False, inputs: Sequence[str] = (ARTICLES,), **read: Any
) -> tuple[pipeline.Result, Progress]:
    progress = Progress()
    function = pipeline.window if window else pipeline.pack
    result = function(inputs, Path(out), job(engine, window, **read), LAYOUT, OUTPUT, progress=progress)
    return result, progress


def shards(out: str) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(out, "data").iterdir()}


def check_mended(found: pipeline.Result, right: pipeline.Result, said: str) -> None:
    assert shards(str(found.out)) == shards(str(right.out))
    assert sorted(path.name for path in found.out.iterdir()) == ["data", "manifest.json"]
    one, other = ((result.out / manifest.FILE).read_bytes() for result in (found, right))
    assert one == other  # engine and all
    assert found.manifest.tokenizer is not None
    assert (found.manifest.tokenizer.engine, found.manifest.tokenizer.checked_documents) == ("hf", 0)
    assert said in (found.facts.engine_note or "")
    assert "everything was done again" in (found.facts.engine_note or "")


@pytest.mark.parametrize("window", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["pack", "window"])
@pytest.mark.parametrize("how", DIFFERENT)
def test_done_again(how: str, window: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    right, progress = make("hf", "right", window)
    change, said = DIFFERENT[how]
    use(monkeypatch, change)
    found, told = make("fast", "found", window)
    check_mended(found, right, said)
    assert (told.documents, told.tokens) == (progress.documents, progress.tokens)


def test_nothing_is_said_of_a_right_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    right, _ = make("hf", "right")
    use(monkeypatch, lambda ids, offsets, _: (ids, offsets))
    found, _ = make("fast", "found")
    assert shards("found") == shards("right")
    facts = found.manifest.tokenizer
    assert facts is not None
    assert (facts.engine, facts.checked_documents, facts.differing_documents) == ("fast", 360, 0)
    assert facts.engine_version == f"fastokens {fast.version()}"
    assert found.facts.engine_note is None
    assert right.manifest.totals == found.manifest.totals


def test_a_difference_in_a_later_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of the partitions before it are staged already, and go."""
    lines = Path(ARTICLES).read_bytes().split(b"\n")
    Path(ARTICLES).write_bytes(b"\n".join(lines[:-1] * 6) + b"\n")
    right, _ = make("hf", "right", partition_bytes=200_000)
    seen: list[int] = []

    class Late(Double):
        def encode(self, texts: Sequence[str]) -> Answer:
            found = self.reference.encode(texts)
            seen.append(len(texts))
            return found if len(seen) < 4 else refuses()

    monkeypatch.setattr(engines, "FastEngine", Late)
    found, _ = make("fast", "found", partition_bytes=200_000)
    assert len(seen) == 4
    check_mended(found, right, f"{ARTICLES}, record ")
    assert " after byte " in (found.facts.engine_note or "")


@pytest.mark.parametrize("kinds", [["one id", "too few"], pytest.param([*DIFFERENT], marks=pytest.mark.slow)])
def test_stats(kinds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(engine: str) -> tuple[stats.Stats, Progress]:
        progress = Progress()
        options = TokenizerOptions(TOKENIZER, engine=engine)
        return stats.stats([ARTICLES], ReadOptions(), options, [256], Terms(), progress), progress

    right, progress = measure("hf")
    for change, said in (DIFFERENT[kind] for kind in kinds):
        use(monkeypatch, change)
        found, told = measure("fast")
        assert (found.length, found.tokens, found.strategies) == (right.length, right.tokens, right.strategies)
        assert (found.source.engine, found.source.checked_documents) == (right.source.engine, 0)
        assert said in (found.source.engine_note or "")
        assert (told.documents, told.tokens) == (progress.documents, progress.tokens)


def test_what_stood_at_out_stays_until_the_second_attempt_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    make("hf", "out")
    before = shards("out")
    use(monkeypatch, one_id)
    pipeline.pack([ARTICLES], Path("out"), job("fast"), LAYOUT, OUTPUT, overwrite=True)
    assert shards("out") == before


class Panic(BaseException):
    """As what native code raises when it panics."""


Panic.__module__ = "pyo3_runtime"


@pytest.mark.parametrize("error", [Panic("index out\nof bounds"), ValueError("a byte lacks"), Panic(), MemoryError()])
def test_native_code_that_breaks(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    right, _ = make("hf", "right")
    native, fingerprint = fast.load_ahead(Path(TOKENIZER, "tokenizer.json")).result()

    def encode(texts: list[str], **options: Any) -> object:
        if marked() in texts:
            raise error
        return native.encode_batch_flat(texts, **options)

    done: Future[Any] = Future()
    done.set_result((SimpleNamespace(encode_batch_flat=encode), fingerprint))
    monkeypatch.setattr(fast, "load_ahead", lambda _: done)
    found, _ = make("fast", "found")
    check_mended(found, right, " ".join(str(error).split()) or type(error).__name__)


def test_a_tokenizer_file_that_changes_meanwhile_is_an_error() -> None:
    engine = engines.FastEngine(load(TOKENIZER))
    object.__setattr__(engine, "_fingerprint", "another")
    with pytest.raises(engines.fast.TokenizerError, match="changed while"):
        engine.encode(["a"])


def test_a_pipe_cannot_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, one_id)
    piped = SimpleNamespace(buffer=io.BytesIO(Path(ARTICLES).read_bytes()))
    monkeypatch.setattr("sys.stdin", piped)
    with pytest.raises(InputError) as raised:
        make("fast", "out", inputs=["-"])
    assert "--tokenizer-engine hf" in str(raised.value)
    assert "record 21" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not Path("out").exists()


def test_verify_finds_a_wrong_id_that_the_sample_did_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, one_id)
    monkeypatch.setattr(engines.Watch, "pick", lambda *_: [])
    found, _ = make("fast", "out")
    assert found.manifest.tokenizer is not None
    assert found.manifest.tokenizer.engine == "fast"
    assert found.facts.engine_note is None
    with pytest.raises(DatasetError, match="document 20, position 1: the token is not that of INPUT"):
        verify.verify(found.out, [ARTICLES])


@pytest.mark.slow
def test_one_wrong_document_of_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the first megabyte: where the sample meets it the run mends it, and where not `verify` tells."""
    texts = [f"Document {i}. " + "All that is written here is the same. " * 10 for i in range(6000)]
    Path("many.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    tokenizer = load(TOKENIZER)
    sample = Watch(HfEngine(tokenizer), vocab_size=tokenizer.vocab_size, seed=0, partition=0)
    picked = sample.pick(np.arange(len(texts), dtype=np.int64), texts)
    assert len(picked) < len(texts) / 2
    assert picked[-1] - picked[-2] > 1
    right, _ = make("hf", "right", inputs=["many.jsonl"])
    use(monkeypatch, one_id)
    for at in (picked[-1], picked[-1] - 1):
        monkeypatch.setattr(Double, "text", texts[at])
        found, _ = make("fast", f"out{at}", inputs=["many.jsonl"])
        if at == picked[-1]:
            check_mended(found, right, f"many.jsonl, record {at + 1}: token 1 differs")
        else:
            with pytest.raises(DatasetError, match=f"document {at}, position 1: the token is not that of INPUT"):
                verify.verify(found.out, ["many.jsonl"])
