"""Estimates a call's time from counts, to rank what could be saved: cycles of an H100, by resource.

Nothing is measured here. The rates are those of data sheets and of published micro-benchmarks; the estimate serves to
compare the parts of one call with each other, and is never shown as a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kernelwright.profile.facts import KernelWork, LineCounts, Occupancy, SiteCounts

MULTIPROCESSORS = 132
FULL_WARPS = 64
"""Warps that one multiprocessor holds at most."""
ISSUES = 4.0
"""Warp instructions a cycle and multiprocessor."""
DOUBLES, SPECIALS = 2.0, 0.5
"""Warp instructions a cycle in double precision, and of the special function unit."""
SECTORS = 2.0
"""Sectors a cycle between L2 and a multiprocessor (64 bytes)."""
DRAM_BYTES = 15.0
"""Bytes of device memory a cycle and multiprocessor."""
BARRIER_CYCLES = 1.6
"""Cycles for each warp that comes to a barrier, with other blocks to run meanwhile."""
ISSUE_LATENCY, GLOBAL_LATENCY, SHARED_LATENCY = 6.0, 40.0, 20.0
"""Cycles that one warp waits for an instruction, and in addition for a load or an atomic; most are hit or overlap."""
FIRST_LATENCY = 600.0
LAUNCH_CYCLES = 2500.0
"""Cycles from one launch to the next of kernels that do nothing, about 1.5 us."""
NORM = 3.0
"""Resources overlap: the time is their norm of this order, between their largest and their sum."""


@dataclass(frozen=True)
class KernelCost:
    """One kernel's work as the estimate sees it. A waste is a change of it."""

    work: KernelWork
    resident: float
    """Warps that fit on one multiprocessor."""
    block_warps: float = 1.0
    latency: bool = True
    """False where enough independent work hides all latency."""
    spread: bool = False
    """True where the work is taken to fill all multiprocessors."""

    def cycles(self) -> float:
        """Returns the estimated cycles of all launches of the kernel."""
        work = self.work
        if not work.launches:
            return 0.0
        blocks = max(1.0, work.blocks / work.launches)
        used = MULTIPROCESSORS if self.spread else min(float(MULTIPROCESSORS), blocks)
        parts = [cycles / used for cycles in self._throughput()]
        parts.append(self._dram() / MULTIPROCESSORS)
        parts.append(self._serial_atomics())
        if self.latency:
            parts.append(self._latency(blocks) * work.launches)
        return _norm(parts)

    def _throughput(self) -> list[float]:
        lines, sites = self.work.lines, self.work.sites
        barriers = sum(v.barriers for v in lines) * BARRIER_CYCLES
        return [
            self.work.issued / ISSUES,
            barriers,
            sum(v.doubles for v in lines) / DOUBLES,
            sum(v.special for v in lines) / SPECIALS,
            sum(map(load_store_cycles, sites)),
        ]

    def _dram(self) -> float:
        return (self.work.bytes_read + self.work.bytes_written) / DRAM_BYTES

    def _serial_atomics(self) -> float:
        """Returns the cycles in which one address takes its atomics, one after another."""
        sums: dict[str, tuple[float, int]] = {}
        for site in self.work.sites:
            if site.kind == "global_atomic" and site.allocation_bytes:
                ops, _ = sums.get(site.allocation, (0.0, 0))
                sums[site.allocation] = ops + site.bytes, site.allocation_bytes
        return max((ops / nbytes for ops, nbytes in sums.values()), default=0.0)

    def _latency(self, blocks: float) -> float:
        """Returns the cycles of one launch in which its warps wait, if each waits for its own instructions."""
        work = self.work
        warps = max(1, work.warps)
        each = ISSUE_LATENCY * work.issued / warps + FIRST_LATENCY
        for site in work.sites:
            waits = 0.0 if site.kind.endswith("_store") else latency_of(site)
            each += waits * site.accesses / warps
        resident = max(1.0, self.resident // max(1.0, self.block_warps))
        waves = max(1.0, blocks / (MULTIPROCESSORS * resident))
        return each * waves


def latency_of(site: SiteCounts) -> float:
    """Returns the cycles that a warp waits for one access."""
    return SHARED_LATENCY if site.kind.startswith("shared") else GLOBAL_LATENCY


def load_store_cycles(site: SiteCounts) -> float:
    """Returns the cycles for which a site keeps a multiprocessor's load-store unit."""
    if site.kind.startswith("global"):
        return max(float(site.accesses), site.actual / SECTORS)
    return float(max(site.accesses, site.actual))


def _norm(parts: list[float]) -> float:
    top = max(parts, default=0.0)
    return top * sum((p / top) ** NORM for p in parts) ** (1 / NORM) if top > 0 else 0.0


def cost_of(work: KernelWork, fit: Occupancy | None) -> KernelCost:
    """Returns the cost of a kernel, with its occupancy where it is known."""
    threads = fit.threads if fit else 256
    return KernelCost(work, float(fit.warps) if fit and fit.warps else FULL_WARPS, float(-(-threads // 32)))


def with_sites(cost: KernelCost, change: Callable[[SiteCounts], SiteCounts], issue_falls: bool = False) -> KernelCost:
    """Returns the cost with changed sites; if asked, instructions that are left out count no longer as issued."""
    sites = tuple(change(s) for s in cost.work.sites)
    fewer = sum(s.accesses for s in cost.work.sites) - sum(s.accesses for s in sites) if issue_falls else 0
    work = cost.work.changed(sites=sites, issued=max(0, cost.work.issued - fewer))
    return replace(cost, work=work)


def with_lines(cost: KernelCost, change: Callable[[LineCounts], LineCounts]) -> KernelCost:
    """Returns the cost with changed lines, and with the instructions that they issue less."""
    lines = tuple(change(v) for v in cost.work.lines)
    fewer = sum(v.issued for v in cost.work.lines) - sum(v.issued for v in lines)
    return replace(cost, work=cost.work.changed(lines=lines, issued=max(0, cost.work.issued - fewer)))
