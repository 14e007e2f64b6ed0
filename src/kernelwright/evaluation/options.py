"""The options of an evaluation, and the key under which its result is stored."""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import json
import os
from pathlib import Path
from typing import Literal

from pydantic import Field

from kernelwright.device import fingerprint
from kernelwright.errors import ConfigError
from kernelwright.records import Candidate, LibraryRule, Precision, Record, Task

PROTOCOL = 11
"""The protocol's version, part of every key. Raised whenever verdicts of earlier versions can no longer be trusted."""


_GPU_ONLY = ("baselines", "timing_seconds", "gpu_memory_gb", "replay", "live", "program_first")
_CPU_ONLY = ("sample_large", "small_sizes", "full_size")

MAX_TRIALS, MAX_SECONDS, MAX_MEMORY_MB, MAX_MEMORY_GB = 100, 86_400.0, 2**30, 2.0**20
"""Bounds on what a caller may ask for: beyond them, numbers of seconds and bytes overflow the types that carry them."""

SMALL_BUDGET = {"element_budget": 65_536, "flop_budget": 8_000_000}
"""Budgets of derived sizes for cheap judging on the CPU, as for a corpus: an eighth of the usual FLOPs and a third of
the time. Code that is right at every size gets the same verdict."""


def visible_gpus() -> tuple[str, ...]:
    """Returns the NVIDIA GPUs that this process could use, as CUDA_VISIBLE_DEVICES names them; none if torch has no
    CUDA.

    GPUs that the variable leaves out are left out: a scheduler that gave us GPU 3 set it to `3`. Imports no torch.
    """
    cards = len([p for p in Path("/dev").glob("nvidia[0-9]*") if p.name[6:].isdigit()])
    try:
        if not cards or importlib.metadata.version("torch").endswith("+cpu"):
            return ()
    except importlib.metadata.PackageNotFoundError:
        return ()
    return chosen_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), cards)


def chosen_gpus(setting: str | None, cards: int) -> tuple[str, ...]:
    """Returns the GPUs that a value of CUDA_VISIBLE_DEVICES leaves of `cards`; as for CUDA, an invalid number ends the
    list."""
    if setting is None:
        return tuple(map(str, range(cards)))
    names = (name.strip() for name in setting.split(","))
    return tuple(
        itertools.takewhile(lambda n: n.startswith(("GPU-", "MIG-")) or (n.isdigit() and int(n) < cards), names)
    )


def gpu_count() -> int:
    """Returns the number of GPUs that this process could use."""
    return len(visible_gpus())


