"""Records of one judgement: task, candidate, options, and the processes that take part."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.device_client import Devices
from kernelwright.evaluation.processes.oracle_client import OracleClient
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.processes.reader_client import Reading
from kernelwright.evaluation.trials import TaskPlan
from kernelwright.records import Candidate, LibraryRule, Precision, Task


@dataclass(frozen=True)
class Submission:
    """A candidate on its task, with the options of its judgement."""

    task: Task
    candidate: Candidate
    reading: Reading
    options: EvalOptions
    builder: BuilderClient
    devices: Devices

    @property
    def source(self) -> str:
        """The Python module that the runner executes."""
        return self.reading.source

    @property
    def rule(self) -> LibraryRule:
        """The library rule: the caller's, else the task's own."""
        return self.options.policy or self.task.policy

    @property
    def precision(self) -> Precision:
        """The precision of products: the caller's, else the task's own."""
        return self.options.precise(self.task)

    @property
    def pool(self) -> Pool:
        """The pool that starts the judgement's processes."""
        return self.builder.pool


@dataclass(frozen=True)
class Case(Submission):
    """A submission with all other constants of its judgement: seed, plan and oracle."""

    seed: int
    plan: TaskPlan
    oracle: OracleClient
