"""The backend that judges a candidate of a training run: the functional machine first, then the GPU."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from relu_task import RELU

from kernelwright.bench import numbers
from kernelwright.bench.job import BenchOptions, BenchSuite, exchange_of, play
from kernelwright.errors import ConfigError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor.lanes import Job
from kernelwright.executor.local import Local
from kernelwright.policies import load_policy
from kernelwright.records import Evaluation, Provenance, Task
from kernelwright.runs.store import Store
from kernelwright.solutions import write
from kernelwright.tasks import candidate_from_text
from kernelwright.training.rl import rollouts as rl_rollouts
from kernelwright.training.rl.rollouts import RolloutRow, Rollouts
from kernelwright.training.rl.settings import RlSettings

RIGHT = write(RELU)
TASK = Task(task_id="relu", source=RELU, provenance=Provenance(origin="test", licence="Apache-2.0"))


class Noting(Local):
    """Judges on the CPU and records the requested backends."""

    def __init__(self) -> None:
        super().__init__(1, gpus=())
        self.asked: list[str] = []

    def settle(self, options: EvalOptions) -> EvalOptions:
        return options.changed(backend="gpu")

    def judge(self, job: Job, seat: int) -> Evaluation:
        self.asked.append(job.options.backend)
        job.options = job.options.changed(backend="cpu")
        return super().judge(job, seat)


@pytest.fixture(scope="module")
def judges() -> Iterator[Noting]:
    with Noting() as executor:
        yield executor


def judged(judges: Noting, text: str, **judging: object) -> tuple[str, list[str]]:
    """Returns the verdict, and the backends requested for it."""
    table = {"model": {"path": "none"}, "tasks": {"suite": "none"}, "judging": judging}
    rollouts = Rollouts(RlSettings.model_validate(table), None, judges)  # type: ignore[arg-type]
    options = rollouts._options.changed(seed=1)
    judges.asked.clear()
    found = rollouts._evaluate(TASK, candidate_from_text(text, "test"), options)
    return found.verdict, list(judges.asked)


def test_verdicts_are_met_again_only_where_inputs_stay_the_same() -> None:
    table = {"model": {"path": "none"}, "tasks": {"suite": "none"}}
    settings = RlSettings.model_validate(table)
    sharing = RlSettings.model_validate({**table, "judging": {"verdicts": "verdicts"}})
    with Noting() as judges:
        usual, shared = (Rollouts(s, None, judges) for s in (settings, sharing))  # type: ignore[arg-type]
        assert len({usual.judged_with(step, group).seed for step in (1, 2) for group in (0, 1)}) == 4
        assert len({shared.judged_with(step, group).seed for step in (1, 2) for group in (0, 1)}) == 1


def test_rollouts_of_another_task_are_not_gone_on_with(judges: Noting, tmp_path: Path) -> None:
    """A suite that was edited while the run was stopped would mix two tasks in one group."""
    table = {"model": {"path": "none"}, "tasks": {"suite": "none"}}
    rollouts = Rollouts(RlSettings.model_validate(table), None, judges)  # type: ignore[arg-type]
    row = RolloutRow("relu", 0, 0, 0, (1,), (1,), (-1.0,), 0.0, {}, {}, "wrong", "stop")
    rollouts._keep(tmp_path / "step.jsonl", [row])
    with pytest.raises(ConfigError, match="'relu', where the settings' tasks now have 'square'") as error:
        rollouts.play(0, {0: TASK.changed(task_id="square")}, tmp_path / "step.jsonl")
    assert "another --out" in str(error.value.hint)


@pytest.mark.parametrize(("backend", "wished"), [("gpu", ""), ("auto", "gpu")])
def test_a_gpu_that_is_not_there_is_missed_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, wished: str
) -> None:
    from kernelwright.training.rl import loop

    monkeypatch.setattr(loop, "gpu_count", lambda: 0)
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", wished)
    table = {"model": {"path": "none"}, "tasks": {"suite": "none"}, "judging": {"backend": backend}}
    with pytest.raises(ConfigError, match="no NVIDIA GPU") as error:
        loop.train_rl(RlSettings.model_validate(table), tmp_path / "run")
    assert "judging.backend=cpu" in str(error.value.hint) and not (tmp_path / "run").exists()


def test_many_rollouts_are_played_by_some_threads(
    judges: Noting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rl_rollouts, "AT_ONCE", 3)
    table = {"model": {"path": "none"}, "tasks": {"suite": "none"}, "rollout": {"rollouts": 40}}
    rollouts = Rollouts(RlSettings.model_validate(table), None, judges)  # type: ignore[arg-type]
    seen: set[int] = set()

    def played(asker: object, step: int, task: Task, group: int, trajectory: int) -> list[RolloutRow]:
        seen.add(threading.get_ident())
        time.sleep(0.01)
        return [RolloutRow(task.task_id, group, trajectory, 0, (1,), (1,), (-1.0,), 0.0, {}, {}, "wrong", "stop")]

    monkeypatch.setattr(rollouts, "_play", played)
    rows = rollouts.play(0, {0: TASK}, tmp_path / "step.jsonl")
    assert [row.trajectory for row in rows] == list(range(40)) and 1 <= len(seen) <= 3


def test_a_step_that_is_made_again_has_taken_what_it_took_before(
    judges: Noting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading rollouts from disk takes no time: a repeatedly killed run would never reach its limit of seconds."""
    path, now = tmp_path / "step.jsonl", 100.0
    monkeypatch.setattr(rl_rollouts.time, "monotonic", lambda: now)
    table = {"model": {"path": "none"}, "tasks": {"suite": "none"}, "rollout": {"rollouts": 2}}
    rollouts = Rollouts(RlSettings.model_validate(table), None, judges)  # type: ignore[arg-type]
    row = RolloutRow("relu", 0, 0, 0, (1,), (1,), (-1.0,), 0.0, {}, {}, "wrong", "stop", 40.0)
    rollouts._keep(path, [row])
    rollouts._keep(path, [replace(row, trajectory=1, seconds=70.0)])
    rollouts.play(0, {0: TASK}, path)
    assert rollouts.began == 30.0, "the step took 70 seconds before the kill"
    now = 110.0
    rollouts.play(0, {0: TASK}, path)
    assert rollouts.began == 30.0, "a second round of the same session adds none"


