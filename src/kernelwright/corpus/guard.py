"""Keeps tasks away from suites, given by path or name. A process builds one index for all its chunks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Literal

from kernelwright.corpus.decontaminate import Embed, Index, Near, RemovalReport, Rules, Text, removal
from kernelwright.corpus.programs import ProgramIndex, SuiteProgram
from kernelwright.errors import ConfigError

KNOWN_TASKS = 4096
"""Size of the cache of compared tasks: successive rows often share a task."""


def suite_texts(suites: Sequence[str], reference_field: str = "reference") -> dict[str, list[Text]]:
    """Loads the tasks of suites given by path or name. Raises `TaskError`, and `ConfigError` for an empty suite."""
    from kernelwright.tasks import load_suite

    for suite in suites:
        if of_programs(suite):
            raise ConfigError(
                f"{suite!r} has whole CUDA programs, which are compared with answers, and here are none yet",
                hint="keep away from it with `decontaminate` or `curate --against`, when there are",
            )
    found = {
        suite: [Text(t.task_id, t.source) for t in load_suite(suite, reference_field=reference_field)]
        for suite in suites
    }
    empty = [suite for suite, texts in found.items() if not texts]
    if empty:
        raise ConfigError(f"the suite {empty[0]!r} holds no task", hint="name a suite with tasks in it")
    return found


def of_programs(suite: str) -> bool:
    """Tells whether a suite consists of whole programs, in CUDABench's format."""
    from kernelwright.tasks.formats.cudabench import PREFIX, is_cudabench

    return suite.startswith(PREFIX) or is_cudabench(suite)


def suite_programs(suite: str) -> list[SuiteProgram]:
    """Loads the programs of `cudabench:FILE[:LEVEL]`, or of a file. Raises `TaskError`."""
    from kernelwright.tasks.formats.cudabench import PREFIX, read_programs

    file = re.sub(r":[123]$", "", suite.removeprefix(PREFIX))
    return [SuiteProgram(t.task_id, t.name, t.program) for t in read_programs(file) if not t.problem]


def taught(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the code in a row of any kind; for a preference pair both sides."""
    names = ("answer", "code", "kernel", "rejected_code", "failed_code")
    return tuple(row[name] for name in names if isinstance(row.get(name), str))


class Away:
    """Suites of tasks and of programs that rows must not be too near to."""

    def __init__(
        self,
        tasks: Mapping[str, Sequence[Text]],
        programs: Mapping[str, Sequence[SuiteProgram]] | None = None,
        rules: Rules | None = None,
        embed: Embed | None = None,
    ) -> None:
        """Indexes suites by name. Raises `ConfigError` where all of them are empty."""
        programs = programs or {}
        self.sizes = {name: len(suite) for name, suite in (*tasks.items(), *programs.items())}
        if not sum(self.sizes.values()):
            raise ConfigError("there is no suite to keep away from", hint="name one with --against")
        self.rules = rules or Rules()
        self._names = [f"{suite}#{t.task_id}" for suite, texts in tasks.items() for t in texts]
        self._programs = [f"{suite}#{p.task_id}" for suite, found in programs.items() for p in found]
        index = Index([t.source for texts in tasks.values() for t in texts], self.rules, embed)
        self._near = lru_cache(KNOWN_TASKS)(index.near)
        self._kernels = ProgramIndex([p for found in programs.values() for p in found], self.rules)

    @classmethod
    def of(
        cls, suites: Sequence[str], rules: Rules, reference_field: str = "reference", embed: str | None = None
    ) -> Away:
        """Loads suites by path or name; `embed` names the embedding model. Raises `TaskError` and `ConfigError`."""
        programs = [suite for suite in suites if of_programs(suite)]
        tasks = suite_texts([suite for suite in suites if suite not in programs], reference_field)
        found = {suite: suite_programs(suite) for suite in programs}
        if embed is None:
            return cls(tasks, found, rules)
        from kernelwright.corpus.embedding import load_embedding

        return cls(tasks, found, rules, load_embedding(embed))

    def near(self, reference: str, *code: str) -> tuple[Near, Sequence[str]]:
        """Measures how near a task and its code are to the suites; returns the names that `Near` indexes, too.

        The names are of programs where no task is too near and there are programs, else of tasks.
        """
        by_task = self._near(reference)
        if by_task.reasons or not self._programs:
            return by_task, self._names
        found = [self._kernels.near(reference, text) for text in code or ("",)]
        return next((near for near in found if near.reasons), found[0]), self._programs


def decontaminate(
    tasks: Iterable[Text], away: Away, on_task: Callable[[Text, Near], None] | None = None
) -> RemovalReport:
    """Compares tasks with suites. `on_task` gets each task with its `Near`, so that the caller can keep or drop it."""
    report = RemovalReport(away.sizes, away.rules)
    for task in tasks:
        near, names = away.near(task.source, *task.code)
        report.note(task.task_id, task.family, near, names)
        if on_task is not None:
            on_task(task, near)
    return report


@cache
def away(suites: tuple[str, ...], one_operator: Literal["remove", "keep"]) -> Away:
    """Loads suites once per process (`Away.of`)."""
    return Away.of(suites, Rules(one_operator=one_operator))


@cache
def guard(suites: tuple[str, ...], one_operator: Literal["remove", "keep"]) -> Away:
    """Loads suites of tasks once per process, for comparing tasks before they have answers."""
    return Away(suite_texts(suites), rules=Rules(one_operator=one_operator))


@dataclass
class Watch:
    """Checks one chunk's tasks and collects the removals in `rows`."""

    guard: Away
    rows: list[dict[str, Any]] = field(default_factory=list)

    def check(self, task_id: str, source: str, family: str) -> bool:
        """Tells whether a task is too near, and adds the removal to `rows`."""
        near, names = self.guard.near(source)
        if near.reasons:
            self.rows.append(removal(task_id, family, near, names))
        return bool(near.reasons)


def removals_summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts removed tasks by rule and by family, and those of a single operator, which always look alike."""
    single = [r for r in rows if r["one_operator"]]
    return {
        "removed": len(rows),
        "by_rule": dict(Counter(reason for r in rows for reason in r["reasons"])),
        "by_family": dict(Counter(r["family"] for r in rows)),
        "one_operator": len(single),
        "one_operator_by_ast_only": sum(r["reasons"] == ["ast"] for r in single),
    }
