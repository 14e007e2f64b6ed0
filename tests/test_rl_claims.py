"""The jobs of benchmarks/rl_claims.py: needs, failures, time limits, resuming, and the messages of its judge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from rl_jobs import Job, Runner
from rl_judge import opinion, served


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def statuses(out: Path) -> dict[str, str]:
    return {p.stem: json.loads(p.read_text())["status"] for p in (out / "jobs").glob("*.json")}


def test_jobs_wait_for_their_needs_end_in_time_and_are_not_done_twice(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    jobs = [
        Job("slow", python("import time; time.sleep(60)"), 1.0),
        Job("late", python("print('{\"n\": 1}')"), 10.0, ("first",)),
        Job("first", lambda *_: {"n": 2}, 10.0, gpus=0),
        Job("broken", python(f"import pathlib, sys; sys.exit(not pathlib.Path({str(flag)!r}).exists())"), 10.0),
        Job("after", python("print('done')"), 10.0, ("broken",)),
        Job("wide", python("pass"), 10.0, gpus=3),
        Job("behind", python("pass"), 10.0, after=("slow", "broken", "first")),
    ]
    seen: list[int] = []
    Runner(tmp_path, ["", ""], time.monotonic() + 60).run(jobs, lambda: seen.append(len(statuses(tmp_path))))
    assert statuses(tmp_path) == {
        "slow": "cut",
        "late": "done",
        "first": "done",
        "broken": "failed",
        "after": "left out",
        "wide": "left out",
        "behind": "done",
    }
    assert json.loads((tmp_path / "jobs" / "late.json").read_text())["result"] == {"n": 1} and len(seen) >= 4
    before = (tmp_path / "jobs" / "late.json").stat().st_mtime_ns
    flag.touch()
    Runner(tmp_path, [""], time.monotonic() + 60).run(jobs[1:], lambda: None)
    assert statuses(tmp_path)["after"] == "done" and (tmp_path / "jobs" / "late.json").stat().st_mtime_ns == before
    Runner(tmp_path, [""], time.monotonic() + 1).run(jobs[:1], lambda: None)
    assert json.loads((tmp_path / "jobs" / "slow.json").read_text())["why"] == "no time left"


def test_sigterm_ends_what_runs(tmp_path: Path) -> None:
    """`timeout` sends it: the job's process ends, the stored results record that, and no further job begins."""
    script = f"""
import sys, time
from pathlib import Path
from rl_jobs import Job, Runner, interrupted_by_term
interrupted_by_term()
out = Path({str(tmp_path)!r})
sleeper = "import os, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(100)"
jobs = [Job(n, [sys.executable, "-c", "import sys;" + sleeper, str(out / n)], 90) for n in ("one", "two")]
Runner(out, [""], time.monotonic() + 95).run(jobs, lambda: None)
"""
    folder = Path(__file__).parents[1] / "benchmarks"
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", script], cwd=folder, stderr=subprocess.DEVNULL)
    while not (tmp_path / "one").is_file() or not (tmp_path / "one").read_text():
        assert time.monotonic() < began + 60
        time.sleep(0.05)
    child.terminate()
    assert child.wait(40) != 0 and time.monotonic() < began + 80
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "one").read_text()), 0)
    assert statuses(tmp_path) == {"one": "cut"}
    assert not (tmp_path / "two").exists()


def test_a_gpu_named_twice_has_two_jobs_but_no_job_has_it_twice(tmp_path: Path) -> None:
    show = python("import json, os; print(json.dumps({'gpus': os.environ['CUDA_VISIBLE_DEVICES']}))")
    jobs = [Job("wide", show, 10.0, gpus=2), Job("three", show, 10.0, gpus=3), Job("long", show, 10.0, least=90.0)]
    runner = Runner(tmp_path, ["4", "5", "4", "5"], time.monotonic() + 60)
    runner.run([*jobs, *(Job(f"one-{n}", show, 10.0) for n in range(3))], lambda: None)
    held = {name: runner.result(name) for name in ("wide", "one-0", "one-1", "one-2")}
    assert [row and row["result"]["gpus"] for row in held.values()][0] == "4,5"
    assert {row["result"]["gpus"] for row in held.values() if row} <= {"4", "5", "4,5"} and sorted(runner.free) == [
        *"4455"
    ]
    assert statuses(tmp_path)["three"] == "left out"
    assert json.loads((tmp_path / "jobs" / "long.json").read_text())["why"] == "no time left"


def test_the_rules_judge_speaks_as_a_judge_must() -> None:
    from kernelwright.policies import load_policy
    from kernelwright.records import Task
    from kernelwright.rewards.opinion import OpinionJudge
    from kernelwright.tasks import candidate_from_text

    kernel = 'import torch\nk = Module(r"""__global__ void relu(float* x) { if (i < n) x[i] = 0; }""")\n'
    whole = kernel + "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        k.relu[1, 1](x)\n"
    scores = [float(opinion("torch.relu(x)", text)["correctness"]) for text in ("nonsense (", kernel, whole)]
    assert scores == sorted(scores) and scores[0] == 0.0 < scores[1] < scores[2] <= 1.0
    with served() as url:
        judge = OpinionJudge(load_policy(f"openai:rules@{url}"))
        found = judge(Task(task_id="t", source="torch.relu(x)"), candidate_from_text(whole, "c", ".py"))
    assert found.failure is None and found.scores["correctness"] == pytest.approx(scores[2], abs=1e-3)
    assert (judge.asked, judge.failed) == (1, 0)


