"""The staging of a run: who does it, from where it goes on, and what is kept when it ends early."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence, Sized
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from packer import attempts, committed, engines, executors, memory, stored
from packer.commit import Output
from packer.committed import StagePartition
from packer.corpus import Partition, Source
from packer.errors import EmptyError, OutputError, ResumeError, UsageError
from packer.executors import Execution, Executor, Progress
from packer.stage import Job, PartitionReport, TokenizerOptions

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TASK_BYTES = 600 << 20  # of memory: a process, and what it reads and tokenizes ahead
BYTES_A_TOKEN = 30  # of memory, in a block at its peak


@dataclass(frozen=True)
class Staged:
    """reports: of all partitions in order; choice: the engine that held; resumed: partitions that were there before."""

    reports: list[PartitionReport]
    choice: engines.Choice | None
    resumed: int


def executor_for(execution: Execution, job: Job, sources: Sequence[Source], *, resume: bool) -> Executor:
    """The executor of a run over these sources. Raises UsageError where it cannot be had."""
    piped = any(source.format == "stdin" for source in sources)
    if piped and resume:
        raise UsageError("--resume: a pipe cannot be read again; write INPUT to a file first")
    if piped and execution.executor != "local":
        raise UsageError(f"--executor {execution.executor}: only this process can read - (stdin)")
    if piped or job.read.limit is not None:  # one partition after another: others would have nothing to do
        execution = Execution()
    return executors.make(replace(execution, task_memory=TASK_BYTES + BYTES_A_TOKEN * job.block_tokens))


@contextmanager
def session(target: Output, partitions: Sized) -> Iterator[None]:
    """OUT while it is being made. An error leaves it as it was, but for committed partitions: what can go on from there
    says so in a note of the error."""
    target.open()
    try:
        yield
    except BaseException as error:
        shown = _of_output(error, target) or error
        if isinstance(error, UsageError | EmptyError) and not target.resume:
            target.abandon()
        elif (kept := target.keep()) and not isinstance(error, ResumeError):
            verb = "is" if kept == 1 else "are"
            shown.add_note(f"{kept} of {len(partitions)} partitions {verb} kept: --resume goes on from there")
        if shown is error:
            raise
        raise shown from error


def _of_output(error: BaseException, target: Output) -> OutputError | None:
    """What the operating system said of writing, as an error of OUT."""
    if not isinstance(error, OSError):
        return None
    if error.errno in FULL:
        return OutputError(f"--out {target.out}: there is no room left to write ({error.strerror}); make some there")
    if error.filename is not None and str(error.filename).startswith(str(target.out)):
        return OutputError(f"--out {target.out}: cannot be written: {error.strerror}: {error.filename}")
    return None


def stage_all(
    job: Job,
    choice: engines.Choice | None,
    sources: Sequence[Source],
    partitions: Sequence[Partition],
    target: Output,
    executor: Executor,
    progress: Progress | None,
) -> Staged:
    """Stages all partitions below OUT/.tmp, or takes those that are there. choice: by `attempts.choose`."""
    executor.preflight(sources, target.folder)
    choice = _engine_of_kept(job, choice, target) if target.resume else choice
    options = replace(job.tokenizer, engine=choice.name) if job.tokenizer and choice else None
    resumed = 0

    def work(chosen: TokenizerOptions | None) -> list[PartitionReport]:
        nonlocal resumed
        used = choice if chosen is None or choice is None or chosen.engine == choice.name else engines.reference()
        settings = committed.settings_of(job, chosen, used.version if used else None)
        resumed = committed.require_same(target.folder, settings, partitions)
        return _staged(StagePartition(_anywhere(job, chosen), target.folder.absolute(), settings), partitions)

    def _staged(stage: StagePartition, partitions: Sequence[Partition]) -> list[PartitionReport]:
        left = job.read.limit
        if left is None:
            with closing(executor.map(stage, partitions, progress)) as reports:
                return list(reports)
        done: list[PartitionReport] = []
        for partition in partitions:  # one after another: each gets what those before it have left
            if left:
                own = replace(stage, job=replace(stage.job, read=replace(stage.job.read, limit=left)))
                with closing(executor.map(own, [partition], progress)) as reports:
                    done += reports
                left -= done[-1].totals.records
        return done

    def clear() -> None:
        target.clear([target.folder / stored.FOLDER])

    reports, choice = attempts.run(work, options, choice, sources, clear)
    memory.release()
    return Staged(reports, choice, resumed)


def _anywhere(job: Job, options: TokenizerOptions | None) -> Job:
    """The job for a worker, whose current folder may be another one."""
    if options is not None and os.path.exists(options.source):
        options = replace(options, source=os.path.abspath(options.source))
    return replace(job, tokenizer=options)


def _engine_of_kept(job: Job, choice: engines.Choice | None, target: Output) -> engines.Choice | None:
    """The reference where the partitions that are kept are its work, for then the fast engine has failed before."""
    if choice is None or choice.name == "hf" or (job.tokenizer and job.tokenizer.engine != "auto"):
        return choice
    reference = engines.reference()
    first = next(committed.commits(target.folder), None)
    if first and first[1].settings.get(committed.ENGINE) == reference.version:
        return replace(reference, note="as for the partitions that were kept")
    return choice
