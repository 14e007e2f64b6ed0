"""Checks whole programs from the command line: `tasks check` on CUDABench's rows, and `machine run` on one file.

Rows are judged several at a time and shown in their order. Tables and verdicts go to stdout, progress to stderr.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kernelwright.backends.program import RELOCATABLE
from kernelwright.checks import program_sources
from kernelwright.errors import HarnessError, TaskError, UsageError
from kernelwright.evaluation.judge.program_answers import check_program
from kernelwright.evaluation.judge.programs import (
    ProgramLimits,
    ProgramSession,
    ProgramVerdict,
    Step,
    build,
    named_after,
    plain_findings,
)
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.machine import library
from kernelwright.machine.nvrtc import device_flags
from kernelwright.report import terminal
from kernelwright.runs.folders import write_text
from kernelwright.tasks.formats.cudabench import ProgramTask, is_cudabench, read_programs
from kernelwright.untrusted import visible

STYLES = {"correct": "green", "wrong": "red", "unsupported": "yellow", "harness_error": "magenta"}
MAX_FILE_MB = 1024
EXTENDED = ("--extended-lambda", "-extended-lambda", "--expt-extended-lambda", "--expt-relaxed-constexpr")
"""Flags of nvcc for features that are on here."""


def is_programs(source: str) -> bool:
    """Tells whether a source names whole programs: a file in CUDABench's format, or one row of it."""
    return is_cudabench(source.partition("#")[0])


def read(source: str, *, id_field: str | None = None, limit: int | None = None) -> list[ProgramTask]:
    """Reads the programs of `FILE` or `FILE#ID`. Raises `TaskError`."""
    file, _, wanted = source.partition("#")
    found = read_programs(file, id_field=id_field, limit=None if wanted else limit)
    if not wanted:
        return found
    chosen = [task for task in found if task.task_id == wanted]
    if not chosen:
        known = ", ".join(task.task_id for task in found[:8])
        raise TaskError(f"{file!r} has no row {wanted!r}", hint=f"its rows are {known}, …")
    return chosen


def check(
    tasks: Sequence[ProgramTask],
    show: Callable[[ProgramVerdict], None],
    *,
    jobs: int = 1,
    limits: ProgramLimits | None = None,
    sandbox: str = "auto",
) -> list[ProgramVerdict]:
    """Returns the verdicts on all tasks, in order; `show` gets each once it and all before it are done."""
    limits = limits or ProgramLimits()
    found: list[ProgramVerdict] = []
    library.build()  # without a compiler nothing can be judged: fail once, here
    with Pool(sandbox) as pool:
        for verdict in _judged(tasks, pool, jobs, limits):
            found.append(verdict)
            show(verdict)
    return found


def check_files(
    sources: Sequence[str],
    id_field: str | None,
    limit: int | None,
    timeout: float,
    jobs: int,
    sandbox: str,
    out: Path | None,
    as_json: bool,
) -> bool:
    """Runs `tasks check` on program files; returns True where all pass. Raises `TaskError` for another kind of file."""
    tasks = [task for source in sources for task in read(source, id_field=id_field, limit=limit)]
    if not tasks:
        return True
    with terminal.BatchView(len(tasks), None, False) as view:

        def show(verdict: ProgramVerdict) -> None:
            view.step(line(verdict))
            if as_json:
                print(json.dumps(verdict.plain()), flush=True)

        found = check(tasks, show, jobs=jobs, limits=ProgramLimits(seconds=timeout), sandbox=sandbox)
    if not as_json:
        print_table(found)
    if out is not None:
        write_text(out, markdown(found, "Whole programs on the functional machine"))
    return all(verdict.verdict == "correct" for verdict in found)


