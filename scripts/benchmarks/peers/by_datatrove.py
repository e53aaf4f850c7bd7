"""datatrove: `JsonlReader` and `DocumentTokenizer` in its local executor, a task a file. It does not pack.

Its merging step, which training needs too, is left out: this is the least that a user of it waits for.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

from benchmarks.peers.given import done, given

os.environ["HF_HUB_OFFLINE"] = "1"


def main() -> None:
    began = perf_counter()
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    find = given()
    source = find.out / "source"
    source.mkdir(parents=True)
    for i, path in enumerate(find.files):
        (source / f"{i:05d}.jsonl").symlink_to(path.absolute())
    loaded = perf_counter()
    steps = [
        JsonlReader(str(source)),
        DocumentTokenizer(
            str(find.out / "tokens"),
            tokenizer_name_or_path=str(Path(find.tokenizer) / "tokenizer.json"),
            eos_token=find.eos,
        ),
    ]
    tasks = max(len(find.files), 1)
    executor = LocalPipelineExecutor(
        pipeline=steps, tasks=tasks, workers=min(find.workers, tasks), logging_dir=str(find.out / "logs")
    )
    executor.run()
    width = 4 if steps[1].token_size == 4 else 2
    size = sum(path.stat().st_size for path in (find.out / "tokens").rglob("*.ds"))
    done(tokens=size // width, loading=loaded - began, steady=perf_counter() - loaded)


if __name__ == "__main__":
    main()
