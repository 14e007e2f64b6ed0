"""Measures every claim of the reinforcement-learning recipes in one call, with selectable and resumable parts.

    python benchmarks/rl_claims.py MODEL OUT [--parts recipes,ablation,hacking,judge,throughput,kills,processes,scaling]
           [--cold MODEL] [--seeds 0,1] [--minutes 9] [--steps 20] [--tasks 16] [--answers 16] [--held-out 64]
           [--samples 8] [--judging gpu|cpu] [--max-tokens 2400] [--train-seconds 400] [--set KEY=VALUE]...
           [--suite FILE] [--rows FILE] [--at-once 1] [--jobs 0] [--temperature 1.0] [--pool 0] [--pool-answers 4]
           [--train-split train] [--split combos] [--hack-lr 1e-4] [--recipes NAME,...] [--families NAME,...]
           [--timed-tasks 32] [--over-calls] [--verdicts DIR] [--timing-seconds 0.15] [--train-suite FILE]
           [--warm-answers 16] [--warm-seconds 150] [--warm-script FILE] [--exploit-share 0.05]

MODEL is a checkpoint that solves some tasks (after SFT), `--cold` one that solves almost none. Every GPU runs
`--at-once` jobs, each with `--jobs` candidates judged concurrently (0: one a core; the same number in all calls on
OUT). With `--judging cpu` the functional machine judges: it gives no times, and many more steps fit. `--minutes` bounds
this call; the next call on OUT starts or resumes the remaining jobs. A training that would leave no time for its
"after" is not started, except with `--over-calls`. `rl_report` writes OUT/results.json after each job.

Held-out tasks are generated, of `--split`, which SFT has not seen (or from `--suite`). Training tasks are of
`--train-split`, with another seed. A policy that is always or never correct on a task learns nothing from it. With
`--pool N` only some of N generated tasks a side are used: those on which MODEL has 1 to n - 1 of n = `--pool-answers`
answers correct, drawn with seeds of their own. All answers are drawn and measured at `--temperature`, besides one
greedy answer a task. The correct answers of the seeded policy are generated too (or come from `--rows`: reference and
answer, or the rows of `rl_schedules.py`). `--exploit-share` is the share of exploits in the rows. The policy's share is
then smaller, and `exploit_share` in the results has it.

`--verdicts` is a folder in which all jobs share verdicts, so that equal answers are judged and timed once.

`--train-suite` names the training tasks, instead of generated ones. With it and `--verdicts`, the part `warm`, named
first, judges MODEL's answers to them before any training, with a share of the tasks on each GPU. Training then meets
most of its answers in the cache, and a step does not wait for the judge. It stops after `--warm-seconds`; its verdicts
so far count, and training starts. With `--warm-script` that file's answers are judged, to the held-out tasks too
(`rl_schedules.py` writes one); every GPU goes through all tasks, the second from the end.

`--recipes` names the recipes of the part of this name; `--families` the families, or groups of them, of a training
pool. With `--suite` and `--pool` only training tasks are chosen in this way.

warm        MODEL's answers to the training tasks are judged
recipes     stanford_grpo, kevin (4 turns) and drkernel (3 turns, TRLOO, MRS, PR, PRS), scaled: before, after, curves
timed       the models that `recipes` trained, and MODEL, on the first `--timed-tasks` tasks on the GPU: fast_1, speedup
ablation    one turn against four at equal answers; GRPO against TRLOO; without PR and PRS; milestones, capped speedup
hacking     a policy seeded with 5 % exploits (`rl_report.EXPLOIT`), paid by KernelBench's evaluator and by ours
judge       a cold start with and without the judge term (`rl_judge`: rules on text, in place of a language model)
throughput  64 tasks x 8 answers: answers a minute, seconds by stage, idle share of the GPU
kills       a run killed three times and resumed: updates, lost and repeated rollouts
processes   two processes against one on the same rollouts: advantages equal, weights close
scaling     samples x turns at equal budget with MODEL and with the model that kevin trained
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import rl_report
from rl_jobs import Job, Runner, interrupted_by_term, wait
from rl_judge import served

from kernelwright.evaluation.options import visible_gpus

CLI = [sys.executable, "-m", "kernelwright.cli"]
PARTS = ("recipes", "timed", "warm", "ablation", "hacking", "judge", "throughput", "kills", "processes", "scaling")
CLIPS = ["train.clip_low=0.2", "train.clip_high=0.28"]
PAID = {
    name: f"reward.parameters={{{', '.join(f'{k} = {v}' for k, v in given.items())}}}"
    for name, given in rl_report.REWARDS.items()
}
KEVIN = ["reward.name=kevin", PAID["kevin"], "advantage.name=kevin", "train.normalise=constant"]
KEVIN += ['advantage.parameters={gamma = 0.4, aggregate = "max"}', "train.updates=2", "rollout.context=summary", *CLIPS]
DRKERNEL = ["reward.name=drkernel", PAID["drkernel"], "filters.mismatch=true", *CLIPS]
REJECTED = ["filters.profiling=true"]
NO_PROFILE = ["reward.parameters={scale = 0.5, share = 0.0}"]
STANFORD = ["reward.name=stanford", PAID["stanford"], "advantage.name=mean", "train.clip_high=0.2"]
VARIANTS: dict[str, tuple[int, list[str]]] = {
    "stanford_grpo": (1, STANFORD),
    "kevin": (4, KEVIN),
    "drkernel": (3, [*DRKERNEL, *REJECTED]),
    "kevin_one_turn": (1, KEVIN),
    "drkernel_grpo": (3, [*DRKERNEL, *REJECTED, "advantage.name=grpo"]),
    "drkernel_no_pr_prs": (3, [*DRKERNEL, *NO_PROFILE]),
    "milestones": (1, ["reward.name=cuda_agent", "reward.parameters={}", "judging.baselines=eager,compile", *CLIPS]),
    "capped_speedup": (1, ["reward.name=kevin", "reward.parameters={cap = 3.0}", *CLIPS]),
}
"""Turns, and settings that replace those of `starter_rl`. Each has `--answers` answers a task, in whole rollouts."""
FEW = ["rollout.tasks=8", "rollout.rollouts=4", "judging.backend=cpu"]
"""Settings of runs that test that nothing is lost, not what is learnt."""
TIMED = ("drkernel_no_pr_prs", "milestones", "capped_speedup")
"""Variants that differ only if a GPU times."""
START_SECONDS = 40.0
"""Seconds of a training before its first step and after its last one, together."""
AFTER_SECONDS = 45.0
"""Seconds reserved for measuring a trained model."""
TRAIN_SEED, HELD_OUT_SEED, POOL_ANSWERS_SEED = 900, 77, 1_000_000


class Plan:
    """The requested parts as jobs."""

    def __init__(self, asked: argparse.Namespace, judge: str) -> None:
        self.asked, self.judge = asked, judge
        self.out: Path = asked.out
        self.jobs: list[Job] = []
        self.held_out: Path = asked.suite or self.out / "held_out.jsonl"
        self.jobs_flag = ["--jobs", str(asked.jobs)] if asked.jobs else []

    def add(self, *jobs: Job) -> None:
        """Adds jobs that are not in the plan yet."""
        known = {job.name for job in self.jobs}
        self.jobs += [job for job in jobs if job.name not in known]

    def tasks(self) -> str:
        """Adds the job that writes the tasks. No training task is of the held-out tasks' split."""
        a = self.asked
        if a.pool:
            self.pools()
        elif a.suite is not None:
            self.add(Job("tasks", lambda *_: {"suite": str(self.held_out)}, 10, gpus=0))
        else:
            words = ["tasks", "generate", "--count", str(a.held_out), "--seed", str(HELD_OUT_SEED), "--split", a.split]
            self.add(Job("tasks", [*CLI, *words, "--out", str(self.held_out), "--json"], 120, gpus=0))
        return "tasks"

    def suite(self) -> tuple[str, ...]:
        """Returns the jobs that every measurement needs; none with `--suite`."""
        return () if self.asked.suite is not None else (self.tasks(),)

    def pools(self) -> None:
        """Adds the choice of generated tasks that MODEL sometimes solves; a suite replaces the held-out ones."""
        a, needs = self.asked, []
        sides = [("train", TRAIN_SEED, a.train_split), ("held_out", HELD_OUT_SEED, a.split)]
        for side, seed, split in sides[: 1 if a.suite is not None else 2]:
            path = self.out / f"pool_{side}.jsonl"
            words = ["tasks", "generate", "--count", str(a.pool), "--seed", str(seed), "--split", split]
            words += ["--families", a.families] if a.families and side == "train" else []
            self.add(Job(f"pool_{side}", [*CLI, *words, "--out", str(path), "--json"], 120, gpus=0))
            line = [*CLI, "bench", str(path), "--policy", f"starter:{a.model}", "--samples", str(a.pool_answers)]
            line += ["--context", "recent", "--temperature", str(a.temperature), "--seed", str(POOL_ANSWERS_SEED)]
            line += ["--backend", "cpu", "--small-sizes", "--trials", "3"]
            line += ["--run", str(self.out / "bench" / f"pool_{side}"), "--json"]
            self.add(Job(f"answers_{side}", line, 300, (f"pool_{side}",), environment=self.limits()))
            needs.append(f"answers_{side}")
        self.add(
            Job("tasks", lambda *_: rl_report.pick(self.out, a.tasks, a.held_out), 30, (*needs,), gpus=0),
        )

    def limits(self) -> dict[str, str]:
        """Returns the environment variables of the starter's policy."""
        return {"KERNELWRIGHT_MAX_TOKENS": str(self.asked.max_tokens)}

    def train(
        self,
        name: str,
        turns: int,
        settings: list[str],
        seed: int = 0,
        model: str = "",
        pooled: bool = True,
        **more: Any,
    ) -> Job:
        """Returns a run of `starter_rl` with other settings."""
        a = self.asked
        words = [
            f"model.path={model or a.model}",
            f"seed={seed}",
            f"rollout.tasks={a.tasks}",
            f"rollout.rollouts={max(2, a.answers // turns)}",
            f"rollout.turns={turns}",
            f"rollout.max_tokens={a.max_tokens}",
            f"rollout.temperature={a.temperature}",
            f"judging.jobs={a.jobs}",
            *self.train_tasks(pooled),
            f"train.steps={a.steps}",
            f"train.seconds={a.train_seconds}",
            *settings,
            *(["judging.backend=cpu"] if a.judging == "cpu" else [f"judging.timing_seconds={a.timing_seconds}"]),
            # the same number of checked calls as in `measured`, so that training finds the verdicts of `warm`
            *([f"judging.verdicts={a.verdicts}", "judging.gpu_trials=3"] if a.verdicts else []),
            *a.overrides,
        ]
        flags = [word for setting in words for word in ("--set", setting)]
        line = [*CLI, "train", "rl", "starter_rl", "--out", str(self.out / "runs" / name), *flags, "--json"]
        least = 5.0 if a.over_calls else a.train_seconds + START_SECONDS + AFTER_SECONDS
        needs = (*more.pop("needs", ()), *((self.tasks(),) if a.pool else ()))
        return Job(f"train-{name}", line, a.train_seconds + 120, needs, self.warmed(), least=least, **more)

    def warmed(self) -> tuple[str, ...]:
        """Returns the jobs of the part `warm`, which use the GPUs alone."""
        return tuple(job.name for job in self.jobs if job.name.startswith("warm-"))

    def train_tasks(self, pooled: bool) -> list[str]:
        """Returns the settings that name the training tasks."""
        if self.asked.train_suite and pooled:
            return ["tasks.count=0", f"tasks.suite={self.asked.train_suite}"]
        if self.asked.pool and pooled:
            return ["tasks.count=0", f"tasks.suite={self.out / 'train.jsonl'}"]
        return [f"tasks.split={self.asked.train_split}", f"tasks.seed={TRAIN_SEED}"]

    def bench(self, name: str, model: str, turns: int, needs: tuple[str, ...] = (), **more: Any) -> Job:
        """Returns a bench of a model on held-out tasks, asked as in training; `timed-…`: the first ones, on the GPU."""
        context = ["--context", "summary" if "kevin" in name or turns == 4 else "recent"]
        timed = name.startswith("timed-")
        suite = self.out / "timed.jsonl" if timed else self.held_out
        line = [*CLI, "bench", str(suite), "--policy", f"starter:{model}", "--turns", str(turns), *context]
        line += ["--samples", str(max(2, self.asked.samples // turns)), "--stop", "never"]
        line += ["--run", str(self.out / "bench" / name), *self.measured(timed)]
        line += ["--greedy"] if turns == 1 else []
        return Job(
            f"bench-{name}", line, 400, (*self.suite(), *needs), after=self.warmed(), environment=self.limits(), **more
        )

    def measured(self, timed: bool = False) -> list[str]:
        """Returns the flags for drawing and judging held-out answers."""
        words = ["--temperature", str(self.asked.temperature), "--trials", "3", *self.jobs_flag, "--json"]
        words += ["--verdicts", str(self.asked.verdicts)] if self.asked.verdicts else []
        if self.asked.judging == "cpu" and not timed:
            return [*words, "--backend", "cpu", "--small-sizes"]
        return [*words, "--filter", "--timing-seconds", str(self.asked.timing_seconds)]

    def warm(self) -> None:
        """Judges answers to the training tasks as in training, so that training finds their verdicts cached."""
        a = self.asked
        lines = a.train_suite.read_text(encoding="utf-8").splitlines(keepends=True)
        if a.warm_script is not None:
            lines += self.held_out.read_text(encoding="utf-8").splitlines(keepends=True)
        shares = max(1, len(visible_gpus()))
        for share in range(shares):
            path = self.out / f"warm-{share}.jsonl"
            if a.warm_script is None:
                mine = lines[share::shares]
                asking = [f"starter:{a.model}", "--context", "recent", "--seed", str(POOL_ANSWERS_SEED)]
            else:
                mine = lines[::-1] if share % 2 else lines
                asking = [f"scripted:{a.warm_script}"]
            path.write_text("".join(mine), encoding="utf-8")
            line = [*CLI, "bench", str(path), "--policy", *asking, "--samples", str(a.warm_answers)]
            line += ["--run", str(self.out / "bench" / f"warm-{share}"), *self.measured()]
            self.add(Job(f"warm-{share}", line, a.warm_seconds, environment=self.limits()))

    def variants(self, names: list[str]) -> None:
        """Adds before and after of recipes, with each seed."""
        for seed in self.asked.seeds:
            for name in names:
                turns, settings = VARIANTS[name]
                self.add(self.bench(f"before-{turns}", self.asked.model, turns))
                run = f"{name}-{seed}"
                job = self.train(run, turns, settings, seed)
                trained = str(self.out / "runs" / run)
                self.add(job, self.bench(run, trained, turns, (job.name,)))
                if name == "kevin_one_turn":  # for comparison with kevin, which is asked in this way
                    self.add(self.bench("before-4", self.asked.model, 4))
                    self.add(self.bench(f"{run}-asked-4", trained, 4, (job.name,)))

    def timed(self) -> None:
        """Times the recipes' models on the GPU, after all training."""
        self.add(
            Job(
                "timed-tasks",
                lambda *_: rl_report.first(self.held_out, self.out, self.asked.timed_tasks),
                10,
                self.suite(),
                gpus=0,
            )
        )
        for seed in self.asked.seeds:
            for name in self.asked.recipes.split(","):
                turns, run = VARIANTS[name][0], f"{name}-{seed}"
                trained = str(self.out / "runs" / run)
                self.add(self.bench(f"timed-before-{turns}", self.asked.model, turns, ("timed-tasks",)))
                self.add(self.bench(f"timed-{run}", trained, turns, ("timed-tasks", f"train-{run}")))

    def hacking(self) -> None:
        """Seeds a policy with exploits, then trains it without rules and with them."""
        a, seeded, needs = self.asked, self.out / "seeded", ("exploits",)
        words = [f"model.path={self.asked.model}", f"data.path={self.out / 'work' / 'exploits' / 'rows.jsonl'}"]
        words += ["data.where=null", "data.held_out=0", "data.without_cuda=keep", "loss.name=sft"]
        words += [*(f"loss.{name}=null" for name in ("tau", "lam", "window")), "train.steps=60"]
        words += ["train.eval_every=null", "train.lr=1e-4", *self.asked.sft_overrides]
        flags = [word for setting in words for word in ("--set", setting)]
        self.add(
            Job(
                "exploits",
                lambda folder, *_: rl_report.exploit_rows(folder, a.exploit_share, a.exploit_rows, a.rows),
                200,
                gpus=0,
            ),
            Job("seeded", [*CLI, "train", "sft", "starter_sft", "--out", str(seeded), *flags, "--json"], 300, needs),
        )
        for name, strict in (("guards_off", "true"), ("guards_on", "false")):
            settings = ["reward.name=kevin", f"judging.strict_kernelbench={strict}"]
            job = self.train(f"hack-{name}", 1, settings, model=str(seeded), needs=("seeded",))
            self.add(replace(job, do=[*job.do, "--set", f"train.lr={a.hack_lr}"]))

    def judging(self) -> None:
        """Adds a cold start, with and without the judge term."""
        cold = str(self.asked.cold or self.asked.model)
        for seed in self.asked.seeds:
            for name, more in (("judge_off", []), ("judge_on", [f"judging.judge={self.judge}"])):
                run = f"{name}-{seed}"
                job = self.train(run, 1, [*STANFORD, *more], seed, cold)
                self.add(self.bench("before-cold", cold, 1), job)
                self.add(self.bench(run, str(self.out / "runs" / run), 1, (job.name,)))

    def scaling(self) -> None:
        """Adds the grid, for the model before and after the recipe of several turns."""
        budget = self.asked.samples
        shapes = ",".join(f"{budget // turns}x{turns}" for turns in sorted({1, 4, budget}) if budget % turns == 0)
        turns, settings = VARIANTS["kevin"]
        trained = self.train("kevin-0", turns, settings, 0)
        self.add(trained)
        for name, model, needs in (
            ("before", self.asked.model, ()),
            ("kevin", str(self.out / "runs" / "kevin-0"), (trained.name,)),
        ):
            line = [*CLI, "bench", str(self.held_out), "--policy", f"starter:{model}", "--grid", shapes]
            line += ["--context", "top_w", "--stop", "never", "--run", str(self.out / "bench" / f"grid-{name}")]
            line += self.measured()
            self.add(Job(f"grid-{name}", line, 500, (*self.suite(), *needs), environment=self.limits()))

    def build(self, parts: list[str]) -> list[Job]:
        """Returns all jobs of the parts, the most valuable first."""
        a = self.asked
        for part in parts:
            if part == "recipes":
                self.variants(a.recipes.split(","))
            elif part == "ablation":
                names = ["kevin", "kevin_one_turn", "drkernel", "drkernel_grpo", *TIMED]
                self.variants([name for name in names if a.judging == "gpu" or name not in TIMED])
            elif part == "throughput":
                shape = [f"rollout.tasks={a.throughput[0]}", f"rollout.rollouts={a.throughput[1]}", "train.steps=3"]
                line = self.train("throughput", 1, shape, pooled=False).do
                self.add(Job("throughput", watched(line, self.out / "gpu_throughput.csv"), 400))
            elif part == "kills":
                self.add(self.kills())
            elif part == "processes":
                self.processes()
            else:
                named = {"hacking": self.hacking, "judge": self.judging, "scaling": self.scaling}
                (named | {"timed": self.timed, "warm": self.warm})[part]()
        return self.jobs

    def kills(self) -> Job:
        """Returns a run of four steps that is killed three times."""
        job = self.train("kills", 2, ["train.steps=4", "train.save_every=2", *FEW])
        out = self.out / "runs" / "kills"
        return Job("kills", lambda _, left, environment: kills(job.do, out, left, environment), 400, job.needs)

    def processes(self) -> None:
        """Adds a run of one process, one of two on its rollouts, and one of two on their own."""
        two = 2 if visible_gpus() else 1
        alone = self.train("one", 2, ["train.steps=2", *FEW])
        copied = self.train("two", 2, ["train.steps=2", *FEW], needs=("copy-rollouts",), gpus=two)
        own = self.train("two_own", 2, ["train.steps=2", *FEW], gpus=two)
        self.add(alone)
        self.add(
            Job("copy-rollouts", lambda *_: copy_rollouts(self.out / "runs"), 60, (alone.name,), gpus=0),
            *(Job(job.name, [*job.do, "--processes", "2"], job.seconds, job.needs, gpus=two) for job in (copied, own)),
        )


def watched(line: Any, file: Path) -> Any:
    """Returns a command that also samples the GPU's use, if there is a GPU."""
    if not visible_gpus():
        return line
    query = "nvidia-smi --query-gpu=timestamp,utilization.gpu --format=csv,noheader,nounits"
    query += " -i ${CUDA_VISIBLE_DEVICES} -lms 200"
    return ["bash", "-c", f'{query} > {file} & watcher=$!; "$@"; status=$?; kill $watcher; exit $status', "bash", *line]


def copy_rollouts(runs: Path) -> dict[str, Any]:
    """Copies the rollouts of the run of one process for the run of two."""
    shutil.copytree(runs / "one" / "rollouts", runs / "two" / "rollouts", dirs_exist_ok=True)
    return {"steps": len(list((runs / "two" / "rollouts").iterdir()))}


def kills(line: Any, out: Path, left: float, environment: dict[str, str]) -> dict[str, Any]:
    """Kills a run three times, each time after it has stored some more rollouts, and then lets it end."""
    end = time.monotonic() + left
    quiet: dict[str, Any] = {"stderr": subprocess.DEVNULL, "env": environment, "start_new_session": True}
    killed = []
    for _ in range(3):
        before = rl_report.rollouts_kept(out)
        child = subprocess.Popen(line, stdout=subprocess.DEVNULL, **quiet)
        while child.poll() is None and rl_report.rollouts_kept(out) < before + 5 and time.monotonic() < end:
            time.sleep(0.1)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        killed.append({"status": child.returncode, "rollouts_kept": rl_report.rollouts_kept(out)})
    child = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, **quiet)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(child.stdout.read() if child.stdout else ""), daemon=True)
    reader.start()
    status = wait(child, end - time.monotonic())
    reader.join(5.0)
    if status != 0:
        raise RuntimeError(f"the last run ended with {status} after {killed}")
    return {"killed": killed, "facts": json.loads(said[0].splitlines()[-1]), **rl_report.rollout_counts(out)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default=",".join(part for part in PARTS if part != "warm"))
    parser.add_argument("--cold")
    parser.add_argument("--seeds", default="0,1", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--answers", type=int, default=16)
    parser.add_argument("--held-out", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--judging", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--max-tokens", type=int, default=2400)
    parser.add_argument("--train-seconds", type=float, default=400.0)
    parser.add_argument("--exploit-share", type=float, default=0.05)
    parser.add_argument("--exploit-rows", type=int, default=640)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--pool", type=int, default=0)
    parser.add_argument("--pool-answers", type=int, default=4)
    parser.add_argument("--train-split", default="train")
    parser.add_argument("--split", default="combos")
    parser.add_argument("--recipes", default="stanford_grpo,kevin,drkernel")
    parser.add_argument("--families")
    parser.add_argument("--over-calls", action="store_true")
    parser.add_argument("--timed-tasks", type=int, default=32)
    parser.add_argument("--hack-lr", type=float, default=1e-4)
    parser.add_argument("--suite", type=Path)
    parser.add_argument("--train-suite", type=Path)
    parser.add_argument("--warm-answers", type=int, default=16)
    parser.add_argument("--warm-script", type=Path)
    parser.add_argument("--warm-seconds", type=float, default=150.0)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--timing-seconds", type=float, default=0.15)
    parser.add_argument("--judge-port", type=int, default=18733)
    parser.add_argument("--throughput", default="64x8", type=lambda text: [int(n) for n in text.split("x")])
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--set-sft", action="append", default=[], dest="sft_overrides", metavar="KEY=VALUE")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    parts = [part for part in asked.parts.split(",") if part]
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        sys.exit(f"error: there is no part {unknown[0]!r}\nhint: parts are {', '.join(PARTS)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    asked.model = str(Path(asked.model).resolve())
    asked.verdicts = asked.verdicts and asked.verdicts.resolve()
    asked.train_suite = asked.train_suite and asked.train_suite.resolve()
    asked.warm_script = asked.warm_script and asked.warm_script.resolve()
    if asked.warm_script and asked.suite is None:
        sys.exit("error: --warm-script wants --suite, whose tasks it has answers to")
    if "warm" in parts and not (asked.train_suite and asked.verdicts):
        sys.exit("error: the part warm wants --train-suite and --verdicts")
    interrupted_by_term()
    places = (list(visible_gpus()) or [""]) * asked.at_once
    runner = Runner(asked.out, places, time.monotonic() + 60.0 * asked.minutes)
    with served(asked.judge_port) as url:
        plan = Plan(asked, f"openai:rules@{url}")
        jobs = plan.build(parts)

        def keep() -> None:
            rl_report.write(asked.out, vars(asked))

        try:
            runner.run(jobs, keep)
        except KeyboardInterrupt:
            sys.exit("interrupted; the same command goes on")
    print("\n".join(rl_report.lines(asked.out)))


if __name__ == "__main__":
    main()
