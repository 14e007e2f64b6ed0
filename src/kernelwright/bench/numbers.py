"""The numbers of a bench run, computed from the run folder alone: a report judges nothing again.

A sample is one rollout of a policy on one task. Harness errors and unanswered questions are counted separately, neither
as right nor as wrong. An answer without a candidate, or with an `unsupported` one, failed. A sample counts once its
last turn is judged: the first turns of an unfinished sample are no result of the full number of turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelwright.bench import metrics
from kernelwright.bench.metrics import FAST_P, Estimate
from kernelwright.errors import StoreError
from kernelwright.records import Evaluation, Task, Turn
from kernelwright.runs.store import Store
from kernelwright.search.rollout import best_turn

BASELINES = ("eager", "compile")
GREEDY = -1
"""The number of the greedy sample."""
NO_CANDIDATE = "no_candidate"


def rollout_name(task: Task, sample: int) -> str:
    """Returns the name of a sample's rollout in a run."""
    return f"{task.task_id} · {task.short_hash} · {'greedy' if sample == GREEDY else f'sample {sample}'}"


@dataclass(frozen=True)
class BenchSample:
    """The result of one sample. `verdict` is one of `records.VERDICTS`, or `no_candidate`."""

    number: int
    verdict: str
    reason: str
    turns: tuple[Turn, ...]
    evaluation: Evaluation | None = None

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"

    @property
    def compiled(self) -> bool:
        """True if a build succeeded or a kernel ran (`Evaluation.compiled`)."""
        return self.evaluation is not None and self.evaluation.compiled

    def speedup(self, baseline: str) -> float | None:
        """Returns the baseline's median time over the candidate's; None without a timing against that baseline."""
        timing = self.evaluation.timing if self.evaluation else None
        other = None if timing is None else timing.eager_ms if baseline == "eager" else timing.compile_ms
        return other / timing.candidate_ms if timing and other is not None and timing.candidate_ms > 0 else None


@dataclass
class TaskResult:
    """One task of the suite with its samples; `problem` says why the task cannot be judged."""

    task_id: str
    task_hash: str
    family: str
    samples: list[BenchSample] = field(default_factory=list)
    greedy: BenchSample | None = None
    harness_errors: int = 0
    unanswered: dict[int, str] = field(default_factory=dict)
    """Samples with a turn that the policy did not answer, each with the policy's error."""
    pending: set[int] = field(default_factory=set)
    """Unfinished samples, except unanswered ones."""
    judged: bool = False
    """True if any candidate got a verdict, also in a sample that does not count."""
    problem: str = ""

    @property
    def counted(self) -> list[BenchSample]:
        """The samples behind the numbers: the sampled ones, or the greedy one if there are no others."""
        return self.samples or ([self.greedy] if self.greedy else [])


Criterion = Callable[[BenchSample], bool]


@dataclass(frozen=True)
class BenchResults:
    """A whole run: its settings and every task's samples."""

    settings: dict[str, Any]
    tasks: tuple[TaskResult, ...]
    wall_seconds: float
    largest: int
    """The largest number of counted samples of a task."""

    def answered(self, samples: int = 1) -> list[TaskResult]:
        """Returns the tasks with at least `samples` counted samples."""
        return [t for t in self.tasks if len(t.counted) >= samples]

    def shares(self, criterion: Criterion, k: int = 1) -> list[float]:
        """Returns pass@k of a criterion for each task with at least `k` samples."""
        found = self.answered(k)
        return [metrics.pass_at_k(len(t.counted), sum(map(criterion, t.counted)), k) for t in found]

    def estimate(self, criterion: Criterion, k: int = 1) -> Estimate | None:
        """Returns the mean of `shares` with its interval; None without tasks."""
        return metrics.share(self.shares(criterion, k))

    def timed(self, baseline: str) -> bool:
        """Tells whether any sample was timed against a baseline."""
        return any(s.speedup(baseline) is not None for t in self.tasks for s in t.counted)

    def of_family(self, family: str) -> BenchResults:
        """Returns the run with the tasks of one family only."""
        chosen = tuple(t for t in self.tasks if t.family == family)
        return BenchResults(self.settings, chosen, self.wall_seconds, max((len(t.counted) for t in chosen), default=0))


