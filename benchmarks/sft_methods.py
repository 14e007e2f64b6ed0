"""Measures each method of supervised post-training on a base checkpoint, by execution, in one call.

    python benchmarks/sft_methods.py OUT --base CHECKPOINT
        [--parts losses,vanilla,selection,deciles,dpo,confidence,cost,gpus] [--preset full|short|rehearsal]
        [--seeds 0,1,2] [--methods sft,cuset,…] [--seconds 570]
        [--suite NAME=FILE.jsonl[:LIMIT]]... [--limit PART=SECONDS]... [--per-gpu 2] [--judge cpu|gpu|later]
        [--timed-seconds 300] [--set KEY=VALUE]... [--size FIELD=NUMBER]...

losses      vanilla, SFT, DFT, ProFit, EAFT, ASFT, CuSeT, and CuSeT's ablation, on the same rows, steps and rate
vanilla     the base's answers alone, for comparison with the parts below
selection   ConCuR's rows against as many random, longest, shortest, fastest ones (a corpus timed on the GPU)
deciles     speed-decile tags, asked for 10/10 and for 1/10, against the same rows without tags
dpo         pairs of the base's own judged answers, and SFT on its correct ones
confidence  the base's confidence in the gold tokens, in CUDA and outside
cost        a step of ours against TRL's own trainer: time and peak memory, on the base and on a 1.5 B shape with LoRA
gpus        tokens a second on one GPU and on two, then sharded

Arms of a part share the devices, `--per-gpu` on each. CPU cores judge answers during training (equal ones once), and
the GPU judges timed ones at the end. `--judge later` leaves judging to another call (`--parts judge`), on any machine
to which OUT is copied. Every job is a process with files of its own in OUT/jobs, so that a part that is cut by its
limit, or a job that fails, affects no other. Running it again with the same OUT skips finished jobs.
OUT/sft_methods.json is written after each job. `--suite held-out=FILE` and `pairs=FILE` replace the generated tasks;
`timed=FILE` has the tasks of the part deciles. Without a GPU, the parts about speed are rehearsed with invented times,
and the report says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sft_judging import PAIRS, STOP, TIMED, numbers

from kernelwright.config import load_config
from kernelwright.evaluation.options import visible_gpus
from kernelwright.training.fine_tune.settings import SftSettings, recipe_path

PARTS = ("losses", "vanilla", "selection", "deciles", "dpo", "confidence", "cost", "gpus", "judge", "times")
LOSSES: dict[str, dict[str, Any]] = {
    "sft": {"name": "sft"},
    "cuset": {"name": "cuset"},
    "dft": {"name": "dft"},
    "profit": {"name": "profit"},
    "eaft": {"name": "eaft"},
    "asft": {"name": "asft"},
    "cuset-confidence": {"name": "cuset", "lam": 0.0, "sample_weight": "none"},
    "cuset-confidence-cuda": {"name": "cuset", "sample_weight": "none"},
    "cuset-confidence-region": {"name": "cuset", "lam": 0.0},
}
MICRO = 2
"""Packed rows of 4096 tokens in a micro-batch. With eight, one run took 57 to 75 GB."""
SELECTIONS = ("concur", "random", "longest", "shortest", "fastest")
QWEN_1_5B = {
    "vocab_size": 151_936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
TINY = QWEN_1_5B | {
    "vocab_size": 4096,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@dataclass(frozen=True)
class Preset:
    """The sizes of all parts."""

    tasks: int = 6000
    steps: int = 250
    batch: int = 16
    length: int = 4096
    few_steps: int = 80
    """Updates of selection, deciles and dpo, whose data are small."""
    held_out: int = 120
    samples: int = 4
    max_tokens: int = 2560
    timed_tasks: int = 160
    pair_tasks: int = 300
    rounds: int = 4
    cost_steps: int = 25
    shape: dict[str, int] = dataclasses.field(default_factory=lambda: QWEN_1_5B)


PRESETS = {
    "full": Preset(),
    "short": Preset(tasks=4000, steps=120, batch=8, held_out=100, samples=3, cost_steps=12, rounds=2),
    "rehearsal": Preset(24, 3, 2, 2048, 2, 3, 3, 200, 10, 4, 2, 3, TINY),
}


@dataclass(frozen=True)
class Job:
    """One process. Jobs of a stage run concurrently; an `alone` job has all devices."""

    name: str
    kind: str
    params: dict[str, Any]
    stage: int = 0
    alone: bool = False


class Plan:
    """The jobs of each part."""

    def __init__(self, args: argparse.Namespace, out: Path) -> None:
        self.args, self.out, self.size = args, out, dataclasses.replace(PRESETS[args.preset], **args.sizes)
        self.gpus = visible_gpus()
        given = [name for name, _, _ in args.suites]
        self.suites = ["held-out", *(name for name in given if name not in ("held-out", PAIRS, TIMED))]
        self.timed_suite = TIMED if TIMED in given else "held-out"

    def settings(self, data: str, seed: int, loss: dict[str, Any], steps: int, **more: Any) -> dict[str, Any]:
        """Returns the settings of the recipe starter_sft on a data set of OUT."""
        table = load_config(recipe_path("starter_sft"), self.args.overrides, SftSettings).model_dump(mode="json")
        where = {"right": True} if data in ("corpus", "timed") else None
        table |= {"seed": seed, "loss": loss, "name": "arm", "bench": None}
        table["model"] |= {"path": self.args.base}
        table["data"] |= {
            "path": str(self.out / "data" / data),
            "length": self.size.length,
            "held_out": 0,
            "where": where,
        }
        kept = {
            "steps": steps,
            "batch": self.size.batch,
            "micro_batch": min(MICRO, self.size.batch),
            "save_every": 10_000,
        }
        table["train"] |= kept | {"log_every": max(1, steps // 25), "eval_every": None} | more
        return table

    def arm(self, method: str, seed: int, settings: Any, stage: int, **more: Any) -> Job:
        params = {
            "method": method,
            "seed": seed,
            "settings": settings,
            "trainer": "sft",
            "base": self.args.base,
            "suites": self.suites,
            "samples": self.size.samples,
            "temperature": 0.8,
            "max_tokens": self.size.max_tokens,
            **more,
        }
        return Job(f"{method}-s{seed}", "arm", params, stage)

    def data(self) -> list[Job]:
        files = {name: (path, limit) for name, path, limit in self.args.suites}
        generated = {"held-out": (7700, self.size.held_out, "combos"), PAIRS: (7800, self.size.pair_tasks, "train")}
        made = {"seed": 6000, "name": "corpus", "schedules": "canonical", "tasks": self.size.tasks, "judge": "none"}
        return [Job("suites", "suites", {"generated": generated, "files": files}), Job("corpus", "corpus", made)]

    def timed(self) -> list[Job]:
        """Returns the jobs for a corpus with several answers a task and their times."""
        made = {"seed": 6100, "name": "timed", "schedules": "all", "per_task": 5, "tasks": self.size.timed_tasks}
        made |= {"seconds": self.args.timed_seconds}
        made |= {"judge": "gpu", "timing_seconds": 0.2} if self.gpus else {"judge": "none", "made_up_times": True}
        return [Job("timed", "corpus", made, 0, alone=True)]

    def vanilla(self, stage: int = 0) -> list[Job]:
        return [self.arm("vanilla", seed, None, stage) for seed in self.args.seeds]

    def losses(self) -> list[Job]:
        jobs = self.vanilla(0)
        for seed in self.args.seeds:  # seed by seed, so that a limit cuts all methods alike
            for name in self.args.methods:
                table = self.settings("corpus", seed, LOSSES[name], self.size.steps)
                jobs.append(self.arm(name, seed, table, 0))
        return jobs

    def selection(self) -> list[Job]:
        rows = {"source": "data/timed", "prefix": "select-", "methods": SELECTIONS, "equal": True}
        jobs = [*self.timed(), Job("select", "curated", rows, 1)]
        for seed in self.args.seeds:
            jobs += [self._small(f"select-{name}", f"select-{name}", seed, 2) for name in SELECTIONS]
        return jobs

    def _small(self, method: str, data: str, seed: int, stage: int, **more: Any) -> Job:
        return self.arm(method, seed, self.settings(data, seed, {"name": "sft"}, self.size.few_steps), stage, **more)

    def deciles(self) -> list[Job]:
        rows = {"source": "data/timed", "prefix": "deciles-", "methods": ["speed-deciles", "verified"]}
        jobs = [*self.timed(), Job("deciles", "curated", rows, 1)]
        for seed in self.args.seeds:
            best, slow = ("Speed: 10/10 of the fastest known.", "Speed: 1/10 of the fastest known.")
            timed = {"timed": True, "suites": [self.timed_suite]}
            jobs.append(self._small("deciles-10", "deciles-speed-deciles", seed, 2, tag=best, **timed))
            jobs.append(self._small("deciles-none", "deciles-verified", seed, 2, **timed))
            trained = str(self.out / "jobs" / f"deciles-10-s{seed}" / "run")
            jobs.append(self.arm("deciles-1", seed, None, 3, base=trained, tag=slow, **timed))
        return jobs

    def dpo(self) -> list[Job]:
        source = self.arm("pairs-source", 0, None, 0, suites=[PAIRS], samples=2 * self.size.samples)
        judge = {"backend": "cpu", "timed": False, "follow": False, "only": PAIRS}
        rows = {"source": f"judged-cpu-{PAIRS}", "prefix": "own-", "methods": ["preferences", "verified"]}
        jobs = [source, Job("pairs-judged", "judged", judge, 1), Job("pairs", "curated", rows, 2)]
        for seed in self.args.seeds:
            more = {"packing": False, "lr": 2e-5, "micro_batch": min(4, self.size.batch)}
            table = self.settings(
                "own-preferences", seed, {"kind": "sigmoid", "beta": 0.1}, self.size.few_steps, **more
            )
            jobs.append(self.arm("dpo", seed, table, 3, trainer="dpo"))
            jobs.append(self._small("own-verified", "own-verified", seed, 3))
        return jobs

    def confidence(self) -> list[Job]:
        table = self.settings("corpus", 0, {"name": "cuset"}, 1)
        return [Job("confidence", "confidence", {"settings": table, "rows": 200})]

    def cost(self) -> list[Job]:
        plain = {"packing": False, "micro_batch": self.size.batch, "log_every": 10_000}
        first = self.settings("corpus", 0, {"name": "sft"}, self.size.cost_steps, **plain)
        large = self.settings("corpus", 0, {"name": "sft"}, self.size.cost_steps, **plain)
        large["train"] |= {"batch": min(4, self.size.batch), "micro_batch": min(4, self.size.batch)}
        large["model"] |= {"path": str(self.out / "models" / "random"), "tune": "lora", "merge": False}
        more = {"shape": self.size.shape, "base": self.args.base, "rounds": max(2, self.size.rounds // 2)}
        return [
            Job("cost-base", "cost", {"settings": first, "rounds": self.size.rounds}, 0, alone=True),
            Job("cost-large-lora", "cost", {"settings": large, **more}, 1, alone=True),
        ]

    def several(self) -> list[Job]:
        batch = {"batch": 4 * self.size.batch, "micro_batch": min(MICRO, self.size.batch), "log_every": 1}
        table = self.settings("corpus", 0, {"name": "cuset"}, self.size.cost_steps, **batch)
        runs = [("one", 1, "no"), ("two", 2, "no")] + ([("sharded", 2, "full")] if len(self.gpus) > 1 else [])
        return [Job("gpus", "several", {"settings": table, "runs": runs}, 0, alone=True)]

    def judging(self) -> list[Job]:
        backend = "gpu" if self.args.judge == "gpu" and self.gpus else "cpu"
        jobs = [Job(f"judge-{backend}", "judged", {"backend": backend, "timed": False, "follow": False}, 0)]
        return [*jobs, *self.times()]

    def times(self) -> list[Job]:
        timed = {"backend": "gpu", "timed": True, "follow": False}
        return [Job("judge-timed", "judged", timed, 1, alone=True)] if self.gpus else []

    def of(self, part: str) -> list[Job]:
        named = {"gpus": self.several, "judge": self.judging}
        jobs: list[Job] = (named.get(part) or getattr(self, part))()
        return jobs


class Driver:
    """Runs jobs in processes of their own, and keeps the report."""

    def __init__(self, args: argparse.Namespace, out: Path) -> None:
        self.args, self.out, self.plan = args, out, Plan(args, out)
        slots = [gpu for gpu in self.plan.gpus for _ in range(args.per_gpu)]
        self.slots: list[str] = sorted(slots, key=slots.index) or ["cpu"] * args.per_gpu
        self.end = time.monotonic() + args.seconds
        self.parts: dict[str, Any] = {}
        self.background: subprocess.Popen[bytes] | None = None
        self.live: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        (self.out / "jobs").mkdir(parents=True, exist_ok=True)
        (self.out / STOP).unlink(missing_ok=True)
        try:
            self.part("data", self.plan.data())
            if self.args.judge == "cpu" and set(self.args.parts) & set(PARTS[:5]):
                follow = {"backend": "cpu", "timed": False, "follow": True}
                self.background = self.start(Job("judge-beside", "judged", follow), "")
            for part in self.args.parts:
                if part == "judge":
                    self.finish_background()
                self.part(part, self.plan.of(part))
        except KeyboardInterrupt:
            self.end = time.monotonic()
            print("interrupted; the same command goes on", file=sys.stderr)
        finally:
            for process in self.live:
                if process is not self.background:
                    stop(process)
            self.finish_background()
            self.report()

    def finish_background(self) -> None:
        """Lets the background judge finish its answers, within the time left."""
        if self.background is None:
            return
        (self.out / STOP).touch()
        while self.background.poll() is None and time.monotonic() < self.end:
            time.sleep(0.2)
        stop(self.background)
        self.background = None

    def part(self, name: str, jobs: list[Job]) -> None:
        """Runs all jobs of a part, stage by stage, until its limit."""
        began = time.monotonic()
        limit = min(self.end, began + self.args.limits.get(name, float("inf")))
        states: dict[str, str] = {}
        for stage in sorted({job.stage for job in jobs}):
            self.stage([job for job in jobs if job.stage == stage], limit, states)
        self.parts[name] = {"seconds": round(time.monotonic() - began, 1), "jobs": states}
        print(f"{name}: {self.parts[name]['seconds']} s, {summary(states)}", file=sys.stderr, flush=True)
        self.report()

    def stage(self, jobs: list[Job], limit: float, states: dict[str, str]) -> None:
        waiting = [job for job in jobs if not self.done(job, states)]
        free, running = list(self.slots), {}
        while waiting or running:
            for process in [p for p in running if p.poll() is not None]:
                job, slots = running.pop(process)
                free += slots
                states[job.name] = "done" if process.returncode == 0 else f"failed: {self.last_words(job)}"
                print(f"  {job.name}: {states[job.name]}", file=sys.stderr, flush=True)
                self.report()
            if time.monotonic() > limit:
                for process, (job, _) in running.items():
                    stop(process)
                    states[job.name] = "cut"
                states.update({job.name: "not begun" for job in waiting})
                return
            if waiting and free and not (waiting[0].alone and running):
                job = waiting.pop(0)
                slots, free = (free, []) if job.alone else (free[:1], free[1:])
                running[self.start(job, "" if job.alone else slots[0])] = (job, slots)
            else:
                time.sleep(0.05)

    def done(self, job: Job, states: dict[str, str]) -> bool:
        repeated = job.kind == "judged"  # there may be new answers
        if repeated or not (self.out / "jobs" / job.name / "result.json").is_file():
            return False
        states[job.name] = "done before"
        return True

    def start(self, job: Job, device: str) -> subprocess.Popen[bytes]:
        folder = self.out / "jobs" / job.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.json").write_text(
            json.dumps({**dataclasses.asdict(job), "out": str(self.out)}), encoding="utf-8"
        )
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
        if device and device != "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = device
        with open(folder / "log.txt", "ab") as log:
            command = [sys.executable, str(Path(__file__).with_name("sft_jobs.py")), str(folder / "job.json")]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self.live = [*(p for p in self.live if p.poll() is None), process]
        return process

    def last_words(self, job: Job) -> str:
        text = (self.out / "jobs" / job.name / "log.txt").read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1][:300] if lines else "nothing was said"

    def report(self) -> None:
        """Writes the results so far, atomically."""
        results = {}
        for path in sorted((self.out / "jobs").glob("*/result.json")):
            results[path.parent.name] = json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((self.out / "jobs").glob("*/partial.json")):
            results.setdefault(path.parent.name, {"partial": json.loads(path.read_text(encoding="utf-8"))})
        backend = "gpu" if self.args.judge == "gpu" and self.plan.gpus else "cpu"
        found = {
            "hardware": hardware(),
            "rehearsal": self.args.preset == "rehearsal" or not self.plan.gpus,
            "times_made_up": not self.plan.gpus,
            "settings": {k: str(v) for k, v in vars(self.args).items()} | dataclasses.asdict(self.plan.size),
            "parts": self.parts,
            "numbers": numbers(self.out, backend),
            "numbers_timed": numbers(self.out, "gpu", timed=True),
            "results": results,
        }
        part = self.out / f"sft_methods.json.{os.getpid()}.part"  # another call may run other parts concurrently
        part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        part.rename(self.out / "sft_methods.json")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a job and its children."""
    for sign, patience in ((signal.SIGINT, 5.0), (signal.SIGKILL, 5.0)):
        if process.poll() is None:
            os.killpg(process.pid, sign)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def summary(states: dict[str, str]) -> str:
    kinds = [state.split(":")[0] for state in states.values()]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "nothing to do"


