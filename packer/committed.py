"""A partition's commit: its folder gets its name when all is in it, last of all the report with its fingerprint.

    OUT/.tmp/part-00003-0f3a.../           one attempt at it; without the name it is nothing
    OUT/.tmp/part-00003/block-00000/...    staged, synced
    OUT/.tmp/part-00003/report.json        settings, inputs, PartitionReport with the digest of each staged file

So a partition can be tried again at any time, by another process or another machine, even where the first attempt is
not dead yet: the first to rename its folder wins, and both have the same bytes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import gethostname
from typing import Any
from uuid import uuid4

from packer import identity, memory, stage
from packer.corpus import Partition
from packer.counting import Progress
from packer.errors import InputError, ResumeError, TokenizerError
from packer.identity import Identity
from packer.job import Job, PartitionReport, TokenizerOptions
from packer.staging import digest, partition_folder, sync
from packer.threads import Behind
from packer.typed import typed
from packer.versions import versions

REPORT = "report.json"
ENGINE = "the tokenizer's engine"
READ_BYTES = 8 << 20
AGAIN = "what was given then goes on from there, and --overwrite without --resume begins again"


@dataclass(frozen=True)
class Commit:
    """settings: all but the inputs that determines a partition, by the name that a user knows it by."""

    settings: dict[str, Any]
    inputs: list[Identity]
    report: PartitionReport


@dataclass(frozen=True)
class StagePartition:
    """The work of a run, for any executor: stages a partition, or takes it as it is where it has been committed."""

    job: Job
    folder: Path
    settings: Mapping[str, Any]

    def __call__(self, partition: Partition, progress: Progress | None = None, /) -> PartitionReport:
        with Behind() as behind:
            return self.begin(partition, progress, behind).result()

    def begin(self, partition: Partition, progress: Progress | None, behind: Behind, /) -> Future[PartitionReport]:
        """The same, with planning, writing and the commit left to `behind`."""
        final = partition_folder(self.folder, partition.index)
        inputs = [identity.identity_of(piece) for piece in partition.slices]
        if final.exists():
            if (
                (kept := load(final))
                and (kept.settings, kept.inputs) == (self.settings, inputs)
                and intact(final, kept)
            ):
                report = kept.report
                return behind.give(lambda: report)
            shutil.rmtree(final)
        self._require_tokenizer()
        folder = final.with_name(f"{final.name}-{uuid4().hex}")
        staged = self._staged(partition, folder, behind, progress)

        def commit() -> PartitionReport:
            report = staged()
            behind.check()
            _write(folder, Commit(dict(self.settings), inputs, report))
            try:
                folder.rename(final)
            except OSError:
                if not (final / REPORT).exists():
                    raise
                shutil.rmtree(folder)  # another attempt was first
            sync(self.folder)
            memory.release(sum(report.tokens))
            return report

        return behind.give(commit)

    def _require_tokenizer(self) -> None:
        """Raises TokenizerError where the same name is another tokenizer here, on another machine or by now."""
        if self.job.tokenizer is None:
            return
        for name, value in _tokenizer_settings(self.job.tokenizer).items():
            if self.settings[name] != value:
                raise TokenizerError(
                    f"tokenizer {self.job.tokenizer.source}: {name} differs on {gethostname()} from where the run "
                    "began; it has to be the same on every machine, and during a run"
                )

    def _staged(
        self, partition: Partition, folder: Path, behind: Behind, progress: Progress | None
    ) -> Callable[[], PartitionReport]:
        sources = {piece.source for piece in partition.slices}
        try:
            report = stage.stage(self.job, partition, folder, behind, progress)
        except InputError:
            identity.require_unchanged(sources)  # a file that is being written is not to be blamed for its last line
            raise
        identity.require_unchanged(sources)
        return report


def settings_of(
    job: Job, options: TokenizerOptions | None, engine_version: str | None, rendered_by: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What determines every partition but its input: options, the content of the tokenizer and of the chat template,
    versions. rendered_by: the template's facts, where chats are rendered."""
    values = asdict(job)
    values.pop("tokenizer")
    values.pop("plan_seconds")  # it ends a run, and changes none
    if chat := values.pop("chat"):
        values["chat"] = {name: value for name, value in chat.items() if name not in ("tokenizer", "template")}
    settings: dict[str, Any] = {}
    for name, value in values.items():
        for inner, content in value.items() if isinstance(value, dict) else [(name, value)]:
            key = _option(inner)
            settings[f"{_option(name)} {inner}" if key in settings else key] = content
    if options is not None:
        for name in ("bos", "eos", "eos_token", "special_in_text"):
            settings[_option(name)] = getattr(options, name)
        settings |= _tokenizer_settings(options) | {ENGINE: engine_version}
    if rendered_by is not None:
        settings["the chat template"] = dict(rendered_by)
    settings |= versions(rendered=rendered_by is not None, strategy=job.strategy)
    return dict(json.loads(json.dumps(settings)))


