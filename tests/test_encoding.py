"""Texts to ids: exactly those of Hugging Face `tokenizers`, ends around them once, blocks cut where they must be."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, processors

from packer import corpus
from packer.blocks import Block, Collector
from packer.corpus.documents import TextBatch, TokenBatch
from packer.encoding import Encoded, encode
from packer.engines import DifferenceError, HfEngine, Watch
from packer.errors import TokenizerError, UsageError
from packer.job import Job
from packer.packing.overlong import Losses
from packer.plan import Int32Array, Int64Array, offsets_of
from packer.stage import stage
from packer.threads import Behind, ordered_ahead
from packer.tokenizer import Ends, Tokenizer, ends_of, load

SAMPLE = Path(__file__).parents[1] / "sample_data" / "tokenizer"
SPECIAL = ["<unk>", "<s>", "</s>", "[CLS]", "[SEP]", "<sep>", "<lang>"]
UNK, BOS, EOS, CLS, SEP, SEP2, LANG = range(7)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
Documents = list[list[int]]


def word_pieces() -> tokenizers.Tokenizer:
    """Bert-like: lower case, accents stripped, letters and their continuations."""
    vocabulary = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), *"0123456789.,"]
    backend = tokenizers.Tokenizer(
        models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>")
    )
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(SPECIAL)
    backend.post_processor = processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    return backend


def unigram() -> tokenizers.Tokenizer:
    """SentencePiece-like: spaces as marks, characters outside the vocabulary unknown."""
    pieces = [
        *((token, 0.0) for token in SPECIAL),
        ("▁", -2.0),
        *((letter, -3.0) for letter in LETTERS),
        ("▁the", -1.0),
    ]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, UNK, False))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.add_special_tokens(SPECIAL)
    backend.post_processor = template("<s> $A </s>")
    return backend


def words(post_processor: Any = None) -> tokenizers.Tokenizer:
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *LETTERS])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(SPECIAL)
    if post_processor is not None:
        backend.post_processor = post_processor
    return backend


def template(single: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single=single, special_tokens=[(t, i) for i, t in enumerate(SPECIAL)])


def saved(folder: Path, backend: tokenizers.Tokenizer, **config: object) -> Tokenizer:
    """The tokenizer as packer loads it from a folder."""
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_bytes(orjson.dumps(config))
    return load(str(folder))


def flat(documents: Sequence[Sequence[int]]) -> tuple[Int32Array, Int64Array]:
    ids = np.array([i for document in documents for i in document], np.int32)
    return ids, offsets_of(np.array([len(document) for document in documents], np.int64))


def listed(ids: Int32Array, offsets: Int64Array) -> Documents:
    return [ids[a:b].tolist() for a, b in pairwise(offsets.tolist())]


def naive_ends(document: list[int], prefix: list[int], suffix: list[int]) -> list[int]:
    if not document:
        return []
    has_prefix = document[: len(prefix)] == prefix
    has_suffix = not suffix or document[-len(suffix) :] == suffix
    return ([] if has_prefix else prefix) + document + ([] if has_suffix else suffix)


few_ids = st.integers(1, 3)
end_ids = st.lists(few_ids, max_size=2)


@given(st.lists(st.lists(few_ids, max_size=5)), end_ids, end_ids)
def test_ends_add(documents: Documents, prefix: list[int], suffix: list[int]) -> None:
    """Ids are so few that documents often have their ends already, or are shorter than them."""
    ids, offsets = Ends(tuple(prefix), tuple(suffix), "").add(*flat(documents))
    assert (ids.dtype, offsets.dtype) == (np.int32, np.int64)
    assert listed(ids, offsets) == [naive_ends(document, prefix, suffix) for document in documents]


@pytest.mark.parametrize(
    ("post_processor", "config", "options", "prefix", "suffix"),
    [
        (None, {}, {}, [], []),
        (None, {"eos_token": "</s>"}, {}, [], [EOS]),
        (None, {"bos_token": "<s>", "eos_token": {"content": "</s>"}}, {}, [], [EOS]),
        (None, {"bos_token": "<s>"}, {"bos": True}, [BOS], []),
        (None, {"eos_token": "</s>"}, {"eos": False}, [], []),
        (None, {"eos_token": "</s>"}, {"eos_token": "<sep>"}, [], [SEP2]),
        (None, {}, {"eos": True, "eos_token": "<sep>"}, [], [SEP2]),
        (template("<s> $A </s>"), {}, {}, [BOS], [EOS]),
        (template("<s> $A </s>"), {"bos_token": "<s>", "eos_token": "</s>"}, {}, [BOS], [EOS]),
        (template("<s> $A </s>"), {"bos_token": "<s>", "eos_token": "</s>"}, {"bos": True, "eos": True}, [BOS], [EOS]),
        (template("<s> $A </s>"), {}, {"bos": False}, [], [EOS]),
        (template("<s> $A </s>"), {}, {"eos": False}, [BOS], []),
        (template("<s> $A </s>"), {}, {"bos": False, "eos": False}, [], []),
        (template("<s> $A"), {"eos_token": "</s>"}, {}, [BOS], [EOS]),
        (template("<s> <lang> $A"), {"bos_token": "<s>"}, {"bos": True}, [BOS, LANG], []),
        (template("<lang> $A"), {"bos_token": "<s>"}, {"bos": True}, [BOS, LANG], []),
        (template("$A </s>"), {"eos_token": "</s>"}, {}, [], [EOS]),
        (template("$A <sep> </s>"), {"eos_token": "</s>"}, {}, [], [SEP2, EOS]),
        (processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS)), {}, {}, [CLS], [SEP]),
        (processors.RobertaProcessing(("</s>", EOS), ("<s>", BOS)), {"eos_token": "</s>"}, {}, [BOS], [EOS]),
        (processors.ByteLevel(), {"eos_token": "</s>"}, {}, [], [EOS]),
        (processors.Sequence([processors.ByteLevel(), template("<s> $A")]), {"eos_token": "</s>"}, {}, [BOS], [EOS]),
    ],
)
def test_ends_of(
    tmp_path: Path, post_processor: Any, config: Any, options: Any, prefix: list[int], suffix: list[int]
) -> None:
    ends = ends_of(saved(tmp_path, words(post_processor), **config), **options)
    assert ([*ends.prefix], [*ends.suffix]) == (prefix, suffix)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({"eos_token": "<missing>"}, {}, "'<missing>' is not in its vocabulary"),
        ({"eos_token": "<missing>"}, {"eos": True}, "'<missing>' is not in its vocabulary"),
        ({"eos_token": "</s>"}, {"eos_token": "<wrong>"}, "'<wrong>' is not in its vocabulary"),
        ({"bos_token": "<missing>"}, {"bos": True}, "'<missing>' is not in its vocabulary"),
        ({}, {"eos": True}, "names no EOS token"),
        ({}, {"bos": True}, "names no BOS token"),
    ],
)
def test_wanted_but_missing(tmp_path: Path, config: Any, options: Any, message: str) -> None:
    tokenizer = saved(tmp_path, words(), **config)
    with pytest.raises(TokenizerError, match=message):
        ends_of(tokenizer, **options)


def test_ends_of_says_what_is_added(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, words(template("<s> $A")), bos_token="<s>", eos_token="</s>")
    assert all(token in ends_of(tokenizer).summary for token in ("<s>", "</s>"))
    assert all(option in ends_of(tokenizer, bos=False, eos=False).summary for option in ("--no-bos", "--no-eos"))


def test_special_tokens_map_names_tokens_too(tmp_path: Path) -> None:
    """tokenizer_config.json has the last word, but a null there says nothing."""
    (tmp_path / "special_tokens_map.json").write_bytes(orjson.dumps({"eos_token": "<sep>", "bos_token": "<lang>"}))
    tokenizer = saved(tmp_path, words(), eos_token=None, bos_token="<s>")
    assert (tokenizer.eos_token, tokenizer.bos_token) == ("<sep>", "<s>")


def test_a_vocabulary_of_digits(tmp_path: Path) -> None:
    """What is added does not depend on which letters a tokenizer knows."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *"0123456789"])}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    backend.add_special_tokens(SPECIAL)
    backend.post_processor = template("<s> $A </s>")
    ends = ends_of(saved(tmp_path, backend))
    assert (ends.prefix, ends.suffix) == ((BOS,), (EOS,))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [BOS, 7, EOS]),
        ("<s> a", [BOS, 7, EOS]),  # OpenRLHF 393, trl 1114: BOS twice
        ("a </s>", [BOS, 7, EOS]),
        ("<s> a b </s>", [BOS, 7, 8, EOS]),
        ("<s>", [BOS, EOS]),
        ("a </s> b", [BOS, 7, EOS, 8, EOS]),
        ("", []),
    ],
)
def test_no_doubled_ends(tmp_path: Path, text: str, expected: list[int]) -> None:
    tokenizer = saved(tmp_path, words(template("<s> $A </s>")), eos_token="</s>")
    ids = ends_of(tokenizer).add(*HfEngine(tokenizer).encode([text]))
    assert listed(*ids) == [expected]


