"""CUDABench as a suite of `bench`: a prompt at one of three levels, answered by a whole CUDA program.

    cudabench:FILE[:LEVEL]     LEVEL 1 (name, algorithm, guidance), 2 (name, algorithm) or 3 (name only); default 1

Programs run on the functional machine, in folders without the expected output, and are judged by the comparison script
of their row (`evaluation.judge.program_answers`). The prompt ends with a list of the files to read and write.
"""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.errors import TaskError
from kernelwright.evaluation.options import EvalOptions
from kernelwright.executor.lanes import Job, Lanes
from kernelwright.prompts import continued, parse_program
from kernelwright.records import (
    VERDICTS,
    Candidate,
    Evaluation,
    Finding,
    Message,
    Provenance,
    Seconds,
    Task,
    Turn,
    VerdictName,
    WorkloadResult,
)
from kernelwright.search.rollout import CONTEXT_CHARACTERS, Exchange
from kernelwright.tasks.formats.cudabench import COMPARER, PREFIX, DataFile, ProgramTask, is_cudabench, read_programs

if TYPE_CHECKING:
    from kernelwright.evaluation.judge.programs import ProgramVerdict
    from kernelwright.evaluation.processes.builder_client import BuilderClient
    from kernelwright.evaluation.processes.pool import Pool

SECONDS = 300.0
"""The default time limit of a program on the functional machine."""

_SYSTEM = (
    "You write complete CUDA C++ programs. You answer with one program, a single .cu file with main, in one ```cuda "
    "block and nothing after it."
)


def is_programs(suite: str) -> bool:
    """Tells whether a suite asks for whole programs."""
    return suite.startswith(PREFIX) or is_cudabench(suite)


def _parts(suite: str) -> tuple[str, int]:
    """Splits a suite's name into file and level. Raises `TaskError`."""
    name = suite.removeprefix(PREFIX)
    file, colon, level = name.rpartition(":")
    if not colon or Path(name).exists():
        return name, 1
    if level not in ("1", "2", "3"):
        raise TaskError(
            f"{suite!r} names no level of CUDABench", hint="write cudabench:FILE:LEVEL with level 1, 2 or 3"
        )
    return file, int(level)


def load(
    suite: str, jobs: int, limit: int | None, id_field: str | None
) -> tuple[list[Task], Exchange, Callable[[], AbstractContextManager[ProgramLanes]]]:
    """Returns the tasks, their exchange with a policy, and a factory of their judge. Raises `TaskError`."""
    file, level = _parts(suite)
    rows = read_programs(file, id_field=id_field, limit=limit)
    asked = [(_task(row, Path(file).name, level), row) for row in rows]
    programs = {task.content_hash: (task, row) for task, row in asked if task is not None}
    if not programs:
        raise TaskError(
            f"no row of {file!r} has a prompt of level {level}", hint="name another level: cudabench:FILE:1"
        )
    missing = [row.task_id for task, row in asked if task is None]
    if missing:
        few = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        print(f"left out: {len(missing)} of {len(rows)} rows have no prompt of level {level} ({few})", file=sys.stderr)
    tasks = [task for task, _ in programs.values()]
    by_hash = {name: row for name, (_, row) in programs.items()}
    return tasks, Exchange(_converse, parse_program), lambda: ProgramLanes(by_hash, jobs)


def _task(row: ProgramTask, origin: str, level: int) -> Task | None:
    """Turns a row into a task whose source is the request; None for a row without a prompt at that level."""
    prompt = row.prompts[level - 1] if len(row.prompts) >= level else ""
    if not prompt and not row.problem:
        return None
    text = row.problem or f"{prompt}\n\n{_files(row)}"
    scripts = hashlib.sha256(f"{row.generator}\0{row.comparer}".encode()).hexdigest()[:16]
    return Task(
        task_id=row.task_id,
        source=text,
        policy="libraries",
        description=row.name,
        provenance=Provenance(origin=f"{origin}#{row.task_id}", note=f"level {level}, scripts {scripts}"),
    )


