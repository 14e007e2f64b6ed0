"""A training run in several processes of this machine, one a GPU: started together, ended together.

The parent waits. The first process that fails ends the others, and its error is raised here, once; the others' words
and all tracebacks are in the run's folder, `processes/rank-N.log`. Ctrl-C ends all; so does the parent's death.
`accelerate launch` and `torchrun` work as well: what is set here is what they set.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from kernelwright.errors import ConfigError, KernelwrightError, WorkerDied
from kernelwright.evaluation.options import EvalOptions, visible_gpus
from kernelwright.training.post_settings import DpoSettings, SftSettings
from kernelwright.training.rl_settings import RlSettings

_PR_SET_PDEATHSIG = 1
_PATIENCE = {"sft": 5.0, "dpo": 5.0, "rl": 40.0}
"""Seconds that a process gets to end by itself: reinforcement learning keeps what is just being judged."""
Settings = SftSettings | DpoSettings | RlSettings
_KINDS: dict[str, type[Settings]] = {"sft": SftSettings, "dpo": DpoSettings, "rl": RlSettings}


def train_in_processes(kind: str, settings: Settings, out: Path, count: int) -> dict[str, Any]:
    """Trains in `count` processes. Returns the facts of `training.json`; raises what the first to fail raised."""
    gpus = visible_gpus() if EvalOptions().resolved() == "gpu" else ()
    if gpus and count > len(gpus):
        raise ConfigError(f"{count} processes, and {len(gpus)} GPUs to use", hint="give each process a GPU")
    folder = out / "processes"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("rank-*"):
        old.unlink()
    job = {"kind": kind, "settings": settings.model_dump(mode="json"), "out": str(out)}
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    # A process that plays and judges sees its own GPU only, so that all of its parts use that one.
    own = gpus if kind == "rl" else ()
    port = _free_port()
    children = [_start(folder, rank, count, port, own[rank] if own else None) for rank in range(count)]
    try:
        failed = _wait(children)
    finally:
        _end(children, _PATIENCE[kind])
    if failed is not None:
        raise _error(folder, failed, children[failed].returncode)
    facts: dict[str, Any] = json.loads((out / "training.json").read_text(encoding="utf-8"))
    return facts


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _start(folder: Path, rank: int, count: int, port: int, gpu: str | None) -> subprocess.Popen[bytes]:
    """One process in a session of its own, so that a Ctrl-C of the terminal reaches it through us, once."""
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
    command = [sys.executable, "-m", "kernelwright.training.processes", str(folder)]
    with open(folder / f"rank-{rank}.log", "wb") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, **where, **threads},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=None if rank == 0 else log,  # the first one shows its progress
            start_new_session=True,
        )


def _wait(children: list[subprocess.Popen[bytes]]) -> int | None:
    """Waits until all are done; None, or the rank of the first that failed."""
    while True:
        codes = [child.poll() for child in children]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            return _first(failed, children)
        if all(code == 0 for code in codes):
            return None
        time.sleep(0.05)


def _first(failed: list[int], children: list[subprocess.Popen[bytes]]) -> int:
    """Of several that are found dead at once: one that a signal killed rather than one that missed its partner."""
    return min(failed, key=lambda rank: (children[rank].returncode > 0, rank))


def _end(children: list[subprocess.Popen[bytes]], patience: float) -> None:
    """Ends whatever still runs, with its own children: asked at first, as by Ctrl-C, then killed."""
    for sign, wait in ((signal.SIGINT, patience), (signal.SIGKILL, 5.0)):
        left = [child for child in children if child.poll() is None]
        for child in left:
            _signal(child, sign)
        deadline = time.monotonic() + wait
        while any(child.poll() is None for child in left) and time.monotonic() < deadline:
            time.sleep(0.05)
    for child in children:  # what a process that died left behind in its session
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
    """What the run ended with. Of processes that raised, the one that raised first is the cause."""
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


def _main(folder: Path) -> int:
    """One of the processes."""
    rank = int(os.environ["RANK"])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    try:
        _train(job["kind"], _KINDS[job["kind"]].model_validate(job["settings"]), Path(job["out"]))
    except KeyboardInterrupt:
        _leave(130)
    except BaseException as error:
        with open(folder / f"rank-{rank}.log", "a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)
        row = {"time": time.time(), **_told(error, folder / f"rank-{rank}.log")}
        part = folder / f"rank-{rank}.part"
        part.write_text(json.dumps(row), encoding="utf-8")
        part.rename(folder / f"rank-{rank}.json")
        _leave(1)
    return 0


def _leave(status: int) -> None:
    """Ends at once: a process group of torch may wait for processes that are no longer there."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _told(error: BaseException, log: Path) -> dict[str, Any]:
    if isinstance(error, KernelwrightError):
        return {"message": str(error), "hint": error.hint, "status": error.exit_status}
    first = str(error).splitlines()[0] if str(error) else ""
    return {"message": f"unexpected {type(error).__name__}: {first}", "hint": f"{log} has all of it", "status": 3}


def _train(kind: str, settings: Any, out: Path) -> None:
    if kind == "sft":
        from kernelwright.training.sft import train_sft

        train_sft(settings, out)
    elif kind == "rl":
        from kernelwright.training.rl import train_rl

        train_rl(settings, out)
    else:
        from kernelwright.training.dpo import train_dpo

        train_dpo(settings, out)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