def test_stored_truncation_and_padding_never_take_effect(tmp_path: Path) -> None:
    backend = words(template("<s> $A </s>"))
    backend.enable_truncation(8)
    backend.enable_padding(length=16, pad_id=UNK, pad_token="<unk>")
    assert len(backend.encode("a " * 30).ids) == 16, "they are in force in the library"
    tokenizer = saved(tmp_path, backend)
    ids = ends_of(tokenizer).add(*HfEngine(tokenizer).encode(["a " * 30, "b", "c " * 9]))
    assert listed(*ids) == [[BOS, *[7] * 30, EOS], [BOS, 8, EOS], [BOS, *[9] * 9, EOS]]


def test_dropout_is_refused(tmp_path: Path) -> None:
    vocabulary = {token: i for i, token in enumerate([*LETTERS, "ab"])}
    with pytest.raises(TokenizerError, match="dropout"):
        saved(tmp_path, tokenizers.Tokenizer(models.BPE(vocabulary, [("a", "b")], dropout=0.1)))


@pytest.fixture(scope="module", params=["sample", "word pieces", "unigram", "words"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    if request.param == "sample":
        return load(str(SAMPLE))
    made = {"word pieces": word_pieces, "unigram": unigram, "words": words}[request.param]()
    return saved(tmp_path_factory.mktemp("tokenizer"), made)


texts = st.lists(
    st.text(max_size=30)
    | st.lists(
        st.sampled_from(
            [*SPECIAL, "<|endoftext|>", "<|im_start|>", " ", "the", "é", "e\u0301", "\u2028", "\x00", "👩‍🚀"]
        ),
        max_size=6,
    ).map("".join),
    max_size=6,
)


@pytest.mark.parametrize("special_in_text", ["parse", "literal"])
@given(texts)
def test_ids_equal_those_of_hugging_face(tokenizer: Tokenizer, special_in_text: str, batch: list[str]) -> None:
    reference = tokenizers.Tokenizer.from_file(str(Path(tokenizer.source) / "tokenizer.json"))
    reference.encode_special_tokens = special_in_text == "literal"
    expected = [encoding.ids for encoding in reference.encode_batch(batch, add_special_tokens=False)]
    if special_in_text == "literal" and isinstance(tokenizer.backend.model, models.Unigram):
        with pytest.raises(TokenizerError, match="literal cannot be done"):  # control tokens are among its own pieces
            HfEngine(tokenizer, special_in_text=special_in_text)
        return
    ids, offsets = HfEngine(tokenizer, special_in_text=special_in_text).encode(batch)
    assert (ids.dtype, offsets.dtype) == (np.int32, np.int64)
    assert listed(ids, offsets) == expected


@given(st.lists(st.text(st.characters(exclude_characters="<>[]", codec="utf-8"), max_size=30), max_size=6))
def test_whole_documents_equal_those_of_hugging_face(tokenizer: Tokenizer, batch: list[str]) -> None:
    """With the post-processor's tokens, where the text has none of its own. An empty document stays empty."""
    reference = tokenizers.Tokenizer.from_file(str(Path(tokenizer.source) / "tokenizer.json"))
    own, full = (reference.encode_batch(batch, add_special_tokens=special) for special in (False, True))
    expected = [whole.ids if text.ids else [] for text, whole in zip(own, full, strict=True)]
    assert listed(*ends_of(tokenizer, eos=None).add(*HfEngine(tokenizer).encode(batch))) == [
        ids if not ids or tokenizer.eos_token is None else [*ids, tokenizer.id_of(tokenizer.eos_token, "EOS")]
        for ids in expected
    ]


def test_literal_gives_the_text_back() -> None:
    sample = load(str(SAMPLE))
    text = "a<|endoftext|>b<|im_start|>c"
    parsed, _ = HfEngine(sample).encode([text])
    literal, _ = HfEngine(sample, special_in_text="literal").encode([text])
    control = {sample.id_of("<|endoftext|>", "EOS"), sample.id_of("<|im_start|>", "start")}
    assert control <= set(parsed.tolist())
    assert not control & set(literal.tolist())
    assert sample.decode(parsed.tolist()) == sample.decode(literal.tolist()) == text


def test_literal_never_gives_a_control_token(tokenizer: Tokenizer) -> None:
    """Or refuses: a Unigram model has them among its pieces, and would find them in the text by itself."""
    control = {i: token.content for i, token in tokenizer.backend.get_added_tokens_decoder().items() if token.special}
    control.pop(tokenizer.backend.token_to_id("<unk>"), None)
    try:
        ids, _ = HfEngine(tokenizer, special_in_text="literal").encode([f"a{t} {t} b" for t in control.values()])
    except TokenizerError:
        return
    assert not set(control) & set(ids.tolist())


def test_engines_do_not_disturb_each_other() -> None:
    """Two runs in one process with other options share the loaded tokenizer."""
    sample = load(str(SAMPLE))
    literal = HfEngine(sample, special_in_text="literal")
    before = literal.encode(["<|endoftext|>"])[0].tolist()
    HfEngine(sample)
    assert literal.encode(["<|endoftext|>"])[0].tolist() == before


class Spelling:
    """An engine whose ids are the text's own digits."""

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        return flat([[int(digit) for digit in text] for text in texts])


ENDS = Ends((8,), (9,), "")


def documents_of(parts: Sequence[Encoded]) -> list[tuple[int, list[int]]]:
    return [pair for part in parts for pair in zip(part.ordinals.tolist(), listed(part.ids, part.offsets), strict=True)]


@given(st.lists(st.lists(st.text("123", max_size=4), min_size=1, max_size=5), max_size=8), st.integers(0, 9))
def test_order_and_empty_documents(batches: list[list[str]], gap: int) -> None:
    """Ordinals have gaps where records were skipped; flash-attention 1537: documents without a token are left out."""
    given, first = [], 0
    for batch in batches:
        given.append(TextBatch(np.arange(first, first + len(batch)), batch))
        first += len(batch) + gap
    found = list(encode(given, Spelling(), ENDS))
    expected = [
        (ordinal, [8, *map(int, text), 9])
        for batch in given
        for ordinal, text in zip(batch.ordinals.tolist(), batch.texts, strict=True)
        if text
    ]
    assert documents_of(found) == expected
    assert [part.empty for part in found] == [sum(not text for text in batch) for batch in batches]
    assert all(part.mask is None for part in found)


def test_ready_made_ids_are_untouched() -> None:
    """Neither ends nor engine; the mask stays with its tokens when empty documents leave."""
    ids, offsets = flat([[], [1, 2], [], [], [3]])
    mask = np.array([False, True, True])
    batch = TokenBatch(np.array([4, 5, 7, 8, 9]), ids, offsets, mask, np.ones(5, np.bool_))
    for engine, ends in ((None, None), (Spelling(), ENDS)):
        [found] = encode([batch], engine, ends)
        assert documents_of([found]) == [(5, [1, 2]), (9, [3])]
        assert found.mask is not None
        assert (found.mask.tolist(), found.empty) == (mask.tolist(), 3)


def test_texts_need_a_tokenizer() -> None:
    with pytest.raises(UsageError, match="--tokenizer"):
        list(encode([TextBatch(np.array([0]), ["a"])], None, None))


class Failing:
    """Refuses one text."""

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        if texts == ["bad"]:
            raise ZeroDivisionError("the engine broke")
        return flat([[1] for _ in texts])


@pytest.mark.parametrize("position", range(6))
def test_the_engines_error_surfaces(position: int) -> None:
    batches = [TextBatch(np.array([i]), ["bad" if i == position else "good"]) for i in range(6)]
    found: list[Encoded] = []

    def read() -> None:
        found.extend(encode(batches, Failing(), ENDS))

    with pytest.raises(ZeroDivisionError, match="the engine broke"):
        read()
    assert len(found) == position


class TestOrderedAhead:
    def test_two_at_once_and_in_order(self) -> None:
        """The first can only end when the second has begun."""
        second = threading.Event()

        def work(item: int) -> tuple[int, bool]:
            if item == 1:
                second.set()
            return item, second.wait(20)

        assert list(ordered_ahead(work, range(6), threads=2, ahead=2)) == [(item, True) for item in range(6)]

    @pytest.mark.parametrize("ahead", [1, 2, 5])
    def test_takes_no_more_than_it_may(self, ahead: int) -> None:
        taken = 0

        def items() -> Iterator[int]:
            nonlocal taken
            for item in range(20):
                taken += 1
                yield item

        for given_back, result in enumerate(ordered_ahead(lambda item: -item, items(), threads=2, ahead=ahead)):
            assert result == -given_back
            assert taken - given_back <= ahead
        assert taken == 20

    def test_items_error_surfaces(self) -> None:
        def items() -> Iterator[int]:
            yield 1
            raise ZeroDivisionError("the reader broke")

        with pytest.raises(ZeroDivisionError, match="the reader broke"):
            list(ordered_ahead(lambda item: item, items(), threads=2, ahead=3))

    def test_abort_is_called_and_waited_for(self) -> None:
        """A thread must not go on writing where its caller cleans up."""
        stop, running = threading.Event(), threading.Event()
        ended: list[int] = []

        def work(item: int) -> None:
            if item == 0:
                running.wait(5)
                raise ZeroDivisionError("broke")
            running.set()
            assert stop.wait(5)
            ended.append(item)

        with pytest.raises(ZeroDivisionError, match="broke"):
            list(ordered_ahead(work, range(9), threads=2, ahead=3, abort=stop.set))
        assert 1 in ended

    def test_error_waits_for_nothing(self) -> None:
        release = threading.Event()
        ended: list[int] = []

        def work(item: int) -> None:
            if item == 0:
                raise ZeroDivisionError("broke")
            release.wait(5)
            ended.append(item)

        try:
            with pytest.raises(ZeroDivisionError, match="broke"):
                list(ordered_ahead(work, range(9), threads=2, ahead=3))
            assert ended == []
        finally:
            release.set()


Document = tuple[int, list[int], list[bool] | None]  # ordinal, ids, mask


def naive_blocks(documents: list[Document], block_tokens: int) -> list[list[Document]]:
    blocks: list[list[Document]] = [[]]
    for document in documents:
        if sum(len(ids) for _, ids, _ in blocks[-1]) >= block_tokens:
            blocks.append([])
        blocks[-1].append(document)
    return [block for block in blocks if block]


def encoded(documents: list[Document]) -> Encoded:
    """A batch: all of its documents have a mask, or none has."""
    bits = [bit for _, _, mask in documents for bit in mask or []]
    mask = np.array(bits, np.bool_) if documents[0][2] is not None else None
    masked = np.array([mask is not None for _, _, mask in documents])
    ordinals = np.array([ordinal for ordinal, _, _ in documents])
    return Encoded(ordinals, *flat([ids for _, ids, _ in documents]), mask, masked, 0)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=25), st.integers(1, 40), st.data())
