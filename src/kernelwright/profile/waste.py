"""Ranks what a call wastes, by the time that its removal would save (`cost`), each waste with its line.

A waste is a change of the counts: sectors become the ideal ones, idle lanes work, a launch is left out. Its share is
the estimated time without it, against the time with it. Rules of one kernel are rows of `RULES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kernelwright.profile.cost import (
    DRAM_BYTES,
    FULL_WARPS,
    LAUNCH_CYCLES,
    MULTIPROCESSORS,
    KernelCost,
    cost_of,
    with_lines,
    with_sites,
)
from kernelwright.profile.facts import KernelProfile, KernelWork, LineCounts, SiteCounts, Waste, WasteKind
from kernelwright.profile.trace import simple_name

LEAST_SAVED = 0.04
"""The least share of the time that is worth a line."""
UNMEANT = ("double",)
"""Told whatever they cost, since few authors mean them."""
MOST = 8
SECTOR, WARP = 32, 32
BYTES_AN_ELEMENT = 4


@dataclass(frozen=True)
class FoundWaste:
    """A waste of one kernel: the cost without it, the line, and what to say."""

    kind: WasteKind
    without: KernelCost
    line: int | None
    text: str


Rule = Callable[[KernelCost, KernelProfile], FoundWaste | None]


def wastes(kernels: Sequence[KernelProfile], operators: Sequence[tuple[str, int]], text: str) -> tuple[Waste, ...]:
    """Returns the wastes of a call, most first: of kernels with counts, and of operators of torch between them.

    `text` is the candidate's file, in which the lines that launch are looked up.
    """
    counted = [(k, cost_of(k.work, k.occupancy)) for k in kernels if k.work is not None and k.work.launches]
    cycles = {k.name: _with_launches(cost, cost.cycles()) for k, cost in counted}
    copied = sum(_operator_cycles(n) for _, n in operators)
    total = sum(cycles.values()) + copied
    if total <= 0:
        return ()
    made: list[Waste] = []
    for kernel, cost in counted:
        for rule in RULES:
            found = rule(cost, kernel)
            if found is None:
                continue
            saved = (cycles[kernel.name] - _with_launches(found.without, found.without.cycles())) / total
            made.append(_waste(found, kernel, saved, text))
    made += _of_the_call(counted, operators, total, text)
    kept = sorted((w for w in made if w.saved >= LEAST_SAVED or w.kind in UNMEANT), key=lambda w: -w.saved)
    return tuple(kept[:MOST])


def _with_launches(cost: KernelCost, cycles: float) -> float:
    """Returns the cycles of a kernel whose launches follow each other no faster than launches can."""
    return max(cycles, LAUNCH_CYCLES * cost.work.launches)


def _operator_cycles(elements: int) -> float:
    return max(LAUNCH_CYCLES, 2 * elements * BYTES_AN_ELEMENT / DRAM_BYTES / MULTIPROCESSORS)


def _waste(found: FoundWaste, kernel: KernelProfile, saved: float, text: str) -> Waste:
    name = simple_name(kernel.name) or kernel.name
    line = found.line
    if found.kind in ("parallelism", "occupancy"):
        line = next(iter(launch_lines(text, name)), line)
    return Waste(kind=found.kind, kernel=name, line=line, saved=round(saved, 3), text=found.text)


# --- of one kernel -------------------------------------------------------------------------------------------------


def _worst(sites: Iterable[SiteCounts], weight: Callable[[SiteCounts], float]) -> SiteCounts | None:
    """Returns the sum of the sites of the line that weighs most."""
    rows: dict[int | None, list[SiteCounts]] = {}
    for site in sites:
        rows.setdefault(site.line, []).append(site)
    if not rows:
        return None
    same = max(rows.values(), key=lambda v: sum(map(weight, v)))
    names = ("accesses", "actual", "ideal", "bytes")
    heaviest = max(same, key=weight)
    return heaviest.changed(**{n: sum(getattr(s, n) for s in same) for n in names})


def _excess(site: SiteCounts) -> float:
    return float(max(0, site.actual - site.ideal))


def _ideal(kinds: tuple[str, ...]) -> Callable[[SiteCounts], SiteCounts]:
    return lambda s: s.changed(actual=min(s.actual, s.ideal)) if s.kind in kinds else s


def _sectors(kind: WasteKind, what: str, cure: str) -> Rule:
    kinds = (kind,)

    def rule(cost: KernelCost, _: KernelProfile) -> FoundWaste | None:
        worst = _worst((s for s in cost.work.sites if s.kind == kind), _excess)
        if worst is None or worst.actual < 1.5 * max(1, worst.ideal):
            return None
        each, need = (count / max(1, worst.accesses) for count in (worst.actual, worst.ideal))
        text = f"{what} of a warp take {each:.1f} sectors of 32 bytes where {need:.1f} would do: {cure}"
        return FoundWaste(kind, with_sites(cost, _ideal(kinds)), worst.line, text)

    return rule


def _conflicts(cost: KernelCost, _: KernelProfile) -> FoundWaste | None:
    kinds = ("shared_load", "shared_store")
    worst = _worst((s for s in cost.work.sites if s.kind in kinds), _excess)
    if worst is None or worst.actual < 1.5 * max(1, worst.ideal):
        return None
    ways = worst.actual / max(1, worst.ideal)
    what = "loads from" if worst.kind == "shared_load" else "stores to"
    text = f"{what} shared memory have {ways:.0f}-way bank conflicts: pad rows by one element, or permute the index"
    return FoundWaste("bank_conflicts", with_sites(cost, _ideal(kinds)), worst.line, text)


def _rereads(cost: KernelCost, _: KernelProfile) -> FoundWaste | None:
    """Finds sites that load the bytes of an allocation many times over."""

    def factor(site: SiteCounts) -> float:
        if site.kind != "global_load" or not site.allocation_bytes:
            return 1.0
        loaded = SECTOR * min(site.actual, site.ideal)
        # An output that is a choice of the input, as of an embedding, needs one load for each of its elements.
        needed = max(cost.work.launches * site.allocation_bytes, cost.work.bytes_written)
        return max(1.0, loaded / needed)

    worst = max(cost.work.sites, key=lambda s: s.accesses * (1 - 1 / factor(s)), default=None)
    if worst is None or factor(worst) < 2:
        return None

    def once(site: SiteCounts) -> SiteCounts:
        by = factor(site)
        return site.changed(**{n: round(getattr(site, n) / by) for n in ("accesses", "actual", "ideal", "bytes")})

    name = _short(worst.allocation)
    text = (
        f"loads {name} {factor(worst):.0f} times over: keep what is used again in shared memory or registers, and "
        "compute once what several threads need"
    )
    return FoundWaste("rereads", with_sites(cost, once, issue_falls=True), worst.line, text)


def _short(allocation: str) -> str:
    """Reduces `argument 0 ('x', input 0 (4, 4))` to `x (input 0)`."""
    match = re.search(r"'(\w+)', ((?:input|weight) \d+)?", allocation)
    if match is None:
        return "its input" if not allocation else allocation.split(" (")[0]
    return f"{match[1]} ({match[2]})" if match[2] else match[1]


def _divergence(cost: KernelCost, kernel: KernelProfile) -> FoundWaste | None:
    def idle(line: LineCounts) -> float:
        return max(0.0, line.issued - line.threads / WARP)

    worst = max(cost.work.lines, key=idle, default=None)
    if worst is None or worst.issued == 0 or worst.threads > 0.75 * WARP * worst.issued:
        return None
    cost_without = with_lines(cost, lambda v: v.changed(issued=min(v.issued, -(-v.threads // WARP))))
    lanes = worst.threads / worst.issued
    block = kernel.block[0] * kernel.block[1] * kernel.block[2] if kernel.block else 0
    if block % WARP and abs(lanes - block / -(-block // WARP)) < 1:
        text = f"blocks of {block} threads leave {-block % WARP} lanes idle: use a multiple of {WARP}"
    else:
        text = f"{lanes:.0f} of {WARP} lanes are active: give all lanes the same path and the same amount of work"
    return FoundWaste("divergence", cost_without, worst.line, text)


def _share(cost: KernelCost, part: str) -> tuple[LineCounts | None, int]:
    worst = max(cost.work.lines, key=lambda v: int(getattr(v, part)), default=None)
    total = sum(getattr(v, part) for v in cost.work.lines)
    return (worst if total else None), total


def _doubles(cost: KernelCost, _: KernelProfile) -> FoundWaste | None:
    worst, total = _share(cost, "doubles")
    if worst is None:
        return None
    text = (
        f"{100 * total / max(1, cost.work.issued):.0f} % of the instructions are in double precision: if none is "
        "meant, write 1.0f for 1.0 and expf for exp"
    )
    without = with_lines(cost, lambda v: v.changed(doubles=0, issued=v.issued - v.doubles // 2))
    return FoundWaste("double", without, worst.line, text)


def _specials(cost: KernelCost, _: KernelProfile) -> FoundWaste | None:
    """Finds lines that spend the time on transcendental functions and their argument reduction."""
    worst, total = _share(cost, "special")
    if worst is None or worst.issued < 0.4 * cost.work.issued:
        return None
    text = (
        f"divisions, roots and transcendental functions: this line takes "
        f"{100 * worst.issued / max(1, cost.work.issued):.0f} % of the instructions: multiply for small powers, "
        "compute once what is used again, use __expf and __fdividef where the tolerance allows"
    )
    cheaper = with_lines(cost, lambda v: v.changed(special=v.special // 4, issued=v.issued // 2) if v.special else v)
    return FoundWaste("special", cheaper, worst.line, text) if total else None


def _local(cost: KernelCost, kernel: KernelProfile) -> FoundWaste | None:
    stack = kernel.resources.stack_bytes if kernel.resources else 0
    worst = _worst((s for s in cost.work.sites if s.kind.startswith("local")), lambda s: float(s.accesses))
    if worst is None or not stack:
        return None
    none = with_sites(
        cost, lambda s: s.changed(accesses=0, actual=0, ideal=0) if s.kind.startswith("local") else s, True
    )
    text = f"{stack} bytes of local memory a thread, which is device memory: index arrays by constants (unroll)"
    return FoundWaste("local", none, worst.line, text)


def _atomics(cost: KernelCost, _: KernelProfile) -> FoundWaste | None:
    worst = _worst((s for s in cost.work.sites if s.kind == "global_atomic"), lambda s: float(s.bytes))
    if worst is None or not worst.allocation_bytes:
        return None
    each = worst.bytes / worst.allocation_bytes
    where = _short(worst.allocation)
    text = f"{each:.0f} atomics go to each address of {where}, one after another: add up in a block first"
    without = with_sites(
        cost,
        lambda s: (
            s.changed(accesses=s.accesses // 64, actual=s.actual // 64, ideal=s.ideal // 64, bytes=s.bytes // 256)
            if s.kind == "global_atomic"
            else s
        ),
        True,
    )
    return FoundWaste("atomics", without, worst.line, text) if each >= 64 else None


def _barriers(cost: KernelCost, _: KernelProfile) -> FoundWaste | None:
    worst, total = _share(cost, "barriers")
    if worst is None:
        return None
    each = total / max(1, cost.work.warps)
    text = f"each warp waits at {each:.0f} barriers: add up in registers first, and reduce by warp shuffles"
    return FoundWaste(
        "barriers", with_lines(cost, lambda v: v.changed(barriers=0, issued=v.issued - v.barriers)), worst.line, text
    )


def _narrow(cost: KernelCost, kernel: KernelProfile) -> FoundWaste | None:
    """Finds neighbouring loads of at most four bytes in kernels that are not bound by the bytes themselves."""

    def fits(site: SiteCounts) -> bool:
        dense = site.bytes <= SECTOR * site.ideal * 1.05 and site.actual <= 1.3 * site.ideal
        return site.kind in ("global_load", "global_store") and dense and site.bytes <= 4 * WARP * site.accesses

    width = kernel.resources.load_bytes if kernel.resources else None
    worst = max((s for s in cost.work.sites if fits(s)), key=lambda s: s.accesses, default=None)
    if worst is None or width is None or width > 4 or any(s.kind.startswith("shared") for s in cost.work.sites):
        return None
    by = max(1.0, 16 / width)
    text = f"loads of {width:.0f} bytes a thread: 16 at once (float4 or the like) where rows allow it"
    wider = with_sites(cost, lambda s: s.changed(accesses=round(s.accesses / by)) if fits(s) else s, True)
    return FoundWaste("narrow", wider, worst.line, text)


def _occupancy(cost: KernelCost, kernel: KernelProfile) -> FoundWaste | None:
    fit = kernel.occupancy
    if fit is None or fit.fraction > 0.4 or kernel.block is None:
        return None
    cures = {
        "registers": f"{kernel.resources.registers if kernel.resources else '?'} registers a thread are the limit",
        "shared memory": "shared memory is the limit: use smaller tiles",
        "blocks": f"blocks of {fit.threads} threads are the limit: use larger ones",
        "warps": f"blocks of {fit.threads} threads are the limit: use smaller ones",
        "block size": f"{fit.threads} threads a block are more than the 1024 that there can be",
    }
    text = f"only {100 * fit.fraction:.0f} % of the warps fit: {cures[fit.limiter]}"
    return FoundWaste("occupancy", replace(cost, resident=FULL_WARPS, block_warps=1.0), None, text)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _parallelism(cost: KernelCost, kernel: KernelProfile) -> FoundWaste | None:
    blocks = cost.work.blocks / cost.work.launches
    if blocks >= MULTIPROCESSORS or kernel.grid is None:
        return None
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2] if kernel.block else 0
    text = (
        f"{_many(round(blocks), 'block')} of {_many(threads, 'thread')} leave most of the {MULTIPROCESSORS} "
        f"multiprocessors idle: split the work over more blocks"
    )
    return FoundWaste("parallelism", replace(cost, spread=True, latency=False), None, text)


RULES: tuple[Rule, ...] = (
    _sectors("global_load", "global loads", "let neighbouring threads read neighbouring addresses"),
    _sectors(
        "global_store", "global stores", "let neighbouring threads write neighbouring addresses, through shared memory"
    ),
    _conflicts,
    _rereads,
    _divergence,
    _doubles,
    _specials,
    _local,
    _atomics,
    _barriers,
    _narrow,
    _occupancy,
    _parallelism,
)


# --- of the whole call ---------------------------------------------------------------------------------------------


def _of_the_call(
    counted: Sequence[tuple[KernelProfile, KernelCost]], operators: Sequence[tuple[str, int]], total: float, text: str
) -> list[Waste]:
    made = [*_launches(counted, total, text), *_handed(counted, total, text)]
    for name, elements in operators:
        plain = name.split(".")[0]
        saved = _operator_cycles(elements) / total
        what = f"torch's {plain} moves or computes {elements} elements apart from your kernels: read the input as it is"
        made.append(Waste(kind="copies", line=_operator_line(text, plain), saved=round(saved, 3), text=what))
    return made


def _launches(counted: Sequence[tuple[KernelProfile, KernelCost]], total: float, text: str) -> list[Waste]:
    """Finds kernels whose launches take longer than their work."""
    made = []
    for kernel, cost in counted:
        count, cycles = cost.work.launches, cost.cycles()
        idle = LAUNCH_CYCLES * count - max(cycles, LAUNCH_CYCLES)
        if count < 2 or idle <= 0:
            continue
        name = simple_name(kernel.name) or kernel.name
        what = f"{count} launches a call, each with too little work to pay for a launch: do it in one"
        line = next(iter(launch_lines(text, name)), None)
        made.append(Waste(kind="launches", kernel=name, line=line, saved=round(idle / total, 3), text=what))
    return made


def _handed(counted: Sequence[tuple[KernelProfile, KernelCost]], total: float, text: str) -> list[Waste]:
    """Finds tensors that one kernel writes for another one to read."""
    handed = sum(c.work.bytes_handed for _, c in counted)
    readers = [k for k, c in counted if c.work.bytes_handed]
    if not handed:
        return []
    name = simple_name(max(readers, key=_handed_bytes).name)
    launches = sum(c.work.launches for _, c in counted)
    saved = 2 * handed / DRAM_BYTES / MULTIPROCESSORS / total
    what = f"{launches} launches hand on {handed / 1e6:.1f} MB through device memory: fuse kernels"
    lines = launch_lines(text, name)
    return [
        Waste(
            kind="launches", kernel=name, line=lines[-1] if lines else None, saved=round(min(saved, 0.95), 3), text=what
        )
    ]


def _handed_bytes(kernel: KernelProfile) -> int:
    return kernel.work.bytes_handed if isinstance(kernel.work, KernelWork) else 0


def launch_lines(text: str, kernel: str) -> list[int]:
    """Returns the lines of a candidate's file that launch a kernel: `name<<<`, `module.name[` or `get("name…")[`."""
    name = re.escape(kernel)
    found = re.compile(rf"\b{name}\s*(?:<[^<>()]*>\s*)?<<<|\b{name}\s*\[|get\(\s*[\"']{name}\b")
    return [number for number, line in enumerate(text.split("\n"), 1) if found.search(line)]


_SPELT = {
    "clone": r"\.(?:contiguous|clone)\(",
    "copy": r"\.(?:copy_|contiguous|to)\(",
    "_to_copy": r"\.(?:to|float|half)\(",
}


def _operator_line(text: str, name: str) -> int | None:
    """Returns the first line of a candidate's file that calls an operator of torch."""
    plain = name.strip("_") or name
    found = re.compile(_SPELT.get(name.rstrip("_"), rf"(?:\.|\b){re.escape(plain)}_?\("))
    return next((number for number, line in enumerate(text.split("\n"), 1) if found.search(line)), None)