def _files(row: ProgramTask) -> str:
    return (
        "The program takes no arguments. It reads these files, raw values in row-major order without a header:\n"
        f"{_listed(row.inputs)}\nand writes these files in the same way:\n{_listed(row.outputs)}\n"
    )


def _listed(arrays: Sequence[DataFile]) -> str:
    return "\n".join(f"- data/{a.file}: {a.dtype}, shape {a.shape}" for a in arrays) or "- none"


def _converse(task: Task, turns: Sequence[Turn], candidates: Sequence[Candidate | None]) -> tuple[Message, ...]:
    first = (Message(role="system", content=_SYSTEM), Message(role="user", content=task.source))
    return continued(first, turns, candidates, CONTEXT_CHARACTERS)


class ProgramLanes(Lanes):
    """Judges several programs at once on the CPU."""

    def __init__(self, programs: dict[str, ProgramTask], jobs: int) -> None:
        """`programs`: by the content hash of their task."""
        super().__init__(jobs, 1)
        self._programs = programs
        self._own = threading.local()
        self._lock = threading.Lock()
        self._builders: list[BuilderClient] = []
        self._pools: dict[str, Pool] = {}

    def judge(self, job: Job, seat: int) -> Evaluation:
        from kernelwright.evaluation.judge.program_answers import judge_answer
        from kernelwright.evaluation.judge.programs import ProgramLimits
        from kernelwright.evaluation.processes.builder_client import BuilderClient
        from kernelwright.evaluation.processes.pool import Pool

        with self._lock:
            if job.options.sandbox not in self._pools:
                self._pools[job.options.sandbox] = Pool(job.options.sandbox)
            pool = self._pools[job.options.sandbox]
        if not hasattr(self._own, "builder"):
            self._own.builder = BuilderClient(pool)
            with self._lock:
                self._builders.append(self._own.builder)
        limits = ProgramLimits(seconds=job.options.timeout, memory_mb=job.options.memory_mb)
        row = self._programs[job.task.content_hash]
        verdict = judge_answer(row, job.candidate.text, pool, self._own.builder, limits)
        if verdict.verdict == "task_error":
            raise TaskError(verdict.reason)
        return evaluation_of(verdict, job, row)

    def settle(self, options: EvalOptions) -> EvalOptions:
        """Sets the backend to `cpu`: programs always run on the functional machine."""
        return options.model_copy(update={"backend": "cpu"})

    def shut(self) -> None:
        for builder in self._builders:
            builder.close()
        for pool in self._pools.values():
            pool.close()


def evaluation_of(verdict: ProgramVerdict, job: Job, row: ProgramTask) -> Evaluation:
    """Converts a program's verdict into an `Evaluation`."""
    name: VerdictName = next((v for v in VERDICTS if v == verdict.verdict), "harness_error")
    rule, colon, evidence = verdict.reason.partition(": ")
    rejected = (Finding(rule=rule, evidence=evidence or rule, severity="reject"),) if name == "rejected" else ()
    compared = name in ("correct", "wrong")
    shapes = tuple(tuple(map(int, re.findall(r"\d+", a.shape))) for a in row.inputs)
    result = WorkloadResult(
        name=COMPARER, shape=shapes, dtype=tuple(a.dtype for a in row.inputs), passed=name == "correct"
    )
    parts = verdict.parts
    check = sum(v for k, v in parts.items() if k != "build")
    return Evaluation(
        task_id=job.task.task_id,
        task_hash=job.task.content_hash,
        candidate_id=job.candidate.content_hash,
        verdict=name,
        reason=verdict.reason or ("" if name == "correct" else name),
        backend="cpu",
        sandbox=verdict.sandbox,
        workloads=(result,) if compared else (),
        findings=(*rejected, *verdict.findings),
        seconds=Seconds(build=parts.get("build", 0.0), check=check, total=verdict.seconds),
        options=job.options.model_dump(mode="json", exclude={"seed"}),
    )
