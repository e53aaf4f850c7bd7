"""Which tokens of a row are shown as trained, from every way in which labels are stored, and where they come from."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from packer import inspection, manifest
from packer.cli import cli
from packer.errors import UsageError

SAMPLE_DATA = Path(__file__).parents[1] / "sample_data"
Record = dict[str, list[int]]


def pack(source: Path, out: Path, *options: str) -> manifest.Manifest:
    done = CliRunner().invoke(cli, ["pack", str(source), "--out", str(out), *options], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return manifest.load(out)


@pytest.mark.parametrize("labels", ["aligned", "shifted"])
@pytest.mark.parametrize(
    ("boundaries", "expected"),
    [("document", [[False, True, True], [False, True]]), ("row", [[False, True, True], [True, True]])],
)
def test_trained_tokens(tmp_path: Path, labels: str, boundaries: str, expected: list[list[bool]]) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text('{"input_ids": [7, 8, 9]}\n{"input_ids": [5, 6]}\n')
    facts = pack(source, out, "--max-length", "5", "--labels", labels, "--boundaries", boundaries)
    group, place = inspection.find_row(out, facts, 0)
    shown = list(inspection.segments(group, place))
    assert [segment.ids.tolist() for segment in shown] == [[7, 8, 9], [5, 6]]
    assert [segment.trained.tolist() for segment in shown] == expected
    assert [segment.beyond for segment in shown] == [None, None]
    assert [segment.source for segment in shown] == [f"{source}, record {i}" for i in range(2)]


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Documents of tokens that are all different, with random masks; the first has something to train on."""
    lengths = [draw(st.integers(2, 14)), *draw(st.lists(st.integers(1, 14), max_size=7))]
    masks = [draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)) for n in lengths]
    masks[0] = [*masks[0][:-1], 1]
    starts = np.cumsum([0, *lengths]).tolist()
    return [
        {"input_ids": list(range(a, a + n)), "loss_mask": mask}
        for a, n, mask in zip(starts, lengths, masks, strict=False)
    ]


@pytest.mark.parametrize("labels", ["aligned", "shifted"])
@pytest.mark.parametrize("columns", ["full", "compact"])
@pytest.mark.parametrize("boundaries", ["document", "row"])
@given(data=st.data())
@settings(max_examples=12)
def test_trained_is_what_the_masks_say(
    tmp_path_factory: pytest.TempPathFactory, labels: str, columns: str, boundaries: str, data: Any
) -> None:
    """Against the records themselves. What no position of the row can predict is not trained in it; with shifted labels
    it is the `beyond` of the segment before it, and with that all labels of a row are accounted for."""
    documents: list[Record] = data.draw(records())
    folder = tmp_path_factory.mktemp("set")
    (folder / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in documents))
    options = ["--max-length", "6", "--overlong", "split", "--labels", labels, "--columns", columns]
    facts = pack(folder / "in.jsonl", folder / "out", *options, "--boundaries", boundaries, "--rows-per-shard", "2")
    numbers = range(facts.totals.rows)
    for row in inspection.read_rows(folder / "out", facts, numbers):
        beyond = 0
        assert row.tokens == sum(len(segment.ids) for segment in row.segments)
        for i, segment in enumerate(row.segments):
            document = documents[segment.document]
            stop = segment.start + len(segment.ids)
            assert segment.ids.tolist() == document["input_ids"][segment.start : stop]
            expected = [bool(flag) for flag in document["loss_mask"][segment.start : stop]]
            if i == 0 or boundaries == "document":
                expected[0] = False
            assert segment.trained.tolist() == expected
            ends_sequence = boundaries == "document" or i == len(row.segments) - 1
            following = document["loss_mask"][stop : stop + 1] == [1] and labels == "shifted" and ends_sequence
            assert segment.beyond == (document["input_ids"][stop] if following else None)
            beyond += following
        assert row.trained == sum(int(segment.trained.sum()) for segment in row.segments) + beyond


