"""An executor that caches verdicts in a folder shared by several runs.

A policy in training repeats many answers, and so do the models that are compared afterwards. A verdict is found by its
task, candidate and options, the seed of the inputs among them (`EvalOptions.key`). Candidates that differ in Python
comments alone count as equal: half the answers of a small model differ from others in a heading only. Several
processes may share a folder.
"""

from __future__ import annotations

import io
import tokenize
from functools import lru_cache
from pathlib import Path
from typing import Self

from kernelwright.errors import StoreError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Executor, Job, Keep
from kernelwright.records import Candidate, Evaluation, Task
from kernelwright.runs.store import Store
from kernelwright.syntax import MAX_TEXT


def question(task: Task, candidate: Candidate, options: EvalOptions) -> str:
    """Returns the cache's key: the evaluation key of the candidate without its comments."""
    sources = tuple(
        s.changed(content=without_comments(s.content)) if s.path.endswith(".py") else s for s in candidate.sources
    )
    return options.key(task, candidate.changed(sources=sources))


_UNREADABLE = (tokenize.TokenError, SyntaxError, ValueError, IndexError, SystemError)
"""Errors of the tokenizer. Python 3.12.1 raises `SystemError` for a null byte."""


@lru_cache(maxsize=4096)
def without_comments(text: str) -> str:
    """Returns Python text with empty comments and unchanged line numbers. Text that does not parse, or is longer than
    is read, stays unchanged."""
    if len(text) > MAX_TEXT:
        return text
    lines = io.StringIO(text).readlines()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start[0] - 1, token.start[1]
                before, end = lines[row][:column], lines[row][column + len(token.string) :]
                if before + token.string + end != lines[row]:
                    return text
                lines[row] = f"{before}#{end}"
    except _UNREADABLE:
        return text
    return "".join(lines)


class Remembering:
    """Puts a cache before another executor, which it closes. Raises `StoreError` for a folder of another kind."""

    def __init__(self, inner: Executor, folder: Path | str) -> None:
        self.inner, self.capacity = inner, inner.capacity
        try:
            self.store = Store.open_or_create(folder, {"kind": "memory"}, shared=True)
        except StoreError as error:
            hint = "verdicts want a folder of their own, which you may write to"
            raise StoreError(f"the verdicts that runs share: {error}", hint=hint) from error
        self.known = 0
        """The number of jobs answered from the folder."""

    def settle(self, options: EvalOptions) -> EvalOptions:
        """See `Executor.settle`."""
        return self.inner.settle(options)

    def submit(
        self,
        task: Task,
        candidate: Candidate,
        options: EvalOptions | None = None,
        priority: int = 0,
        *,
        keep: Keep | None = None,
        block: bool = True,
    ) -> Job:
        """Returns a job, which is done already if its verdict is cached."""
        asked = self.settle(options or EvalOptions())
        found = self.store.find_evaluation(question(task, candidate, asked))
        if found is None:
            remember = _Remember(self.store, asked, keep)
            return self.inner.submit(task, candidate, asked, priority, keep=remember, block=block)
        self.known += 1
        job = Job(task, candidate, asked, priority, keep)
        job.begin()
        job.finish(found.model_copy(update={"candidate_id": candidate.content_hash, "task_id": task.task_id}))
        return job

    def close(self, drain: bool = False) -> None:
        """Closes the other executor, then the folder."""
        self.inner.close(drain)
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, /, *exc: object) -> None:
        self.close(drain=kind is None)


def remembering(executor: Executor, folder: Path | str | None) -> Executor:
    """Returns the executor, behind a cache of verdicts if a folder is named."""
    if folder is None:
        return executor
    try:
        return Remembering(executor, folder)
    except BaseException:
        executor.close()
        raise


class _Remember:
    """Stores a verdict in the folder, then calls the caller's `keep`."""

    def __init__(self, store: Store, options: EvalOptions, keep: Keep | None) -> None:
        self.store, self.options, self.keep = store, options, keep

    def __call__(self, job: Job, evaluation: Evaluation) -> None:
        self.store.add_candidate(job.candidate)
        self.store.add_evaluation(evaluation, question(job.task, job.candidate, self.options))
        if self.keep is not None:
            self.keep(job, evaluation)
