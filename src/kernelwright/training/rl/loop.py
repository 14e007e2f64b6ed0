"""`kernelwright train rl`: play, judge, reward, credit, update; again. Resumable at any point.

Read from top to bottom. A step plays several rollouts of some tasks with the weights of the last update. Rollouts are
on disk before the update, so a run stopped anywhere resumes without losing or repeating a rollout. Several processes
share a step's rollouts and rows; each computes advantages over all rows, so the result does not depend on their number.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.errors import ConfigError
from kernelwright.evaluation.options import EvalOptions, gpu_count
from kernelwright.executor import Executor, load_executor
from kernelwright.policies import load_policy
from kernelwright.records import Task
from kernelwright.rewards.functions import annealed_judge_weight
from kernelwright.rewards.opinion import OpinionJudge
from kernelwright.runs.known_verdicts import remembering
from kernelwright.tasks import load_suite
from kernelwright.training.checkpoint import write_json
from kernelwright.training.fine_tune.run import begin
from kernelwright.training.pretrain.progress import Log, finite, read_log, writing
from kernelwright.training.ranks import Ranks
from kernelwright.training.rl.curves import write_curves
from kernelwright.training.rl.facts import LoggedRow, alarms, describe, judged, standing
from kernelwright.training.rl.rollouts import RolloutRow, Rollouts, fitting, without_opinions
from kernelwright.training.rl.settings import JudgingSettings, RlSettings, TaskSettings, judge_start
from kernelwright.training.rl.state import State
from kernelwright.training.rl.update import Trained, groups_that_teach
from kernelwright.training.rl.view import StepView

JUDGED_STEPS = 5
"""The number of last steps whose correctness sets the judge's weight."""
REASON = 300
"""The most characters of a judge's failure in a row of the log."""
WAITING = 12
"""Candidates per GPU that wait for it or run on it, while the functional machine judges others on all cores."""


@dataclass(frozen=True)
class RlResult:
    """The facts of a run, as plain values for scripts."""

    facts: dict[str, Any]


def load_tasks(settings: TaskSettings) -> list[Task]:
    """Loads or generates the tasks to train on. Raises `ConfigError` and `TaskError`."""
    if settings.suite is not None:
        return load_suite(settings.suite, limit=settings.limit)
    from kernelwright.generate import generate

    made = generate(settings.seed, settings.count, families=settings.families, split=settings.split)
    return [Task(task_id=task.name, source=task.source) for task in made][: settings.limit]


def tasks_of_step(tasks: Sequence[Task], wanted: int, seed: int, step: int) -> list[Task]:
    """Returns the tasks of a step. Each pass over all tasks has its own random order."""
    chosen: list[Task] = []
    for place in range(step * wanted, step * wanted + wanted):
        epoch, index = divmod(place, len(tasks))
        chosen.append(tasks[int(np.random.default_rng([seed, epoch]).permutation(len(tasks))[index])])
    return chosen


def fresh_tasks(
    tasks: Sequence[Task], played: Mapping[int, Task], wanted: int, seed: int, step: int
) -> dict[int, Task]:
    """Returns replacement tasks for groups without a gradient, by new group number; tasks new to the step first."""
    order = np.random.default_rng([seed, step, len(played)]).permutation(len(tasks)).tolist()
    had = {task.task_id for task in played.values()}
    order.sort(key=lambda i: tasks[i].task_id in had)
    return {len(played) + n: tasks[order[n % len(order)]] for n in range(wanted)}


def train_rl(settings: RlSettings, out: Path, executor: Executor | None = None) -> RlResult:
    """Trains, or resumes the run in `out`. Raises `ConfigError`. Ctrl-C loses no finished rollout.

    `executor`: judges the candidates; None makes one for the run.
    """
    if executor is None:
        _check_gpu(settings.judging)
    # Before the model, which takes long to load: a missing key is said at once.
    judge = OpinionJudge(load_policy(settings.judging.judge)) if settings.judging.judge else None
    ranks = Ranks.join()
    begin(settings, out)
    ranks.wait()
    state = State.open(settings, out, ranks)
    tasks = _usable_tasks(settings, state, ranks, out)
    judging = settings.judging
    jobs = judging_jobs(settings, ranks.count)
    with contextlib.ExitStack() as stack:
        judges = executor
        if judges is None:
            own = load_executor("apart", jobs, judging.backend)
            judges = stack.enter_context(remembering(own, judging.verdicts))
        stopped = _loop(settings, state, Rollouts(settings, state.policy, judges, judge, ranks), tasks, out)
    facts = _result(settings, state, out, stopped)
    if ranks.first:
        state.export(settings, out)
        write_json(out / "training.json", facts)
    ranks.leave()
    return RlResult(facts)


