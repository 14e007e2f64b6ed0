"""Judges and times a policy's kernels on a set of tasks, beside eager and `torch.compile`, in calls of a few minutes.

    python benchmarks/kernel_speed.py SET [--out OUT.json] [--from EARLIER.json ...] [--policy template] [--compile]
        [--part 1/4] [--sample 40] [--seconds 480] [--jobs 12] [--timing-seconds 0.3] [--form load_inline]
        [--precision float32] [--device cuda] [--check]

SET is `chains` (tests/sets/chains), or a JSONL file with the field `reference`. `--policy` is `template` (the solution
library's first answer), `starter[:FOLDER]` (greedy), or the name of a schedule. Each answer is judged in exported form
by the Evaluator with every guard. A correct one is timed against eager and, with `--compile`, `torch.compile`. Builds
and checks of `--jobs` answers overlap; what is timed has the GPU alone.

OUT (benchmarks/results/kernel_speed_SET_POLICY.json.gz if not given) has one row a task with its raw samples, and a
summary: geometric means, fast_1 with Wilson's interval, families. A later call with the same OUT, or with `--from`,
judges what has no row yet, or none with `torch.compile` where that is asked for. An answer that has changed is judged
again. `--sample` takes so many tasks by a hash of their names; `--part 2/4` the second quarter, by another. Nothing is
begun after `--seconds`; what is being judged then ends.

`--device cpu` goes the GPU's way on the CPU. `--check` judges three of the tasks on the functional machine, at small
sizes.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speed_common import OUT, Results, begun, library_answer, parser, stable
from speed_families import family_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.chains import chains

from kernelwright.bench import metrics
from kernelwright.errors import CandidateError, PolicyError, TaskError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.judge import hardware_limits
from kernelwright.evaluation.trials import TaskPlan
from kernelwright.policies import Request
from kernelwright.policies.starter import StarterPolicy
from kernelwright.prompts import ParseFailure, parse_answer
from kernelwright.records import Evaluation, Task
from kernelwright.solutions import write
from kernelwright.solutions.forms import export
from kernelwright.solutions.kernels.schedule import named
from kernelwright.solutions.read.reading import Unreadable
from kernelwright.tasks import candidate_from_text, load_suite

Row = dict[str, Any]
FLOAT_BYTES = 4
SPLIT_PRODUCTS = 3
"""Products on 16-bit tensor cores that one product with float32's error takes."""


@dataclass(frozen=True)
class Problem:
    """A task with its family. `weights`: bytes of weights, where they are known."""

    task: Task
    family: str
    weights: int = 0

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.task_id


def set_name(named_set: str) -> str:
    """Returns a set's short name: `chains`, or the last part of a file's name, for example `dev80`."""
    return Path(named_set).stem.rpartition("_")[2]


def problems(named_set: str) -> list[Problem]:
    """Returns a set's tasks. Raises `TaskError`."""
    if named_set == "chains":
        return [Problem(Task(task_id=c.name, source=c.source), c.family, c.weights) for c in chains()]
    return [Problem(task, family_of(task.source)) for task in load_suite(named_set)]


def chosen(every: Sequence[Problem], asked: argparse.Namespace) -> list[Problem]:
    """Returns the sample's tasks that are in this part."""
    ranked = sorted(every, key=lambda p: stable(f"sample {p.name}"))[: asked.sample or None]
    held = [p for p in ranked if asked.part.holds(p.name) and asked.only in f"{p.family} {p.name}"]
    return [replace(p, task=p.task.at(asked.precision)) for p in held]


class NoAnswer(Exception):
    """Signals that a policy has no candidate for a task; the message says why."""


def answering(policy: str, tasks: Sequence[Task]) -> Callable[[Task], str]:
    """Returns the function that gives a task's answer as a Python file. That function raises `NoAnswer`."""
    if policy.partition(":")[0] == "starter":
        return _starter(policy, tasks)
    schedule = None if policy == "template" else named(policy)

    def written(task: Task) -> str:
        try:
            return library_answer(task.source) if schedule is None else write(task.source, schedule)
        except (PolicyError, Unreadable) as error:
            raise NoAnswer(f"unreadable: {error}") from error

    return written


