"""Trains the starter model from scratch on a GPU machine, in one call with a time limit; a second call resumes.

    python benchmarks/device_starter.py WORK --out OUT --end SECONDS [--from FOLDER] [--configs starter,base]
        [--set KEY=VALUE]... [--train-seconds 265] [--dev FILE:8] [--splits FILE:3,FILE:3] [--ship starter,base]
        [--judge-on 0] [--parts train,answers,judge] [--over-calls]

Each part has a limit of its own. The first configuration's pairs are made, and then it is trained (`--train-seconds`,
or less so that the rest fits). Meanwhile the other configurations' pairs are made, and these are trained on a second
GPU if there is one. Then come answers to the development file and to the splits, the CPU's speed, and the verdicts on
the answers by `kernelwright bench --form load_inline`, all greedy ones first. Suites are FILE[:SAMPLES]; training
excludes the tasks of `--dev`.

OUT gets at most 8 pieces of at most 15 MB (`pieces.py`), of 64 MiB together: `results` (facts, logs, answers, runs) and
the checkpoints in the order of `--ship`, as far as they fit. They are written as soon as a part has results, at the
end, and at a guard time before the limit even if a part hangs. `--from` takes the pieces of an earlier call and skips
the work that they hold. Needs the package's dependencies; without network, from a folder of wheels:

    python3 -m pip install -q --no-index --no-deps --no-compile --target /tmp/site WHEELS/*.whl
    PYTHONPATH=/tmp/site:$PWD/src python3 benchmarks/device_starter.py /tmp/starter --out $OUT --end 560

Training may be longer than a call. With `--over-calls` its seconds are not shortened to fit, and a training that is cut
makes no checkpoint. The same command in another call on the same machine resumes from the state in WORK.

Two checkpoints of this size do not fit into 64 MiB. Use `--configs starter` first, then `--configs starter,base --ship
base` with `--from` the first call's pieces, which also continues judging. One GPU has no time for both in one call.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pieces import pack, unpack

HERE = Path(__file__).resolve().parent
MAX_BYTES, MAX_FILES = 64 * 2**20, 8
GRACE = 12.0
"""Seconds between asking a part to stop and killing it."""
GUARD = 16.0
"""Seconds before the end at which everything is packed, even if parts are still running."""
RESERVED = {"answers": 60.0, "judging": 75.0, "packing": 25.0}
"""Seconds reserved for the parts after training, without those that `--parts` leaves to another call."""


@dataclass
class Part:
    """A command with its limit. `status`: its exit status, `cut` where the limit ended it."""

    name: str
    process: subprocess.Popen[bytes]
    began: float
    limit: float
    status: str = ""
    seconds: float = 0.0


@dataclass
class Call:
    """One call: its folders, its clock, its parts."""

    work: Path
    out: Path
    end: float
    ship: list[str]
    began: float = field(default_factory=time.monotonic)
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    earlier: list[Any] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    finished: bool = False

    @property
    def left(self) -> float:
        """Returns the seconds until the end, packing included."""
        return self.end - (time.monotonic() - self.began)

    def start(self, name: str, line: list[str], limit: float, gpu: int | None, stdout: Path | None = None) -> Part:
        """Starts a part, with its messages in WORK/logs/NAME.log."""
        logs = self.work / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        visible = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)}
        paths = os.pathsep.join(filter(None, (str(HERE.parent / "src"), os.environ.get("PYTHONPATH", ""))))
        environment = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **os.environ, **visible, "PYTHONPATH": paths}
        with open(logs / f"{name}.log", "ab") as log, open(stdout or os.devnull, "wb") as answers:
            process = subprocess.Popen(
                [sys.executable, *line],
                stdin=subprocess.DEVNULL,
                stdout=answers if stdout else log,
                stderr=log,
                env=environment,
                cwd=self.work,  # so that relative paths are the same in a second call elsewhere
                start_new_session=True,
            )
        part = Part(name, process, time.monotonic(), max(1.0, min(limit, self.left - RESERVED["packing"])))
        self.parts.append(part)
        self.say(f"{name}: begun, {part.limit:.0f} s at most")
        return part

    def wait(self, part: Part) -> bool:
        """Waits for a part until its limit; tells whether it succeeded."""
        try:
            part.process.wait(max(0.1, part.began + part.limit - time.monotonic()))
            part.status = str(part.process.returncode)
        except subprocess.TimeoutExpired:
            self.stop(part)
            part.status = "cut"
        part.seconds = round(time.monotonic() - part.began, 1)
        self.say(f"{part.name}: {part.status} after {part.seconds} s")
        return part.status == "0"

    def stop(self, part: Part) -> None:
        """Interrupts a part like Ctrl-C, so that it saves its results; then kills it and its children."""
        for how, patience in ((signal.SIGINT, GRACE), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(part.process.pid, how)
                part.process.wait(patience)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

    def say(self, text: str) -> None:
        """Prints a line of progress with the second of the call."""
        print(f"[{time.monotonic() - self.began:6.1f}] {text}", file=sys.stderr, flush=True)

    def pack(self, what: str = "everything") -> None:
        """Writes the pieces: results first, then checkpoints as far as there is room."""
        with self.lock:
            self.keep()
            files = [p for p in self.work.rglob("*") if p.is_file() and _is_result(p.relative_to(self.work))]
            pieces, problem = pack(self.work, files, self.out, "results", MAX_BYTES)
            for name in self.ship:
                made, why = self._pack_checkpoint(name, pieces)
                pieces += made
                problem = "; ".join(filter(None, (problem, why)))
            self.say(f"packed {what}: {len(pieces)} pieces, {_size(pieces):,} bytes. {problem}")

    def _pack_checkpoint(self, name: str, pieces: list[Path]) -> tuple[list[Path], str]:
        """Returns a checkpoint's pieces in addition to `pieces`; made once, since packing takes seconds."""
        folder = self.work / "models" / name
        weights = folder / "model.safetensors"
        if not weights.exists():
            return [], ""
        made, why = sorted(self.out.glob(f"{name}.tar.xz.*")), ""
        if not made or made[0].stat().st_mtime < weights.stat().st_mtime:
            held = [p for p in folder.glob("*") if p.is_file() and p.suffix in (".json", ".safetensors", ".md")]
            made, why = pack(self.work, held, self.out, name, MAX_BYTES - _size(pieces))
        if made and (len(pieces) + len(made) > MAX_FILES or _size(pieces) + _size(made) > MAX_BYTES):
            for path in made:
                path.unlink()
            made, why = [], f"there is no room for {name}"
        return made, why

    def keep(self) -> None:
        """Writes the facts so far to WORK/device_starter.json, beside those of earlier calls."""
        parts = [
            {"name": p.name, "limit": round(p.limit, 1), "status": p.status or "running", "seconds": p.seconds}
            for p in self.parts
        ]
        this = {"seconds": round(time.monotonic() - self.began, 1), "parts": parts, "notes": self.notes}
        value = {
            "hardware": _read(self.work / "hardware.json", {}),
            "calls": [*self.earlier, this],
            "benches": {run.name: bench_facts(run) for run in sorted((self.work / "runs").glob("*"))},
        }
        (self.work / "device_starter.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _size(files: list[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _read(path: Path, default: Any) -> Any:
    """Returns a JSON file's value, or the default if the file is missing or incomplete."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return default


def bench_facts(run: Path) -> dict[str, Any]:
    """Returns the results of a bench run so far."""
    from kernelwright.bench import numbers
    from kernelwright.errors import KernelwrightError
    from kernelwright.runs.store import Store

    try:
        with Store.open(run, writable=False) as store:
            return dict(numbers.summarise(numbers.read(store)))
    except (KernelwrightError, OSError) as error:
        return {"unreadable": str(error)}


def _is_result(path: Path) -> bool:
    """Tells whether a file of the work folder belongs to the results, unlike weights, states and tokens."""
    heavy = path.suffix in (".safetensors", ".pt", ".npy") or path.name.startswith(".")
    return not heavy and not {"data", "state"} & set(path.parts[:-1])


@dataclass(frozen=True)
class Wish:
    """The options of a call."""

    configs: list[str]
    overrides: list[str]
    count: int | None
    train_seconds: float | None
    dev: str
    """A path below the work folder with its number of samples, as `splits` are."""
    splits: list[str]
    max_tokens: int
    jobs: int
    judge_on: int | None
    """The only GPU that judges, if the others have other work."""
    gpus: int
    parts: tuple[str, ...] = ("train", "answers", "judge")
    over_calls: bool = False

    def gpu(self, number: int) -> int | None:
        """Returns the GPU for the `number`th of concurrent parts; None without a GPU."""
        return number % self.gpus if self.gpus else None

    def starter(self, call: Call, name: str, *more: str) -> list[str]:
        """Returns a command line of `starter.py` for one configuration."""
        sets = [*self.overrides, f"data.against={call.work / _path(self.dev)}"]
        sets += [f"data.generate.count={self.count}"] if self.count and name == self.configs[0] else []
        words = [word for one in sets for word in ("--set", one)]
        facts = str(call.work / f"{Path(name).stem}.json")
        return [str(HERE / "starter.py"), "models", "--configs", name, *words, "--json", facts, *more]


def _path(suite: str) -> str:
    return suite.partition(":")[0]


def model(call: Call, config: str) -> Path:
    """Returns the folder of a configuration's checkpoint."""
    return call.work / "models" / Path(config).stem


def ready(call: Call, config: str) -> bool:
    """Tells whether a configuration's checkpoint exists."""
    return (model(call, config) / "model.safetensors").exists()


def make_data(call: Call, wish: Wish, config: str) -> None:
    """Makes the pairs of one configuration, as many as its time allows."""
    more = ["--only", "data"]
    call.wait(call.start(f"data-{Path(config).stem}", wish.starter(call, config, *more), _before_training(call), None))


def _before_training(call: Call) -> float:
    """Returns the seconds that pairs may take, so that training gets at least half of the rest."""
    return max(20.0, (call.left - sum(RESERVED.values())) / 2)


def train(call: Call, wish: Wish, config: str, gpu: int | None) -> None:
    """Trains one checkpoint and measures sampling from it. A training that is cut leaves the weights so far."""
    name = Path(config).stem
    room = call.left - sum(RESERVED.values())
    seconds: list[str] = []
    if config == wish.configs[0] and wish.train_seconds:
        # compiling, writing and sampling take about 55 s beside the updates
        fitting = wish.train_seconds if wish.over_calls else min(wish.train_seconds, room - 60.0)
        seconds = ["--seconds", f"{max(10.0, fitting):.0f}"]
    made = len(list((model(call, config) / "data" / "training").glob("*.pairs.npy")))
    line = wish.starter(call, config, *seconds, "--only", "train", "--shards", str(made), "--samples", "256")
    if call.wait(call.start(f"train-{name}", line, max(20.0, room), gpu)) or ready(call, config):
        return
    if wish.over_calls:
        call.notes.append(f"training of {name} goes on in another call")
    else:
        call.notes.append(f"training of {name} did not end by itself; its checkpoint is what it had reached")
        line = wish.starter(call, config, "--only", "export")
        call.wait(call.start(f"export-{name}", line, 30.0, None))


def answers(call: Call, wish: Wish) -> None:
    """Answers of every checkpoint to the development file, of the first one to the splits; the CPU's speed."""
    started: list[Part] = []
    first = wish.configs[0]
    for config in filter(lambda c: ready(call, c), wish.configs):
        groups = [[wish.dev if config == first else _path(wish.dev)], wish.splits if config == first else []]
        for suites in filter(None, groups):
            name = f"answers-{Path(config).stem}-{Path(_path(suites[0])).stem}"
            out = Path("answers") / Path(config).stem
            line = [str(HERE / "starter_answers.py"), str(model(call, config)), str(out), *suites]
            line += ["--max-tokens", str(wish.max_tokens)]
            started.append(call.start(name, line, RESERVED["answers"], wish.gpu(len(started))))
    if ready(call, first) and not (call.work / "starter_cpu.json").exists():
        line = [str(HERE / "starter_cpu.py"), str(model(call, first)), "--json", str(call.work / "starter_cpu.json")]
        started.append(call.start("cpu-speed", line, RESERVED["answers"], None))
    for part in started:
        call.wait(part)


def judge(call: Call, wish: Wish) -> None:
    """The answers that are there, the greedy ones of all suites first, until there is no time."""
    suites = [wish.dev, *wish.splits]
    for kind in ("greedy", "sampled"):
        for config in wish.configs:
            for suite in suites:
                path, _, samples = suite.partition(":")
                script = Path("answers") / Path(config).stem / f"{Path(path).stem}.{kind}.jsonl"
                if not (call.work / script).exists():
                    continue
                if call.left < RESERVED["packing"] + 20.0:
                    call.notes.append(f"no time to judge {script.name} of {Path(config).stem}")
                    continue
                name = f"{Path(config).stem}-{script.stem}"
                words = ["--policy", f"scripted:{script}", "--samples", samples if kind == "sampled" else "1"]
                words += ["--form", "load_inline", "--trials", "3", "--timing-seconds", "0.15", "--json"]
                words += ["--backend", "gpu" if wish.gpus else "cpu", "--jobs", str(wish.jobs)]
                line = ["-m", "kernelwright.cli", "bench", path, "--run", f"runs/{name}", *words]
                call.wait(call.start(f"judge-{name}", line, call.left, wish.judge_on))


def play(call: Call, wish: Wish) -> None:
    """The whole call. Work in other threads is only what may be lost."""
    first, *others = wish.configs
    call.wait(
        call.start("hardware", [str(HERE / "starter.py"), "--hardware", str(call.work / "hardware.json")], 60.0, None)
    )
    if not ready(call, first):
        make_data(call, wish, first)
    missing = [config for config in others if not ready(call, config)]

    def rest() -> None:
        for config in missing:
            make_data(call, wish, config)
            if wish.gpus > 1:
                train(call, wish, config, 1)

    beside = threading.Thread(target=rest, daemon=True)
    beside.start()
    if not ready(call, first):
        train(call, wish, first, wish.gpu(0))
        call.pack("the first checkpoint")
    beside.join(max(0.0, call.left - sum(RESERVED.values())))
    for config in missing if wish.gpus < 2 else []:
        if call.left > sum(RESERVED.values()) + 60.0:
            train(call, wish, config, wish.gpu(0))
    if "answers" in wish.parts:
        answers(call, wish)
        call.pack("answers")
    if "judge" in wish.parts:
        judge(call, wish)


def guard(call: Call) -> None:
    """Ends the call at its guard time, whatever hangs, with what there is."""
    while call.left > GUARD:
        time.sleep(min(1.0, max(0.05, call.left - GUARD)))
    with call.lock:
        if call.finished:
            return
        call.notes.append("the guard ended this call")
        for part in call.parts:
            if not part.status:
                part.status = "cut"
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(part.process.pid, signal.SIGKILL)
        call.pack("at the guard time")
        os._exit(1)


def take_suite(call: Call, suite: str) -> str:
    """Copies a suite into the work folder. Returns its path there, with its number of samples."""
    path, sign, samples = suite.partition(":")
    kept = Path("suites") / Path(path).name
    (call.work / "suites").mkdir(exist_ok=True)
    (call.work / kept).write_bytes(Path(path).read_bytes())
    return f"{kept}{sign}{samples}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--end", type=float, default=560.0, help="limit of the call in seconds")
    parser.add_argument("--from", dest="pieces", type=Path, help="pieces of an earlier call")
    parser.add_argument("--configs", default="starter,base")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--count", type=int, default=300_000, help="pairs of the first configuration; 0: its own")
    parser.add_argument("--train-seconds", type=float, default=265.0, help="first configuration; 0: its own")
    parser.add_argument("--dev", default=".data/dev80.jsonl:8")
    parser.add_argument("--splits", default=".data/combos.jsonl:3,.data/fused.jsonl:3,.data/families.jsonl:3")
    parser.add_argument("--max-tokens", type=int, default=3584)
    parser.add_argument("--jobs", type=int, default=0, help="concurrent candidates; 0: ten a GPU, or one a core")
    parser.add_argument("--judge-on", type=int, help="the only GPU that judges; default: all")
    parser.add_argument("--ship", default="starter,base")
    parser.add_argument("--over-calls", action="store_true")
    parser.add_argument("--parts", default="train,answers,judge", type=lambda text: tuple(text.split(",")))
    asked = parser.parse_args()
    for part, what in (("answers", "answers"), ("judge", "judging")):
        RESERVED[what] *= part in asked.parts
    names = asked.ship.split(",")
    call = Call(asked.work.resolve(), asked.out.resolve(), asked.end, names)
    call.work.mkdir(parents=True, exist_ok=True)
    if asked.pieces is not None:
        call.say(f"taken over: {', '.join(unpack(asked.pieces, call.work))}")
    for folder in (call.work / "models").glob("*"):
        if not (folder / "model.safetensors").exists():  # the weights are not among the pieces
            (folder / "training.json").unlink(missing_ok=True)
    call.earlier = _read(call.work / "device_starter.json", {}).get("calls", [])
    gpus = _gpus()
    splits = [take_suite(call, suite) for suite in asked.splits.split(",") if suite]
    dev = take_suite(call, asked.dev)
    judges = min(gpus, 1) if asked.judge_on is not None else gpus
    jobs = asked.jobs or (10 * judges if gpus else len(os.sched_getaffinity(0)))
    seconds = asked.train_seconds or None
    configs = asked.configs.split(",")
    how = (asked.max_tokens, jobs, asked.judge_on, gpus, asked.parts, asked.over_calls)
    wish = Wish(configs, asked.overrides, asked.count, seconds, dev, splits, *how)
    threading.Thread(target=guard, args=(call,), daemon=True).start()
    try:
        play(call, wish)
    finally:
        with call.lock:
            call.pack()
            call.finished = True
    return 0


def _gpus() -> int:
    """Returns the number of GPUs."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


if __name__ == "__main__":
    sys.exit(main())
