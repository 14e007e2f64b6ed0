"""Judges the answers of all arms of `sft_methods.py`, equal ones once, and computes each method's numbers.

An arm's answers are `OUT/jobs/NAME/answers-SUITE.jsonl`. Verdicts are in the run folder `OUT/judged-BACKEND`, by the
key of task, candidate and options, so that judging resumes on this machine or another.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelwright.bench import metrics
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Job, load_executor
from kernelwright.prompts import ParseFailure
from kernelwright.records import Candidate, Evaluation, Provenance, Task
from kernelwright.runs.store import Store
from kernelwright.search.rollout import parse_python

REFERENCES = ("vanilla", "sft", "select-random", "deciles-none")
"""Methods with which the others are compared, if they were run."""
STOP = "stop-judging"
"""The file in OUT that ends a judge with `follow`."""
PAIRS = "pairs"
"""The suite of training tasks for preference pairs. It is judged by itself and is in no table."""
TIMED = "timed"
"""The suite whose answers are timed, if there is one."""
NOT_COMPILED = ("no_candidate", "compile_error", "unsupported")


def options_of(backend: str, timed: bool) -> EvalOptions:
    """Returns the options by which every answer is judged."""
    return EvalOptions(
        backend="gpu" if backend == "gpu" else "cpu",
        trials=3,
        seed=1,
        small_sizes=backend != "gpu",
        baselines=("eager",) if timed else (),
        timing_seconds=0.5 if timed else 0.0,
    )


def load_tasks(path: Path) -> dict[str, Task]:
    """Returns the tasks of a suite's file by their names."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    names = [str(row.get("task_id", row.get("problem_id", number))) for number, row in enumerate(rows)]
    sources = [row.get("reference") or row["code"] for row in rows]
    return {name: Task(task_id=name, source=source) for name, source in zip(names, sources, strict=True)}


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the complete rows of a JSONL file that is still being written."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def answers(out: Path, timed: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields suite and row of each answer so far; with `timed` those of arms that are to be timed."""
    for path in sorted((out / "jobs").glob("*/answers-*.jsonl")):
        if timed and not json.loads((path.parent / "job.json").read_text())["params"].get("timed"):
            continue
        for row in whole_lines(path):
            yield path.stem.removeprefix("answers-"), row


def judge(out: Path, backend: str, timed: bool, follow: bool, only: str | None = None) -> dict[str, Any]:
    """Judges every answer without a verdict; with `follow`, until the file STOP exists. Returns counts."""
    suites = {path.stem: load_tasks(path) for path in sorted((out / "suites").glob("*.jsonl"))}
    asked: set[str] = set()
    began, verdicts = time.monotonic(), Counter[str]()
    wanted = options_of(backend, timed)
    folder = out / (f"judged-{backend}" + ("-timed" if timed else "") + (f"-{only}" if only else ""))
    cores = len(os.sched_getaffinity(0))
    with (
        Store.open_or_create(folder, {"verb": "sft_methods", "options": wanted.model_dump(mode="json")}) as store,
        load_executor("local", cores, wanted.backend) as executor,
    ):
        options = executor.settle(wanted)

        def keep(job: Job, evaluation: Evaluation) -> None:
            store.add_task(job.task)
            store.add_candidate(job.candidate)
            store.add_evaluation(evaluation, options.key(job.task, job.candidate))
            verdicts[evaluation.verdict] += 1

        while True:
            stop = not follow or (out / STOP).exists()
            jobs = []
            for suite, row in answers(out, timed):
                candidate = parsed(row["candidate"])
                wanted_here = suite == only if only else suite != PAIRS
                if suite not in suites or candidate is None or not wanted_here:
                    continue
                task = suites[suite][row["task_id"]]
                key = options.key(task, candidate)
                if key not in asked and store.find_evaluation(key) is None:
                    jobs.append(executor.submit(task, candidate, options, keep=keep))
                asked.add(key)
            failures = sum(job.exception() is not None for job in jobs)
            verdicts["cannot be judged"] += failures
            if stop:
                return {"verdicts": dict(verdicts), "seconds": round(time.monotonic() - began, 1), "jobs": cores}
            time.sleep(1.0)


def parsed(text: str) -> Candidate | None:
    """Returns the candidate of an answer, as `bench` reads it."""
    found = parse_python(text, Provenance())
    return None if isinstance(found, ParseFailure) else found


