"""`hf:` inputs, from local folders: nothing here touches the network."""

from __future__ import annotations

import sys

import pytest

from packer.corpus import ReadOptions, find_sources, hub
from packer.errors import InputError, RecordError, UsageError


@pytest.fixture
def folder(tmp_path, monkeypatch, lines_of):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    lines_of(tmp_path / "set" / "train.jsonl", [{"text": "a"}, {"text": "b"}, {"text": None}])
    lines_of(tmp_path / "set" / "test.jsonl", [{"text": "t"}])
    return tmp_path / "set"


def test_names():
    assert hub.Name.parse("hf:allenai/c4:en@validation") == hub.Name("allenai/c4", "en", "validation")
    assert hub.Name.parse("hf:user/set") == hub.Name("user/set", None, "train")


def test_a_local_folder_is_streamed(folder, read):
    assert read(f"hf:{folder}@test").documents == ["t"]
    result = read(f"hf:{folder}", on_error="skip")
    assert result.documents == ["a", "b"]
    assert result.faults == [("row 2", "field text is null")]
    with pytest.raises(RecordError, match="row 2: field text is null"):
        read(f"hf:{folder}")
    with pytest.raises(InputError, match="cannot be read through datasets") as caught:
        read(f"hf:{folder}@nosuch")
    assert "\n" not in str(caught.value)


def test_ids_through_datasets(folder, lines_of, read):
    lines_of(folder / "train.jsonl", [{"input_ids": [1, 2], "loss_mask": [0, 1]}])
    (folder / "test.jsonl").unlink()
    assert read(f"hf:{folder}").documents == [([1, 2], [False, True])]


def test_the_commit_is_kept(monkeypatch):
    import huggingface_hub

    class Api:
        def dataset_info(self, name: str) -> object:
            return type("Info", (), {"sha": f"commit of {name}"})

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    asked = []

    class Fake:
        @staticmethod
        def load_dataset(name, config, **options):
            asked.append((name, config, options))
            return iter([{"text": "a"}])

    monkeypatch.setattr(hub, "_datasets", lambda: Fake)
    [source] = find_sources(["hf:user/set:en@dev"], ReadOptions()).sources
    assert source.commit == "commit of user/set"
    assert asked == [("user/set", "en", {"split": "dev", "streaming": True, "revision": "commit of user/set"})]


def test_failures_of_the_network_are_one_line(monkeypatch):
    import huggingface_hub

    class Api:
        def dataset_info(self, name: str) -> object:
            raise ConnectionError(f"no route\nto {name}")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    with pytest.raises(InputError, match=r"hf:user/set: cannot be read through datasets: no route$"):
        find_sources(["hf:user/set"], ReadOptions())


def test_datasets_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'packer\[hf\]'"):
        find_sources(["hf:user/set"], ReadOptions())
