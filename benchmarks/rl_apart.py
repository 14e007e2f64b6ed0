"""Compares steps of reinforcement learning with judges in the policy's process and in processes of their own.

    python benchmarks/rl_apart.py OUT.json [--set KEY=VALUE ...] [--ways local,apart] [--rounds 2] [--steps 3]

Trains `starter_rl` for a few steps with each way in turn: `local` judges in threads of the generating process, `apart`
in processes of their own. Both play the same tasks with the same seeds from the same weights. The first step of a run,
in which processes start, is left out of the medians. `ask_s` is the policy's time, `only_judge_s` the time that waits
for verdicts alone. Prints and writes one JSON object. `--jobs FILE` gets a line for each judgement: the times of its
submission and end, and its seconds by stage.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from starter import hardware

from kernelwright.config import load_config
from kernelwright.executor import Executor, Job, load_executor
from kernelwright.training.fine_tune.settings import recipe_path
from kernelwright.training.rl.loop import judging_jobs, train_rl
from kernelwright.training.rl.settings import RlSettings

WAYS = ("local", "apart")
SECONDS = ("ask_s", "judge_s", "only_judge_s", "update_s", "step_s")


def note_jobs(executor: Executor, path: Path, about: dict[str, Any]) -> None:
    """Makes an executor log the seconds of each judgement."""
    submit = executor.submit

    def noting(*asked_for: Any, **more: Any) -> Job:
        asked = time.time()

        def write(job: Any) -> None:
            if job.cancelled() or job.exception() is not None:
                return
            found = job.result()
            what = {"task": found.task_id, "verdict": found.verdict, "backend": found.backend}
            where: dict[str, Any] = found.environment.model_dump(include={"gpu_seconds", "replayed"})
            where["samples"] = len(found.timing.samples["candidate"]) if found.timing else 0
            spent = {"asked": asked, "done": time.time(), "seconds": found.seconds.model_dump(mode="json")}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**about, **what, **spent, **where}) + "\n")

        job = submit(*asked_for, **more)
        job.add_done_callback(write)
        return job

    executor.submit = noting  # type: ignore[method-assign]


def played(way: str, settings: RlSettings, out: Path, jobs: Path, turn: int) -> list[dict[str, Any]]:
    """Trains one run and returns its steps."""
    with load_executor(way, judging_jobs(settings), settings.judging.backend) as executor:
        note_jobs(executor, jobs, {"way": way, "round": turn})
        train_rl(settings, out, executor)
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in (*SECONDS, "correct", "length")} for row in rows]


def medians(steps: list[dict[str, Any]]) -> dict[str, float]:
    return {name: round(statistics.median(step[name] for step in steps), 2) for name in SECONDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--jobs", type=Path, default=Path(os.devnull))
    a = parser.parse_args()
    if a.steps < 2 or a.rounds < 1:
        parser.error("give two --steps or more (the first is left out), and a round or more")
    settings = load_config(recipe_path("starter_rl"), [*a.settings, f"train.steps={a.steps}"], RlSettings)
    samples: dict[str, list[list[dict[str, Any]]]] = {way: [] for way in a.ways}
    for turn in range(a.rounds):
        for way in a.ways if turn % 2 == 0 else a.ways[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                samples[way].append(played(way, settings, Path(folder) / "run", a.jobs, turn))
            print(way, samples[way][-1], file=sys.stderr, flush=True)
    middle = {way: medians([step for run in samples[way] for step in run[1:]]) for way in a.ways}
    over = {n: round(middle["local"][n] / max(middle["apart"][n], 0.01), 2) for n in SECONDS if len(middle) > 1}
    found = {
        "date": datetime.now().date().isoformat(),
        "hardware": hardware(),
        "settings": a.settings,
        "median": middle,
        "local_over_apart": over,
        "samples": samples,
    }
    a.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in found.items() if key != "samples"}))


if __name__ == "__main__":
    main()