def _starter(policy: str, tasks: Sequence[Task]) -> Callable[[Task], str]:
    """Draws all greedy answers in one batch."""
    starter = StarterPolicy.from_spec(policy)
    texts: dict[str, str] = {}
    fitting = []
    for task in tasks:
        try:
            starter.prompt((), task)
            fitting.append(Request((), 0, task, 0.0))
        except PolicyError as error:
            texts[task.task_id] = f"no answer: {error}"
    for request, answer in zip(fitting, starter.generate_many(fitting), strict=True):
        assert request.task is not None
        texts[request.task.task_id] = answer.text

    def answered(task: Task) -> str:
        found = parse_answer(texts[task.task_id])
        if isinstance(found, ParseFailure):
            raise NoAnswer(f"no candidate: {found.reason}")
        return found.text

    return answered


@dataclass(frozen=True)
class Judge:
    """Judges one answer after another. `form` is `load_inline` or `module`."""

    evaluator: Evaluator
    answer: Callable[[Task], str]
    form: str
    card: str

    def text(self, problem: Problem) -> str:
        """Returns a problem's answer in the form that is judged. Raises `NoAnswer`."""
        text = self.answer(problem.task)
        try:
            return export(text) if self.form == "load_inline" else text
        except CandidateError as error:
            raise NoAnswer(f"not exported: {error}") from error

    def row(self, problem: Problem, text: str) -> Row:
        """Returns the row of one judged answer."""
        row: Row = {"task": problem.name, "family": problem.family, "answer": digest(text)}
        try:
            plan = self.evaluator.check_task(problem.task)
            found = self.evaluator.evaluate(problem.task, candidate_from_text(text, "speed"))
        except TaskError as error:
            return row | {"verdict": "task error", "reason": str(error)[:300]}
        return row | _facts(found) | _floor(plan, problem.weights, self.card)


