"""Renders a launch's counters as a few lines for users and for the next prompt. Gives facts only, no times."""

from __future__ import annotations

from kernelwright.machine.runtime import readable
from kernelwright.records import Evaluation, Hotspot, Launch

WORTH_SAYING = 1.5
"""Accesses are reported from this multiple of the ideal count on."""
ACTIVE_LANES = 0.7
"""A kernel is reported as divergent if its average share of active lanes per warp is below this."""
_NAMES = {
    "global_load": ("global loads", "sectors"),
    "global_store": ("global stores", "sectors"),
    "shared_load": ("shared loads", "wavefronts"),
    "shared_store": ("shared stores", "wavefronts"),
}


def advice(evaluation: Evaluation, most: int = 5) -> list[str]:
    """Returns the worst counts of the functional machine, e.g. `copy: global loads: 8.0x ideal sectors (line 12)`."""
    found: list[tuple[int, str]] = []
    for launch in evaluation.launches:
        for spot in launch.hotspots:
            if spot.actual >= WORTH_SAYING * max(1, spot.ideal):
                found.append((spot.actual - spot.ideal, _spot_text(launch, spot)))
        share = active_lanes(launch)
        if share is not None and share < ACTIVE_LANES:
            idle = int(launch.counters["warp_instructions"] * (1 - share))
            text = f"{name_of(launch)}: {share:.0%} of a warp's lanes are active on average: divergence or small blocks"
            found.append((idle, text))
    found.sort(key=lambda pair: -pair[0])
    return [text for _, text in found[:most]]


def _spot_text(launch: Launch, spot: Hotspot) -> str:
    what, unit = _NAMES[spot.kind]
    where = f" (line {spot.line})" if spot.line else ""
    why = ": bank conflicts" if unit == "wavefronts" else ""
    return f"{name_of(launch)}: {what}: {spot.actual / max(1, spot.ideal):.1f}x ideal {unit}{why}{where}"


def active_lanes(launch: Launch) -> float | None:
    """Returns the mean share of a warp's 32 lanes that execute an instruction; None if it was not counted."""
    issued = launch.counters.get("warp_instructions", 0)
    return launch.instructions / (32 * issued) if issued else None


def name_of(launch: Launch) -> str:
    """Returns the kernel's demangled name."""
    return readable(launch.kernel)


def summary(launch: Launch) -> str:
    """Summarises one launch in a line: launch count, work, memory traffic against the ideal, atomics."""
    c = launch.counters
    parts = [f"{launch.count} launch{'es' if launch.count > 1 else ''}", f"{_short(launch.instructions)} instructions"]
    for key, value in sorted(c.items()):
        if value and key.startswith(("flops_", "tensor_ops_")):
            parts.append(f"{_short(value)} {key.replace('_ops', '').replace('_', ' ')}")
    for kind, (what, _unit) in _NAMES.items():
        unit = "sectors" if kind.startswith("global") else "wavefronts"
        actual, ideal = c.get(f"{kind}_{unit}", 0), c.get(f"{kind}_{unit}_ideal", 0)
        if actual and ideal and actual > ideal:
            parts.append(f"{what} {actual / ideal:.1f}x ideal")
    if c.get("atomics"):
        parts.append(f"{_short(c['atomics'])} atomics")
    return f"{name_of(launch)}: " + ", ".join(parts)


def _short(value: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return str(value)
