"""Suites by path or name, kept away from while a corpus is made. One index a process, however many chunks it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from kernelwright.corpus.decontaminate import Index, Rules, Text, removal
from kernelwright.errors import ConfigError


@dataclass(frozen=True)
class Guard:
    """An index over suites, with the names of their tasks."""

    index: Index
    names: tuple[str, ...]
    suites: tuple[tuple[str, int], ...]


def suite_texts(suites: Sequence[str], reference_field: str = "reference") -> dict[str, list[Text]]:
    """The tasks of suites given by path or name. Raises `TaskError`, and `ConfigError` where there is no task."""
    from kernelwright.tasks import load_suite
    from kernelwright.tasks.cudabench import PREFIX, is_cudabench

    for suite in suites:
        if suite.startswith(PREFIX) or is_cudabench(suite):
            raise ConfigError(
                f"{suite!r} has whole CUDA programs, and tasks are compared by their references in Python",
                hint="keep away from suites with references; what `reverse` writes are statements of such tasks",
            )
    found = {
        suite: [Text(t.task_id, t.source) for t in load_suite(suite, reference_field=reference_field)]
        for suite in suites
    }
    empty = [suite for suite, texts in found.items() if not texts]
    if empty:
        raise ConfigError(f"the suite {empty[0]!r} holds no task", hint="name a suite with tasks in it")
    return found


@cache
def guard(suites: tuple[str, ...], one_operator: Literal["remove", "keep"]) -> Guard:
    """The guard against suites, made once a process."""
    found = suite_texts(suites)
    texts = [(f"{suite}#{t.task_id}", t.source) for suite, tasks in found.items() for t in tasks]
    index = Index([source for _, source in texts], Rules(one_operator=one_operator))
    return Guard(index, tuple(name for name, _ in texts), tuple((n, len(t)) for n, t in found.items()))


@dataclass
class Watch:
    """What one chunk's tasks were found to be near to."""

    guard: Guard
    rows: list[dict[str, Any]] = field(default_factory=list)

    def check(self, task_id: str, source: str, family: str) -> bool:
        """Whether a task is too near, noting it if so."""
        near = self.guard.index.near(source)
        if near.reasons:
            self.rows.append(removal(task_id, family, near, self.guard.names))
        return bool(near.reasons)


def removals_summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts over removed tasks: by rule, by family, and how many are single operators that cannot but be alike."""
    single = [r for r in rows if r["one_operator"]]
    return {
        "removed": len(rows),
        "by_rule": dict(Counter(reason for r in rows for reason in r["reasons"])),
        "by_family": dict(Counter(r["family"] for r in rows)),
        "one_operator": len(single),
        "one_operator_by_ast_only": sum(r["reasons"] == ["ast"] for r in single),
    }
