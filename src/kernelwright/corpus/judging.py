"""The process of a corpus builder: writes the pairs of a chunk, judges them, and answers one JSON line per row.

A process judges one candidate at a time, and there is one process per core: the judge's own work (at most a tenth of a
second per candidate) is Python, which the threads of one process could not run in parallel.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from kernelwright.corpus.pairs import Pair, Recipe, from_fields, make_chunk
from kernelwright.corpus.processes import ignore_interrupts, request
from kernelwright.corpus.shards import Verdict, row_of
from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.options import SMALL_BUDGET
from kernelwright.records import Evaluation, Provenance, Task
from kernelwright.tasks import candidate_from_text

LARGEST_FLOPS = 100_000_000
"""The bound on a task's smallest workload for judging on the CPU: a larger one would take seconds per call."""
Say = Callable[[dict[str, Any]], None]


def to_be_judged(row_id: str, share: float) -> bool:
    """Tells whether a row belongs to the judged share, by a hash of its name, so that every run agrees."""
    digest = hashlib.sha256(f"judged {row_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def row_id_of(recipe: Recipe, chunk: int, place: int) -> str:
    """Returns a row's name: split, seed, chunk, and place in the chunk."""
    return f"{recipe.split}-{recipe.seed}-{chunk:06d}-{place:04d}"


def judge_chunk(
    recipe: Recipe, index: int, tasks: int, done: set[str], share: float, evaluator: Evaluator | None, say: Say
) -> None:
    """Reports each unfinished row of a chunk, then the counts of its tasks."""
    chunk = make_chunk(recipe, index, tasks)
    broken: set[str] = set()
    for place, pair in enumerate(chunk.pairs):
        row_id = row_id_of(recipe, index, place)
        if row_id in done or pair.task.source in broken:
            continue
        verdict = None
        if evaluator is not None and to_be_judged(row_id, share):
            verdict = _verdict(pair, evaluator)
            if verdict is not None and verdict.verdict == "task_error":
                broken.add(pair.task.source)
                say({"chunk": index, "bad_task": pair.task.name, "family": pair.task.family, "why": verdict.reason})
                continue
        say({"chunk": index, "place": place, "row": row_of(pair, row_id, verdict)})
    say(
        {
            "chunk": index,
            "end": {"skipped": chunk.skipped, "families": chunk.families, "removed": list(chunk.removed)},
        }
    )


def _verdict(pair: Pair, evaluator: Evaluator) -> Verdict | None:
    """Judges a pair; returns None where the row stays unjudged: a harness error, or a task too large for the CPU."""
    origin = f"generated:{pair.task.family}"
    task = Task(task_id=pair.task.name, source=pair.task.source, provenance=Provenance(origin=origin))
    try:
        if evaluator.options.backend == "cpu":
            sizes = evaluator.check_task(task).workloads
            if sizes and sizes[0].flops > LARGEST_FLOPS:
                return None
        found = evaluator.evaluate(task, candidate_from_text(pair.answer, f"{origin}:{pair.schedule}"))
    except TaskError as error:
        return Verdict("task_error", str(error)[:500], "", 0.0)
    return None if found.verdict == "harness_error" else verdict_of(found)


def verdict_of(found: Evaluation) -> Verdict:
    """Returns the part of an evaluation that a row stores."""
    timing = found.timing
    return Verdict(
        found.verdict,
        found.reason,
        found.backend,
        found.seconds.total,
        timing.candidate_ms if timing else None,
        timing.eager_ms if timing else None,
        timing.speedup if timing else None,
        timing.interval if timing else None,
    )


def _say(value: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the builder is gone; our child processes end with this one
        os._exit(0)


def _main() -> None:
    ignore_interrupts()
    first = request()
    recipe = from_fields(first["recipe"])
    options = EvalOptions(**first["options"]) if first["options"] is not None else None
    small = SMALL_BUDGET if options is not None and options.backend == "cpu" else None
    evaluator = Evaluator(options, plan_budget=small) if options is not None else None
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                judge_chunk(recipe, asked["chunk"], asked["tasks"], set(asked["done"]), first["share"], evaluator, _say)
            except Exception as error:  # sent to the builder, which ends
                _say({"failed": f"{type(error).__name__}: {error}"[:2000]})
    finally:
        if evaluator is not None:
            evaluator.close()


if __name__ == "__main__":
    _main()
