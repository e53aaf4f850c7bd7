"""Which tokens of a row are shown as trained: those that some label predicts, in either convention."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from packer import inspection, manifest
from packer.cli import cli
from packer.inspection.notation import escaped


@pytest.mark.parametrize("labels", ["aligned", "shifted"])
@pytest.mark.parametrize(
    ("boundaries", "expected"),
    [("document", [[False, True, True], [False, True]]), ("row", [[False, True, True], [True, True]])],
)
def test_trained_tokens(tmp_path: Path, labels: str, boundaries: str, expected: list[list[bool]]) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text('{"input_ids": [7, 8, 9]}\n{"input_ids": [5, 6]}\n')
    options = ["--max-length", "5", "--labels", labels, "--boundaries", boundaries, "--out", str(out)]
    assert CliRunner().invoke(cli, ["pack", str(source), *options], catch_exceptions=False).exit_code == 0
    group, place = inspection.find_row(out, manifest.load(out), 0)
    shown = list(inspection.segments(group, place))
    assert [segment.ids.tolist() for segment in shown] == [[7, 8, 9], [5, 6]]
    assert [segment.trained.tolist() for segment in shown] == expected
    assert [segment.source for segment in shown] == [f"{source}, record {i}" for i in range(2)]


def test_control_characters_are_escaped() -> None:
    assert escaped("a\n\x1b[31mé\u202e") == "a\\n\\x1b[31mé\\u202e"
