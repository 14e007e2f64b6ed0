"""The CUDA runtime of one runner: accessible device memory, builds, launches and findings.

All launches of a candidate pass through one `Runtime`, whichever interface made them. Device memory is the process's
own memory, so each launch gets a table of the live tensors, and every access is checked against it. The runtime
records facts; the judge decides what they mean for the verdict.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelwright.builds import BuildRequest, BuildResult, KernelBuildFailed
from kernelwright.errors import DeviceError
from kernelwright.machine import (
    ORDERS,
    Allocation,
    Fault,
    LaunchAttributes,
    LaunchOptions,
    LaunchReport,
    MachineFault,
    Program,
    PTXError,
    UnsupportedPTX,
)
from kernelwright.machine.tensor_shadows import TensorShadows
from kernelwright.machine.texture import Texture

if TYPE_CHECKING:
    import torch

_PLAIN = LaunchAttributes()
BUDGET = 4_000_000_000
"""The bound on thread instructions of one launch: about four seconds of one core."""
POISONS = (0xFF, 0x7E, 0xFE)
"""Poison bytes of unwritten shared and local memory, rotating by call: NaN, large, large and negative numbers."""
WATCHED = 200_000_000
"""The bound on a candidate's thread instructions in watched launches; later launches are not watched."""
SUSPECTS = ("uninitialised-read", "shuffle-from-inactive")
"""Warnings that a correct kernel can cause when it discards the value; they count only if outputs are wrong."""
CAUSES = (*SUSPECTS, "data-race", "missing-fence", "async-copy", "sync-mask")
"""Warnings after which addresses, loop bounds and conditions may hold anything."""
CONSEQUENCES = (
    "out-of-bounds-read",
    "out-of-bounds-write",
    "misaligned-access",
    "index-overflow",
    "instruction-budget",
    "barrier-deadlock",
    "grid-deadlock",
    "mbarrier-misuse",
    "trap",
    "assert",
)
"""Faults that such a value can lead to. The warning before one is named first."""
MAX_FINDINGS = 50
MAX_PRINTED = 8 << 20
"""The bound on kept characters of device printf; the last launch may exceed it by its own limit."""

ERRORS = {
    "instruction-budget": "the launch timed out and was terminated",
    "barrier-deadlock": "the launch timed out and was terminated",
    "grid-deadlock": "the launch timed out and was terminated",
    "barrier-misuse": "unspecified launch failure",
    "mbarrier-misuse": "unspecified launch failure",
    "bad-descriptor": "an illegal instruction was encountered",
    "misaligned-access": "misaligned address",
    "invalid-launch": "invalid configuration argument",
    "assert": "device-side assert triggered",
    "trap": "unspecified launch failure",
}