def _judged(tasks: Sequence[ProgramTask], pool: Pool, jobs: int, limits: ProgramLimits) -> Iterator[ProgramVerdict]:
    own = threading.local()
    builders: list[BuilderClient] = []

    def one(task: ProgramTask) -> ProgramVerdict:
        if not hasattr(own, "builder"):
            own.builder = BuilderClient(pool)
            builders.append(own.builder)
        return check_program(task, pool, own.builder, limits)

    pool.warm()
    threads = ThreadPoolExecutor(max(1, jobs), "rows")
    try:
        waiting: list[Future[ProgramVerdict]] = [threads.submit(one, task) for task in tasks]
        for future in waiting:
            yield future.result()
    except BaseException:
        threads.shutdown(wait=False, cancel_futures=True)
        pool.close()  # ends the running programs, so that the threads return at once
        raise
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        for builder in builders:
            builder.close()


def line(verdict: ProgramVerdict) -> str:
    """Returns one row as a line of progress."""
    name = f" {verdict.name}" if verdict.name else ""
    return f"{verdict.task_id}{name}: {verdict.verdict}" + (f", {verdict.reason}" if verdict.reason else "")


def counts(found: Sequence[ProgramVerdict]) -> str:
    """Returns the number of rows per verdict as text."""
    names = [verdict.verdict for verdict in found]
    return ", ".join(
        f"{names.count(name)} {name}" for name in dict.fromkeys(sorted(names, key=lambda n: n != "correct"))
    )


def print_table(found: Sequence[ProgramVerdict], console: Console | None = None) -> None:
    """Prints all rows as a table, then the counts."""
    out = console or terminal.out
    table = Table(box=None, header_style="dim")
    for name in ("task", "name", "verdict", "reason", "instructions", "s"):
        table.add_column(name, overflow="fold", no_wrap=name in ("task", "verdict", "s"))
    for v in found:
        style = STYLES.get(v.verdict, "red")
        cells = [terminal.escape(v.task_id), terminal.escape(v.name), f"[{style}]{v.verdict}[/]"]
        instructions = f"{v.instructions:.3g}" if v.instructions else ""
        table.add_row(*cells, terminal.escape(v.reason), instructions, f"{v.seconds:.1f}")
    out.print(table)
    out.print(f"{len(found)} programs: {counts(found)}", soft_wrap=True)


