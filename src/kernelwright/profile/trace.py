"""The middle rung: kernels, their durations and the gaps between them, from torch's profiler (CUPTI).

Works where hardware counters are forbidden. The input is the trace file that `torch.profiler` exports (Chrome's format:
events with `cat`, `ts` and `dur` in microseconds, and `args`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kernelwright.profile.facts import KernelProfile, TraceFacts

_COPIES = ("gpu_memcpy", "gpu_memset")
_ORIGINS = (
    ("cudnn", r"cudnn|implicit_convolve|winograd|xmma_(?:fprop|dgrad|wgrad)"),
    ("cutlass", r"\bcutlass|cutlass_|cute::"),
    (
        "cublas",
        r"cublas|^(?:sm\d+|ampere|volta|turing|hopper|maxwell)_.*gemm|gemv\w*_kernel|gemvx|nvjet|splitKreduce|_s884|s16816",
    ),
    ("triton", r"^triton_"),
    ("cub", r"\bcub::|thrust::"),
    ("torch", r"\bat::(?:native|cuda|\w)|\bc10::|vectorized_elementwise|flash::|pytorch_flash|fmha_"),
    ("nccl", r"^nccl"),
)


def simple_name(name: str) -> str:
    """Reduces a kernel's name to its last part, without return type, parameters, template arguments and namespaces."""
    text = re.sub(r"\(anonymous namespace\)::", "", name).removeprefix("void ").strip()
    depth, kept = 0, []
    for character in text:
        if character == "<":
            depth += 1
        elif character == ">":
            depth = max(0, depth - 1)
        elif character == "(" and depth == 0:
            break
        elif depth == 0:
            kept.append(character)
    return "".join(kept).split("::")[-1].strip()


def origin(name: str, own: Iterable[str] = ()) -> str:
    """Returns a kernel's origin: `candidate` if its simple name is in `own`, else by patterns of library names."""
    # A library's namespaces take precedence over the candidate's kernel names.
    for library, pattern in _ORIGINS:
        if re.search(pattern, name) and (library in ("torch", "cub") or simple_name(name) not in own):
            return library
    return "candidate" if simple_name(name) in own else "other"


def parse(events: Sequence[dict[str, Any]], calls: int, own: Iterable[str]) -> tuple[list[KernelProfile], TraceFacts]:
    """Returns kernels, longest first, and facts of one forward call, from the events of `calls` equal calls.

    `own` holds the simple names of the candidate's kernels. Without events on the device, times are 0.
    """
    names = frozenset(own)
    kernels = [e for e in events if e.get("cat") == "kernel" and e.get("dur") is not None]
    copies = [e for e in events if e.get("cat") in _COPIES and e.get("dur") is not None]
    busy = sum(float(e["dur"]) for e in kernels)
    groups: dict[tuple[str, Any], list[dict[str, Any]]] = {}
    for event in kernels:
        groups.setdefault((str(event.get("name", "?")), str(event.get("args", {}).get("block"))), []).append(event)
    made = [_kernel(group, calls, busy, names) for group in groups.values()]
    made.sort(key=lambda k: -(k.time_us or 0.0))
    mine = sum(k.time_us or 0.0 for k in made if k.origin == "candidate") * calls
    spans = [(float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in (*kernels, *copies)]
    span, gap = _spans(spans, calls)
    copy = sum(float(e["dur"]) for e in copies)
    facts = TraceFacts(
        calls=calls,
        device_ms=(busy + copy) / calls / 1e3,
        span_ms=span / 1e3,
        gap_ms=gap / 1e3,
        copy_ms=copy / calls / 1e3,
        launches=len(kernels) / calls,
        own_share=mine / busy if busy else None,
    )
    return made, facts


def _kernel(group: list[dict[str, Any]], calls: int, busy: float, own: frozenset[str]) -> KernelProfile:
    first = group[0]
    name, time = str(first.get("name", "?")), sum(float(e["dur"]) for e in group)
    arguments = first.get("args", {})
    metrics = {
        ours: float(arguments[theirs])
        for ours, theirs in (("registers", "registers per thread"), ("shared_bytes", "shared memory"))
        if isinstance(arguments.get(theirs), (int, float))
    }
    return KernelProfile(
        name=name[:300],
        origin=origin(name, own),
        launches=max(1, round(len(group) / calls)),
        time_us=time / calls,
        share=time / busy if busy else None,
        grid=_three(arguments.get("grid")),
        block=_three(arguments.get("block")),
        metrics=metrics,
    )


def _three(value: Any) -> tuple[int, int, int] | None:
    if isinstance(value, (list, tuple)) and len(value) == 3 and all(isinstance(v, int) for v in value):
        return (value[0], value[1], value[2])
    return None


def _spans(spans: list[tuple[float, float]], calls: int) -> tuple[float, float]:
    """Returns microseconds of one call from first start to last end, and the idle part of them.

    Calls are separated by dividing the ordered events into equal parts. If their number is not divisible, the whole
    span is divided, including pauses between calls.
    """
    ordered = sorted(spans)
    if not ordered:
        return 0.0, 0.0
    size, rest = divmod(len(ordered), calls)
    parts = [ordered] if rest or not size else [ordered[i * size : (i + 1) * size] for i in range(calls)]
    total = sum(max(end for _, end in part) - part[0][0] for part in parts)
    idle = sum(_idle(part) for part in parts)
    return total / calls, idle / calls


def _idle(ordered: list[tuple[float, float]]) -> float:
    idle, reached = 0.0, ordered[0][1]
    for start, end in ordered[1:]:
        idle += max(0.0, start - reached)
        reached = max(reached, end)
    return idle
