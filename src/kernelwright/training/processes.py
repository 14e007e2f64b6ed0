"""A training run in several processes on this machine, one per GPU: started together, ended together.

The parent waits. The first process that fails ends the others, and the parent raises its error once; all output and
tracebacks are in the run's folder, `processes/rank-N.log`. Ctrl-C ends all processes; so does the parent's death.
`accelerate launch` and `torchrun` work as well: this module sets the same environment variables.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernelwright.errors import ConfigError, KernelwrightError, WorkerDied
from kernelwright.evaluation.options import EvalOptions, visible_gpus
from kernelwright.executor import Executor
from kernelwright.runs.folders import claim, make
from kernelwright.training.fine_tune.run import SETTINGS
from kernelwright.training.fine_tune.settings import DpoSettings, SftSettings, micro_batches
from kernelwright.training.rl.settings import RlSettings

_PR_SET_PDEATHSIG = 1
_PATIENCE = 5.0
"""Seconds that a process gets to exit after SIGINT."""
_JUDGING_PATIENCE = 40.0
"""Seconds that an RL process gets to exit: it waits for running evaluations and stores them."""
Settings = SftSettings | DpoSettings | RlSettings
_KINDS: dict[str, type[Settings]] = {"sft": SftSettings, "dpo": DpoSettings, "rl": RlSettings}


def train(settings: Settings, out: Path, count: int = 1, executor: Executor | None = None) -> dict[str, Any]:
    """Trains in this process or in `count` processes. Returns the facts of `training.json`.

    `executor`: judges the candidates of a single RL process; None makes one.
    """
    if count == 1:
        return _alone(settings, out, executor)
    kind = next(name for name, table in _KINDS.items() if isinstance(settings, table))
    return train_in_processes(kind, settings, out, count)


def train_in_processes(kind: str, settings: Settings, out: Path, count: int) -> dict[str, Any]:
    """Trains in `count` processes. Returns the facts of `training.json`; raises the error of the first failure."""
    gpus = visible_gpus() if EvalOptions().resolved() == "gpu" else ()
    if gpus and count > len(gpus):
        raise ConfigError(f"{count} processes, and {len(gpus)} GPUs to use", hint="give each process a GPU")
    if not isinstance(settings, RlSettings):
        micro_batches(settings.train, count)
        if settings.train.fsdp != "no" and not gpus:
            raise ConfigError("train.fsdp needs GPUs: accelerate shards nothing on the processor", hint="set it to no")
    claim(out, SETTINGS)
    folder = out / "processes"
    make(folder)
    job = {"kind": kind, "settings": settings.model_dump(mode="json"), "out": str(out)}
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    command = [sys.executable, "-m", "kernelwright.training.processes", str(folder)]
    if kind == "rl":  # each process also generates and judges, on the one GPU visible to it
        launch(command, folder, count, gpus, _JUDGING_PATIENCE)
    else:
        launch(command, folder, count)
    facts: dict[str, Any] = json.loads((out / "training.json").read_text(encoding="utf-8"))
    return facts


def launch(
    command: list[str], folder: Path, count: int, own_gpus: Sequence[str] = (), patience: float = _PATIENCE
) -> None:
    """Runs a command in `count` ranked processes and waits. Each process calls `child`; logs go to `folder`.

    `own_gpus`: one per process, the only GPU visible to it. `patience`: seconds that a process gets to exit.
    Raises the error of the first process that failed, or `WorkerDied`.
    """
    for old in folder.glob("rank-*"):
        old.unlink()
    port = _free_port()
    children: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(count):
            gpu = own_gpus[rank] if own_gpus else None
            children.append(_start(command, folder, rank, count, port, gpu))
        failed = _wait(children)
    finally:
        _end(children, patience)
    if failed is not None:
        raise _error(folder, failed, children[failed].returncode)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _start(
    command: list[str], folder: Path, rank: int, count: int, port: int, gpu: str | None
) -> subprocess.Popen[bytes]:
    """Starts one process in its own session, so that the terminal's Ctrl-C reaches it once, through the parent."""
    where = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    if gpu is not None:
        where |= {"CUDA_VISIBLE_DEVICES": gpu, "LOCAL_RANK": "0"}
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with open(folder / f"rank-{rank}.log", "wb") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, **where, **threads},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=None if rank == 0 else log,  # rank 0 shows progress
            start_new_session=True,
        )


