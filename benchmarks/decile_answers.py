"""Measures speed-decile tags (PIE, arXiv 2302.07867) on whole answers, through the command line alone.

    python benchmarks/decile_answers.py MODEL FOLDER TABLE OUT [--seeds 0,1,2] [--families NAME,...] [--samples 8]
        [--temperature 0.8] [--timing-seconds 0.1] [--at-once 3] [--backend auto] [--stages train,bench]
        [--set KEY=VALUE]...

`rl_schedules.py` wrote FOLDER, and `rl_times.py` wrote TABLE. The table's times of the training tasks become a run of
judged files. `kernelwright curate` makes rows of it with tags (speed-deciles) and without (verified). `train sft`
trains MODEL on either for each seed with equal settings. `bench` then asks the first model for 10/10 and for 1/10, and
the second without a tag, on the held-out tasks. Its whole answers are judged and timed again. All of them share one
folder of verdicts, so that equal answers have equal times. Differences are paired over tasks and averaged over seeds.

Running it again with the same OUT skips finished stages.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from result_file import read_json
from rl_times import family_of, restored

from kernelwright.bench import metrics, numbers
from kernelwright.runs.store import Store

DATA = {"tags": "speed-deciles", "no tags": "verified"}
ASKED = {"10/10": ("tags", "10/10"), "1/10": ("tags", "1/10"), "untagged": ("no tags", None)}
SETTINGS = (
    "data.where=null", "data.held_out=0", "data.without_cuda=keep", "data.length=3072",
    "loss.name=sft", "loss.tau=null", "loss.lam=null", "loss.window=null",
    "train.steps=160", "train.batch=32", "train.micro_batch=8", "train.lr=4e-4", "train.packing=false",
    "train.eval_every=null",
)  # fmt: skip


class Stages:
    """The stages of the measurement and their folders in OUT."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.out = asked, asked.out

    def call(self, log: str, *words: Any) -> None:
        """Runs `kernelwright` with these words; raises with its output if it fails."""
        path = self.out / f"{log}.log"
        environment = {**os.environ, "KERNELWRIGHT_SCHEDULE": "own"}
        with open(path, "w", encoding="utf-8") as said:
            command = [sys.executable, "-m", "kernelwright.cli", *map(str, words)]
            done = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: status {done.returncode}\n{path.read_text()[-1500:]}")

    def data(self) -> None:
        """Writes rows with and without tags for the training tasks."""
        run = self.out / "timed"
        if not run.exists():
            rows = read_json(self.asked.table)["rows"]
            chosen = [r for r in rows if r["suite"] == "train" and self.wanted(r["task"])]
            print(f"{restored(self.asked.folder, run, chosen)} of {len(chosen)} rows with a time", flush=True)
        for arm, method in DATA.items():
            if not self.rows(arm).is_file():
                self.call(f"curate-{method}", "curate", run, "--method", method, "--out", self.rows(arm).parents[1])

    def wanted(self, task: str) -> bool:
        return not self.asked.families or family_of(task) in self.asked.families

    def rows(self, arm: str) -> Path:
        return Path(self.out / DATA[arm] / "data" / "train.jsonl")

    def model(self, arm: str, seed: int) -> Path:
        return Path(self.out / f"model-{DATA[arm]}-s{seed}")

    def train(self) -> None:
        """Trains all models, some concurrently."""

        def one(arm: str, seed: int) -> None:
            began = time.monotonic()
            place = self.model(arm, seed)
            if not (place / "training.json").is_file():
                more = [f"model.path={self.asked.model}", f"data.path={self.rows(arm)}", f"seed={seed}"]
                settings = [x for text in (*SETTINGS, *more, *self.asked.set) for x in ("--set", text)]
                self.call(place.name, "train", "sft", "starter_sft", "--out", place, *settings, "--json")
            print(f"{place.name}: {time.monotonic() - began:.0f} s", flush=True)

        with ThreadPoolExecutor(self.asked.at_once) as pool:
            jobs = [pool.submit(one, arm, seed) for seed in self.asked.seeds for arm in DATA]
        for job in jobs:
            job.result()

    def bench(self) -> None:
        """Benches each way of asking, one after another, seed by seed."""
        suite = self.out / "held_out.jsonl"
        lines = (self.asked.folder / "held_out.jsonl").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if self.wanted(json.loads(line)["task_id"])]
        suite.write_text("\n".join(kept) + "\n", encoding="utf-8")
        for seed in self.asked.seeds:
            for name, (arm, tag) in ASKED.items():
                began = time.monotonic()
                words = ["bench", suite, "--policy", f"starter:{self.model(arm, seed)}", "--run", self.run(name, seed)]
                words += ["--samples", self.asked.samples, "--temperature", self.asked.temperature, "--trials", 3]
                words += ["--seed", 1000 * seed, "--backend", self.asked.backend, "--verdicts", self.out / "verdicts"]
                words += ["--timing-seconds", self.asked.timing_seconds, *(("--speed", tag) if tag else ())]
                self.call(f"{self.run(name, seed).name}-log", *words, "--json")
                print(f"{self.run(name, seed).name}: {time.monotonic() - began:.0f} s", flush=True)

    def run(self, name: str, seed: int) -> Path:
        return Path(self.out / f"bench-{name.replace('/', '-')}-s{seed}")

    def report(self) -> dict[str, Any]:
        """Returns the results so far: means by way of asking, and paired differences to 1/10 and to no tag."""
        found: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
        verdicts: dict[str, dict[str, int]] = {}
        environment: dict[str, str] = {}
        for name in ASKED:
            for seed in self.asked.seeds:
                if (self.run(name, seed) / "run.sqlite").is_file():
                    with Store.open(self.run(name, seed), writable=False) as store:
                        bench = numbers.read(store)
                        environment = environment or next((e.environment for e in store.evaluations()), {})
                    found.setdefault(name, {})[seed] = by_task(bench)
                    counted = verdicts.setdefault(name, {})
                    for verdict, count in numbers.verdicts(bench).items():
                        counted[verdict] = counted.get(verdict, 0) + count
        kept: dict[str, Any] = {"benchmark": "decile_answers", "date": date.today().isoformat()}
        kept |= {"environment": environment, "settings": [*SETTINGS, *self.asked.set], "verdicts": verdicts}
        kept |= {key: getattr(self.asked, key) for key in ("samples", "temperature", "timing_seconds", "families")}
        kept |= {"summary": summary(found), "by_task": found, "losses": self.losses()}
        return kept

    def losses(self) -> dict[str, list[float]]:
        """Returns the logged losses of each training."""
        found = {}
        for seed in self.asked.seeds:
            for arm in DATA:
                path = self.model(arm, seed) / "log.jsonl"
                rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
                found[f"{arm}, seed {seed}"] = [round(row["loss"], 5) for row in rows if "loss" in row]
        return found