def hardware() -> dict[str, Any]:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout if visible_gpus() else ""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpus": [line.split(" (UUID")[0] for line in listed.splitlines()],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")},
    }


def show(found: dict[str, Any]) -> None:
    """Prints the numbers in short; the file has all of them."""
    for suite, methods in found["numbers"].items():
        for name, row in methods.items():
            values = [(what, row[what]) for what in ("compile@1", "func@1", "func@3") if row.get(what)]
            text = ", ".join(f"{what} {v['value']:.1%} [{v['low']:.1%}, {v['high']:.1%}]" for what, v in values)
            print(f"{suite} {name} ({len(row['seeds'])} seeds): {text or 'nothing judged'}")
    for name, result in found["results"].items():
        ratios = {k: v for k, v in result.items() if k.endswith("ratio")}
        if ratios:
            print(name, json.dumps(ratios))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", required=True)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--preset", choices=list(PRESETS), default="full")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default=",".join(LOSSES), help="methods of the part losses")
    parser.add_argument("--suite", action="append", default=[], metavar="NAME=FILE[:LIMIT]")
    parser.add_argument("--seconds", type=float, default=570.0)
    parser.add_argument("--limit", action="append", default=[], metavar="PART=SECONDS")
    parser.add_argument("--per-gpu", type=int, default=2)
    parser.add_argument("--timed-seconds", type=float, default=300.0, help="limit of the timed corpus in seconds")
    parser.add_argument("--judge", choices=["cpu", "gpu", "later"], default="cpu")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--size", action="append", default=[], metavar="FIELD=NUMBER", help="replaces a preset size")
    args = parser.parse_args()
    args.sizes = {name: int(number) for name, _, number in (text.partition("=") for text in args.size)}
    known_sizes = {field.name for field in dataclasses.fields(Preset)} - {"shape"}
    if set(args.sizes) - known_sizes:
        parser.error(f"there is no size {min(set(args.sizes) - known_sizes)!r}: use {', '.join(sorted(known_sizes))}")
    args.parts = [part for part in args.parts.split(",") if part]
    args.methods = [name for name in args.methods.split(",") if name]
    for given, known in ((args.parts, PARTS), (args.methods, tuple(LOSSES))):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"there is no {unknown[0]!r}: use {', '.join(known)}")
    args.seeds = [int(seed) for seed in args.seeds.split(",")]
    args.limits = {name: float(seconds) for name, _, seconds in (text.partition("=") for text in args.limit)}
    args.suites = []
    for text in args.suite:
        name, _, place = text.partition("=")
        path, _, limit = place.rpartition(":") if place.rpartition(":")[2].isdigit() else (place, "", "")
        args.suites.append((name, str(Path(path).resolve()), int(limit) if limit else None))
    args.base = str(Path(args.base).resolve())
    return args


def main() -> None:
    args = arguments()
    out = args.out.resolve()
    Driver(args, out).run()
    show(json.loads((out / "sft_methods.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
