"""Judges a program for a row of CUDABench, the row's own or an answer, by the row's own comparison.

The program runs in a folder of its own that holds only the row's inputs. The expected output and the generator's script
are in another child's folder, which its sandbox does not reach; the files there are removed while the program runs. Of
its output, only plain files with the expected names are taken; links are not followed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from kernelwright.backends.source_text.split import THRUST
from kernelwright.builds import BuildResult
from kernelwright.errors import HarnessError
from kernelwright.evaluation.judge.programs import (
    FOLDER_MB,
    ProgramLimits,
    ProgramRow,
    ProgramSession,
    ProgramVerdict,
    Step,
    build,
    compared,
    first_error,
    named_after,
    program_failed,
    script_failed,
)
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.tasks.formats.cudabench import (
    COMPARER,
    FOLDER,
    GENERATOR,
    PROGRAM,
    ProgramTask,
    kept_back,
    shared_files,
)

SCRIPT_LIMITS = ProgramLimits(seconds=300.0)
"""The limits on a row's generator and comparison together."""

MAX_FILES = 200
"""The most files of a generator that are removed while a program runs. More stay in a folder that the program's sandbox
does not reach."""
NO_KERNEL = "no-own-kernel"


def check_program(task: ProgramTask, pool: Pool, builder: BuilderClient, limits: ProgramLimits) -> ProgramVerdict:
    """Builds and runs one row's own program and its comparison.

    `limits` bound generator, program and comparison together.
    """
    return _verdict(task, lambda row: _check(row, pool, builder, limits), builder)


def judge_answer(
    task: ProgramTask, source: str, pool: Pool, builder: BuilderClient, limits: ProgramLimits
) -> ProgramVerdict:
    """Builds and runs a program in place of the row's own, which must launch kernels."""
    return _verdict(task, lambda row: _judge(row, source, pool, builder, limits), builder)


def _verdict(
    task: ProgramTask, judge: Callable[[ProgramRow], ProgramVerdict], builder: BuilderClient
) -> ProgramVerdict:
    """Returns the verdict of `judge` on a row. Retries after a `HarnessError`; a second one gives `harness_error`."""
    for attempt in (1, 2):
        row = ProgramRow(task)
        if task.problem:
            return row.verdict("task_error", task.problem)
        try:
            return judge(row)
        except HarnessError as error:
            builder.close()
            if attempt == 2:
                return row.verdict("harness_error", f"{type(error).__name__}: {error}")
    raise HarnessError("unreachable: a row ends within two attempts")


def _built(row: ProgramRow, source: str, builder: BuilderClient) -> BuildResult | ProgramVerdict:
    started = time.monotonic()
    built = build(source, builder)
    row.parts["build"] = time.monotonic() - started
    if built.status != "ok":
        return row.verdict(built.status, ", ".join(built.missing) or named_after(first_error(built.log), PROGRAM))
    return built


def _check(row: ProgramRow, pool: Pool, builder: BuilderClient, limits: ProgramLimits) -> ProgramVerdict:
    source = row.task.program
    built = _built(row, source, builder)
    if isinstance(built, ProgramVerdict):
        return built
    with ProgramSession(None, "", pool, limits) as scripts:
        (scripts.folder / FOLDER).mkdir()
        made = scripts.script(GENERATOR, row.task.generator)
        row.parts["gen"] = made.seconds
        if made.timeout or made.status:
            return script_failed(row, GENERATOR, made, limits)
        with _away(scripts.folder) as files:
            rest = dataclasses.replace(limits, seconds=max(scripts.left, 0.05))
            failed = _run(row, source, built, pool, rest, files, scripts.folder / FOLDER, own=True)
        if failed:
            return _explained(failed, row, files)
        scripts.left -= row.parts["run"]
        step = scripts.script(COMPARER, row.task.comparer)
        row.parts["compare"] = step.seconds
    return _explained(compared(row, step, limits), row, files)


def _explained(verdict: ProgramVerdict, row: ProgramRow, files: dict[str, int]) -> ProgramVerdict:
    """Adds to a failure's reason the files that a row's own program names but was not shown, a likely cause."""
    hidden = kept_back(row.task, [name.partition("/")[2] for name in files])
    if verdict.verdict not in ("wrong", "runtime_error") or not hidden:
        return verdict
    why = f"{COMPARER} reads {', '.join(hidden)}, which the program was not shown: list it under inputs if it is one"
    return dataclasses.replace(verdict, reason=f"{verdict.reason}; {why}"[:500])


