"""Profiles by the best rung that this machine allows, and records why better rungs failed, as one `Profile`.

The ncu and trace rungs need a GPU and run the candidate in a subprocess under the profiler (`target`), with an
environment without secrets, but outside the judge's sandbox. The static rung needs neither; its results complete the
other two.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kernelwright.config import cache_dir
from kernelwright.errors import CandidateError, KernelwrightError, UsageError
from kernelwright.evaluation.options import MAX_SECONDS, EvalOptions, gpu_count
from kernelwright.machine.runtime import readable
from kernelwright.profile import advice, ceilings, ncu, roofline, trace
from kernelwright.profile.call_work import Launched
from kernelwright.profile.device_code import DeviceCode, compile_device_code
from kernelwright.profile.facts import KernelProfile, Missed, Profile, Resources, Rung
from kernelwright.profile.occupancy import LIMITS, occupancy
from kernelwright.profile.static import read_cubin
from kernelwright.profile.waste import wastes
from kernelwright.records import Candidate, Record, Task, Workload

RUNGS: tuple[Rung, ...] = ("ncu", "trace", "static")
DEFAULT_ARCH = "sm_90a"
TRACED_CALLS = 10
COUNTED_LAUNCHES = 64
MEASURING_SECONDS = 120.0
CALL_SECONDS = 30.0
"""The time limit for loading and one small call on the functional machine."""
BLOCKS = (128, 256, 512)
"""Block sizes for which occupancy is computed if the candidate's own is unknown."""


class ProfileOptions(Record):
    """Options of a profile."""

    backend: Literal["auto", "gpu", "cpu"] = "auto"
    rung: Literal["auto", "ncu", "trace", "static"] = "auto"
    arch: str = Field(default="", pattern=r"^(sm_\d{2,3}[af]?)?$")
    """The static rung's target; by default the GPU's own, or `DEFAULT_ARCH` without a GPU."""
    seconds: float = Field(default=180.0, gt=0, le=MAX_SECONDS, allow_inf_nan=False)
    """The time limit of one rung, wall seconds."""
    seed: int = 0
    sandbox: str = "auto"
    """The sandbox level of the static rung, which runs the candidate as the judge does."""


class MissedRung(Exception):
    """Raised when a rung cannot be reached; the message begins with a name in kebab-case."""


@dataclass
class Card:
    """The GPU as reported by nvidia-smi; empty fields without a GPU."""

    name: str = ""
    driver: str = ""
    arch: str = ""


@dataclass
class Climb:
    """The state shared by the rungs of one profile."""

    task: Task
    candidate: Candidate
    options: ProfileOptions
    card: Card
    size: Workload
    own: frozenset[str] = frozenset()
    resources: dict[str, list[Resources]] = field(default_factory=dict)
    """Resources by simple name, which instances of one template share."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts of the whole call, as counted by the target."""


def profile(
    task: Task,
    candidate: Candidate,
    options: ProfileOptions | None = None,
    progress: Callable[[str], None] = lambda _text: None,
) -> Profile:
    """Profiles one candidate at its task's own size. `progress` is called with each step.

    Raises `UsageError` when the requested rung or backend is unavailable, `CandidateError` for a candidate that does
    not build, `TaskError` and `HarnessError`.
    """
    options = options or ProfileOptions()
    started = time.monotonic()
    card = _card() if _wants_gpu(options) else Card()
    size = next((w for w in task.workloads if w.purpose == "timing"), Workload(name="declared"))
    if task.workloads and size.name == "declared":
        size = task.workloads[0]
    climb = Climb(task, candidate, options, card, size, own_names(candidate))
    missed: list[Missed] = []
    static = _static(climb, missed, progress)
    made: Profile | None = None
    steps: tuple[tuple[Rung, Callable[[Climb], Profile]], ...] = (("ncu", _ncu), ("trace", _trace))
    for rung, climbing in steps:
        if options.rung not in ("auto", rung) or made is not None:
            continue
        try:
            if not card.name:
                raise MissedRung(f"no-gpu: {_without(options)}")
            progress(f"profiling with {rung}")
            made = climbing(climb)
        except (MissedRung, ncu.NcuFailed) as error:
            missed.append(Missed(rung=rung, reason=str(error)))
            if options.rung == rung:
                raise UsageError(f"the rung {rung!r} cannot be reached: {error}", hint="use --rung auto") from None
    if made is None:
        if static is None:
            raise CandidateError(missed[0].reason if missed else "there is nothing to profile")
        made = static
    made = made.model_copy(update={"missed": tuple(missed), "seconds": time.monotonic() - started})
    return made.model_copy(update={"advice": advice.advise(made)})


