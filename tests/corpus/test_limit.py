"""`limit`: the first records of a partition, whatever is wrong after them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.errors import RecordError

RECORD = st.one_of(st.text("ab", max_size=3), st.none())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RECORD, min_size=1, max_size=30), st.integers(1, 35))
def test_texts(tmp_path, read, texts, limit):
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    result = read(path, limit=limit, on_error="skip")
    assert sum(result.records) == min(limit, len(texts))
    assert result.documents == [text for text in texts[:limit] if text is not None]
    bad = [i + 1 for i, text in enumerate(texts[:limit]) if text is None]
    assert [where for where, _ in result.faults] == [f"line {line}" for line in bad]
    if bad:
        with pytest.raises(RecordError, match=rf"line {bad[0]}:"):
            read(path, limit=limit)
    else:
        assert read(path, limit=limit).documents == texts[:limit]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9])
def test_ids(tmp_path, read, limit):
    ids = [[1, 2], [-1], [3], [4, 5, 6]]
    pq.write_table(
        pa.table({"input_ids": ids, "loss_mask": [np.ones(len(i), np.int8) for i in ids]}), tmp_path / "x.parquet"
    )
    result = read(tmp_path / "x.parquet", limit=limit, on_error="skip")
    expected = [(row, [True] * len(row)) for row in ids[:limit] if row != [-1]]
    assert result.documents == expected
    assert [where for where, _ in result.faults] == ["row 1"][: limit - 1]


def test_over_several_files(tmp_path, read):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    result = read(tmp_path, limit=3)
    assert result.documents == ["one", "two", "one"]
    assert result.records == [2, 1]