def markdown(found: Sequence[ProgramVerdict], title: str) -> str:
    """Returns all rows as a Markdown page."""
    lines = [f"# {title}", "", f"{len(found)} programs: {counts(found)}.", ""]
    lines += ["| task | name | verdict | reason | instructions | s |", "|---|---|---|---|---|---|"]
    for v in found:
        cells = [v.task_id, v.name, v.verdict, v.reason, f"{v.instructions:.3g}", f"{v.seconds:.1f}"]
        lines.append("| " + " | ".join(visible(c).replace("\n", " ").replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"


# --- one program ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MachineOptions:
    """Options of one run on the functional machine."""

    flags: tuple[str, ...] = ()
    """Flags of nvcc."""
    races: bool = True
    """True to look for data races."""
    order: str = "forward"
    """Order of blocks and warps, one of `machine.ORDERS`."""
    limits: ProgramLimits = field(default_factory=ProgramLimits)
    sandbox: str = "auto"


def run_file(
    path: Path, arguments: Sequence[str], options: MachineOptions, *, files: Sequence[Path], keep: Path | None
) -> tuple[str, Step]:
    """Builds and runs one program in a folder of its own.

    Copies `files` to that folder first, and the files that the program leaves to `keep`. Returns the compiler's errors,
    or an empty text, and how the program ended. Raises `CandidateError`, `UsageError`, `HarnessError`.
    """
    sources = program_sources.read(path, files, options.flags)
    flags = tuple(flag for flag in options.flags if not program_sources.is_include_flag(flag))
    library.build()
    with Pool(options.sandbox) as pool:
        builder = BuilderClient(pool)
        built = build(sources.main, builder, flags, sources.unit_names, sources.unit_sources)
        builder.close()
        if built.status != "ok":
            log = named_after(built.log, path.name)
            complaint = f"unsupported: {', '.join(built.missing)}\n{log}" if built.missing else _complaint(log)
            return complaint, Step(1, False, "", "", 0.0)
        with ProgramSession(built, sources.main, pool, options.limits, sources.unit_sources) as session:
            for file in files:
                _copy_in(file, session.folder)
            step = session.program(path.stem, tuple(arguments), races=options.races, order=options.order)
            if step.broken:
                raise HarnessError(step.broken, "please report this program")
            if keep is not None:
                _copy_out(session.folder, keep)
    return "", step


_GONE = re.compile(r"fatal error: (\S+): No such file or directory")


def _complaint(log: str) -> str:
    """Adds to a compiler's log what to do about a file that was not given."""
    gone = _GONE.search(log)
    if gone is not None:
        return f"{log.rstrip()}\nhint: name its folder with -I, or the file with --file: {gone[1]}"
    if "undefined reference to" in log:
        return f"{log.rstrip()}\nhint: name the source that defines it with --file"
    return log


def idle_flags(flags: Sequence[str]) -> list[str]:
    """Returns the nvcc flags without effect on a CPU, such as `-O3`. Raises `UsageError` for anything but a flag."""
    for flag in flags:
        if not flag.startswith("-"):
            raise UsageError(f"--flag {flag!r} is no flag of nvcc", hint="one begins with a hyphen: --flag -DN=4")
    taken = ("-std=", "--std=")
    known = [
        f for f in flags if device_flags([f]) or f.startswith(taken) or "openmp" in f or f in EXTENDED + RELOCATABLE
    ]
    return [f for f in flags if f not in known and not program_sources.is_include_flag(f)]


def _copy_in(file: Path, folder: Path) -> None:
    try:
        if file.is_dir():
            shutil.copytree(file, folder / file.resolve().name)
        else:
            shutil.copy(file, folder / file.name)
    except (OSError, shutil.Error) as error:
        raise UsageError(f"{str(file)!r} cannot be copied: {error}", hint="check --file") from error


def _copy_out(folder: Path, keep: Path) -> None:
    """Copies regular files only, since an untrusted program may leave links to any path."""
    space = MAX_FILE_MB << 20
    try:
        for file in sorted(folder.rglob("*")):
            inner = file.relative_to(folder)
            if file.is_symlink() or not file.is_file() or any((folder / p).is_symlink() for p in inner.parents):
                continue
            space -= file.stat().st_size
            if space < 0:
                raise UsageError(f"the program's files take more than {MAX_FILE_MB} MB", hint="leave out --keep")
            (keep / inner).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, keep / inner, follow_symlinks=False)
    except OSError as error:
        raise UsageError(f"{str(keep)!r} cannot be written: {error.strerror}", hint="check --keep") from error


def facts(complaint: str, step: Step) -> dict[str, Any]:
    """Returns a run as plain data, for JSON."""
    return {
        "built": not complaint,
        "log": complaint,
        "exit": step.status,
        "timeout": step.timeout,
        "unsupported": step.unsupported,
        "stdout": step.stdout,
        "stderr": step.stderr,
        "seconds": round(step.seconds, 3),
        "launches": {name: {"count": c, "instructions": i} for name, (c, i) in step.launches.items()},
        "findings": plain_findings(step.findings),
    }


def print_run(path: Path, complaint: str, step: Step) -> None:
    """Prints the program's output, then the findings. What a terminal would take for control is replaced."""
    if complaint:
        print(visible(complaint.strip()), file=sys.stderr)
        return
    sys.stdout.write(visible(step.stdout))
    sys.stdout.flush()
    sys.stderr.write(visible(step.stderr))
    for finding in step.findings:
        where = f"{path.name}:{finding.line}: " if finding.line else ""
        print(f"{where}{finding.severity}: {finding.rule}: {visible(finding.evidence)}", file=sys.stderr)
    if step.timeout:
        print(f"stopped: still running after {step.seconds:.0f} s", file=sys.stderr)
    elif step.status < 0:
        print(f"the program {step.how()}", file=sys.stderr)


def exit_status(complaint: str, step: Step) -> int:
    """Returns the program's own status; 1 with a fault or finding; 128 plus the signal's number after a signal."""
    if complaint or step.timeout or step.unsupported:
        return 1
    if step.status < 0:
        return 128 - step.status
    if step.status == 0 and step.findings:
        return 1
    return step.status
