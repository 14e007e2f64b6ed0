"""Prints a profile: a table of kernels, a line about the whole call, the missed rungs, and advice."""

from __future__ import annotations

import sys

from rich import markup
from rich.console import Console
from rich.table import Table

from kernelwright.profile.facts import KernelProfile, Occupancy, Profile
from kernelwright.profile.trace import simple_name
from kernelwright.untrusted import visible

WIDTH = 160
SHOWN = 20


def _escape(text: str) -> str:
    """Escapes markup and terminal control sequences, since names come from candidates."""
    return markup.escape(visible(text))


def print_profile(profile: Profile) -> None:
    """Prints a profile to stdout."""
    out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    where = profile.card or f"compiled for {profile.arch}, not run on a GPU"
    out.print(
        f"[bold]{profile.rung}[/]  {_escape(profile.task_id)}, size {_escape(profile.size)}  [dim]{_escape(where)}[/]"
    )
    if profile.kernels:
        out.print(_table(profile))
    for line in _whole(profile):
        out.print(line, soft_wrap=True)
    for note in profile.notes:
        out.print(f"[dim]{_escape(note)}[/]", soft_wrap=True)
    for missed in profile.missed:
        out.print(f"[dim]no {missed.rung}: {_escape(missed.reason)}[/]", soft_wrap=True)
    if profile.rung == "static" and not profile.wastes and any(k.work for k in profile.kernels):
        out.print("[dim]no large waste in the counts of this call[/]")
    for line in profile.advice:
        out.print(f"[green]→[/] {_escape(line)}", soft_wrap=True)


def _table(profile: Profile) -> Table:
    timed = profile.rung != "static"
    heads = ["kernel", "launches", "block", "registers", "shared", "local", "occupancy"]
    heads += ["time", "share", "whose", "bound"] if timed else ["instructions", "loads"]
    table = Table(*heads, box=None, header_style="dim")
    for kernel in profile.kernels[:SHOWN]:
        table.add_row(*_resources(kernel), *(_times(kernel) if timed else _code(kernel)))
    return table


def _resources(kernel: KernelProfile) -> list[str]:
    used, fit = kernel.resources, kernel.occupancy
    registers = used.registers if used else kernel.metrics.get("registers")
    block = "x".join(str(n) for n in kernel.block if n > 1) or "1" if kernel.block else "?"
    if not kernel.block and fit:
        block = f"{fit.threads}?"
    return [
        _escape(simple_name(kernel.name) or kernel.name)[:60],
        str(kernel.launches),
        block,
        "?" if registers is None else f"{registers:.0f}",
        f"{used.shared_bytes} B" if used else "?",
        f"{used.stack_bytes} B" if used else "?",
        _fit(fit) if fit else "?",
    ]


def _fit(fit: Occupancy) -> str:
    return f"{100 * fit.fraction:.0f} %" + (f" ({fit.limiter})" if fit.fraction < 1 else "")


def _times(kernel: KernelProfile) -> list[str]:
    line = kernel.roofline
    bound = f"{line.bound} ({100 * max(line.bandwidth_share, line.compute_share):.0f} %)" if line else "?"
    share = "?" if kernel.share is None else f"{100 * kernel.share:.0f} %"
    return ["?" if kernel.time_us is None else f"{kernel.time_us:.1f} µs", share, kernel.origin, bound]


def _code(kernel: KernelProfile) -> list[str]:
    used = kernel.resources
    width = "-" if used is None or used.load_bytes is None else f"{used.load_bytes:.0f} B"
    return [str(used.instructions) if used else "?", width]


def _whole(profile: Profile) -> list[str]:
    lines = []
    if profile.trace is not None:
        t = profile.trace
        own = "" if t.own_share is None else f", {100 * t.own_share:.0f} % of it in the candidate's own kernels"
        lines.append(
            f"a call: {t.span_ms:.4g} ms from first start to last end, {t.device_ms:.4g} ms busy{own}, "
            f"{t.gap_ms:.4g} ms idle between {t.launches:.0f} launches, {t.copy_ms:.4g} ms of copies"
        )
    if profile.roofline is not None:
        r = profile.roofline
        share = f"{100 * r.floor_ms / r.time_ms:.0f} %" if r.time_ms else "?"
        lines.append(
            f"whole call: {r.bound}-bound, {r.time_ms:.4g} ms where the floor is {r.floor_ms:.4g} ms ({share}); "
            f"{profile.ceilings} ceilings"
        )
    return lines