def correct(sample: BenchSample) -> bool:
    """Tells whether a sample is correct: the criterion of pass@k."""
    return sample.correct


def compiled(sample: BenchSample) -> bool:
    """Tells whether a sample's candidate compiled."""
    return sample.compiled


def faster(baseline: str, p: float) -> Criterion:
    """Returns the criterion of fast_p."""
    return lambda sample: metrics.is_fast(sample.correct, sample.speedup(baseline), p)


# --- reading a run --------------------------------------------------------------------------------------------------


def is_bench(store: Store) -> bool:
    """Tells whether `bench` made a run."""
    return store.meta.get("verb") == "bench"


def read(store: Store) -> BenchResults:
    """Reads the results of a run. Raises `StoreError` for a run of another command."""
    meta = store.meta
    if meta.get("verb") != "bench":
        raise StoreError(
            f"the run in {str(store.folder)!r} was not made by bench", hint="name a run of kernelwright bench"
        )
    events = store.events()
    suites = [e.data for e in events if e.kind == "suite"]
    rows = suites[-1]["tasks"] if suites else []
    settings = {**meta, **{k: v for k, v in (suites[-1] if suites else {}).items() if k != "tasks"}}
    results = {row["name"]: TaskResult(row["task_id"], row["hash"], row.get("family") or "all") for row in rows}
    for name, turns in store.turns().items():
        head, _, label = name.rpartition(" · ")
        if head in results:
            number = GREEDY if label == "greedy" else int(label.removeprefix("sample "))
            _add(results[head], number, tuple(turns), settings)
    for event in events:
        result = results.get(str(event.data.get("name"))) if isinstance(event.data, dict) else None
        if result is not None and event.kind == "bad_task":
            result.problem = str(event.data["reason"])
        elif result is not None and event.kind == "no_answer":
            result.unanswered[int(event.data["sample"])] = str(event.data["reason"])
    for result in results.values():
        _settle(result)
    wall = sum(float(e.data.get("seconds", 0.0)) for e in events if e.kind == "session")
    largest = max((len(r.counted) for r in results.values()), default=0)
    return BenchResults(settings, tuple(results.values()), wall, largest)


def task_name(task: Task) -> str:
    """Returns the name of a task in a run: the common part of its rollouts' names."""
    return f"{task.task_id} · {task.short_hash}"


def _over(judged: Sequence[Turn], settings: dict[str, Any]) -> bool:
    """Tells whether a sample is finished: it has all turns, or a correct one if `stop` is `correct`.

    Only a missing answer, a kill or a harness error ends a sample earlier.
    """
    right = any(t.evaluation is not None and t.evaluation.verdict == "correct" for t in judged)
    return len(judged) >= int(settings.get("turns", 1)) or (right and settings.get("stop", "correct") == "correct")


def _add(result: TaskResult, number: int, turns: tuple[Turn, ...], settings: dict[str, Any]) -> None:
    judged = [t for t in turns if t.evaluation is not None or t.parse_failure is not None]
    best = best_turn(judged)
    verdict = best.evaluation.verdict if best is not None and best.evaluation is not None else None
    result.judged = result.judged or verdict not in (None, "harness_error")
    if not _over(judged, settings):
        result.pending.add(number)
        return
    if best is None:
        sample = BenchSample(number, NO_CANDIDATE, judged[-1].parse_failure or "", turns)
    else:
        evaluation = best.evaluation
        assert evaluation is not None
        sample = BenchSample(number, evaluation.verdict, evaluation.reason, turns, evaluation)
    if sample.verdict == "harness_error":
        result.harness_errors += 1
    elif number == GREEDY:
        result.greedy = sample
    else:
        result.samples.append(sample)


def _settle(result: TaskResult) -> None:
    """Drops `unanswered` and `problem` entries that a later session resolved.

    No sample of a task that cannot be judged counts, not even an answer without a candidate.
    """
    result.samples.sort(key=lambda s: s.number)
    known = {s.number for s in result.samples} | ({GREEDY} if result.greedy else set())
    result.unanswered = {n: why for n, why in result.unanswered.items() if n not in known}
    result.pending -= result.unanswered.keys()
    if result.judged:
        result.problem = ""
    if result.problem:
        result.samples, result.greedy, result.pending, result.unanswered = [], None, set(), {}


