"""Measures reading: tokens/s into int64 torch tensors, beside datasets, MosaicML Streaming, litData and a bare memmap.

    python scripts/bench_reader.py [--tokens N] [--rounds R] [--json FILE] [--write]

All read the same rows of one data set made here: `input_ids`, `labels` and `position_ids`, a row at a time for the
others (their unit), batches of four rows for packer. Each contender runs in a process of its own, with one thread, in
turns within one run; speed is by CPU seconds, for they feel other jobs less. The memmap, which copies slices of flat
int64 arrays, is what no reader of files can beat.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
from benchmarks.page import with_section

from packer.reader import PackedDataset

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "benchmarks.md"
MAX_LENGTH = 2048
COLUMNS = ("input_ids", "labels", "position_ids")
ROWS_PER_BATCH = 4
SEED = 0
ORDERS = ("in order", "shuffled")


# Making the same rows in every format


def make(folder: Path, tokens: int) -> None:
    """Documents of ready-made ids, packed; then its rows in the formats of the others."""
    rng = np.random.default_rng(SEED)
    source = folder / "ids.jsonl"
    with open(source, "w", encoding="utf-8") as file:
        while tokens > 0:
            length = int(np.clip(rng.lognormal(6.4, 1.2), 1, 50_000))
            ids = np.minimum(rng.zipf(1.2, length), 50_000)  # compressible to about the same degree as text
            file.write(json.dumps({"input_ids": ids.tolist()}) + "\n")
            tokens -= length
    for name in ("parquet", "arrow"):
        out = str(folder / name)
        command = [sys.executable, "-m", "packer", "pack", str(source), "--max-length", str(MAX_LENGTH), "--out", out]
        subprocess.run([*command, "--format", name, "--quiet"], check=True)
    rows = PackedDataset(folder / "arrow")
    _memmap(folder / "memmap", rows)
    _streaming(folder / "streaming", rows)
    _litdata(folder / "litdata", rows)


def _numpy_rows(dataset: PackedDataset) -> Iterator[dict[str, Any]]:
    for row in dataset:
        yield {name: row[name] for name in COLUMNS}


def _memmap(folder: Path, rows: PackedDataset) -> None:
    folder.mkdir()
    lengths = [len(row["input_ids"]) for row in _numpy_rows(rows)]
    np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
    for name in COLUMNS:
        np.save(folder / f"{name}.npy", np.concatenate([row[name] for row in _numpy_rows(rows)]))


def _streaming(folder: Path, rows: PackedDataset) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns=dict.fromkeys(COLUMNS, "ndarray:int32"), size_limit=1 << 26) as writer:
        for row in _numpy_rows(rows):
            writer.write({name: values.astype(np.int32) for name, values in row.items()})


def _litdata(folder: Path, rows: PackedDataset) -> None:
    import litdata

    parts = [str(rows.shards.out)]
    litdata.optimize(_litdata_rows, parts, output_dir=str(folder), chunk_bytes="64MB", num_workers=1)


def _litdata_rows(out: str) -> Iterator[dict[str, Any]]:
    for row in _numpy_rows(PackedDataset(out)):
        yield {name: values.astype(np.int32) for name, values in row.items()}


# Contenders: each yields how many tokens it has just read


def packer_loader(folder: Path, name: str, shuffle: bool) -> Iterator[int]:
    from packer.torch import PackedLoader

    for batch in PackedLoader(folder / name, rows_per_batch=ROWS_PER_BATCH, shuffle=shuffle, seed=SEED):
        yield len(batch["input_ids"])


def hf_datasets(folder: Path, shuffle: bool, columns: Sequence[str] | None = None) -> Iterator[int]:
    import datasets

    paths = sorted((folder / "arrow" / "data").glob("*.arrow"))
    tables = [datasets.table.MemoryMappedTable(_ipc(path), str(path)) for path in paths]
    dataset = datasets.Dataset(datasets.table.concat_tables(tables))
    dataset = (dataset.select_columns(list(columns)) if columns else dataset).with_format("torch")
    order = np.random.default_rng(SEED).permutation(len(dataset)).tolist() if shuffle else range(len(dataset))
    for index in order:
        yield len(dataset[index]["input_ids"])


def _ipc(path: Path) -> Any:
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def mosaic(folder: Path, shuffle: bool) -> Iterator[int]:
    import torch
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=str(folder / "streaming"), shuffle=shuffle, shuffle_seed=SEED, batch_size=1)
    for row in dataset:
        yield len({name: torch.from_numpy(row[name]).long() for name in COLUMNS}["input_ids"])


def lit(folder: Path, shuffle: bool) -> Iterator[int]:
    import torch
    from litdata import StreamingDataset

    for row in StreamingDataset(str(folder / "litdata"), shuffle=shuffle, seed=SEED):
        yield len({name: torch.from_numpy(np.asarray(row[name])).long() for name in COLUMNS}["input_ids"])


def memmap(folder: Path, shuffle: bool) -> Iterator[int]:
    import torch

    offsets = np.load(folder / "memmap" / "offsets.npy")
    flat = {name: np.load(folder / "memmap" / f"{name}.npy", mmap_mode="r") for name in COLUMNS}
    order = np.arange(len(offsets) - 1)
    if shuffle:
        order = np.random.default_rng(SEED).permutation(order)
    for row in order.tolist():
        a, b = int(offsets[row]), int(offsets[row + 1])
        yield len({name: torch.from_numpy(np.array(values[a:b])) for name, values in flat.items()}["input_ids"])


CONTENDERS: dict[str, Callable[[Path, bool], Iterator[int]]] = {
    "packer, arrow": lambda folder, shuffle: packer_loader(folder, "arrow", shuffle),
    "packer, parquet": lambda folder, shuffle: packer_loader(folder, "parquet", shuffle),
    "datasets": hf_datasets,
    "datasets, three columns": lambda folder, shuffle: hf_datasets(folder, shuffle, COLUMNS),
    "MosaicML Streaming": mosaic,
    "litData": lit,
    "NumPy memmap": memmap,
}


def measure(name: str, folder: Path, shuffle: bool) -> dict[str, float]:
    """One pass, in this process, after a first batch that opens the files."""
    import torch

    torch.set_num_threads(1)
    read = CONTENDERS[name](folder, shuffle)
    next(read)
    wall, cpu, tokens = perf_counter(), process_time(), sum(read)
    return {"wall": perf_counter() - wall, "cpu": process_time() - cpu, "tokens": tokens}


def measured(name: str, folder: Path, shuffle: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", name, "--folder", str(folder), *(["--shuffled"] if shuffle else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


# Report


def report(results: dict[str, dict[str, list[dict[str, float]]]], rounds: int) -> str:
    speed = {
        order: {name: median(one["tokens"] / one["cpu"] / 1e6 for one in of) for name, of in results[order].items()}
        for order in ORDERS
    }
    lines = [
        "| | in order, M tokens/s | packer on Arrow is | shuffled, M tokens/s | packer on Arrow is |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in CONTENDERS:
        cells = []
        for order in ORDERS:
            cells += [f"{speed[order][name]:.1f}", f"{speed[order]['packer, arrow'] / speed[order][name]:.1f} times"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    tokens = results[ORDERS[0]]["packer, arrow"][0]["tokens"]
    from importlib.metadata import version

    names = ("numpy", "pyarrow", "torch", "datasets", "mosaicml-streaming", "litdata")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return f"""## Reading