def digest(text: str) -> str:
    """Returns the name of an answer's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _facts(found: Evaluation) -> Row:
    return {
        "verdict": found.verdict,
        "reason": found.reason[:300],
        "findings": [f"{f.rule}: {f.evidence}"[:200] for f in found.findings if f.severity != "info"],
        "timing": found.timing.model_dump(mode="json") if found.timing else None,
        "launches": found.environment.launches_a_call,
        "road": found.environment.road,
        "seconds": found.seconds.model_dump(),
    }


def _floor(plan: TaskPlan, weights: int, card: str) -> Row:
    """Returns the milliseconds that a task takes at least: its inputs, outputs and weights at the memory's rate, or its
    products at the rate of three 16-bit ones."""
    size, memory, operations = plan.declared, hardware_limits.PEAK_BYTES, hardware_limits.PEAK_FLOPS
    name = next((n for n in memory if n in card), None)
    if size is None or not size.elements or name is None:
        return {"floor_ms": None}
    moving = (FLOAT_BYTES * size.elements + weights) / memory[name][0]
    computing = SPLIT_PRODUCTS * size.flops / operations[name]
    return {"floor_ms": 1e3 * max(moving, computing), "elements": size.elements, "flops": size.flops}


def is_done(row: Row | None, text: str | None, compiled: bool) -> bool:
    """Tells whether an earlier row still holds for an answer: None for no answer."""
    if row is None or row["verdict"] == "harness_error":
        return False
    if row["answer"] != (digest(text) if text is not None else ""):
        return False
    timing = row.get("timing")
    return not (compiled and timing and timing["compile_ms"] is None)


def judge_all(asked: argparse.Namespace, wanted: Sequence[Problem], results: Results, judge: Judge) -> None:
    """Judges with `--jobs` threads until all is done or the time is over."""
    waiting, lock = list(reversed(wanted)), threading.Lock()

    def work() -> None:
        while not results.over:
            with lock:
                if not waiting:
                    return
                problem = waiting.pop()
            text, reason = None, ""
            try:
                text = judge.text(problem)
            except NoAnswer as error:
                reason = str(error)
            if is_done(results.known(task=problem.name), text, asked.compile):
                continue
            if text is None:
                row = {"task": problem.name, "family": problem.family, "answer": "", "verdict": "no answer"}
                results.add(row | {"reason": reason[:300], "timing": None})
            else:
                results.add(judge.row(problem, text))

    with ThreadPoolExecutor(asked.jobs) as threads:
        for job in [threads.submit(work) for _ in range(asked.jobs)]:
            job.result()


def ratio(row: Row, baseline: str) -> float | None:
    """Returns how many times as fast as a baseline a correct answer is; None where it is not timed."""
    timing = row.get("timing")
    if row["verdict"] != "correct" or not timing or timing.get(f"{baseline}_ms") is None:
        return None
    return float(timing[f"{baseline}_ms"] / timing["candidate_ms"])


def figures(rows: Sequence[Row]) -> Row:
    """Returns the numbers of some rows.

    `correct` is a share. `over_eager` and `over_compile` are geometric means over correct answers. `fast_1_eager` and
    `fast_1_compile` count answers that are not correct as not fast. The times are geometric means in milliseconds.
    """
    correct = metrics.share([float(r["verdict"] == "correct") for r in rows])
    found: Row = {"tasks": len(rows), "correct": _plain(correct)}
    for baseline in ("eager", "compile"):
        ratios = {r["task"]: value for r in rows if (value := ratio(r, baseline)) is not None}
        counted = [r for r in rows if r["task"] in ratios or r["verdict"] != "correct"]
        fast = [float(ratios.get(r["task"], 0.0) > 1.0) for r in counted]
        found[f"over_{baseline}"] = _plain(metrics.geometric_mean(list(ratios.values())))
        found[f"fast_1_{baseline}"] = _plain(metrics.share(fast)) if ratios else None
    timed = [r for r in rows if ratio(r, "eager") is not None]
    for name in ("candidate_ms", "eager_ms", "compile_ms"):
        found[name] = _mean([r["timing"][name] for r in timed])
    found["floor_ms"] = _mean([r["floor_ms"] for r in timed])
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    """Returns the geometric mean; None where there is no value or one is missing."""
    known = [v for v in values if v]
    whole = metrics.geometric_mean(known) if len(known) == len(values) else None
    return whole and whole.value


def _plain(found: metrics.Estimate | None) -> Mapping[str, float | int] | None:
    return found and found.plain()


def summary(rows: Sequence[Row]) -> Row:
    """Returns the numbers of all rows and of each family."""
    families = sorted({r["family"] for r in rows})
    return {**figures(rows), "families": {f: figures([r for r in rows if r["family"] == f]) for f in families}}


def options(asked: argparse.Namespace) -> EvalOptions:
    """Returns the options of judging: all guards, and both baselines where `--compile` is given."""
    if asked.check:
        return EvalOptions(backend="cpu", trials=2, small_sizes=True, seed=1, precision=asked.precision)
    baselines = ("eager", "compile") if asked.compile else ("eager",)
    timed = {"baselines": baselines, "timing_seconds": asked.timing_seconds}
    return EvalOptions(backend="gpu", precision=asked.precision, **timed)


def main() -> int:
    made = parser(__doc__)
    made.add_argument("set", metavar="SET")
    made.add_argument("--policy", default="template")
    made.add_argument("--compile", action="store_true", help="time torch.compile, too")
    made.add_argument("--sample", type=int, default=0, help="so many of the set's tasks")
    made.add_argument("--jobs", type=int, default=12)
    made.add_argument("--form", choices=("load_inline", "module"), default="load_inline")
    made.add_argument("--precision", choices=("float32", "tf32"), default="float32")
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked = made.parse_args()
    asked.out = asked.out or OUT / f"kernel_speed_{set_name(asked.set)}_{asked.policy.replace(':', '_')}.json.gz"
    if asked.check:
        asked.sample, asked.jobs = asked.sample or 3, 1
    wanted = chosen(problems(asked.set), asked)
    results = begun(asked, "kernel_speed", ("task",))
    judging = options(asked)
    results.facts = {"set": set_name(asked.set), "policy": asked.policy, "form": asked.form}
    results.facts["options"] = judging.model_dump(mode="json")
    answer = answering(asked.policy, [p.task for p in wanted])
    device = "cpu" if asked.device == "cpu" and not asked.check else None
    with Evaluator(judging, device) as evaluator:
        judge_all(asked, wanted, results, Judge(evaluator, answer, asked.form, str(results.hardware["gpu"])))
    left = sum(results.known(task=p.name) is None for p in wanted)
    results.write(summary=summary(results.rows), left=left, wall_s=round(results.spent, 1))
    shown = {k: v for k, v in results.facts["summary"].items() if k != "families"}
    print(f"{results.spent:.0f} s, {len(results.rows)} rows, {left} of {len(wanted)} tasks left: {shown}")
    return int(asked.check and any(row["verdict"] != "correct" for row in results.rows))


if __name__ == "__main__":
    raise SystemExit(main())