def test_what_is_right_goes_on_to_the_gpu(judges: Noting) -> None:
    assert judged(judges, RIGHT) == ("correct", ["cpu", "gpu"])


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [("fmaxf(v, 0.0f)", "fmaxf(v, 1.0f)", "wrong"), ("fmaxf(v, 0.0f)", "fmaxf(w, 0.0f)", "compile_error")],
)
def test_what_is_wrong_never_reaches_it(judges: Noting, before: str, after: str, verdict: str) -> None:
    assert before in RIGHT
    assert judged(judges, RIGHT.replace(before, after)) == (verdict, ["cpu"])


def test_without_the_filter_the_gpu_judges_all(judges: Noting) -> None:
    assert judged(judges, RIGHT.replace("fmaxf(v, 0.0f)", "v"), filter=False) == ("wrong", ["gpu"])
    assert judged(judges, RIGHT, strict_kernelbench=True)[1] == ["gpu"]


def test_bench_filters_as_training_does(judges: Noting, tmp_path: Path) -> None:
    wrong = RIGHT.replace("fmaxf(v, 0.0f)", "fmaxf(v, 1.0f)")
    answers = [f"```python\n{text}\n```" for text in (RIGHT, wrong)]
    rows = [{"task_id": "relu", "turn": 0, "seed": seed, "answer": answer} for seed, answer in enumerate(answers)]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    policy = load_policy(f"scripted:{tmp_path / 'answers.jsonl'}")
    suite = BenchSuite([TASK], exchange_of(BenchOptions("p", "s")), lambda: nullcontext(judges))
    found = {}
    for filtered in (True, False):
        run, options = tmp_path / str(filtered), BenchOptions("p", "s", samples=2, filter=filtered)
        judges.asked.clear()
        play(suite, policy, options, EvalOptions(backend="gpu", trials=2), run)
        with Store.open(run, writable=False) as store:
            found[filtered] = numbers.verdicts(numbers.read(store)), sorted(judges.asked)
    assert found[True] == ({"correct": 1, "wrong": 1}, ["cpu", "cpu", "gpu"])
    assert found[False] == ({"correct": 1, "wrong": 1}, ["gpu", "gpu"])


def test_no_step_is_begun_that_would_pass_the_runs_seconds() -> None:
    from kernelwright.training.rl.loop import _out_of_time

    table = {"model": {"path": "none"}, "tasks": {"suite": "none"}}

    def over(seconds: float | None, *steps: float) -> bool:
        settings = RlSettings.model_validate({**table, "train": {"seconds": seconds}})
        return _out_of_time(settings, [{"step_s": step} for step in steps])

    assert not over(10.0) and not over(10.0, 5.0) and over(10.0, 4.0, 3.5) and not over(None, 99.0)