def _wants_gpu(options: ProfileOptions) -> bool:
    """Tells whether a GPU is used; raises `UsageError` for options that conflict with each other or the machine."""
    if options.backend == "gpu" and not gpu_count():
        raise UsageError("there is no NVIDIA GPU that torch could use here", hint="use --backend cpu: --rung static")
    if options.backend == "cpu" and options.rung in ("ncu", "trace"):
        raise UsageError(f"--rung {options.rung} needs a GPU", hint="use --rung static with --backend cpu")
    return EvalOptions(backend=options.backend).resolved() == "gpu" and bool(gpu_count())


def _without(options: ProfileOptions) -> str:
    if gpu_count() and EvalOptions(backend=options.backend).resolved() == "gpu":
        return "nvidia-smi does not answer"
    if options.backend == "cpu":
        return "--backend cpu leaves the rung static"
    return "there is no NVIDIA GPU that torch could use here"


def _card() -> Card:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader", "-i", "0"]
    if shutil.which(query[0]) is None:
        return Card()
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return Card()
    cells = [c.strip() for c in said.stdout.strip().split(",")]
    if said.returncode != 0 or len(cells) != 3:
        return Card()
    capability = cells[2].replace(".", "")
    special = "a" if capability[:-1] in ("9", "10", "12") else ""
    return Card(cells[0], cells[1], f"sm_{capability}{special}")


def own_names(candidate: Candidate) -> frozenset[str]:
    """Returns the names of kernels that a candidate's text defines, in CUDA or Triton."""
    found: set[str] = set()
    for source in candidate.sources:
        bounds = r"(?:\s*__(?:launch_bounds|cluster_dims|maxnreg)__\s*\([^)]*\))*"
        found |= set(
            re.findall(rf"__global__\s+(?:[\w:]+\s+)*?{bounds}\s*(?:void\s+)?{bounds}\s*(\w+)\s*\(", source.content)
        )
        found |= set(re.findall(r"@triton\.jit[^\n]*\n(?:\s*#[^\n]*\n|\s*@[^\n]*\n)*\s*def\s+(\w+)", source.content))
    return frozenset(found)


# --- static --------------------------------------------------------------------------------------------------------


def _static(climb: Climb, missed: list[Missed], progress: Callable[[str], None]) -> Profile | None:
    """Runs the lowest rung. On a GPU a failure is recorded, since a higher rung may succeed; without one it raises."""
    arch = climb.options.arch or climb.card.arch or DEFAULT_ARCH
    if int(re.sub(r"\D", "", arch)) not in LIMITS:
        raise UsageError(f"nothing is known about {arch}", hint=f"known are {', '.join(f'sm_{a}' for a in LIMITS)}")
    progress(f"compiling for {arch}")
    seconds = min(climb.options.seconds, CALL_SECONDS)
    options = EvalOptions(backend="cpu", timeout=seconds, sandbox=climb.options.sandbox, seed=0)
    try:
        code = compile_device_code(climb.task, climb.candidate, arch, options, climb.size)
        kernels = kernels_of(code)
    except KernelwrightError as error:
        if not climb.card.name or climb.options.rung == "static":
            raise
        missed.append(Missed(rung="static", reason=f"static-failed: {error}"))
        return None
    used = [k.resources for k in kernels if k.resources is not None]
    for resources in used:
        climb.resources.setdefault(trace.simple_name(readable(resources.kernel)), []).append(resources)
    climb.own = climb.own | climb.resources.keys()
    found = _profile(climb, "static", kernels, arch=arch, size=code.call.size)
    ranked = wastes(kernels, code.call.operators, climb.candidate.text)
    notes = []
    if code.failed_build:
        notes.append(f"a build failed: {code.failed_build}")
    if code.call.failed is not None:
        notes.append(f"a call on the CPU ended early: {code.call.failed.verdict}: {code.call.failed.reason}")
    if code.call.launches and not code.call.scaled:
        notes.append("the task's own size could not be counted; these are counts of a smaller one")
    if any(k.block is None for k in kernels):
        notes.append(f"block sizes with a question mark are not known: the best of {BLOCKS}, or the largest allowed")
    return found.model_copy(update={"notes": tuple(notes), "wastes": ranked})


