"""Arguments to sources: order, folders, globs, saved `datasets`, and everything that is refused."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pytest

from packer.corpus import ReadOptions, find_sources
from packer.errors import InputError, UsageError


def names(root, *inputs, out=None, **options):
    found = find_sources([str(argument) for argument in inputs], ReadOptions(**options), out=out and str(out))
    strip = len(str(root)) + 1
    return [source.path[strip:] for source in found.sources], [path[strip:] for path in found.left_out]


@pytest.fixture
def corpus(tmp_path, lines_of):
    root = tmp_path / "corpus"
    for name in ("b.jsonl", "a/2.jsonl", "a/10.jsonl", "a-b.jsonl", "B.jsonl", ".hidden.jsonl", ".git/x.jsonl"):
        lines_of(root / name, [{"text": name}])
    for name in ("README.md", "a/LICENSE", "a/picture.png"):
        (root / name).write_text("free text")
    return root


def test_a_folder_in_bytewise_order_without_free_text(corpus, read):
    chosen, left_out = names(corpus, corpus)
    assert chosen == ["B.jsonl", "a-b.jsonl", "a/10.jsonl", "a/2.jsonl", "b.jsonl"]
    assert left_out == ["README.md", "a/LICENSE", "a/picture.png"]
    assert read(corpus).documents == chosen
    assert names(corpus, f"{corpus}/") == (chosen, left_out)


def test_a_folder_of_texts(tmp_path, read):
    for name in ("b.txt", "a.md", "c.py", "x.bin"):
        (tmp_path / name).write_text(name)
    result = read(tmp_path)
    assert result.documents == ["a.md", "b.txt", "c.py"]
    assert result.left_out == [f"{tmp_path}/x.bin"]
    assert read(tmp_path / "x.bin").documents == ["x.bin"]  # named, it is read


def test_relative_paths_stay_as_given_and_outlive_the_current_directory(corpus, monkeypatch):
    monkeypatch.chdir(corpus.parent)
    [source] = find_sources(["corpus/b.jsonl"], ReadOptions()).sources
    assert (source.path, source.location) == ("corpus/b.jsonl", str(corpus / "b.jsonl"))


def test_globs(corpus):
    assert names(corpus, corpus / "*.jsonl")[0] == ["B.jsonl", "a-b.jsonl", "b.jsonl"]
    assert names(corpus, corpus / "a/[12]*.jsonl")[0] == ["a/10.jsonl", "a/2.jsonl"]
    assert names(corpus, corpus / "**/?.jsonl")[0] == ["B.jsonl", "a/2.jsonl", "b.jsonl"]
    with pytest.raises(InputError, match=r"\*\.csv: no file matches"):
        names(corpus, corpus / "*.csv")
    (corpus / "[12].jsonl").write_text('{"text": "literal"}')
    assert names(corpus, corpus / "[12].jsonl")[0] == ["[12].jsonl"]


def test_links(corpus, tmp_path, lines_of):
    outside = lines_of(tmp_path / "outside" / "o.jsonl", [{"text": "o"}])
    (corpus / "a" / "loop").symlink_to(corpus)
    (corpus / "a" / "linked").symlink_to(outside.parent)
    (corpus / "file.jsonl").symlink_to(outside)
    chosen, _ = names(corpus, corpus)
    assert chosen == ["B.jsonl", "a-b.jsonl", "a/10.jsonl", "a/2.jsonl", "a/linked/o.jsonl", "b.jsonl", "file.jsonl"]
    outside.unlink()
    with pytest.raises(InputError, match=r"file\.jsonl: cannot be read: No such file"):
        names(corpus, corpus)


def test_the_output_folder(corpus, lines_of):
    out = corpus / "out"
    lines_of(out / "old.jsonl", [{"text": "old"}])
    assert "out/old.jsonl" not in names(corpus, corpus, out=out)[0]
    for argument in (out, out / "old.jsonl", corpus):
        with pytest.raises(UsageError, match="the output folder is or contains this INPUT"):
            names(corpus, argument, out=out if argument != corpus else corpus.parent)
    assert names(corpus, corpus / "b.jsonl", out=f"{corpus}/b")[0] == ["b.jsonl"]


def test_packer_data_sets(corpus, lines_of):
    packed = corpus / "packed"
    lines_of(packed / "data" / "x.jsonl", [{"text": "x"}])
    (packed / "manifest.json").write_text(json.dumps({"format": "packer"}))
    assert "packed/data/x.jsonl" not in names(corpus, corpus)[0]
    assert names(corpus, packed)[0] == ["packed"]


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ("missing.jsonl", InputError, "missing.jsonl: no such file or folder"),
        ("", InputError, "'': no such file or folder"),
        ("nosuch://user:secret@host/x", UsageError, "nosuch://host/x: cannot be opened: Protocol not known: nosuch"),
        ("hf:", UsageError, "must be hf:NAME"),
    ],
)
def test_arguments_that_name_nothing(argument, error, message):
    with pytest.raises(error, match=message) as caught:
        find_sources([argument], ReadOptions())
    assert "secret" not in str(caught.value)


def test_arguments_that_make_no_sense(tmp_path):
    for inputs in ([], ["-", "-"]):
        with pytest.raises(UsageError):
            find_sources(inputs, ReadOptions())
    for options in ({"schema": "chat"}, {"split_text": "word"}, {"on_error": "ignore"}, {"max_record_bytes": 0}):
        with pytest.raises(UsageError):
            find_sources(["-"], ReadOptions(**options))
    with pytest.raises(UsageError, match="give one of them"):
        find_sources(["-"], ReadOptions(schema="input_ids", text_field="x"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no file of a known kind"):
        find_sources([str(tmp_path / "empty")], ReadOptions())
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="is not a regular file"):
        find_sources([str(tmp_path / "pipe.jsonl")], ReadOptions())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
            "is a Git LFS pointer, not data: run git lfs pull",
        ),
        (b"FEA1....", "is Feather V1"),
        (b"PK\x03\x04....", "is a zip archive"),
        (b"name".ljust(257, b"\0") + b"ustar\0", "is a tar archive"),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "txt", "parquet"])
def test_files_that_are_no_data(tmp_path, content, message, suffix):
    (tmp_path / f"x.{suffix}").write_bytes(content)
    with pytest.raises(InputError, match=message):
        find_sources([str(tmp_path / f"x.{suffix}")], ReadOptions())


def test_names_that_promise_another_format(tmp_path):
    (tmp_path / "x.parquet").write_text("hello")
    with pytest.raises(InputError, match="does not begin as Parquet"):
        find_sources([str(tmp_path / "x.parquet")], ReadOptions())
    (tmp_path / "empty.parquet").write_bytes(b"")
    assert find_sources([str(tmp_path / "empty.parquet")], ReadOptions()).sources[0].format == "parquet"


def saved(folder, files, **state):
    folder.mkdir(parents=True)
    for name, text in files.items():
        table = pa.table({"text": [text]})
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    state["_data_files"] = [{"filename": name} for name in files]
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_saved_datasets(tmp_path, read):
    one = saved(tmp_path / "root" / "one", {"data-2.arrow": "first", "data-1.arrow": "second"})
    assert read(one).documents == ["first", "second"]
    assert sorted(read(tmp_path / "root").documents) == ["first", "second"]  # found in a folder too
    chosen = saved(tmp_path / "chosen", {"data.arrow": "x"}, _indices_data_files=[{"filename": "i.arrow"}])
    with pytest.raises(InputError, match="save it flattened"):
        read(chosen)
    splits = tmp_path / "splits"
    saved(splits / "train", {"data.arrow": "t"})
    (splits / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert read(splits).documents == ["t"]
    saved(splits / "test", {"data.arrow": "e"})
    (splits / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(InputError, match=f"has the splits train, test; name one: {splits}/train"):
        read(splits)
    assert read(splits / "test").documents == ["e"]


@pytest.mark.parametrize(
    ("record", "schema"),
    [
        ({"text": "a", "input_ids": [1]}, ("input_ids", "input_ids")),
        ({"text": "a", "content": "b"}, ("text", "text")),
        ({"content": "b"}, ("text", "content")),
    ],
)
def test_schema(tmp_path, lines_of, record, schema):
    path = lines_of(tmp_path / "x.jsonl", [None, {"other": 1}, record])
    [source] = find_sources([str(path)], ReadOptions()).sources
    assert source.schema is not None
    assert (source.schema.kind, source.schema.field) == schema


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"chosen": [], "rejected": []}, r"line 1: the records are preference pairs .*; --messages-field chosen"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "or --prompt-field prompt --completion-field chosen"),
        ({"role": "user", "content": "a"}, "each record is one message"),
        (
            {"question": 1, "answer": 2},
            "no known field in .*x.jsonl, line 1: it has the keys question, answer; name the",
        ),
        ({"input_ids": [1], "seq_start_id": [0]}, "another tool's packed row"),
        ({}, "it has the keys none"),
        ({"k" * 300: 1}, "it has the keys k{80}..."),
    ],
)
def test_records_that_do_not_serve(tmp_path, lines_of, record, message):
    path = lines_of(tmp_path / "x.jsonl", [record, record])
    with pytest.raises(InputError, match=message) as caught:
        find_sources([str(path)], ReadOptions(on_error="skip"))
    assert "\n" not in str(caught.value)


def test_options_override_the_schema(tmp_path, lines_of, read):
    path = lines_of(tmp_path / "x.jsonl", [{"messages": "a", "input_ids": [1], "text": "t"}])
    assert read(path, text_field="messages").documents == ["a"]
    assert read(path, schema="text").documents == ["t"]
    assert read(path, schema="input_ids").documents == [([1], None)]


def test_a_tokenizer_beside_the_data_is_no_data(tmp_path, read):
    (tmp_path / "tokenizer").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "tokenizer" / name).write_text("{}")
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n')
    result = read(tmp_path)
    assert result.documents == ["a"]
    assert result.left_out == [f"{tmp_path}/tokenizer/tokenizer.json", f"{tmp_path}/tokenizer/tokenizer_config.json"]
