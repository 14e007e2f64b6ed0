"""The judge's side of a reader: has a candidate's text read in a confined child, within one deadline and one length.

No pattern is safe on every text, and nothing can interrupt one that runs in the judge. So the child reads, and is ended
when it takes too long. What it could not read is missing from the answer, and the verdict rests on what runs.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout, Frame
from kernelwright.evaluation.processes.messages import HotspotFacts, MachineFinding
from kernelwright.evaluation.processes.pool import Child, ChildLimits, Pool
from kernelwright.records import Candidate, Finding, Task, VerdictName
from kernelwright.syntax import MAX_TEXT

READ_SECONDS = 3.0
"""Seconds of processor time for all reading of one candidate's text."""
WALL_SECONDS = 60.0
"""The same in wall time, for a machine that does other work."""
MEMORY_MB = 1024
MAX_LOG = 100_000
"""Characters of a compiler's log in which the first error is looked for."""


class Essentials(BaseModel):
    """The module that the runner executes, or the reason why there is none."""

    model_config = ConfigDict(frozen=True)

    source: str = ""
    verdict: VerdictName | None = None
    reason: str = ""
    finding: Finding | None = None


class Advice(BaseModel):
    """All else that the judge wants to know of a candidate's text. The defaults stand for a text that was not read."""

    model_config = ConfigDict(frozen=True)

    findings: tuple[Finding, ...] = ()
    first_build: dict[str, Any] | None = None
    """The fields of the `BuildRequest` that the module starts with for certain."""
    starts_programs: bool = False
    """It needs a runner that may start compilers."""
    has_streams: bool = True
    """It may create CUDA streams, which must be able to run concurrently."""
    tunes: bool = False
    """It may tune itself by timing kernels in its first call."""
    defined: frozenset[str] = frozenset()
    """Names of the functions that it defines for the device."""
    sizes: frozenset[str] = frozenset()
    """Constants of the task whose declared values the code holds."""


KernelLine = tuple[Literal["kernel"], str, int | None]
OwnLine = tuple[Literal["own"], str, int]
ErrorLine = tuple[Literal["error"], dict[str, Any], str]
InOwnLines = tuple[Literal["evidence"], dict[str, Any]]
Question = KernelLine | OwnLine | ErrorLine | InOwnLines
"""A question for a line of the candidate's file: of a kernel's source, of any text, of a log's first error, or for all
lines that a finding of the machine names."""


class ReaderClient:
    """The reader child of one worker, replaced when a text kills it."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.child: Child | None = None
        self._open: Reading | None = None

    def read(self, candidate: Candidate, task: Task) -> Reading:
        """Returns what the judge wants to know of a candidate's text."""
        if self._open is not None:
            self._open.settle()
        self._open = Reading(self, candidate, task)
        return self._open

    def ask(self, header: dict[str, Any]) -> str:
        """Sends a message; returns the reason if the reader could not take it, else an empty string."""
        if self.child is None:
            self.child = self.pool.spawn("reader", ChildLimits(memory_mb=MEMORY_MB, resident_mb=2 * MEMORY_MB))
        try:
            self.child.channel.send(header, (), time.monotonic() + WALL_SECONDS)
        except (ChannelClosed, ChannelTimeout):
            return self._ended()
        return ""

    def answer(self) -> Frame | str:
        """Returns the next answer, or the reason why there is none."""
        if self.child is None:
            return "the reader has ended"
        try:
            return self.child.channel.receive(time.monotonic() + WALL_SECONDS)
        except ChannelTimeout:
            self.close()
            return f"reading it took more than {WALL_SECONDS:g} s"
        except ChannelClosed:
            return self._ended()

    def _ended(self) -> str:
        assert self.child is not None
        fate = self.child.natural_fate()
        self.close()
        if fate.signal == signal.SIGPROF:
            return f"reading it took more than {READ_SECONDS:g} s of processor time"
        return f"the process that read it {fate}"

    def close(self) -> None:
        if self.child is not None:
            self.child.end()
            self.child = None