def _wait(children: list[subprocess.Popen[bytes]]) -> int | None:
    """Waits for all processes; returns None, or the rank of the first failure."""
    while True:
        codes = [child.poll() for child in children]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            return _first(failed, children)
        if all(code == 0 for code in codes):
            return None
        time.sleep(0.05)


def _first(failed: list[int], children: list[subprocess.Popen[bytes]]) -> int:
    """Picks the cause among simultaneous failures: a process killed by a signal before one that lost its peer."""
    return min(failed, key=lambda rank: (children[rank].returncode > 0, rank))


def _end(children: list[subprocess.Popen[bytes]], patience: float) -> None:
    """Ends the running processes and their children: SIGINT first, then SIGKILL."""
    for sign, wait in ((signal.SIGINT, patience), (signal.SIGKILL, 5.0)):
        left = [child for child in children if child.poll() is None]
        for child in left:
            _signal(child, sign)
        deadline = time.monotonic() + wait
        while any(child.poll() is None for child in left) and time.monotonic() < deadline:
            time.sleep(0.05)
    for child in children:  # children that a dead process left in its session
        _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[bytes], sign: signal.Signals) -> None:
    try:
        if sign == signal.SIGKILL:
            os.killpg(child.pid, sign)
        else:
            child.send_signal(sign)
    except (ProcessLookupError, PermissionError):
        pass


def _error(folder: Path, rank: int, code: int) -> Exception:
    """Returns the run's error. Among processes that raised, the earliest is the cause."""
    told = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("rank-*.json")]
    if code < 0 or not told:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        hint = "out of memory?" if code == -signal.SIGKILL else None
        log = folder / f"rank-{rank}.log"
        return WorkerDied(f"process {rank} of the run {how}; {log} has what it said", hint=hint)
    first = min(told, key=lambda row: float(row["time"]))
    error = KernelwrightError(first["message"], hint=first["hint"])
    error.exit_status = first["status"]
    return error


def child(folder: Path, work: Callable[[], None]) -> None:
    """Does one process's work and exits. Leaves an exception for the parent in `folder`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    name = f"rank-{os.environ['RANK']}"
    try:
        work()
    except KeyboardInterrupt:
        _leave(130)
    except BaseException as error:
        with open(folder / f"{name}.log", "a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)
        row = {"time": time.time(), **_told(error, folder / f"{name}.log")}
        part = folder / f"{name}.part"
        part.write_text(json.dumps(row), encoding="utf-8")
        part.rename(folder / f"{name}.json")
        _leave(1)
    atexit._run_exitfuncs()
    _leave(0)


def _leave(status: int) -> None:
    """Exits without finalising the interpreter.

    A torch process group may wait for processes that are gone, and its threads abort the process if they still run
    while the interpreter finalises.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _told(error: BaseException, log: Path) -> dict[str, Any]:
    if isinstance(error, KernelwrightError):
        return {"message": str(error), "hint": error.hint, "status": error.exit_status}
    first = str(error).splitlines()[0] if str(error) else ""
    return {"message": f"unexpected {type(error).__name__}: {first}", "hint": f"{log} has all of it", "status": 3}


def _train(folder: Path) -> None:
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    _alone(_KINDS[job["kind"]].model_validate(job["settings"]), Path(job["out"]))


def _alone(settings: Settings, out: Path, executor: Executor | None = None) -> dict[str, Any]:
    """Trains in this process, which may be one of several. Returns its facts."""
    if isinstance(settings, SftSettings):
        from kernelwright.training.fine_tune.sft import train_sft

        return train_sft(settings, out).facts
    if isinstance(settings, RlSettings):
        from kernelwright.training.rl.loop import train_rl

        return train_rl(settings, out, executor).facts
    from kernelwright.training.fine_tune.dpo import train_dpo

    return train_dpo(settings, out).facts


if __name__ == "__main__":
    here = Path(sys.argv[1])
    child(here, lambda: _train(here))