def test_blocks_end_where_they_are_full(shape: list[tuple[int, bool]], block_tokens: int, data: st.DataObject) -> None:
    documents: list[Document] = [
        (3 * i, list(range(100 * i, 100 * i + n)), [(i + p) % 3 == 0 for p in range(n)] if masked else None)
        for i, (n, masked) in enumerate(shape)
    ]
    switches = {i for i, (a, b) in enumerate(pairwise(shape), 1) if a[1] != b[1]}
    cuts = data.draw(st.sets(st.integers(1, len(shape) - 1))) if len(shape) > 1 else set()
    batches = [encoded(documents[a:b]) for a, b in pairwise(sorted({0, len(shape), *switches, *cuts}))]
    collector = Collector(block_tokens)
    found: list[Block] = [block for batch in batches for block in collector.add(batch)]
    found += collector.rest()
    expected = naive_blocks(documents, block_tokens)
    assert [block.documents.segments["doc"].tolist() for block in found] == [[o for o, _, _ in b] for b in expected]
    for block, wanted in zip(found, expected, strict=True):
        rows = block.documents
        assert listed(rows.tokens, rows.row_offsets) == [ids for _, ids, _ in wanted]
        assert rows.segments["doc_length"].tolist() == [len(ids) for _, ids, _ in wanted]
        assert block.masked.tolist() == [mask is not None for _, _, mask in wanted]
        bits = [bit for _, ids, mask in wanted for bit in (mask or [True] * len(ids))]
        assert (rows.trained is None) == (not block.masked.any())
        assert rows.trained is None or rows.trained.tolist() == bits