class Reading:
    """One candidate's text as the reader sees it. The essentials are there at once; `advice` waits for the rest."""

    def __init__(self, reader: ReaderClient, candidate: Candidate, task: Task) -> None:
        self._reader = reader
        self._left = READ_SECONDS
        self._lines: dict[tuple[str, int | None, int], int | None] = {}
        self._advice: Advice | None = None
        length = sum(len(source.content) for source in candidate.sources)
        why = f"it has {length} characters, and at most {MAX_TEXT} are read" if length > MAX_TEXT else ""
        if not why:
            asked = {"candidate": candidate.model_dump(mode="json"), "task": task.model_dump(mode="json")}
            why = reader.ask({"kind": "read", "seconds": self._left, **asked})
        answer = self._answer() if not why else why
        if isinstance(answer, str):
            self._give_up(answer)
            made = Essentials(verdict="unsupported", reason=f"text: {answer}")
        else:
            made = Essentials.model_validate(answer)
        self.source = made.source
        """The Python module that the runner executes."""
        self.problem = Failed(made.verdict, made.reason, made.finding) if made.verdict is not None else None
        """The reason why the text cannot be executed at all, if there is one."""

    @property
    def advice(self) -> Advice:
        """The findings and facts of the text; a finding `text-not-read` where it was not read."""
        if self._advice is None:
            answer = self._answer()
            if isinstance(answer, str):
                self._give_up(answer)
            else:
                self._advice = Advice.model_validate(answer)
        assert self._advice is not None
        return self._advice

    def settle(self) -> None:
        """Takes the answers that were not asked for, before the reader gets another text."""
        assert self.advice is not None

    def kernel_lines(
        self, requests: Sequence[dict[str, Any]], hotspots: Sequence[tuple[str, HotspotFacts]]
    ) -> list[int | None]:
        """Returns the lines of the candidate's file for hot spots of kernels, by the builds' requests."""
        keys = [(kernel, spot.line, len(requests)) for kernel, spot in hotspots]
        unknown = [key for key in dict.fromkeys(keys) if key not in self._lines]
        questions: list[Question] = [("kernel", kernel, line) for kernel, line, _ in unknown]
        self._lines |= dict(zip(unknown, self._ask(requests, questions), strict=True))
        return [self._lines[key] for key in keys]

    def in_own_lines(
        self, requests: Sequence[dict[str, Any]], findings: Sequence[MachineFinding]
    ) -> list[tuple[str, int | None]]:
        """Returns each finding's evidence and line in lines of the candidate's file, where those are known."""
        answers = self._ask(requests, [("evidence", one.model_dump()) for one in findings])
        plain = [(one.evidence, None) for one in findings]
        return [tuple(a) if a is not None else old for a, old in zip(answers, plain, strict=True)]

    def error_line(self, request: dict[str, Any], log: str) -> int | None:
        """Returns the line of the candidate's file that a compiler's first error refers to."""
        named: int | None = self._ask([request], [("error", request, log[:MAX_LOG])])[0]
        return named

    def own_line(self, source: str, line: int) -> int | None:
        """Returns the line of the candidate's file that holds line `line` of `source`."""
        found: int | None = self._ask([{"cuda_source": source}], [("own", source, line)])[0]
        return found

    def _ask(self, requests: Sequence[dict[str, Any]], questions: Sequence[Question]) -> list[Any]:
        """Returns the answers; None for each where the reader has no time left, or the builds' texts are too long."""
        unknown: list[Any] = [None] * len(questions)
        texts = sum(len(str(r.get("cuda_source", ""))) + len(str(r.get("cpp_source", ""))) for r in requests)
        self.settle()
        if not questions or self._left <= 0 or texts > MAX_TEXT:
            return unknown
        header = {"kind": "lines", "seconds": self._left, "requests": list(requests), "questions": list(questions)}
        answer = self._reader.ask(header) or self._answer()
        if isinstance(answer, str):
            self._left = 0.0
            return unknown
        return list(answer["lines"])

    def _answer(self) -> dict[str, Any] | str:
        answer = self._reader.answer()
        if isinstance(answer, str):
            return answer
        self._left -= float(answer.header["used"])
        return f"{answer.header['why']}" if answer.kind == "unread" else answer.header

    def _give_up(self, why: str) -> None:
        self._left = 0.0
        finding = Finding(rule="text-not-read", evidence=f"{why}: there is no advice on it", severity="warning")
        self._advice = Advice(findings=(finding,))
