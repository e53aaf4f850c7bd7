"""Memory stays within a few chunks for files of 120 MB in one array, row group, record batch or line."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MEGABYTES = 120
# The peak is the process's own (VmHWM less what is mapped from the file), over what it was with everything imported.
MEASURE = """
import sys
from packer.corpus import PartitionReader, ReadOptions, find_sources, partition
import pyarrow.parquet
def resident():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(fields["RssAnon"].split()[0]) / 1024
options = ReadOptions(on_error="skip", max_record_bytes=20 << 20)
before = peak = resident()
characters = 0
for part in partition(find_sources(sys.argv[1:], options).sources, options):
    reader = PartitionReader(part, options)
    for batch in reader:
        characters += sum(map(len, batch.texts)) if hasattr(batch, "texts") else 4 * len(batch.ids)
        peak = max(peak, resident())
    peak = max(peak, resident())
print(characters, peak - before)
"""


def measure(path):
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    characters, peak = done.stdout.split()
    return int(characters), float(peak)


@pytest.fixture(scope="module")
def texts():
    generator = np.random.default_rng(0)
    return [generator.bytes(1500).hex() for _ in range(MEGABYTES * 1000 // 3)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["json", "jsonl", "csv", "parquet", "arrow", "stream", "one line"])
def test_peak(tmp_path, texts, kind):
    table = pa.table({"text": texts})
    path = tmp_path / "x.json"
    expected = MEGABYTES * 1_000_000
    if kind == "json":
        path.write_text(json.dumps([{"text": text} for text in texts]))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif kind == "csv":
        path = tmp_path / "x.csv"
        path.write_text("\n".join(["text", *texts]))
    elif kind == "parquet":
        pq.write_table(table, path, row_group_size=1 << 30)
    elif kind in ("arrow", "stream"):
        make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
            writer.write_table(table)
    else:  # above the bound: it is skipped without being kept
        path.write_text('{"text": "' + "x" * expected)
        expected = 0
    characters, peak = measure(path)
    assert characters == expected
    assert peak < 75