def kernels_of(code: DeviceCode) -> list[KernelProfile]:
    """Returns the kernels of machine code with resources and occupancy, launched ones first, without duplicates."""
    found: dict[str, KernelProfile] = {}
    for cubin in code.cubins:
        for resources in read_cubin(cubin):
            found.setdefault(resources.kernel, _described(resources, code.call.launches.get(resources.kernel)))
    return sorted(found.values(), key=lambda k: -k.launches)


def _described(resources: Resources, launch: Launched | None) -> KernelProfile:
    block = launch.block if launch else None
    threads = block[0] * block[1] * block[2] if block else resources.max_threads
    shared = resources.shared_bytes + (launch.shared_bytes if launch else 0)
    sizes = [threads] if threads else list(BLOCKS)
    fits = [occupancy(resources.arch, n, resources.registers, shared) for n in sizes]
    return KernelProfile(
        name=readable(resources.kernel),
        launches=launch.work.launches if launch else 0,
        grid=launch.grid if launch else None,
        block=block,
        resources=resources,
        occupancy=max(fits, key=lambda o: o.fraction),
        work=launch.work if launch else None,
    )


# --- on a GPU ------------------------------------------------------------------------------------------------------


def _ncu(climb: Climb) -> Profile:
    """Collects hardware counters of one forward call. Raises `NcuFailed`."""
    if ncu.find() is None:
        raise ncu.NcuFailed("no-ncu", "Nsight Compute's command line is not installed")
    with tempfile.TemporaryDirectory(prefix="kernelwright-profile-") as name:
        folder = Path(name)
        words = _target(climb, folder, 1)
        found = ncu.run(
            words,
            seconds=climb.options.seconds,
            environment=_environment(folder),
            folder=folder,
            count=COUNTED_LAUNCHES,
        )
        climb.facts = _read_facts(folder)
    kernels = [_completed(k, climb) for k in ncu.merged(found)]
    known = _ceilings(climb.card)
    if known is not None:
        kernels = [k.model_copy(update={"roofline": roofline.of_counters(k, known)}) for k in kernels]
    made = _profile(climb, "ncu", kernels, known, sum(k.time_us or 0.0 for k in kernels) / 1e3)
    if len(found) < COUNTED_LAUNCHES:
        return made
    note = f"only the first {COUNTED_LAUNCHES} launches of the call were counted"
    return made.model_copy(update={"notes": (note,), "roofline": None})


def _trace(climb: Climb) -> Profile:
    """Traces device times of several forward calls by CUPTI. Raises `MissedRung`."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-profile-") as name:
        folder = Path(name)
        words = [*_target(climb, folder, TRACED_CALLS), "--trace", str(folder / "trace.json")]
        _ran(words, climb.options.seconds, folder)
        climb.facts = _read_facts(folder)
        try:
            events = json.loads((folder / "trace.json").read_text(encoding="utf-8", errors="replace"))["traceEvents"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MissedRung(f"no-trace: the profiler's file cannot be read: {error}") from None
    kernels, facts = trace.parse(events, TRACED_CALLS, climb.own)
    if not kernels:
        raise MissedRung("no-kernels: the profiler saw no kernel run")
    made = [_completed(k, climb) for k in kernels]
    result = _profile(climb, "trace", made, _ceilings(climb.card), facts.span_ms)
    return result.model_copy(update={"trace": facts})


def _target(climb: Climb, folder: Path, calls: int) -> list[str]:
    """Writes the target's input files into `folder` and returns the command that runs the candidate."""
    suffix = Path(climb.candidate.sources[0].path).suffix or ".py"
    task, candidate = folder / "reference.py", folder / f"candidate{suffix}"
    task.write_text(climb.task.source, encoding="utf-8")
    candidate.write_text(climb.candidate.text, encoding="utf-8")
    words = [sys.executable, "-m", "kernelwright.profile.target", "--task", str(task), "--candidate", str(candidate)]
    words += [
        "--entry",
        climb.candidate.entry_point,
        "--function",
        climb.task.function,
        "--constants",
        json.dumps(climb.size.constants),
    ]
    return [*words, "--seed", str(climb.options.seed), "--calls", str(calls), "--facts", str(folder / "facts.json")]