@pytest.mark.parametrize("more", [(), ("--pool", "8", "--judging", "cpu", "--jobs", "4")])
def test_every_variant_is_a_run_that_can_be_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    from rl_claims import PARTS, Plan, arguments

    from kernelwright.config import load_config
    from kernelwright.training.fine_tune.settings import SftSettings, recipe_path
    from kernelwright.training.rl.settings import RlSettings

    monkeypatch.setattr(sys, "argv", ["rl_claims.py", "model", str(tmp_path), "--steps", "3", *more])
    asked = arguments()
    assert set(asked.parts.split(",")) == set(PARTS) - {"warm"}  # `warm` needs a suite to train on
    jobs = Plan(asked, "openai:rules@http://127.0.0.1:1/v1").build(asked.parts.split(","))
    names = [job.name for job in jobs]
    assert len(set(names)) == len(names) and all(need in names for job in jobs for need in job.needs)
    begun = 0
    for job in jobs:
        verb = job.do.index("kernelwright.cli") + 1 if isinstance(job.do, list) and "-m" in job.do else None
        words = job.do[verb:] if verb and job.do[verb] == "train" else []
        if words:
            settings = [value for flag, value in zip(words, words[1:], strict=False) if flag == "--set"]
            kind = RlSettings if words[1] == "rl" else SftSettings
            load_config(recipe_path(words[2]), settings, kind)
            begun += 1
    assert begun >= 20


def test_what_is_trained_waits_for_the_verdicts_of_all_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_claims import Plan, arguments

    suite = tmp_path / "tasks.jsonl"
    suite.write_text("".join(json.dumps({"task_id": str(n), "reference": "x"}) + "\n" for n in range(5)))
    words = ["rl_claims.py", "model", str(tmp_path), "--train-suite", str(suite), "--verdicts", str(tmp_path / "v")]
    monkeypatch.setattr(sys, "argv", words)
    jobs = Plan(arguments(), "rules").build(["warm", "recipes"])
    warm = [job.name for job in jobs if job.name.startswith("warm-")]
    shares = [(tmp_path / f"{name}.jsonl").read_text() for name in warm]
    assert warm and sorted("".join(shares).splitlines()) == sorted(suite.read_text().splitlines())
    trained = [job for job in jobs if job.name.startswith("train-")]
    assert trained and all(set(warm) <= set(job.after) for job in trained)
    assert all(isinstance(j.do, list) and f"tasks.suite={suite}" in j.do for j in trained)


def test_throughput_counts_answers_and_the_gpus_use_within_each_step(tmp_path: Path) -> None:
    import os
    from datetime import datetime

    import rl_report

    run, end = tmp_path / "runs" / "throughput", 1_700_000_000.0
    for name in ("rollouts", "credit"):
        (run / name).mkdir(parents=True)
    (run / "rollouts" / "step-000000.jsonl").write_text('[{"turn": 0}]\n' * 20)
    stages = {f"{name}_s": 1.0 for name in ("play", "ask", "judge", "only_judge", "judge_work", "update")}
    (run / "log.jsonl").write_text(json.dumps({"step_s": 10.0, **stages, "verdicts": {"correct": 20}}) + "\n")
    (run / "credit" / "step-000000.jsonl").write_text("")
    os.utime(run / "credit" / "step-000000.jsonl", (end, end))
    seen = [(end - 20, 0), (end - 8, 100), (end - 4, 50), (end + 3, 0)]  # starting, two within the step, ending
    stamps = [f"{datetime.fromtimestamp(at):%Y/%m/%d %H:%M:%S}.000, {share}" for at, share in seen]
    (tmp_path / "gpu_throughput.csv").write_text("\n".join([*stamps, "torn", ""]))
    found = rl_report.throughput(tmp_path)
    assert found is not None and found["verdicts"] == [{"correct": 20}]
    assert (found["steps"][0]["a_minute"], found["steps"][0]["gpu_idle_share"]) == (120.0, 0.25)


def test_what_an_answer_is_worth_whatever_its_turn() -> None:
    import math

    from rl_report import MEASURES

    from kernelwright.records import Evaluation, Timing

    def judged(verdict: str, own: float = 0.0) -> Evaluation:
        timing = Timing(candidate_ms=own, eager_ms=1.0) if own else None
        seen = [{"name": "own", "scope": "declared", "passed": verdict == "correct"}]
        names = {"task_id": "t", "task_hash": "0" * 64, "candidate_id": "1" * 64, "backend": "gpu"}
        return Evaluation.model_validate(
            {**names, "verdict": verdict, "reason": "differs", "workloads": seen, "timing": timing}
        )

    answers = [judged("correct", 0.5), judged("correct", 4.0), judged("wrong"), None]
    found = {name: [worth(a) for a in answers] for name, worth in MEASURES.items()}
    assert found["answers correct"] == [1.0, 1.0, 0.0, 0.0]
    assert found["answers fast_1"] == [1.0, 0.0, 0.0, 0.0]
    assert found["answers log speedup"] == [math.log(2.0), math.log(0.25), None, None]
    assert found["reward kevin"] == [2.3, 0.55, 0.0, 0.0]
