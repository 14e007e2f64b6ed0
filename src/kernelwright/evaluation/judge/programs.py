"""Builds whole CUDA programs, runs them and their scripts in a confined folder, and gives verdicts on the runs.

The machine's observations of kernels come back as findings. The program and its scripts are untrusted: their output is
bounded, each wait has a deadline, and none of their code runs in this process. `program_answers` judges with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelwright.backends.program import MAIN, TABLE
from kernelwright.backends.source_text.split import THRUST
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import WorkerDied
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout
from kernelwright.evaluation.processes.pool import Child, ChildLimits, Pool
from kernelwright.machine import ORDERS, library
from kernelwright.machine.runtime import readable
from kernelwright.machine.texture import TextureEntry
from kernelwright.records import Finding
from kernelwright.tasks.formats.cudabench import COMPARER, ProgramTask

BUILD_SECONDS = 300.0
"""The limit for a build; the first one compiles our runtime as well."""
FOLDER_MB = 8192
SLACK = 30.0
"""Seconds after a step's own deadline until its child is given up."""


@dataclass(frozen=True)
class ProgramLimits:
    """The limits on a row: wall seconds after its build, and memory."""

    seconds: float = 300.0
    memory_mb: int = 8192


@dataclass(frozen=True)
class Step:
    """The outcome of one script or program.

    `status` is its exit status or minus a signal; `launches` counts launches and instructions by kernel; `unsupported`
    and `broken` tell what the machine lacks or where it failed.
    """

    status: int
    timeout: bool
    stdout: str
    stderr: str
    seconds: float
    findings: tuple[Finding, ...] = ()
    launches: dict[str, tuple[int, int]] = field(default_factory=dict)
    unsupported: str = ""
    broken: str = ""

    @property
    def last_words(self) -> str:
        """Returns the last line printed to stderr, else to stdout, in at most 300 characters."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip()[:300] if lines else "it printed nothing"

    def how(self) -> str:
        """Describes the exit status or signal in words."""
        if self.status >= 0:
            return f"ended with exit status {self.status}"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-self.status).name}"
        return f"was ended by signal {-self.status}"


def _request_layout() -> str:
    """Returns the offsets of a launch request's fields, for the C++ runtime that fills one."""
    request = library.LaunchRequest
    parts = {name: getattr(request, name).offset for name, *_ in request._fields_}
    parts["bytes"] = ctypes.sizeof(request)
    parts["texture_bytes"] = ctypes.sizeof(TextureEntry)
    return ";".join(f"{name}={value}" for name, value in parts.items())


def build(
    source: str,
    builder: BuilderClient,
    flags: tuple[str, ...] = (),
    unit_names: tuple[str, ...] = (),
    unit_sources: tuple[str, ...] = (),
) -> BuildResult:
    """Returns the program's executable and device code, from the build cache if it is there. `unit_names` and
    `unit_sources` are further files, each compiled for itself."""
    request = BuildRequest(
        "program", cuda_source=source, cuda_flags=flags, unit_names=unit_names, unit_sources=unit_sources
    )
    return builder.build(dataclasses.asdict(request), BUILD_SECONDS)