{tokens:,.0f} tokens in rows of up to {MAX_LENGTH:,}, into int64 torch tensors of `input_ids`, `labels` and
`position_ids`; one process each, one thread, no workers; tokens by CPU seconds, medians of {rounds} rounds. packer's
batches are {ROWS_PER_BATCH} rows, checked, with `cu_seqlens` and `seq_idx`; the others give rows of these three
columns, and `datasets` rows as it opens them, with all columns, too. Shuffled is an exact permutation
but for packer on Parquet, Streaming and litData, which shuffle within blocks.

{chr(10).join(lines)}

`python scripts/bench_reader.py --rounds {rounds}` on {os.cpu_count()} cores, {versions}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true", help="Put the section into docs/benchmarks.md.")
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shuffled", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.folder, arguments.shuffled)))
        return
    results: dict[str, dict[str, list[dict[str, float]]]] = {
        order: {name: [] for name in CONTENDERS} for order in ORDERS
    }
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), arguments.tokens)
        for _ in range(arguments.rounds):
            for order in ORDERS:
                for name in CONTENDERS:
                    results[order][name].append(measured(name, Path(folder), order == "shuffled"))
    section = report(results, arguments.rounds)
    print(section)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if arguments.write:
        REPORT.write_text(with_section(REPORT.read_text(encoding="utf-8"), section), encoding="utf-8")


if __name__ == "__main__":
    main()