def numbers(out: Path, backend: str, timed: bool = False) -> dict[str, Any]:
    """Returns compile@1, func@1 and func@3 for each suite and method.

    Intervals are over tasks, for pooled seeds and for each alone. Differences of func@1 to each of `REFERENCES` are
    paired.
    """
    folder = out / (f"judged-{backend}" + ("-timed" if timed else ""))
    if not (folder / "run.sqlite").is_file():
        return {}
    options = options_of(backend, timed)
    suites = {path.stem: load_tasks(path) for path in sorted((out / "suites").glob("*.jsonl"))}
    found: dict[str, dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    with Store.open(folder, writable=False) as store:
        for path in sorted((out / "jobs").glob("*/answers-*.jsonl")):
            params = json.loads((path.parent / "job.json").read_text())["params"]
            suite = path.stem.removeprefix("answers-")
            if suite in suites and suite != PAIRS and not (timed and not params.get("timed")):
                rows = verdict_rows(whole_lines(path), suites[suite], store, options)
                found[suite][params["method"]][params["seed"]] = rows
    return {suite: table(methods) for suite, methods in found.items()}


def verdict_rows(
    rows: list[dict[str, Any]], tasks: dict[str, Task], store: Store, options: EvalOptions
) -> dict[str, list[tuple[str, float | None]]]:
    """Returns by task the verdict and speedup of each answer, without unjudged ones and faults of ours."""
    found: dict[str, list[tuple[str, float | None]]] = defaultdict(list)
    for row in rows:
        candidate = parsed(row["candidate"])
        if candidate is None:
            found[row["task_id"]].append(("no_candidate", None))
            continue
        evaluation = store.find_evaluation(options.key(tasks[row["task_id"]], candidate))
        if evaluation is not None and evaluation.verdict != "harness_error":
            speedup = evaluation.timing.speedup if evaluation.timing else None
            found[row["task_id"]].append((evaluation.verdict, speedup))
    return found


def table(methods: dict[str, dict[int, Any]]) -> dict[str, Any]:
    """Returns a suite's numbers by method."""
    pooled = {name: {seed: shares(rows) for seed, rows in seeds.items()} for name, seeds in methods.items()}
    result: dict[str, Any] = {}
    claims: dict[str, dict[str, metrics.Paired | None]] = defaultdict(dict)
    """The differences to each reference: a family of claims."""
    for name, seeds in pooled.items():
        over = averaged(list(seeds.values()))
        every = [answer for rows in methods[name].values() for answers in rows.values() for answer in answers]
        row: dict[str, Any] = {what: estimate(values) for what, values in over.items() if what != "task"}
        row["seeds"] = {seed: {w: estimate(v) for w, v in s.items() if w != "task"} for seed, s in seeds.items()}
        row["verdicts"] = dict(Counter(verdict for verdict, _ in every).most_common())
        speeds = [speedup for verdict, speedup in every if speedup and verdict == "correct"]
        geomean = metrics.geometric_mean(speeds) if speeds else None
        row["speedup"] = geomean.plain() if geomean else None
        for other in REFERENCES:
            if other in pooled and name != other:
                claims[other][name] = difference(averaged(list(pooled[other].values())), over)
        row["by_task"] = {"task": over["task"], "func@1": over["func@1"]}
        result[name] = row
    for other, found in claims.items():
        for name, compared in metrics.family(found).items():
            result[name][f"func@1 - {other}"] = compared
    return result


def shares(rows: dict[str, list[tuple[str, float | None]]]) -> dict[str, list[Any]]:
    """Returns one number a task: the chance that one of `k` answers compiles or is correct; None with fewer answers."""
    found: dict[str, list[Any]] = {"task": sorted(rows), "compile@1": [], "func@1": [], "func@3": []}
    for task in found["task"]:
        verdicts = [verdict for verdict, _ in rows[task]]
        right = verdicts.count("correct")
        compiled = sum(v not in NOT_COMPILED for v in verdicts)
        found["compile@1"].append(metrics.pass_at_k(len(verdicts), compiled, 1))
        found["func@1"].append(metrics.pass_at_k(len(verdicts), right, 1))
        found["func@3"].append(metrics.pass_at_k(len(verdicts), right, 3) if len(verdicts) >= 3 else None)
    return found


def averaged(seeds: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """Returns means over seeds of each task that all seeds have."""
    common = sorted(set.intersection(*(set(s["task"]) for s in seeds))) if seeds else []
    result: dict[str, list[Any]] = {"task": common}
    for what in ("compile@1", "func@1", "func@3"):
        by_task = [dict(zip(s["task"], s[what], strict=True)) for s in seeds]
        columns = [[values[task] for values in by_task] for task in common]
        result[what] = [None if None in column else sum(column) / len(column) for column in columns]
    return result


def estimate(values: list[Any]) -> dict[str, float | int] | None:
    found = metrics.share([v for v in values if v is not None])
    return None if found is None else found.plain()


def difference(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> metrics.Paired | None:
    a, b = (dict(zip(s["task"], s["func@1"], strict=True)) for s in (first, second))
    common = sorted(set(a) & set(b))
    return metrics.paired([a[t] for t in common], [b[t] for t in common], shares=True)