def _check_gpu(judging: JudgingSettings) -> None:
    """Raises `ConfigError` for judging on a GPU that does not exist, before the model is loaded."""
    if EvalOptions(backend=judging.backend).resolved() == "gpu" and not gpu_count():
        raise ConfigError(
            "judging.backend is gpu, and there is no NVIDIA GPU that torch could use here",
            hint="use judging.backend=cpu: candidates run on the functional CUDA machine, without timing",
        )


def judging_jobs(settings: RlSettings, processes: int = 1) -> int:
    """Returns the number of candidates that one process judges concurrently."""
    judging = settings.judging
    if judging.jobs:
        return judging.jobs
    cores = max(1, len(os.sched_getaffinity(0)) // processes)
    return cores + (WAITING * gpu_count() if judging.filter and judging.backend != "cpu" else 0)


def _usable_tasks(settings: RlSettings, state: State, ranks: Ranks, out: Path) -> list[Task]:
    every = [task.at(settings.judging.precision) for task in load_tasks(settings.tasks)]
    if ranks.first:
        keep_tasks(every, out)
    tasks = fitting(every, state.policy)
    if ranks.first and len(tasks) < len(every):
        print(
            f"{len(every) - len(tasks)} of {len(every)} tasks left out: with an answer of "
            f"{settings.rollout.max_tokens} tokens they are longer than the model's context",
            file=sys.stderr,
        )
    if settings.rollout.tasks > len(tasks):
        raise ConfigError(
            f"a step of {settings.rollout.tasks} tasks out of {len(tasks)}",
            hint="lower rollout.tasks or rollout.max_tokens" if len(tasks) < len(every) else "lower rollout.tasks",
        )
    return tasks


def keep_tasks(tasks: Sequence[Task], out: Path) -> None:
    """Writes a hash of the tasks into the run's folder.

    Raises `ConfigError` if the run has rollouts of other tasks, since a group would mix two tasks; and `StoreError`.
    """
    path = out / "tasks.sha256"
    text = hashlib.sha256("".join(task.asked_hash for task in tasks).encode()).hexdigest() + "\n"
    with writing(path):
        known = path.read_bytes().decode(errors="replace") if path.is_file() else None
        if known != text and (known is None or not (out / "rollouts").exists()):
            path.write_text(text, encoding="utf-8")
            return
    if known != text:
        raise ConfigError(
            f"{str(out)!r} holds a run on other tasks than the settings name now",
            hint="give the tasks that it was begun with, or another --out",
        )


def _loop(settings: RlSettings, state: State, rollouts: Rollouts, tasks: Sequence[Task], out: Path) -> list[str]:
    """Runs steps to the end; returns the alarms that stopped the run early."""
    ranks, total = rollouts.ranks, settings.train.steps
    log = Log(out / "log.jsonl", state.step) if ranks.first else None
    history = ranks.from_first(read_log(out / "log.jsonl", LoggedRow) if ranks.first else None)
    stopped = standing(history, settings.alarms.stop_after)
    with StepView(total, ranks.first, standing=rollouts.standing) as view:
        while state.step < total and not stopped and not _out_of_time(settings, history):
            row = ranks.from_first(_step(settings, state, rollouts, tasks, out, history))
            history.append(row)
            stopped = standing(history, settings.alarms.stop_after)
            over = state.step == total or bool(stopped) or _out_of_time(settings, history)
            if log is not None:
                log.add(row)
                view.add(row, last=over)
                if over or state.step % settings.train.save_every == 0:
                    write_curves(settings.name, history, out / "curves.html")
                    state.save(out)
    return stopped


def _out_of_time(settings: RlSettings, history: Sequence[Mapping[str, Any]]) -> bool:
    """Tells whether another step as long as the last would exceed `train.seconds`, counting steps before a resume."""
    limit = settings.train.seconds
    if limit is None or not history:
        return False
    return sum(row["step_s"] for row in history) + history[-1]["step_s"] > limit


def _step(
    settings: RlSettings,
    state: State,
    rollouts: Rollouts,
    tasks: Sequence[Task],
    out: Path,
    history: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Runs one step and returns its row of the log."""
    rollouts.began = time.monotonic()
    if rollouts.judge is not None:
        rollouts.judge.resume()
        rollouts.judge_weight = judge_weight(history, judge_start(settings))
    rows, kept, drawn = _played(settings, state.step, rollouts, tasks, out)
    played = time.monotonic()
    trained = state.updater.step(kept, settings.seed * 1_000_003 + state.step)
    if rollouts.ranks.first:
        keep_credit(out / "credit" / f"step-{state.step:06d}.jsonl", kept, trained)
    state.refresh()
    state.step += 1
    state.rollouts += len({(row.group, row.trajectory) for row in rows})
    facts = {"step": state.step, **describe(rows, rollouts.timed), **drawn, **trained.facts}
    if rollouts.judge is not None:
        facts |= {"judge_weight": rollouts.judge_weight, **judged(rows)}
        reasons = [reason for reason in rollouts.ranks.gather(rollouts.judge.reason) if reason]
        if facts["judge_failed"] and reasons:
            facts["judge_reason"] = reasons[0][:REASON]
    facts["alarms"] = alarms(facts, history[0] if history else facts, settings.alarms)
    clock = rollouts.clock.read()
    found = finite({**facts, **clock, "step_s": _since(rollouts.began), "update_s": _since(played)})
    assert isinstance(found, dict)
    return found


def judge_weight(history: Sequence[Mapping[str, Any]], start: float = 0.5) -> float:
    """Returns the weight of the judge's opinion in the next step: `start` at first. `history`: the log so far.

    It follows the mean correctness of the last `JUDGED_STEPS` steps, since a single step is noisy, and never rises.
    With a rising weight, the judge rewarded a policy for staying incorrect (docs/rl.md).
    """
    recent = [row["correct"] for row in history[-JUDGED_STEPS:]]
    weight = annealed_judge_weight(sum(recent) / len(recent) if recent else 0.0, start=start)
    return min([weight, *(row["judge_weight"] for row in history if "judge_weight" in row)])


def _played(
    settings: RlSettings, step: int, rollouts: Rollouts, tasks: Sequence[Task], out: Path
) -> tuple[list[RolloutRow], list[RolloutRow], dict[str, int]]:
    """Plays a step; returns all rows, the rows to train on, and the counts of groups and of replaced groups."""
    path = out / "rollouts" / f"step-{step:06d}.jsonl"
    wanted = settings.rollout.tasks
    groups = dict(enumerate(tasks_of_step(tasks, wanted, settings.seed, step)))
    rows = without_opinions(rollouts.play(step, groups, path))
    if not settings.filters.redraw:
        return rows, rows, {"groups": wanted}
    for left in range(settings.filters.redraw, -1, -1):
        found = groups_that_teach(settings, rows, wanted)
        if not found.missing or not left:
            break
        fresh = fresh_tasks(tasks, groups, found.missing, settings.seed, step)
        groups |= fresh
        rows += without_opinions(rollouts.play(step, fresh, path))
    kept = [row for row in rows if row.group in found.groups]
    return rows, kept, {"groups": len(groups), "redrawn": len(groups) - wanted, "missing": found.missing}


def keep_credit(path: Path, rows: Sequence[RolloutRow], trained: Trained) -> None:
    """Writes each row's reward and advantage, to find out why a policy learnt something unexpected."""
    lines = [
        {
            "task": row.task_id,
            "group": row.group,
            "trajectory": row.trajectory,
            "turn": row.turn,
            "reward": row.reward,
            "advantage": float(advantage),
            "used": bool(used),
        }
        for row, advantage, used in zip(rows, trained.advantage, trained.used, strict=True)
    ]
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(finite(line)) + "\n" for line in lines), encoding="utf-8")


def _result(settings: RlSettings, state: State, out: Path, stopped: Sequence[str]) -> dict[str, Any]:
    rows = read_log(out / "log.jsonl")
    facts: dict[str, Any] = {
        "name": settings.name,
        "steps": state.step,
        "updates": state.updater.done,
        "rollouts": state.rollouts,
        "stopped_by": list(stopped),
        "alarms": sorted({alarm for row in rows for alarm in row["alarms"]}),
    }
    for name in ("reward", "correct", "fast_1", "hacked"):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            facts[f"first_{name}"], facts[f"last_{name}"] = values[0], values[-1]
    return facts


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)


def show(result: RlResult, out: Path) -> None:
    """Prints one line about a run."""
    facts = result.facts
    reward = f"reward {facts['last_reward']:.3f}" if "last_reward" in facts else "no reward"
    why = f", stopped by its alarms: {', '.join(facts['stopped_by'])}" if facts["stopped_by"] else ""
    print(f"{out}: {facts['steps']} steps, {facts['rollouts']} rollouts, {reward}{why}")
    sys.stdout.flush()
