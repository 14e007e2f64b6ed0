"""Turns a profile into at most five short lines for a prompt, the most valuable first, each with its number.

Each rule is one function and one row of `RULES`. It takes a profile and one of its kernels and returns a line with a
weight: an estimate of the share of the total time that could be saved. Nothing is measured here. Kernels that the
functional machine has counted are left to the ranked wastes of the profile, so that no rule contradicts the counts.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.profile.facts import KernelProfile, Profile, Waste
from kernelwright.profile.trace import simple_name

LINES, WIDTH = 5, 240
SECTOR, WARP = 32, 32
MOST_NAME = 40
Hint = tuple[float, str]
Rule = Callable[[Profile, KernelProfile], Hint | None]


def advise(profile: Profile) -> tuple[str, ...]:
    """Returns the best few lines about a profile, each shorter than `WIDTH` characters."""
    hints: list[Hint] = []
    whole = KernelProfile(name="")
    for rule in WHOLE_RULES:
        hint = rule(profile, whole)
        hints += [hint] if hint else []
    hints += [(waste.saved, _wasted(waste)) for waste in profile.wastes]
    for kernel in profile.kernels:
        if kernel.origin != "candidate" or kernel.work is not None:
            continue
        weight = 1.0 if kernel.share is None else kernel.share
        for rule in RULES:
            hint = rule(profile, kernel)
            hints += [(hint[0] * weight, f"{_name(kernel)}: {hint[1]}")] if hint else []
    best = sorted(hints, key=lambda h: -h[0])
    return tuple(line if len(line) < WIDTH else line[: WIDTH - 2] + "…" for _, line in best[:LINES])


def _wasted(waste: Waste) -> str:
    where = f"line {waste.line}: " if waste.line is not None else ""
    return f"{waste.kernel}: {where}{waste.text}" if waste.kernel else f"{where}{waste.text}"


_SOURCES = {
    "ncu": "hardware counters",
    "trace": "device times, no counters",
    "static": "machine code, and counts of the functional machine; nothing was timed",
}


def prompt_text(profile: Profile) -> str:
    """Formats the advice as a paragraph for a prompt, with the source of its numbers; empty without advice."""
    if not profile.advice:
        return ""
    where = profile.card or profile.arch
    head = f"Profile ({_SOURCES[profile.rung]}; {where}), most valuable first:"
    return "\n".join([head, *(f"- {line}" for line in profile.advice)])


def _name(kernel: KernelProfile) -> str:
    name = kernel.name if kernel.name.startswith("_Z") else simple_name(kernel.name) or kernel.name
    return name if len(name) <= MOST_NAME else name[: MOST_NAME - 1] + "…"


# --- about the whole call ------------------------------------------------------------------------------------------


def _foreign(profile: Profile, _: KernelProfile) -> Hint | None:
    timed = [k for k in profile.kernels if k.share is not None]
    counted = sum(k.share or 0.0 for k in timed if k.origin == "candidate") if timed else None
    own = profile.trace.own_share if profile.trace else counted
    if own is None or own >= 0.5:
        return None
    other = next((k for k in profile.kernels if k.origin != "candidate"), None)
    named = f"; {_name(other)} takes {100 * (other.share or 0):.0f} %" if other else ""
    return 1.0 - own, f"only {100 * own:.0f} % of device time is in your own kernels{named}: write that part yourself"


def _no_kernel(profile: Profile, _: KernelProfile) -> Hint | None:
    if profile.rung != "static" or profile.kernels:
        return None
    failed = next((n for n in profile.notes if n.startswith("a build failed: ")), None)
    if failed is not None:
        return 1.0, f"0 kernels of your own ran; {failed}"
    return 1.0, "there is no device code of your own (0 kernels): write the computation as a CUDA kernel"


def _gaps(profile: Profile, _: KernelProfile) -> Hint | None:
    trace = profile.trace
    if trace is None or trace.span_ms <= 0 or trace.launches < 1.5:
        return None
    gap = trace.gap_ms / trace.span_ms
    if gap < 0.15:
        return None
    return gap, f"the GPU idles {100 * gap:.0f} % of a call between {trace.launches:.0f} launches: fuse kernels"


def _copies(profile: Profile, _: KernelProfile) -> Hint | None:
    trace = profile.trace
    if trace is None or trace.device_ms <= 0 or trace.copy_ms / trace.device_ms < 0.1:
        return None
    share = trace.copy_ms / trace.device_ms
    return share, f"copies and fills take {100 * share:.0f} % of device time: drop .contiguous(), clone() and zeros()"


def _launch_bound(profile: Profile, _: KernelProfile) -> Hint | None:
    line = profile.roofline
    if line is None or line.bound != "launch":
        return None
    text = f"a call takes {1e3 * line.time_ms:.1f} µs, about the cost of its launches: fewer launches, less host work"
    return 0.3, text


def _at_the_roof(profile: Profile, _: KernelProfile) -> Hint | None:
    line = profile.roofline
    if line is None or line.time_ms <= 0 or not 0.85 <= line.floor_ms / line.time_ms:
        return None
    share = line.floor_ms / line.time_ms
    return 0.01, f"at {100 * share:.0f} % of what this card allows for these bytes and operations: little is left"


def _too_many_bytes(profile: Profile, _: KernelProfile) -> Hint | None:
    moved = sum(k.metrics.get("dram_read", 0.0) + k.metrics.get("dram_write", 0.0) for k in profile.kernels)
    needed = profile.roofline.bytes if profile.roofline and profile.roofline.source == "task" else 0
    if not needed or moved < 1.5 * needed:
        return None
    factor = moved / needed
    return 1 - 1 / factor, f"moves {factor:.1f} times the bytes that the task needs: fuse passes, read each input once"


# --- about one kernel ----------------------------------------------------------------------------------------------


def _loads(_: Profile, kernel: KernelProfile) -> Hint | None:
    used = kernel.metrics.get("load_bytes_per_sector")
    if not used or used >= 24:
        return None
    text = (
        f"global loads use {used:.1f} of {SECTOR} bytes a sector: let neighbouring threads read neighbouring addresses"
    )
    return 0.8 * (1 - used / SECTOR), text


def _stores(_: Profile, kernel: KernelProfile) -> Hint | None:
    used = kernel.metrics.get("store_bytes_per_sector")
    if not used or used >= 24:
        return None
    text = f"global stores use {used:.1f} of {SECTOR} bytes a sector: write rows of neighbours, through shared memory"
    return 0.7 * (1 - used / SECTOR), text


def _spills(_: Profile, kernel: KernelProfile) -> Hint | None:
    stack = kernel.resources.stack_bytes if kernel.resources else 0
    if stack:
        text = f"{stack} bytes of local memory a thread: index arrays by constants (unroll), or use fewer registers"
        return 0.6, text
    loaded = kernel.metrics.get("local_bytes", 0.0)
    return (0.5, f"{loaded / 1e6:.1f} MB of local memory are loaded: registers spill; use fewer") if loaded else None


def _occupancy(_: Profile, kernel: KernelProfile) -> Hint | None:
    found = kernel.occupancy
    if found is None or found.fraction > 0.4:
        return None
    cures = {
        "registers": f"{kernel.resources.registers if kernel.resources else '?'} registers a thread are the limit",
        "shared memory": "shared memory is the limit: use smaller tiles",
        "blocks": f"blocks of {found.threads} threads are the limit: use larger ones",
        "warps": f"blocks of {found.threads} threads are the limit: use smaller ones",
        "block size": f"{found.threads} threads a block are more than the 1024 that there can be",
    }
    return 0.4 * (1 - found.fraction), f"only {100 * found.fraction:.0f} % of warps fit: {cures[found.limiter]}"


def _conflicts(_: Profile, kernel: KernelProfile) -> Hint | None:
    conflicts, passes = kernel.metrics.get("bank_conflicts", 0.0), kernel.metrics.get("shared_wavefronts", 0.0)
    share = conflicts / passes if passes else 0.0
    if share < 0.2:
        return None
    return 0.4 * share, f"{100 * share:.0f} % of shared-memory passes are bank conflicts: pad rows by one element"


def _divergence(_: Profile, kernel: KernelProfile) -> Hint | None:
    active = kernel.metrics.get("threads_per_instruction")
    if not active or active >= 24:
        return None
    text = f"{active:.0f} of {WARP} threads are active an instruction: branch by warps, not within them"
    return 0.4 * (1 - active / WARP), text


def _small_grid(_: Profile, kernel: KernelProfile) -> Hint | None:
    waves = kernel.metrics.get("waves")
    if waves is None or waves >= 0.8:
        return None
    return 0.6 * (1 - waves), f"the grid fills {100 * waves:.0f} % of the GPU: use more blocks, less work in each"


def _barriers(_: Profile, kernel: KernelProfile) -> Hint | None:
    stall = kernel.metrics.get("stall_barrier", 0.0)
    if stall < 2:
        return None
    return 0.25, f"{stall:.1f} warps wait at __syncthreads an instruction: use shuffles, or smaller blocks"


def _waiting(_: Profile, kernel: KernelProfile) -> Hint | None:
    stall = kernel.metrics.get("stall_memory", 0.0)
    if stall < 4 or kernel.metrics.get("dram_share", 0.0) > 70:
        return None
    text = f"{stall:.1f} warps wait for memory an instruction: issue several independent loads before using any"
    return 0.35, text


def _narrow_loads(_: Profile, kernel: KernelProfile) -> Hint | None:
    width = kernel.resources.load_bytes if kernel.resources else None
    bound = kernel.roofline.bound if kernel.roofline else "unknown"
    if width is None or width > 4 or bound in ("compute", "launch"):
        return None
    return 0.15, f"global loads are {width:.0f} bytes wide: load 16 at once (float4) where rows allow it"


def _doubles(_: Profile, kernel: KernelProfile) -> Hint | None:
    count = kernel.resources.mix.get("float64", 0) if kernel.resources else 0
    if count == 0:
        return None
    text = f"{count} double-precision instructions: if none is meant, write 1.0f for 1.0 and expf for exp"
    return 0.3, text


def _no_tensor_cores(_: Profile, kernel: KernelProfile) -> Hint | None:
    line = kernel.roofline
    if line is None or line.bound != "compute" or kernel.metrics.get("tensor_share", 0.0) > 1:
        return None
    text = f"at {100 * line.compute_share:.0f} % of fp32 arithmetic with idle tensor cores: use mma if precision allows"
    return 0.5, text


def _odd_block(_: Profile, kernel: KernelProfile) -> Hint | None:
    if kernel.block is None:
        return None
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    idle = -threads % WARP
    if not idle:
        return None
    return 0.5 * idle / (
        threads + idle
    ), f"blocks of {threads} threads leave {idle} lanes idle: use multiples of {WARP}"


WHOLE_RULES: tuple[Rule, ...] = (
    _foreign,
    _no_kernel,
    _gaps,
    _copies,
    _launch_bound,
    _at_the_roof,
    _too_many_bytes,
)
RULES: tuple[Rule, ...] = (
    _loads,
    _stores,
    _spills,
    _occupancy,
    _conflicts,
    _divergence,
    _small_grid,
    _barriers,
    _waiting,
    _narrow_loads,
    _doubles,
    _no_tensor_cores,
    _odd_block,
)