def _tokenizer_settings(options: TokenizerOptions) -> dict[str, Any]:
    tokenizer, ends = stage.load_tokenizer(options)
    return {
        "the tokenizer's sha256": tokenizer.fingerprint,
        "what is put before documents": list(ends.prefix),
        "what is put after documents": list(ends.suffix),
    }


def commits(folder: Path) -> Iterator[tuple[int, Commit]]:
    """The partitions that are committed in OUT/.tmp, by number."""
    for path in committed(folder):
        if commit := load(path):
            yield int(path.name.removeprefix("part-")), commit


def committed(folder: Path) -> list[Path]:
    """Their folders, in order."""
    found = (path for path in folder.glob("part-*") if path.name.removeprefix("part-").isdecimal())
    return sorted((path for path in found if (path / REPORT).exists()), key=lambda path: (len(path.name), path.name))


def require_same(folder: Path, settings: Mapping[str, Any], partitions: Sequence[Partition]) -> int:
    """How many partitions in OUT/.tmp are committed. Raises ResumeError naming the first thing in which they differ
    from what would be made now."""
    count = 0
    for index, commit in commits(folder):
        if difference := _difference(commit, settings, partitions[index] if index < len(partitions) else None):
            raise ResumeError(f"--resume: {difference}; {AGAIN}")
        count += 1
    return count


def load(folder: Path) -> Commit | None:
    """A committed partition's report, None where there is none that can be read."""
    try:
        body = json.loads((folder / REPORT).read_bytes())
        made: Commit = typed(Commit, body)
    except (OSError, ValueError):
        return None
    return made


def intact(folder: Path, commit: Commit) -> bool:
    """Whether the staged files are what was written. What else lies beside them, of a later step, is removed."""
    blocks = {block.folder: block.digests for block in commit.report.all_blocks}
    for path in folder.iterdir():
        if path.is_dir() and path.name not in blocks:
            shutil.rmtree(path)
    try:
        return all(
            _digest(folder / block / name) == digest
            for block, digests in blocks.items()
            for name, digest in digests.items()
        )
    except OSError:
        return False


def _write(folder: Path, commit: Commit) -> None:
    path = folder / REPORT
    path.write_text(json.dumps(asdict(commit)), encoding="utf-8")
    sync(path)
    sync(folder)


def _digest(path: Path) -> str:
    seen = digest()
    with open(path, "rb") as file:
        while data := file.read(READ_BYTES):
            seen.update(data)
    return seen.hexdigest()


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _difference(commit: Commit, settings: Mapping[str, Any], partition: Partition | None) -> str | None:
    for name in [*settings, *commit.settings]:
        was, now = commit.settings.get(name), settings.get(name)
        if was != now:
            return f"{name} was {_shown(was)}, is {_shown(now)}"
    if partition is None:
        return f"INPUT held {commit.inputs[0].path if commit.inputs else 'more'} too"
    inputs = [identity.identity_of(piece) for piece in partition.slices]
    for old, new in zip(commit.inputs, inputs, strict=False):
        if old.path != new.path:
            return f"INPUT held {old.path} where it has {new.path} now"
        if old != new:
            return f"{old.path} changed"
    return None if len(inputs) == len(commit.inputs) else "INPUT has other files now"


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