@dataclass
class LaunchRecord:
    """The sum of one kernel's launches within one call."""

    kernel: str
    count: int = 0
    instructions: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    """`grid`, `block` and `shared_bytes` (dynamic shared memory) are those of the last launch."""
    shared_bytes: int = 0
    watched: int = 0
    """The number of watched launches; `hotspots` and `memory` cover these."""
    hotspots: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    """Per allocation, by name: the most distinct bytes that one launch read and wrote."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    sites: list[dict[str, Any]] = field(default_factory=list)
    """`lines` and `sites` are the work of sampled launches by source line, scaled to all blocks."""


@dataclass
class CallFacts:
    """Facts of device code between `begin_call` and `end_call`. Byte counts are keyed by the storage's address."""

    launches: list[LaunchRecord] = field(default_factory=list)
    own_calls: int = 0
    written: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Returns the facts as a message has them; `dataclasses.asdict` would copy every counter."""
        return {**vars(self), "launches": [vars(launch) for launch in self.launches]}


class Runtime:
    """State of the simulated device. `build` sends a request to the builder and returns its result."""

    def __init__(
        self,
        build: Callable[[BuildRequest], BuildResult],
        budget: int = BUDGET,
        on_host: Callable[[torch.Tensor], bool] = lambda _tensor: False,
    ) -> None:
        self._build = build
        self.on_host = on_host
        """Tells whether a tensor is in host memory, which device code cannot access on a GPU."""
        self.budget = budget
        self.device = "cuda"
        self.builds: list[BuildResult] = []
        self.findings: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        self.unsupported: list[str] = []
        self.compile_errors: list[dict[str, Any]] = []
        """Errors of compilers that run in this process, such as Triton's; the builder did not see these builds."""
        self.library_ops: list[tuple[str, int]] = []
        self.own_calls = 0
        self.adopt: Callable[[Any], None] = lambda _tensor: None
        """Called with tensors that the candidate's host functions make over their own memory."""
        self.quietly: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
        """A context in which the runner records no torch operators; the library call itself is recorded instead."""
        self.textures: dict[int, Texture] = {}
        """Live texture and surface objects by handle; every launch gets all of them."""
        self.printed: list[str] = []
        """Output of device printf, one item per launch."""
        self.shadows = TensorShadows()
        """The unwritten bytes of memory that torch allocated without contents."""
        self._programs: dict[str, Program] = {}
        self._sources: dict[int, str] = {}
        self._given: dict[int, str] = {}
        self._watched = 0
        self._storages: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._facts = CallFacts()
        self._calls = self._seed = 0
        self._heap = self._heap_before = ("", 0, 0)
        """The last launched kernel, with the blocks and bytes of in-kernel malloc held after it."""

    def compile(self, request: BuildRequest) -> BuildResult:
        """Sends a build request; records the result even if the candidate ignores it."""
        result = self._build(request)
        self.builds.append(result)
        return result

    def program(self, result: BuildResult) -> Program:
        """Returns the loaded device code of a build. Raises `KernelBuildFailed` for unsupported or malformed PTX."""
        text = result.ptx or ""
        key = hashlib.sha256(text.encode()).hexdigest()
        if key not in self._programs:
            try:
                self._programs[key] = Program.load(text, self.room())
                self._sources[id(self._programs[key])] = result.device_source or ""
            except UnsupportedPTX as error:
                self.unsupported += [f"ptx: {name}" for name in error.features]
                raise KernelBuildFailed(f"the functional machine does not know {', '.join(error.features)}") from None
            except PTXError as error:
                self.unsupported.append(f"ptx: {error}")
                raise KernelBuildFailed(f"the device code cannot be loaded: {error}") from None
        return self._programs[key]

    def room(self) -> int:
        """Returns the address from which on memory is free for the variables of a program; 0 for any."""
        return 0

    def register(self, tensor: torch.Tensor) -> None:
        """Makes a tensor's memory accessible to device code for the lifetime of its storage."""
        storage = tensor.untyped_storage()
        # torch keeps a storage's Python object alive as long as its memory, so the weak reference expires with it.
        self._storages[storage._cdata] = (weakref.ref(storage), str(tuple(tensor.shape)))

    def address_of(self, tensor: torch.Tensor) -> int:
        """Returns the address of a tensor's first element, which device code may then access."""
        self.register(tensor)
        return int(tensor.data_ptr())

    def given(self, inputs: Iterable[torch.Tensor], weights: Iterable[torch.Tensor]) -> None:
        """Registers the next call's inputs and weights: they have contents, and findings use these names for them."""
        named = [(f"weight {i}", t) for i, t in enumerate(weights)] + [(f"input {i}", t) for i, t in enumerate(inputs)]
        self._given = {t.untyped_storage().data_ptr(): name for name, t in named}
        for _name, tensor in named:
            self.register(tensor)
            self.shadows.forget(tensor.untyped_storage())

    def allocations(self) -> list[Allocation]:
        """Returns the live storages, sorted by address: the memory that device code may touch now.

        Storages that overlap, such as two tensors made from one numpy array, are merged into one range.
        """
        living = []
        for key, (reference, name) in list(self._storages.items()):
            storage = reference()
            if storage is None:
                del self._storages[key]
            elif storage.nbytes():
                living.append((storage.data_ptr(), storage.nbytes(), name))
        table: list[Allocation] = []
        for address, nbytes, name in sorted(living):
            last = table[-1] if table else None
            if last is not None and address < last.address + last.nbytes:
                end = max(last.address + last.nbytes, address + nbytes)
                table[-1] = Allocation(last.address, end - last.address, last.name)
            else:
                known = self._given.get(address, "tensor")
                table.append(Allocation(address, nbytes, f"{known} {name}", shadow=self.shadows.of(address, nbytes)))
        return table

    def _named(
        self, table: Sequence[Allocation], program: Program, kernel: str, args: Sequence[bytes]
    ) -> list[Allocation]:
        """Returns the table with allocations named after the kernel arguments that point to them."""
        names = parameter_names(self._sources.get(id(program), ""), readable(kernel))
        pointers = [(i, int.from_bytes(a, "little")) for i, a in enumerate(args) if len(a) == 8]
        found = []
        for a in table:
            index = next((i for i, p in pointers if a.address <= p < a.address + a.nbytes), None)
            if index is not None:
                own = f"'{names[index]}', " if len(names) == len(args) else ""
                a = dataclasses.replace(a, name=f"argument {index} ({own}{a.name})")
            found.append(a)
        return found

    def launch(
        self,
        program: Program,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        args: Sequence[bytes],
        *,
        own_shared: bool = True,
        attributes: LaunchAttributes = _PLAIN,
    ) -> None:
        """Runs a kernel to its end. A fault is recorded and raised as the RuntimeError that a GPU would give.

        `own_shared` is False where the compiler manages shared memory, as in Triton. Its code lets lanes that hold the
        same value up to rounding store to one address, so races in shared memory are not reported.
        """
        table = self._named(self.allocations(), program, kernel, args)
        watch = self._watched < WATCHED
        try:
            report = program.launch(
                kernel,
                three(grid),
                three(block),
                list(args),
                shared_bytes,
                table,
                LaunchOptions(
                    budget=self.budget,
                    order=list(ORDERS)[self._calls % len(ORDERS)],
                    seed=self._seed + self._calls,
                    textures=tuple(self.textures.values()),
                    watch=watch,
                    poison=POISONS[self._calls % len(POISONS)],
                    attributes=attributes,
                ),
            )
        except MachineFault as fault:
            self._print(fault.printed)
            self.faults.append(fault.fault)
            self._find_fault(fault, own_shared)
            text = ERRORS.get(fault.fault.kind, "an illegal memory access was encountered")
            raise DeviceError(f"CUDA error: {text} ({fault.fault.message})") from None
        self._print(report.printed)
        for warning in report.warnings:
            if not own_shared and ".shared" in warning.ptx:
                continue
            self._find(warning, "suspect" if warning.kind in SUSPECTS else "warning")
        record = self._note(kernel, report, table)
        if watch:
            self._watched += report.instructions
            _note_watched(record, report, table)
        record.grid, record.block, record.shared_bytes = three(grid), three(block), shared_bytes

    def _find_fault(self, ended: MachineFault, own_shared: bool) -> None:
        """Records a launch's fault, and before it what has probably led to it: a race, else a suspect."""
        fault = ended.fault
        warnings = [w for w in ended.warnings if own_shared or ".shared" not in w.ptx]
        found = sorted((w for w in warnings if w.kind in CAUSES), key=lambda w: w.kind in SUSPECTS)
        cause = found[0] if found and fault.kind in CONSEQUENCES else None
        if cause is not None:
            place = f" on line {fault.line}" if fault.line else ""
            led = f"{cause.message}; the launch then ended with {fault.kind}{place}: {fault.message}"
            self._find(dataclasses.replace(cause, message=led), "fault")
        for warning in warnings:
            self._find(warning, "suspect" if warning.kind in SUSPECTS else "warning")
        self._find(fault, "fault")

    def _print(self, text: str) -> None:
        if text and sum(map(len, self.printed)) < MAX_PRINTED:
            self.printed.append(text)

    def _note(self, kernel: str, report: LaunchReport, table: Sequence[Allocation]) -> LaunchRecord:
        record = next((r for r in self._facts.launches if r.kernel == kernel), None)
        if record is None:
            record = LaunchRecord(kernel)
            self._facts.launches.append(record)
        record.count += 1
        record.instructions += report.instructions
        for name, value in report.counters.items():
            held = name.startswith("heap_")  # a state after the launch, not a sum
            record.counters[name] = value if held else record.counters.get(name, 0) + value
        self._heap = kernel, report.counters.get("heap_blocks", 0), report.counters.get("heap_bytes", 0)
        for amounts, totals in ((report.written, self._facts.written), (report.read, self._facts.read)):
            for allocation, nbytes in zip(table, amounts, strict=True):
                if nbytes:
                    totals[allocation.address] = totals.get(allocation.address, 0) + nbytes
        return record

    def _find(self, fault: Fault, severity: str) -> None:
        if len(self.findings) >= MAX_FINDINGS:
            return
        # A race recurs in every launch: keep one finding per kernel and line.
        if any((f["rule"], f["kernel"], f["line"]) == (fault.kind, fault.kernel, fault.line) for f in self.findings):
            return
        where = f" in kernel {readable(fault.kernel)}"
        if fault.block is not None and fault.thread is not None:
            where += f", block {fault.block}, thread {fault.thread}"
        if fault.line:
            where += f", line {fault.line} of {fault.file if in_python(fault.file) else 'the CUDA source'}"
        if fault.header:
            where += f", in {fault.header}"
        if fault.ptx:
            where += f" [{fault.ptx.strip()}]"
        known = {"rule": fault.kind, "evidence": fault.message + where, "severity": severity}
        self.findings.append({**known, "kernel": fault.kernel, "line": fault.line, "file": fault.file or ""})

    def tell(self, rule: str, evidence: str, kernel: str) -> None:
        """Records an `info` finding about a kernel, once per rule."""
        if len(self.findings) < MAX_FINDINGS and not any(
            (f["rule"], f["kernel"]) == (rule, kernel) for f in self.findings
        ):
            self.findings.append(
                {"rule": rule, "evidence": evidence, "severity": "info", "kernel": kernel, "line": None}
            )

    def instructions(self) -> int:
        """Returns the thread instructions of the current call so far."""
        return sum(record.instructions for record in self._facts.launches)

    def copied_to(self, address: int, nbytes: int, source: int = 0) -> bool:
        """Counts a copy by host code as bytes written if `address` is device memory; tells whether it is."""
        self.shadows.wrote_range(address, nbytes, source)
        place = self._place(address)
        if place is not None:
            self._facts.written[place] = self._facts.written.get(place, 0) + nbytes
        return place is not None

    def written(self) -> dict[int, int]:
        """Returns the bytes that launches of this call have stored so far, by the allocation's address."""
        return self._facts.written

    def stored(self, address: int) -> int:
        """Returns the bytes stored so far in this call into the allocation that contains `address`."""
        written = self._facts.written
        place = address if address in written or not written else self._place(address)
        return written.get(place or 0, 0)

    def _place(self, address: int) -> int | None:
        """Returns the start of the allocation that contains `address`, or None."""
        return next((a.address for a in self.allocations() if a.address <= address < a.address + a.nbytes), None)

    def begin_call(self, seed: int = 0) -> None:
        """Resets the facts of the call; findings and faults are kept for the candidate's lifetime. `seed` chooses the
        schedule of blocks and warps."""
        self._facts = CallFacts()
        self.library_ops = []
        self.own_calls = 0
        self._calls += 1
        self._seed = seed
        self._heap_before = self._heap

    def end_call(self) -> CallFacts:
        """Returns the facts since `begin_call`. Adds a warning if the call leaked memory of in-kernel malloc."""
        kernel, blocks, nbytes = self._heap
        if blocks > self._heap_before[1]:
            message = f"{blocks} blocks ({nbytes} bytes) of in-kernel malloc are still allocated when the call ends"
            self._find(Fault("heap-leak", message, kernel), "warning")
        self._facts.own_calls = self.own_calls
        return self._facts