def test_a_mask_is_its_own_records_only(tmp_path: Path) -> None:
    """A long record without a mask is split, though the next record has one (truncation is for those with a mask)."""
    records = [{"input_ids": [*range(9)]}, {"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}]
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    options = corpus.ReadOptions()
    [partition] = corpus.partition(
        corpus.find_sources([str(path)], options, out=str(tmp_path / "out")).sources, options
    )
    job = Job(
        read=options,
        tokenizer=None,
        strategy="bfd",
        max_length=4,
        overlong=None,
        min_tokens=0,
        max_segments=None,
        seed=0,
        order="plan",
        block_tokens=1000,
    )
    with Behind() as behind:
        report = stage(job, partition, tmp_path / "part", behind)
    assert report().losses == Losses()


class Slow(HfEngine):
    """A reference that answers only when it may."""

    may = threading.Event()
    answered = threading.Semaphore(0)

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        assert self.may.wait(60)
        try:
            return super().encode(texts)
        finally:
            self.answered.release()


class Changing(HfEngine):
    """An engine whose first id of every text that says so is wrong."""

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        ids, offsets = super().encode(texts)
        ids[offsets[:-1][["wrong" in text for text in texts]]] ^= 1
        return ids, offsets


def batch_of(first: int, *texts: str) -> TextBatch:
    return TextBatch(np.arange(first, first + len(texts)), list(texts))


def watched(reference: HfEngine, batches: list[TextBatch]) -> Iterator[Encoded]:
    tokenizer = load(str(SAMPLE))
    watch = Watch(reference, vocab_size=tokenizer.vocab_size, seed=0, partition=0)
    return encode(batches, Changing(tokenizer), Ends((), (), ""), watch=watch)


def test_documents_go_on_while_the_reference_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slow, "may", threading.Event())
    encoded = watched(Slow(load(str(SAMPLE))), [batch_of(i, "some words") for i in range(20)])
    assert [next(encoded).ordinals.tolist() for _ in range(20)] == [[i] for i in range(20)]
    Slow.may.set()
    assert [*encoded] == []


@pytest.mark.parametrize("taken", [0, 1, 2, 3])
def test_of_several_differences_the_first_is_named(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """However many batches have passed when the reference has answered for all that were read."""
    monkeypatch.setattr(Slow, "may", threading.Event())
    monkeypatch.setattr(Slow, "answered", threading.Semaphore(0))
    texts = ["right", "right", "this is wrong", "right", "wrong too", "wrong as well"]
    encoded = watched(Slow(load(str(SAMPLE))), [batch_of(2 * i, *texts[2 * i : 2 * i + 2]) for i in range(3)])
    assert len([next(encoded) for _ in range(taken)]) == taken
    Slow.may.set()
    for _ in texts if taken else ():
        assert Slow.answered.acquire(timeout=60)
    with pytest.raises(DifferenceError) as raised:
        list(encoded)
    assert raised.value.document == 2


@given(st.lists(st.sampled_from(["<a>", "<", "<a", "a>", "é", "[x]", "b", "\n"]), max_size=8), st.booleans())
def test_control_tokens_are_found(pieces: list[str], alike: bool) -> None:
    control = ["<a>", "<a>a>"] if alike else ["<a>", "[x]", "é"]
    backend = tokenizers.Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    backend.add_special_tokens(control)
    finds = Tokenizer("t", Path("t"), "", backend, None, None).control_finder()
    assert finds is not None
    assert finds("".join(pieces)) == any(token in "".join(pieces) for token in control)


def test_no_control_tokens() -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    assert Tokenizer("t", Path("t"), "", backend, None, None).control_finder() is None