# --- numbers --------------------------------------------------------------------------------------------------------


def summarise(bench: BenchResults) -> dict[str, Any]:
    """Returns all numbers of the tables as plain data; an estimate is {value, low, high, tasks} or null."""
    settings = {k: v for k, v in bench.settings.items() if k not in ("created", "verb")}
    return {
        "settings": settings,
        "counts": counts(bench),
        "verdicts": verdicts(bench),
        **_numbers(bench),
        "families": {name: _numbers(bench.of_family(name)) for name in families(bench)},
        "cost": cost(bench),
    }


def families(bench: BenchResults) -> list[str]:
    """Returns the sorted names of the families; empty if there is only one."""
    names = sorted({t.family for t in bench.tasks})
    return names if len(names) > 1 else []


def counts(bench: BenchResults) -> dict[str, int]:
    """Counts tasks and samples, and by reason the samples that do not count."""
    return {
        "tasks": len(bench.tasks),
        "judged_tasks": len(bench.answered()),
        "bad_tasks": sum(bool(t.problem) for t in bench.tasks),
        "samples": sum(len(t.samples) + bool(t.greedy) for t in bench.tasks),
        "no_answer": sum(len(t.unanswered) for t in bench.tasks),
        "harness_errors": sum(t.harness_errors for t in bench.tasks),
        "pending": sum(len(t.pending) for t in bench.tasks),
    }


def verdicts(bench: BenchResults) -> dict[str, int]:
    """Counts samples by verdict, greedy ones included."""
    every = [s for t in bench.tasks for s in (*t.samples, t.greedy) if s is not None]
    return dict(Counter(s.verdict for s in every).most_common())


def _numbers(bench: BenchResults) -> dict[str, Any]:
    ks = range(1, bench.largest + 1)
    seed = int(bench.settings.get("seed", 0))
    greedy = [t.greedy for t in bench.tasks if t.greedy is not None]
    both = (1, bench.largest) if bench.largest > 1 else (1,) if bench.largest else ()
    return {
        "tasks": len(bench.tasks),
        "greedy": None
        if not greedy
        else {
            "compiled": _plain(metrics.share([float(s.compiled) for s in greedy])),
            "correct": _plain(metrics.share([float(s.correct) for s in greedy])),
            "solved": sum(s.correct for s in greedy),
        },
        "compiled": {str(k): _plain(bench.estimate(compiled, k)) for k in ks},
        "correct": {str(k): _plain(bench.estimate(correct, k)) for k in ks},
        "solved": sum(any(s.correct for s in t.counted) for t in bench.tasks),
        "fast": {name: _fast(bench, name, both) for name in BASELINES},
        "speedup": {name: _speedup(bench, name, seed) for name in BASELINES},
    }


def _fast(bench: BenchResults, baseline: str, ks: Sequence[int]) -> dict[str, Any] | None:
    """Returns fast_p against a baseline, `p` -> `k` -> estimate; None if nothing was timed against it."""
    if not bench.timed(baseline):
        return None
    return {f"{p:g}": {str(k): _plain(bench.estimate(faster(baseline, p), k)) for k in ks} for p in FAST_P}


def _speedup(bench: BenchResults, baseline: str, seed: int) -> dict[str, Any] | None:
    """Returns geometric mean and median over tasks; a task's number is the geometric mean of its correct, timed
    samples."""
    values = [v for v in speedups(bench, baseline).values()]
    if not values:
        return None
    untimed = sum(s.correct and s.speedup(baseline) is None for t in bench.tasks for s in t.counted)
    return {
        "geomean": _plain(metrics.geometric_mean(values, seed)),
        "median": _plain(metrics.median(values, seed)),
        "untimed": untimed,
    }


def speedups(bench: BenchResults, baseline: str) -> dict[str, float]:
    """Returns by task hash the geometric mean speedup of its correct, timed samples."""
    found: dict[str, float] = {}
    for task in bench.tasks:
        values = [v for s in task.counted if s.correct and (v := s.speedup(baseline)) is not None]
        mean = metrics.geometric_mean(values) if values else None
        if mean is not None:
            found[task.task_hash] = mean.value
    return found