class EvalOptions(Record):
    """The options of judging. The result's key holds all of them, except the sandbox and options that the backend
    ignores."""

    backend: Literal["auto", "cpu", "gpu"] = "auto"
    policy: LibraryRule | None = None
    """Overrides the task's own library rule. Keys and stored runs call it `policy`, the command line `--rule`."""
    precision: Precision | None = Field(default=None, exclude_if=lambda wanted: wanted is None)
    """Overrides the task's own precision of products."""
    trials: int = Field(default=5, ge=1, le=MAX_TRIALS)
    """The number of checked calls; the first size is always called twice when there are at least two."""
    timeout: float = Field(default=30.0, gt=0, le=10 * MAX_SECONDS, allow_inf_nan=False)
    """Wall seconds that the candidate may use, builds not counted. KernelBench's protocol takes ten times the requested
    time, so that users may ask for `MAX_SECONDS`."""
    build_timeout: float = Field(default=60.0, gt=0, le=MAX_SECONDS, allow_inf_nan=False)
    """Wall seconds that one build may take."""
    memory_mb: int = Field(default=4096, ge=256, le=MAX_MEMORY_MB)
    """Address space in MB that the candidate may add to the address space of a bare interpreter with torch."""
    seed: int | None = None
    """Seed of inputs and weights; drawn from the operating system when None. Never given to the candidate."""
    sample_large: bool = True
    """Without a GPU: run a few blocks of each launch at a declared size that is too large to run (`large_sizes`)."""
    full_size: bool = False
    """Without a GPU: run every stated size whole and compare all values, however long it takes (`declared_sizes`)."""
    small_sizes: bool = False
    """Without a GPU: smaller derived sizes (`SMALL_BUDGET`), and a declared size only within that bound, for judging
    many candidates cheaply. A wrong candidate costs a tenth of the usual time when its task's own size is large."""
    baselines: tuple[Literal["eager", "compile", "max-autotune"], ...] = ("eager",)
    """The baselines that a GPU times beside the candidate: `eager`, `compile`, `max-autotune`; the first gives the
    speedup."""
    timing_seconds: float = Field(default=1.0, ge=0, le=MAX_SECONDS, allow_inf_nan=False)
    """Wall seconds that timing may take at most on a GPU; 0 for no timing."""
    gpu_memory_gb: float = Field(default=0.0, ge=0, le=MAX_MEMORY_GB, allow_inf_nan=False)
    """Device memory in GB that judging one candidate may take; 0 for all free memory. A size that needs more is not
    run."""
    program_first: bool = True
    """On a GPU: judge a candidate by its program on the functional machine before a GPU is touched (`program_first`).
    A caller that has asked the functional machine itself turns this off (`cpu_first`)."""
    replay: bool = True
    """On a GPU: check and time a candidate by repeating its program, if that does not depend on values
    (`repeated_program`). False runs its host code on the GPU, in the process that holds the values."""
    live: bool = False
    """On a GPU: check and time a candidate whose program depends on values by executing its records as they arrive
    (`program.live`). False runs its host code in the process that holds the values."""
    strict_kernelbench: bool = False
    """Reproduce KernelBench's own verdict, in one process with the reference: a claim, not a protected verdict."""
    kernelbench_tolerance: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Absolute and relative tolerance of that verdict; by dtype when None, as on KernelBench's main branch."""
    sandbox: str = "auto"
    """`auto`: the strongest sandbox available. `strict`: fail without landlock and seccomp. `none`: process and limits
    only."""

    def resolved(self) -> Literal["cpu", "gpu"]:
        """Returns the backend that `auto` stands for: KERNELWRIGHT_BACKEND if set, else the GPU if there is one.

        Raises `ConfigError` if the variable holds another word.
        """
        if self.backend != "auto":
            return self.backend
        wished = os.environ.get("KERNELWRIGHT_BACKEND") or "auto"
        if wished not in ("auto", "cpu", "gpu"):
            raise ConfigError(f"KERNELWRIGHT_BACKEND={wished!r} is no backend", hint="set it to cpu or gpu")
        if wished == "auto":
            return "gpu" if gpu_count() else "cpu"
        return "gpu" if wished == "gpu" else "cpu"

    def precise(self, task: Task) -> Precision:
        """Returns the precision of products: the caller's, else the task's own."""
        return self.precision or task.precision

    def key(self, task: Task, candidate: Candidate) -> str:
        """Returns the key of the result of judging this candidate on this task with these options."""
        fields = self.model_dump(mode="json")
        fields["backend"] = self.resolved()
        for name in _GPU_ONLY if fields["backend"] == "cpu" else _CPU_ONLY:
            del fields[name]
        for name in ("small_sizes", "full_size", "live"):
            if not fields.get(name):
                fields.pop(name, None)
        if not self.strict_kernelbench:
            del fields["strict_kernelbench"], fields["kernelbench_tolerance"]
        fields["policy"] = self.policy or task.policy
        fields.pop("precision", None)
        if self.precise(task) != "float32" and not self.strict_kernelbench:
            fields["precision"] = self.precise(task)
        fields["sandbox"] = ""
        parts = [str(PROTOCOL), task.asked_hash, candidate.code_hash, json.dumps(fields, sort_keys=True)]
        if task.gate is not None:
            parts += task.gate.distributions
        if headers := fingerprint("\n".join(file.content for file in candidate.sources)):
            parts.append(headers)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()