def by_task(bench: numbers.BenchResults) -> dict[str, dict[str, float]]:
    """Returns per task the share of correct answers, the share of correct answers faster than eager, and the mean log
    speedup of the correct ones, if any."""
    found: dict[str, dict[str, float]] = {}
    speeds = numbers.speedups(bench, "eager")
    fast = numbers.faster("eager", 1.0)
    for task in bench.answered():
        counted = task.counted
        row = {"correct": statistics.mean(float(s.correct) for s in counted)}
        row["fast_1"] = statistics.mean(float(fast(s)) for s in counted)
        if task.task_hash in speeds:
            row["log_speedup"] = math.log(speeds[task.task_hash])
        found[task.task_hash] = row
    return found


def summary(found: dict[str, dict[int, dict[str, dict[str, float]]]]) -> dict[str, Any]:
    """Returns means over tasks of the seeds' means, and differences over the tasks that both have."""
    means = {name: averaged(list(seeds.values())) for name, seeds in found.items()}
    made: dict[str, Any] = {}
    for name, columns in means.items():
        made[name] = {key: round(statistics.mean(values.values()), 4) for key, values in columns.items() if values}
        made[name]["seeds"] = len(found[name])
        if "log_speedup" in made[name]:
            made[name]["speedup"] = round(math.exp(made[name].pop("log_speedup")), 4)
        for other in [o for o in ("1/10", "untagged") if o in means and o != name]:
            pairs = {}
            for key, values in columns.items():
                common = sorted(set(values) & set(means[other][key]))
                sides = [means[other][key][t] for t in common], [values[t] for t in common]
                pairs[key] = metrics.paired(*sides, shares=key != "log_speedup")
            made[name][f"to {other}"] = metrics.family(pairs)
    return made


def averaged(seeds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Returns by task the mean of each number over the seeds that have it."""
    made: dict[str, dict[str, float]] = {}
    for key in ("correct", "fast_1", "log_speedup"):
        tasks = {task for seed in seeds for task, row in seed.items() if key in row}
        made[key] = {t: statistics.mean(s[t][key] for s in seeds if key in s.get(t, {})) for t in sorted(tasks)}
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "folder", "table", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seeds", type=lambda text: [int(n) for n in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--families", type=lambda text: text.split(","), default=[])
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--timing-seconds", type=float, default=0.1)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--stages", type=lambda text: text.split(","), default=["train", "bench"])
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    stages = Stages(asked)
    try:
        stages.data()
        for stage in asked.stages:
            getattr(stages, stage)()
    finally:
        report = stages.report()
        text = json.dumps(report, separators=(",", ":")) + "\n"
        (asked.out / "decile_answers.json").write_text(text, encoding="utf-8")
        print(json.dumps(report["summary"], indent=1), json.dumps(report["verdicts"]))


if __name__ == "__main__":
    main()