@pytest.mark.parametrize("positions", ["segment", "row", "document"])
@pytest.mark.parametrize("columns", ["full", "compact"])
def test_positions(tmp_path: Path, positions: str, columns: str) -> None:
    (tmp_path / "in.jsonl").write_text('{"input_ids": [1, 2, 3, 4, 5, 6, 7]}\n{"input_ids": [8, 9]}\n')
    options = ["--max-length", "5", "--overlong", "split", "--positions", positions, "--columns", columns]
    facts = pack(tmp_path / "in.jsonl", tmp_path / "out", *options)
    found = {}
    for row in inspection.read_rows(tmp_path / "out", facts, [1, 0]):
        found |= {(segment.document, segment.start): (segment.offset, segment.position) for segment in row.segments}
    expected = {
        "segment": {(0, 0): (0, 0), (0, 5): (0, 0), (1, 0): (2, 0)},
        "row": {(0, 0): (0, 0), (0, 5): (0, 0), (1, 0): (2, 2)},
        "document": {(0, 0): (0, 0), (0, 5): (0, 5), (1, 0): (2, 0)},
    }
    assert found == expected[positions]


def test_a_turn_of_a_chat_that_became_several_documents(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"input_ids": [1, 2]}\n{"input_ids": [8, 9]}\n')
    facts = pack(tmp_path / "in.jsonl", tmp_path / "out", "--max-length", "4")
    facts = replace(facts, options=replace(facts.options, chat={"turns": "each"}))
    row = next(inspection.read_rows(tmp_path / "out", facts, [0]))
    assert [segment.source for segment in row.segments] == [f"{tmp_path}/in.jsonl, turn {i}" for i in range(2)]


@pytest.mark.parametrize("options", [[], ["--labels", "shifted", "--columns", "compact"]], ids=["aligned", "shifted"])
def test_of_a_chat_what_the_assistant_wrote_is_shown_as_trained(tmp_path: Path, options: list[str]) -> None:
    source, tokenizer = SAMPLE_DATA / "chats.jsonl", SAMPLE_DATA / "tokenizer"
    facts = pack(source, tmp_path / "out", "--tokenizer", str(tokenizer), "--max-length", "4096", *options)
    vocabulary = inspection.vocabulary(facts, None)
    chats = [json.loads(line)["messages"] for line in source.read_text(encoding="utf-8").splitlines()]
    seen = set()
    for row in inspection.read_rows(tmp_path / "out", facts, range(facts.totals.rows)):
        for segment in row.segments:
            seen.add(segment.document)
            units = inspection.units(vocabulary, segment.ids, segment.trained)
            stretches = groupby(units, key=lambda unit: unit.trained)
            trained = ["".join(unit.text for unit in same) for flag, same in stretches if flag]
            turns = [turn["content"] for turn in chats[segment.document] if turn["role"] == "assistant"]
            assert trained == [f"{content}<|im_end|>" for content in turns]
            assert [unit.text for unit in units if unit.trained and unit.kind == "control"] == ["<|im_end|>"] * len(
                turns
            )
    assert seen == set(range(len(chats)))


def test_rows_that_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"input_ids": [{i}, {i}]}}\n' for i in range(7)))
    facts = pack(tmp_path / "in.jsonl", tmp_path / "out", "--max-length", "2", "--rows-per-shard", "3")
    out = tmp_path / "out"
    numbers = inspection.numbers(out, facts, [range(5, 7), range(1, 2), range(6, 7)])
    assert numbers == [5, 6, 1]
    rows = list(inspection.read_rows(out, facts, numbers))
    assert [row.number for row in rows] == numbers
    assert [(row.shard[-22:-8], row.place) for row in rows] == [
        ("00001-of-00003", 2),
        ("00002-of-00003", 0),
        ("00000-of-00003", 1),
    ]
    single = [next(inspection.read_rows(out, facts, [i])).segments[0].ids.tolist() for i in numbers]
    assert [row.segments[0].ids.tolist() for row in rows] == single
    with pytest.raises(UsageError, match=r"--row 7: .* has rows 0 to 6"):
        inspection.numbers(out, facts, [range(7, 8)])
    with pytest.raises(UsageError, match=r"--row 3:100000000000000000: .* has rows 0 to 6"):
        inspection.numbers(out, facts, [range(3, 10**17)])