def _judge(row: ProgramRow, source: str, pool: Pool, builder: BuilderClient, limits: ProgramLimits) -> ProgramVerdict:
    built = _built(row, source, builder)
    if isinstance(built, ProgramVerdict):
        return built
    with ProgramSession(None, "", pool, SCRIPT_LIMITS) as scripts:
        (scripts.folder / FOLDER).mkdir()
        made = scripts.script(GENERATOR, row.task.generator)
        row.parts["gen"] = made.seconds
        if made.timeout or made.status:
            return _task_error(script_failed(row, GENERATOR, made, SCRIPT_LIMITS))
        with _away(scripts.folder) as files:
            failed = _run(row, source, built, pool, limits, files, scripts.folder / FOLDER)
        if failed:
            return failed
        step = scripts.script(COMPARER, row.task.comparer)
        row.parts["compare"] = step.seconds
    missing = "ModuleNotFoundError" in step.stderr or step.timeout
    verdict = compared(row, step, SCRIPT_LIMITS)
    return _task_error(verdict) if missing else verdict


def _task_error(verdict: ProgramVerdict) -> ProgramVerdict:
    """Turns a verdict into `task_error`: a failure of the row's own script is not the answer's fault."""
    return dataclasses.replace(verdict, verdict="task_error")


def _run(
    row: ProgramRow,
    source: str,
    built: BuildResult,
    pool: Pool,
    limits: ProgramLimits,
    files: dict[str, int],
    data: Path,
    own: bool = False,
) -> ProgramVerdict | None:
    """Runs the program on copies of its inputs and copies its output files into `data`; returns a verdict if it failed.

    `own` marks the row's own program, which may launch no kernel; all its output files are taken.
    """
    generated = {name.partition("/")[2]: name for name in files if name.startswith(f"{FOLDER}/")}
    given, wanted = shared_files(row.task, generated)
    with ProgramSession(built, source, pool, limits) as session:
        row.sandbox = session.child.level
        folder = session.folder / FOLDER
        folder.mkdir()
        for name in given:
            _write(files[generated[name]], folder / name)
        row.run = run = session.program(PROGRAM.removesuffix(".cu") if own else "program")
        row.parts["run"] = run.seconds
        failed = program_failed(row, run, limits) or (None if own else _no_kernel(row, source, run))
        if own:
            wanted = sorted({*wanted, *_left(folder, given)})
        for name in wanted if failed is None else ():
            _take(folder, name, data / name)
    return failed


def _left(folder: Path, given: Collection[str]) -> list[str]:
    """Lists the files that a program made in a folder; an empty list if the folder cannot be read."""
    with contextlib.suppress(OSError):
        return [name for name in sorted(os.listdir(folder))[:MAX_FILES] if name not in given]
    return []


def _no_kernel(row: ProgramRow, source: str, run: Step) -> ProgramVerdict | None:
    """Rejects a program that launched nothing, unless it uses Thrust or CUB, which run on the host here."""
    if run.launches or THRUST.search(source) or re.search(r"#\s*include\s*<cub/", source):
        return None
    return row.verdict("rejected", f"{NO_KERNEL}: the program launched no kernel")


@contextlib.contextmanager
def _away(folder: Path) -> Iterator[dict[str, int]]:
    """Removes all files of a folder and yields their names with open descriptors. Puts them back after.

    A file that exists by then under the same name, a program's output, stays.
    """
    held: dict[str, int] = {}
    try:
        for path in sorted(folder.rglob("*"))[:MAX_FILES]:
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    held[str(path.relative_to(folder))] = descriptor
                    path.unlink()
                else:
                    os.close(descriptor)
        yield held
        for name, descriptor in held.items():
            if not (folder / name).exists():
                _write(descriptor, folder / name)
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _write(descriptor: int, path: Path) -> None:
    """Writes the whole content of a descriptor to a file."""
    with os.fdopen(os.dup(descriptor), "rb") as source, open(path, "wb") as target:
        source.seek(0)
        shutil.copyfileobj(source, target, 1 << 20)


def _take(folder: Path, name: str, target: Path) -> None:
    """Copies a plain file that the program left; anything else, links included, counts as absent."""
    with contextlib.suppress(OSError):
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inside)
        finally:
            os.close(inside)
        try:
            facts = os.fstat(descriptor)
            if stat.S_ISREG(facts.st_mode) and facts.st_size <= FOLDER_MB << 20:
                _write(descriptor, target)
        finally:
            os.close(descriptor)