def in_python(file: str | None) -> bool:
    """Tells whether a source file is Python, as for Triton kernels."""
    return file is not None and file.endswith(".py")


def _note_watched(record: LaunchRecord, report: LaunchReport, table: Sequence[Allocation]) -> None:
    """Adds a watched launch's hot lines and touched bytes to its kernel's record."""
    record.watched += 1
    for spot in report.hotspots:
        same = next((h for h in record.hotspots if (h["kind"], h["line"]) == (spot.kind, spot.line)), None)
        if same is None:
            record.hotspots.append(dataclasses.asdict(spot))
            continue
        for name in ("accesses", "actual", "ideal"):
            same[name] += getattr(spot, name)
    for allocation, read, written in zip(table, report.touched_read, report.touched_written, strict=True):
        if not read and not written:
            continue
        known = next((m for m in record.memory if m["name"] == allocation.name), None)
        if known is None:
            known = {"name": allocation.name, "bytes": allocation.nbytes, "read": 0, "written": 0}
            record.memory.append(known)
        known["read"], known["written"] = max(known["read"], read), max(known["written"], written)


@cache
def parameter_names(source: str, kernel: str) -> tuple[str, ...]:
    """Returns the names of a kernel's parameters from its source; empty if they cannot be parsed."""
    base = re.escape(kernel.split("<")[0].split("::")[-1])
    found = re.search(rf"\b{base}\s*\(([^(){{}}]*)\)\s*\{{", re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.S))
    if found is None:
        return ()
    names = [re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", part) for part in found[1].split(",")]
    return tuple(n[1] if n else "" for n in names)


@cache
def readable(name: str) -> str:
    """Demangles a kernel's name and drops its parameters: `_Z7softmaxIfLi256EEvPT_` to `softmax<float, 256>`."""
    if not name.startswith("_Z"):
        return name
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name
    library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not text:
        return name
    plain = ctypes.string_at(text).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return _short_lambdas(plain).split("(")[0].removeprefix("void ")


def _short_lambdas(name: str) -> str:
    """Replaces the generated types of host lambdas in a name by `lambda of line N`."""
    while match := re.search(r"\bkw_(?:device|both)<(\d+),", name):
        depth, end = 1, match.end()
        while depth and end < len(name):
            depth += {"<": 1, ">": -1}.get(name[end], 0)
            end += 1
        name = f"{name[: match.start()]}lambda of line {match.group(1)}{name[end:].removeprefix(' ')}"
    return name


def three(size: Sequence[int]) -> tuple[int, int, int]:
    """Pads a grid or block to three dimensions with ones."""
    values = [int(s) for s in size] + [1, 1, 1]
    return values[0], values[1], values[2]
