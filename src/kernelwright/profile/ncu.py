"""The top rung: a curated set of hardware counters by Nsight Compute's command line.

Agents do better with about two dozen counters than with all of them (CudaForge). Clocks are not locked
(`--clock-control none`): locking needs privileges that rented machines lack, and changes the measurement. ncu's CSV
has a line of names, a line of units, and one line per kernel, mixed with its own messages, which start with `==`.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.profile.facts import KernelProfile


@dataclass(frozen=True)
class Metric:
    """One counter: ncu's name, the unit of stored values, and its purpose."""

    counter: str
    unit: str
    purpose: str


_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
METRICS: dict[str, Metric] = {
    "time": Metric("gpu__time_duration.sum", "ns", "device time"),
    "sm_share": Metric("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "speed of light of arithmetic"),
    "memory_share": Metric(
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%", "speed of light of all memories"
    ),
    "dram_share": Metric("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", "device memory in use"),
    "dram_read": Metric("dram__bytes_read.sum", "byte", "bytes read from device memory"),
    "dram_write": Metric("dram__bytes_write.sum", "byte", "bytes written to device memory"),
    "l2_share": Metric("lts__throughput.avg.pct_of_peak_sustained_elapsed", "%", "L2 in use"),
    "l2_hit": Metric("lts__t_sector_hit_rate.pct", "%", "sectors found in L2"),
    "l1_hit": Metric("l1tex__t_sector_hit_rate.pct", "%", "sectors found in L1"),
    "load_bytes_per_sector": Metric(
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio", "byte", "of the 32 that a load fetches"
    ),
    "store_bytes_per_sector": Metric(
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio", "byte", "of the 32 that a store fills"
    ),
    "local_bytes": Metric("l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum", "byte", "loads from local memory: spills"),
    "bank_conflicts": Metric("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", "extra cycles in shared memory"),
    "shared_wavefronts": Metric("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", "passes through shared memory"),
    "warps_share": Metric("sm__warps_active.avg.pct_of_peak_sustained_active", "%", "achieved occupancy"),
    "registers": Metric("launch__registers_per_thread", "", "registers a thread"),
    "shared_bytes": Metric("launch__shared_mem_per_block", "byte", "shared memory a block, the driver's included"),
    "waves": Metric("launch__waves_per_multiprocessor", "", "blocks over those that run at once"),
    "instructions": Metric("smsp__inst_executed.sum", "", "warp instructions"),
    "threads_per_instruction": Metric(
        "smsp__thread_inst_executed_per_inst_executed.ratio", "", "of 32: what branches leave active"
    ),
    "fadd": Metric("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", "", "single-precision additions"),
    "fmul": Metric("smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", "", "single-precision multiplications"),
    "ffma": Metric("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "", "fused multiply-adds"),
    "tensor_share": Metric(
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%", "tensor cores in use"
    ),
    "stall_memory": Metric(_STALL.format("long_scoreboard"), "", "warps that wait for device memory, L2 or L1"),
    "stall_shared": Metric(_STALL.format("short_scoreboard"), "", "warps that wait for shared memory or functions"),
    "stall_barrier": Metric(_STALL.format("barrier"), "", "warps that wait at __syncthreads"),
}
"""Counters by their short name in `KernelProfile.metrics`."""

_BY_COUNTER = {metric.counter: name for name, metric in METRICS.items()}
_SCALES = {
    **{"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9},
    **{"byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12},
    **{"kibyte": 2.0**10, "mibyte": 2.0**20, "gibyte": 2.0**30},
}


class NcuFailed(Exception):
    """Raised when ncu gives no counters; `name` is the reason in kebab-case. The ladder tries the next rung."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


def find() -> str | None:
    """Returns the path of ncu from the PATH, the toolkit or its own folder; None if missing."""
    toolkit = Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda") / "bin" / "ncu"
    places = [toolkit, *sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)]
    return shutil.which("ncu") or next((str(p) for p in places if os.access(p, os.X_OK)), None)


def command(
    ncu: str,
    target: Sequence[str],
    *,
    counters: Sequence[str] = tuple(_BY_COUNTER),
    kernel: str | None = None,
    skip: int = 0,
    count: int | None = None,
) -> list[str]:
    """Returns the command line that profiles `target` between cudaProfilerStart and cudaProfilerStop.

    `kernel` is a regular expression for names; `skip` and `count` select among the matching launches.
    """
    words = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    words += ["--profile-from-start", "off", "--target-processes", "all", "--metrics", ",".join(counters)]
    if kernel is not None:
        words += ["--kernel-name", f"regex:{kernel}"]
    if skip:
        words += ["--launch-skip", str(skip)]
    if count is not None:
        words += ["--launch-count", str(count)]
    return [*words, *target]


def run(
    target: Sequence[str],
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    count: int | None = None,
) -> list[KernelProfile]:
    """Profiles a command and returns its kernels in launch order. Raises `NcuFailed`.

    Counters unknown to this ncu or card are skipped.
    """
    ncu = find()
    if ncu is None:
        raise NcuFailed("no-ncu", "Nsight Compute's command line is not installed")
    counters = list(_BY_COUNTER)
    for _ in range(len(counters)):
        text = _output(command(ncu, target, counters=counters, count=count), seconds, environment, folder)
        unknown = [c for c in counters if c in unknown_metrics(text)]
        if not unknown:
            return parse(text)
        counters = [c for c in counters if c not in unknown]
    raise NcuFailed("no-counters", "this ncu knows none of the counters")


def _output(words: list[str], seconds: float, environment: Mapping[str, str] | None, folder: Path | None) -> str:
    """Returns the output of ncu and its target. Kills the process group on a timeout."""
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        raise NcuFailed("no-ncu", f"{words[0]} cannot be started: {error.strerror}") from error
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise NcuFailed("time-out", f"ncu did not finish within {seconds:.0f} s") from None
    return output.decode("utf-8", "replace")


def unknown_metrics(text: str) -> set[str]:
    """Returns the counters that ncu reports as unknown."""
    found = re.findall(r"Failed to find metric (?:regex:\^)?([\w.\\]+)", text)
    return {name.replace("\\", "") for name in found}


_FAILURES = (
    ("no-permission", r"ERR_NVGPUCTRPERM"),
    ("no-driver", r"LibraryNotLoaded|Failed to initialize the profiler|Cuda driver is not compatible"),
    ("busy", r"driver resource was unavailable"),
    ("unsupported-card", r"(?:not supported on|Unsupported) (?:the target |GPU|device)"),
    ("target-failed", r"The application returned an error code|target-failed:"),
    ("no-kernels", r"No kernels were profiled"),
)


def failure(text: str) -> NcuFailed:
    """Derives from ncu's output the reason why it has no counters."""
    for name, pattern in _FAILURES:
        hit = re.search(f".*(?:{pattern}).*", text)
        if hit:
            lines = [line for line in text.splitlines() if line.startswith("target-failed:")]
            said = lines[-1].removeprefix("target-failed:") if name == "target-failed" and lines else hit.group(0)
            return NcuFailed(name, re.sub(r"^==\w+== ", "", said.strip())[:300])
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
    return NcuFailed("no-counters", f"ncu printed no table; its last line: {last.strip()[:200]}")


def parse(text: str) -> list[KernelProfile]:
    """Parses the output of `ncu --csv --page raw` into one record per launch. Raises `NcuFailed` without a table."""
    lines = text.splitlines()
    header = next((i for i, line in enumerate(lines) if line.startswith('"ID",') and '"Kernel Name"' in line), None)
    if header is None:
        raise failure(text)
    # The target's output may be anywhere between; lines of the table start with a quotation mark.
    table = [line for line in lines[header:] if line.startswith('"')]
    names, *rows = [row for row in csv.reader(io.StringIO("\n".join(table))) if row]
    units = [""] * len(names)
    found = []
    for row in rows:
        if len(row) != len(names):
            continue
        if not row[0].strip():
            units = row
        elif row[0].strip().isdigit():
            found.append(_launch(dict(zip(names, row, strict=True)), dict(zip(names, units, strict=True))))
    if not found:
        raise failure(text)
    return found


def _launch(cells: dict[str, str], units: dict[str, str]) -> KernelProfile:
    values: dict[str, float] = {}
    for counter, name in _BY_COUNTER.items():
        value = _number(cells.get(counter, ""), units.get(counter, ""))
        if value is not None:
            values[name] = value
    time = values.get("time")
    return KernelProfile(
        name=cells.get("Kernel Name", "?"),
        launches=1,
        time_us=None if time is None else time / 1e3,
        grid=_three(cells.get("Grid Size", "")),
        block=_three(cells.get("Block Size", "")),
        metrics=values,
    )


def _number(text: str, unit: str) -> float | None:
    """Returns a cell's value in the base unit; None for `n/a`, nan and words."""
    plain = text.strip().replace(",", "").replace("'", "").replace("\u202f", "").replace("\xa0", "")
    try:
        value = float(plain)
    except ValueError:
        return None
    if value != value:
        return None
    return value * _SCALES.get(unit.strip().split("/")[0].lower(), 1.0)


def _three(text: str) -> tuple[int, int, int] | None:
    numbers = re.findall(r"\d+", text)
    return (int(numbers[0]), int(numbers[1]), int(numbers[2])) if len(numbers) == 3 else None


def merged(launches: Sequence[KernelProfile]) -> list[KernelProfile]:
    """Merges launches into one record per kernel: sums counts and times, averages other counters by time."""
    groups: dict[tuple[object, ...], list[KernelProfile]] = {}
    for launch in launches:
        groups.setdefault((launch.name, launch.block, launch.metrics.get("registers")), []).append(launch)
    total = sum(launch.time_us or 0.0 for launch in launches)
    made = [_one(group, total) for group in groups.values()]
    return sorted(made, key=lambda k: -(k.time_us or 0.0))


def _one(group: list[KernelProfile], total: float) -> KernelProfile:
    time = sum(k.time_us or 0.0 for k in group)
    values: dict[str, float] = {}
    for name in METRICS:
        known = [(k.metrics[name], k.time_us or 0.0) for k in group if name in k.metrics]
        if not known:
            continue
        weight = sum(w for _, w in known)
        if METRICS[name].counter.endswith(".sum"):
            values[name] = sum(v for v, _ in known)
        else:
            values[name] = sum(v * w for v, w in known) / weight if weight else sum(v for v, _ in known) / len(known)
    first = max(group, key=lambda k: k.time_us or 0.0)
    share = time / total if total else None
    return first.model_copy(update={"launches": len(group), "time_us": time, "share": share, "metrics": values})