_KEPT = re.compile(
    r"PATH|HOME|LANG|LC_\w+|TMPDIR|LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV|CUDA_\w+|NVIDIA_\w+|OMP_NUM_THREADS"
    r"|KERNELWRIGHT_CACHE|XDG_CACHE_HOME|TRITON_\w+"
)


def _environment(folder: Path) -> dict[str, str]:
    """Returns the environment of the candidate's process: paths of programs and libraries, no secrets."""
    kept = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    # The target runs in another folder, so relative paths must become absolute.
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) for p in paths)
    return {**kept, "TORCH_EXTENSIONS_DIR": str(folder / "extensions"), "PYTHONDONTWRITEBYTECODE": "1"}


def _ran(words: list[str], seconds: float, folder: Path) -> None:
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=_environment(folder),
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        raise MissedRung(f"time-out: the candidate did not finish within {seconds:.0f} s") from None
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if line.startswith("target-failed: ")]
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        raise MissedRung(said[-1] if said else f"target-failed: status {done.returncode}: {last[:300]}")


def _read_facts(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "facts.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _ceilings(card: Card) -> ceilings.Ceilings | None:
    """Returns the card's ceilings: cached, else measured now in a subprocess, else the data sheet's."""
    cache = cache_dir()
    if ceilings.cached(card.name, card.driver, cache) is None:
        words = [sys.executable, "-c", ceilings.PROGRAM, card.driver]
        try:
            subprocess.run(words, capture_output=True, timeout=MEASURING_SECONDS)
        except subprocess.TimeoutExpired:
            pass  # fall back to the data sheet
    return ceilings.for_card(card.name, card.driver, cache)


def _completed(kernel: KernelProfile, climb: Climb) -> KernelProfile:
    """Adds origin, resources and occupancy from the machine code to a kernel that ran."""
    resources = _match(climb.resources.get(trace.simple_name(kernel.name), []), kernel.metrics.get("registers"))
    update: dict[str, Any] = {"origin": trace.origin(kernel.name, climb.own), "resources": resources}
    registers = int(kernel.metrics.get("registers", resources.registers if resources else 0))
    arch = int(re.sub(r"\D", "", climb.card.arch) or 0)
    if kernel.block is not None and registers and arch in LIMITS:
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
        shared = int(kernel.metrics.get("shared_bytes", resources.shared_bytes if resources else 0))
        if kernel.metrics.get("instructions") is not None:  # ncu includes the driver's reservation
            shared = max(0, shared - LIMITS[arch].reserved)
        update["occupancy"] = occupancy(arch, threads, registers, shared)
    return kernel.model_copy(update=update)


def _match(found: list[Resources], registers: float | None) -> Resources | None:
    """Returns the instance that ran: the only one, or the only one with this register count; else None."""
    fits = found if len(found) == 1 else [r for r in found if r.registers == registers]
    return fits[0] if len(fits) == 1 else None


def _profile(
    climb: Climb,
    rung: Rung,
    kernels: list[KernelProfile],
    known: ceilings.Ceilings | None = None,
    time_ms: float = 0.0,
    arch: str = "",
    size: str = "",
) -> Profile:
    line = None
    if known is not None and time_ms > 0 and climb.facts:
        kind = str(climb.facts.get("dtype", "float32"))
        line = roofline.classify(climb.facts.get("bytes", 0), climb.facts.get("flops", 0), time_ms, kind, known)
    return Profile(
        task_id=climb.task.task_id,
        task_hash=climb.task.content_hash,
        candidate_id=climb.candidate.content_hash,
        rung=rung,
        card=climb.card.name if rung != "static" else "",
        arch=arch or climb.card.arch,
        size=size or climb.size.name,
        kernels=tuple(kernels),
        roofline=line,
        ceilings=known.source if known else "",
    )