def cost(bench: BenchResults) -> dict[str, Any]:
    """Adds up tokens, seconds and dollars of all samples; dollars are None if the policy knows no price."""
    every = [s for t in bench.tasks for s in (*t.samples, t.greedy) if s is not None]
    usages = [turn.usage for s in every for turn in s.turns]
    prices = [u.cost_usd for u in usages]
    judged = {id(t.evaluation): t.evaluation.seconds.total for s in every for t in s.turns if t.evaluation}
    right = sum(s.correct for s in every)
    dollars = sum(p for p in prices if p is not None) if any(p is not None for p in prices) else None
    tokens = sum(u.completion_tokens for u in usages)
    return {
        "prompt_tokens": sum(u.prompt_tokens for u in usages),
        "completion_tokens": tokens,
        "policy_seconds": round(sum(u.seconds for u in usages), 2),
        "judge_seconds": round(sum(judged.values()), 2),
        "wall_seconds": round(bench.wall_seconds, 2),
        "dollars": dollars,
        "completion_tokens_per_correct": round(tokens / right, 1) if right and tokens else None,
        "dollars_per_correct": dollars / right if right and dollars is not None else None,
    }


def _plain(estimate: Estimate | None) -> dict[str, float | int] | None:
    return None if estimate is None else estimate.plain()


# --- two runs -------------------------------------------------------------------------------------------------------


def compare(first: BenchResults, second: BenchResults) -> dict[str, Any]:
    """Runs paired tests over the tasks that both runs judged: `rows` by name, and `differences` in the settings."""
    a, b = ({t.task_hash: t for t in run.answered()} for run in (first, second))
    common = [h for h in a if h in b]
    left, right = _only(first, common), _only(second, common)
    largest = min((min(len(a[h].counted), len(b[h].counted)) for h in common), default=0)
    rows: dict[str, metrics.Paired | None] = {}
    for name, criterion in (("compiled", compiled), ("pass", correct)):
        for k in sorted({1, largest} - {0}):
            rows[f"{name}@{k}"] = _paired(left.shares(criterion, k), right.shares(criterion, k), first)
    for baseline in BASELINES:
        if left.timed(baseline) and right.timed(baseline):
            fast = faster(baseline, 1.0)
            rows[f"fast_1@1 ({baseline})"] = _paired(left.shares(fast), right.shares(fast), first)
            rows[f"log speedup ({baseline})"] = _log_speedups(left, right, baseline)
    greedy = [h for h in common if a[h].greedy and b[h].greedy]
    if greedy:
        rows["greedy correct"] = _paired(_greedily_correct(a, greedy), _greedily_correct(b, greedy), first)
    return {
        "common_tasks": len(common),
        "only_in_first": len(a) - len(common),
        "only_in_second": len(b) - len(common),
        "rows": metrics.family(rows),
        "differences": _differences(first.settings, second.settings),
    }


def _greedily_correct(tasks: dict[str, TaskResult], hashes: Sequence[str]) -> list[float]:
    found = [tasks[h].greedy for h in hashes]
    return [float(sample is not None and sample.correct) for sample in found]


def _only(bench: BenchResults, hashes: Sequence[str]) -> BenchResults:
    by_hash = {t.task_hash: t for t in bench.tasks}
    return BenchResults(bench.settings, tuple(by_hash[h] for h in hashes), bench.wall_seconds, bench.largest)


def _paired(a: Sequence[float], b: Sequence[float], run: BenchResults, shares: bool = True) -> metrics.Paired | None:
    return metrics.paired(a, b, int(run.settings.get("seed", 0)), shares=shares)


def _log_speedups(first: BenchResults, second: BenchResults, baseline: str) -> metrics.Paired | None:
    """Compares the tasks that both runs solved and timed; exp(difference) is the ratio of geometric means."""
    import math

    a, b = speedups(first, baseline), speedups(second, baseline)
    both = [h for h in a if h in b]
    return _paired([math.log(a[h]) for h in both], [math.log(b[h]) for h in both], first, shares=False)


def _differences(a: dict[str, Any], b: dict[str, Any]) -> dict[str, list[Any]]:
    """Returns the settings, except the policy, that differ between two runs."""
    ignored = {"created", "verb", "policy", "limit", "samples"}
    names = [k for k in {**a, **b} if k not in ignored]
    return {name: [a.get(name), b.get(name)] for name in names if a.get(name) != b.get(name)}
