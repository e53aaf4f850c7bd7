"""The staging of a run: who does it, from where it goes on, and what is kept when it ends early."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence, Sized
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from packer import attempts, committed, engines, executors, stored
from packer.chat import Renderer
from packer.committed import StagePartition
from packer.corpus import Partition, Source
from packer.corpus.stored import check_workers
from packer.errors import EmptyError, OutputError, ResumeError, UsageError
from packer.executors import Execution, Executor, Progress
from packer.job import Job, PartitionReport, TokenizerOptions
from packer.remote import in_this_process
from packer.upload import Target

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
    if execution.workers or execution.executor != "local":
        check_workers(sources)
        if job.tokenizer and in_this_process(job.tokenizer.source):
            raise UsageError(
                f"--tokenizer {job.tokenizer.source}: is in the memory of this process; no worker can read it"
            )
    if piped or job.read.limit is not None:  # one partition after another: others would have nothing to do
        execution = Execution()
    return executors.make(replace(execution, task_memory=TASK_BYTES + BYTES_A_TOKEN * job.block_tokens))


def chat_facts(job: Job, sources: Sequence[Source]) -> dict[str, Any] | None:
    """What renders the chats among these sources, None where there are none. Loads the template, or says what is wrong
    with it."""
    if job.chat and any(source.schema and source.schema.kind == "messages" for source in sources):
        return Renderer(job.chat).facts()
    return None


@contextmanager
def session(target: Target, partitions: Sized) -> Iterator[None]:
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


def _of_output(error: BaseException, target: Target) -> OutputError | None:
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
    rendered_by: dict[str, Any] | None,
    sources: Sequence[Source],
    partitions: Sequence[Partition],
    target: Target,
    executor: Executor,
    progress: Progress | None,
) -> Staged:
    """Stages all partitions below OUT/.tmp, or takes those that are there. choice: by `attempts.choose`; rendered_by:
    by `chat_facts`."""
    executor.preflight(sources, target.folder)
    choice = _engine_of_kept(job, choice, target) if target.resume else choice
    options = replace(job.tokenizer, engine=choice.name) if job.tokenizer and choice else None
    resumed = 0

    def work(chosen: TokenizerOptions | None, told: Progress | None) -> list[PartitionReport]:
        nonlocal resumed
        used = choice if chosen is None or choice is None or chosen.engine == choice.name else engines.reference()
        settings = committed.settings_of(job, chosen, used.version if used else None, rendered_by)
        resumed = committed.require_same(target.folder, settings, partitions)
        return _staged(StagePartition(_anywhere(job, chosen), target.folder.absolute(), settings), partitions, told)

    def _staged(stage: StagePartition, partitions: Sequence[Partition], told: Progress | None) -> list[PartitionReport]:
        left = job.read.limit
        if left is None:
            with closing(executor.map(stage, partitions, told)) as reports:
                return list(reports)
        done: list[PartitionReport] = []
        for partition in partitions:  # one after another: each gets what those before it have left
            if left:
                own = replace(stage, job=replace(stage.job, read=replace(stage.job.read, limit=left)))
                with closing(executor.map(own, [partition], told)) as reports:
                    done += reports
                left -= done[-1].totals.records
        return done

    def clear() -> None:
        target.clear([target.folder / stored.FOLDER])

    reports, choice = attempts.run(work, options, choice, sources, clear, progress)
    return Staged(reports, choice, resumed)


def _anywhere(job: Job, options: TokenizerOptions | None) -> Job:
    """The job for a worker, whose current folder may be another one."""
    chat = job.chat
    if options is not None:
        options = replace(options, source=_absolute(options.source))
    if chat is not None:
        template = None if chat.template is None else _absolute(chat.template)
        chat = replace(chat, tokenizer=_absolute(chat.tokenizer), template=template)
    return replace(job, tokenizer=options, chat=chat)


def _absolute(name: str) -> str:
    """A name that is a file or folder here, from the root."""
    return os.path.abspath(name) if os.path.exists(name) else name


def _engine_of_kept(job: Job, choice: engines.Choice | None, target: Target) -> engines.Choice | None:
    """The reference where the partitions that are kept are its work, for then the fast engine has failed before."""
    if choice is None or choice.name == "hf" or (job.tokenizer and job.tokenizer.engine != "auto"):
        return choice
    reference = engines.reference()
    first = next(committed.commits(target.folder), None)
    if first and first[1].settings.get(committed.ENGINE) == reference.version:
        return replace(reference, note="as for the partitions that were kept")
    return choice