class ProgramSession:
    """The confined folder in which one program and its scripts run."""

    def __init__(
        self, built: BuildResult | None, source: str, pool: Pool, limits: ProgramLimits, more: Sequence[str] = ()
    ) -> None:
        """Starts the child; without `built`, for scripts only. `source` and `more` are the program's files."""
        self.executable = Path((built and built.library) or "")
        # Thrust's algorithms run on the host here and access device memory, which therefore stays unprotected.
        self.open_memory = any(THRUST.search(text) for text in (source, *more))
        self.left = limits.seconds
        self.child: Child = pool.spawn(
            "program",
            ChildLimits(int(limits.seconds * 4) + 30, limits.memory_mb, FOLDER_MB),
            executables=(self.executable,) if built else (),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.child.end()

    @property
    def folder(self) -> Path:
        """Returns the folder of the program's files."""
        return self.child.scratch

    def script(self, name: str, source: str) -> Step:
        """Runs a Python script in the folder."""
        return self._ask({"kind": "script", "name": name, "source": source})

    def program(
        self, name: str, arguments: tuple[str, ...] = (), *, races: bool = False, order: str = "forward"
    ) -> Step:
        """Runs the program in the folder.

        With `races`, the machine looks for races and for reads of uninitialised memory, which takes longer.
        """
        environment = {
            "KERNELWRIGHT_MACHINE": str(library.build()),
            "KERNELWRIGHT_PROGRAM": f"{self.executable}{TABLE}",
            "KERNELWRIGHT_REQUEST": _request_layout(),
            "KERNELWRIGHT_RACES": str(int(races)),
            "KERNELWRIGHT_ORDER": str(ORDERS[order]),
            **({"KERNELWRIGHT_HOST_ACCESS": "1"} if self.open_memory else {}),
            **({"KERNELWRIGHT_POISON": "1"} if races else {}),
        }
        header = {"kind": "program", "path": str(self.executable), "name": name, "arguments": list(arguments)}
        return self._ask({**header, "environment": environment})

    def _ask(self, header: dict[str, Any]) -> Step:
        timeout = max(self.left, 0.05)
        started = time.monotonic()
        try:
            answer = self.child.ask({**header, "timeout": timeout}, deadline=started + timeout + SLACK).header
        except (ChannelClosed, ChannelTimeout) as error:
            fate = self.child.natural_fate()
            if fate.full:
                return Step(-9, False, "", f"its files took more than {FOLDER_MB} MB", time.monotonic() - started)
            raise WorkerDied(f"the child that ran {header['name']} {fate}") from error
        self.left -= time.monotonic() - started
        return _step(answer)


def _step(answer: dict[str, Any]) -> Step:
    """Parses the child's answer and the program's own file of findings, which is untrusted text."""
    findings: list[Finding] = []
    launches: dict[str, tuple[int, int]] = {}
    words = {"unsupported": "", "broken": ""}
    for line in str(answer["findings"]).split("\n"):  # a kernel's own text may hold other ends of lines
        kind, *fields = line.split("\t")
        if kind in ("fault", "warning") and len(fields) >= 8:
            findings.append(_finding(kind, fields))
        elif kind == "misuse" and len(fields) >= 2:
            findings.append(Finding(rule=fields[0], evidence=_plain_names(fields[1])[:500], severity="warning"))
        elif kind == "launched" and len(fields) >= 3 and fields[1].isdigit() and fields[2].isdigit():
            launches[readable(fields[0])] = (int(fields[1]), int(fields[2]))
        elif kind in words and fields:
            words[kind] = words[kind] or fields[0][:300]
    return Step(
        int(answer["status"]),
        bool(answer["timeout"]),
        str(answer["stdout"]),
        str(answer["stderr"]),
        float(answer["seconds"]),
        tuple(findings[:50]),
        launches,
        **words,
    )


def _finding(kind: str, fields: list[str]) -> Finding:
    """Parses one of the machine's lines: kernel, rule, message, block, thread, line, file, instruction."""
    kernel, rule, message, block, thread, line, file, ptx = fields[:8]
    # Other files of the program have their name in the text; the finding's own line is one of the main file.
    other = "" if not file or file == MAIN else f"{file} "
    where = f" in kernel {readable(kernel)}"
    if block and thread:
        where += f", block ({block}), thread ({thread})"
    where += f", {other}line {line}" if line else ""
    where += f" [{ptx.strip()}]" if ptx.strip() else ""
    severity: Any = "fault" if kind == "fault" else "warning"
    return Finding(
        rule=rule,
        evidence=(_plain_names(message) + where)[:600],
        severity=severity,
        line=int(line) if line.isdigit() and not other else None,
    )


def _plain_names(text: str) -> str:
    """Demangles the kernel names in a message of the machine."""
    return re.sub(r"\b_Z\w+", lambda found: readable(found.group()), text)


def plain_findings(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Returns findings of a whole program as plain data, for JSON."""
    return [f.model_dump(mode="json", include={"rule", "evidence", "severity", "line"}) for f in findings]


@dataclass(frozen=True)
class ProgramVerdict:
    """The outcome of one row. `verdict` is one of `records.VERDICTS`, or `task_error` if a script failed."""

    task_id: str
    verdict: str
    reason: str = ""
    name: str = ""
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    """Wall seconds of build, gen, run and compare."""
    launches: int = 0
    instructions: int = 0
    findings: tuple[Finding, ...] = ()
    sandbox: str = "none"
    """The isolation that the program ran in."""

    def plain(self) -> dict[str, Any]:
        """Returns the verdict as plain data, for JSON."""
        return {
            "task_id": self.task_id,
            "verdict": self.verdict,
            "reason": self.reason,
            "seconds": round(self.seconds, 2),
            "name": self.name,
            "parts": {k: round(v, 2) for k, v in self.parts.items()},
            "launches": self.launches,
            "instructions": self.instructions,
            "findings": plain_findings(self.findings),
        }


class ProgramRow:
    """One row while it is judged: its run, and wall seconds by step."""

    def __init__(self, task: ProgramTask) -> None:
        self.task = task
        self.parts: dict[str, float] = {}
        self.run: Step | None = None
        self.sandbox = "none"

    def verdict(self, verdict: str, reason: str = "") -> ProgramVerdict:
        run = self.run
        counts = run.launches.values() if run else ()
        return ProgramVerdict(
            self.task.task_id,
            verdict,
            " ".join(reason.split())[:500],
            self.task.name,
            sum(self.parts.values()),
            self.parts,
            sum(c[0] for c in counts),
            sum(c[1] for c in counts),
            run.findings if run else (),
            self.sandbox,
        )


def script_failed(row: ProgramRow, name: str, step: Step, limits: ProgramLimits) -> ProgramVerdict:
    if step.timeout:
        return row.verdict("timeout", f"{name} was still running after {limits.seconds:g} s in all")
    module = re.search(r"ModuleNotFoundError: No module named '([^']+)'", step.stderr)
    if module:
        return row.verdict("unsupported", f"{name} needs the Python module {module.group(1)}, which is not installed")
    return row.verdict("task_error", f"{name} {step.how()}: {step.last_words}")


def program_failed(row: ProgramRow, run: Step, limits: ProgramLimits) -> ProgramVerdict | None:
    """Returns the verdict on a program that failed; None if its output can be compared."""
    if run.broken:
        return row.verdict("harness_error", run.broken)
    if run.unsupported:
        return row.verdict("unsupported", run.unsupported)
    if run.timeout:
        return row.verdict("timeout", f"the program was still running after {limits.seconds:g} s in all")
    faults = [f for f in run.findings if f.severity == "fault"]
    if faults:
        return row.verdict("runtime_error", f"{faults[0].rule}: {faults[0].evidence}")
    if run.status:
        last = run.findings[-1].evidence if run.findings and run.status < 0 else run.last_words
        return row.verdict("runtime_error", f"the program {run.how()}: {last}")
    return None


def compared(row: ProgramRow, step: Step, limits: ProgramLimits) -> ProgramVerdict:
    words = [line.strip() for line in step.stdout.splitlines() if line.strip()]
    answer = words[-1] if words else ""
    if step.status == 0 and not step.timeout and answer == "T":
        return row.verdict("correct")
    if step.timeout or "ModuleNotFoundError" in step.stderr:
        return script_failed(row, COMPARER, step, limits)
    if answer == "F":
        return row.verdict("wrong", f"{COMPARER}: {' | '.join(words[-4:])}")
    return row.verdict("wrong", f"{COMPARER} {step.how()} and did not print T: {step.last_words}")


def named_after(log: str, name: str) -> str:
    """Replaces the name under which we compile by the user's file in a compiler's log."""
    return re.sub(r'(?<![\w./-])cuda\.cu(?=[:( ,"]|$)', lambda _: name, log, flags=re.MULTILINE)


def first_error(log: str) -> str:
    """Returns the first line that names an error, else the first line."""
    lines = [line for line in log.splitlines() if "error" in line] or log.splitlines() or ["no message"]
    return lines[0].strip()
