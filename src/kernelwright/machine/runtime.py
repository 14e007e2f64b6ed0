"""The CUDA runtime of one runner child: which memory device code may touch, what was built, launched and found.

Everything a candidate launches, by whichever way, comes through one `Runtime`. Device memory is the process's own, so
a launch gets the table of tensors that are alive; every access is checked against it. The runtime keeps facts; what
they mean for the verdict is decided in the judge.
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

from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.machine import (
    ORDERS,
    Allocation,
    Fault,
    LaunchReport,
    MachineFault,
    Program,
    PTXError,
    UnsupportedPTX,
)
from kernelwright.machine.texture import Texture

if TYPE_CHECKING:
    import torch

BUDGET = 4_000_000_000
"""Thread instructions that one launch may take: about four seconds of one core."""
POISONS = (0xFF, 0x7E, 0xFE)
"""What unwritten shared and local memory holds, call by call: NaN, then large, then large and negative numbers."""
WATCHED = 200_000_000
"""Launches are watched until a candidate's have taken so many thread instructions."""
SUSPECTS = ("uninitialised-read", "shuffle-from-inactive")
"""What a right kernel may do, too, when it drops the value: it counts only where outputs are wrong."""
MAX_FINDINGS = 50
MAX_PRINTED = 8 << 20
"""Characters of device printf that are kept; a launch may go over once by its own limit."""

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


class KernelBuildFailed(RuntimeError):
    """What a candidate sees when a build fails: like torch's own, a RuntimeError with the compiler's output."""


@dataclass
class LaunchRecord:
    """One kernel's launches within one call, summed."""

    kernel: str
    count: int = 0
    instructions: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    """Of the last launch, and so are the bytes of dynamic shared memory."""
    shared_bytes: int = 0
    watched: int = 0
    """How many of the launches were watched; what follows is about them."""
    hotspots: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    """Different bytes of each allocation that one launch read and wrote, at most, by the allocation's name."""


@dataclass
class CallFacts:
    """What device code did between `begin_call` and `end_call`. Bytes by the address of the storage that holds them."""

    launches: list[LaunchRecord] = field(default_factory=list)
    own_calls: int = 0
    written: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)


class Runtime:
    """State of the pretended device. `build` asks the builder and returns its answer."""

    def __init__(
        self,
        build: Callable[[BuildRequest], BuildResult],
        budget: int = BUDGET,
        on_host: Callable[[torch.Tensor], bool] = lambda _tensor: False,
    ) -> None:
        self._build = build
        self.on_host = on_host
        """Whether a tensor was put on the host, where device code would not reach it on a GPU."""
        self.budget = budget
        self.device = "cuda"
        self.builds: list[BuildResult] = []
        self.findings: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        self.unsupported: list[str] = []
        self.compile_errors: list[dict[str, Any]] = []
        """Of compilers that run in this process, as Triton's does: builds that the judge did not see."""
        self.library_ops: list[tuple[str, int]] = []
        self.own_calls = 0
        self.adopt: Callable[[Any], None] = lambda _tensor: None
        """Told about tensors that own host functions make of memory of their own."""
        self.quietly: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
        """Within it the runner notes no operators of torch: a library's call is noted as such."""
        self.reachable: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
        """Within it device memory can be reached by code that is not the candidate's."""
        self.textures: dict[int, Texture] = {}
        """Texture and surface objects that are alive, by handle: every launch gets them all."""
        self.printed: list[str] = []
        """What device code printed, launch by launch."""
        self._programs: dict[str, Program] = {}
        self._sources: dict[int, str] = {}
        self._given: dict[int, str] = {}
        self._watched = 0
        self._storages: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._facts = CallFacts()
        self._calls = 0
        self._heap = self._heap_before = ("", 0, 0)
        """The kernel launched last, with the blocks and bytes that in-kernel malloc held after it."""

    def compile(self, request: BuildRequest) -> BuildResult:
        """Asks the builder; the answer is kept whatever the candidate makes of it."""
        result = self._build(request)
        self.builds.append(result)
        return result

    def program(self, result: BuildResult) -> Program:
        """The loaded device code of a build. Raises `KernelBuildFailed` for what the machine does not know."""
        text = result.ptx or ""
        key = hashlib.sha256(text.encode()).hexdigest()
        if key not in self._programs:
            try:
                self._programs[key] = Program.load(text)
                self._sources[id(self._programs[key])] = result.device_source or ""
            except UnsupportedPTX as error:
                self.unsupported += [f"ptx: {name}" for name in error.features]
                raise KernelBuildFailed(f"the functional machine does not know {', '.join(error.features)}") from None
            except PTXError as error:
                self.unsupported.append(f"ptx: {error}")
                raise KernelBuildFailed(f"the device code cannot be loaded: {error}") from None
        return self._programs[key]

    def register(self, tensor: torch.Tensor) -> None:
        """Makes a tensor's memory visible to device code for as long as its storage lives."""
        storage = tensor.untyped_storage()
        # torch keeps a storage's Python object for as long as its memory lives, so the reference dies with it.
        self._storages[storage._cdata] = (weakref.ref(storage), str(tuple(tensor.shape)))

    def given(self, inputs: Iterable[torch.Tensor], weights: Iterable[torch.Tensor]) -> None:
        """Says which tensors the next call's inputs and weights are: they have contents, and are called so."""
        named = [(f"weight {i}", t) for i, t in enumerate(weights)] + [(f"input {i}", t) for i, t in enumerate(inputs)]
        self._given = {t.untyped_storage().data_ptr(): name for name, t in named}
        for _name, tensor in named:
            self.register(tensor)

    def allocations(self) -> list[Allocation]:
        """The memory that device code may touch now, by address: the storages that are still alive.

        Storages that share memory, as two tensors made of one numpy array do, become one range.
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
                known = self._given.get(address)
                table.append(Allocation(address, nbytes, f"{known or 'tensor'} {name}", fresh=known is None))
        return table

    def _named(
        self, table: Sequence[Allocation], program: Program, kernel: str, args: Sequence[bytes]
    ) -> list[Allocation]:
        """The table with the kernel's own names for what its arguments point to."""
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
        cooperative: bool = False,
        cluster: tuple[int, int, int] | None = None,
    ) -> None:
        """Runs a kernel to its end. A fault is kept, and raised as the RuntimeError that a GPU would give.

        Without `own_shared` shared memory is the compiler's affair, as in Triton, whose code lets lanes that hold the
        same value up to rounding store it to one place: races there say nothing about the candidate.
        """
        table = self._named(self.allocations(), program, kernel, args)
        watch = self._watched < WATCHED
        try:
            with self.reachable():
                report = program.launch(
                    kernel,
                    three(grid),
                    three(block),
                    list(args),
                    shared_bytes,
                    table,
                    budget=self.budget,
                    order=list(ORDERS)[self._calls % len(ORDERS)],
                    seed=self._calls,
                    textures=tuple(self.textures.values()),
                    watch=watch,
                    poison=POISONS[self._calls % len(POISONS)],
                    cooperative=cooperative,
                    cluster=cluster,
                )
        except MachineFault as fault:
            self._print(fault.printed)
            self.faults.append(fault.fault)
            for warning in fault.warnings:
                self._find(warning, "suspect" if warning.kind in SUSPECTS else "warning")
            self._find(fault.fault, "fault")
            text = ERRORS.get(fault.fault.kind, "an illegal memory access was encountered")
            raise RuntimeError(f"CUDA error: {text} ({fault.fault.message})") from None
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
            held = name.startswith("heap_")  # the state after the launch, not an amount
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
        # A race shows in launch after launch: one finding a kernel and line is enough.
        if any((f["rule"], f["kernel"], f["line"]) == (fault.kind, fault.kernel, fault.line) for f in self.findings):
            return
        where = f" in kernel {readable(fault.kernel)}"
        if fault.block is not None and fault.thread is not None:
            where += f", block {fault.block}, thread {fault.thread}"
        if fault.line:
            where += f", line {fault.line} of {fault.file if in_python(fault.file) else 'the CUDA source'}"
        if fault.ptx:
            where += f" [{fault.ptx.strip()}]"
        known = {"rule": fault.kind, "evidence": fault.message + where, "severity": severity}
        self.findings.append({**known, "kernel": fault.kernel, "line": fault.line, "file": fault.file or ""})

    def tell(self, rule: str, evidence: str, kernel: str) -> None:
        """Keeps a fact about a kernel that is no reproach."""
        if len(self.findings) < MAX_FINDINGS and not any(
            (f["rule"], f["kernel"]) == (rule, kernel) for f in self.findings
        ):
            self.findings.append(
                {"rule": rule, "evidence": evidence, "severity": "info", "kernel": kernel, "line": None}
            )

    def instructions(self) -> int:
        """Thread instructions of the call so far."""
        return sum(record.instructions for record in self._facts.launches)

    def copied_to(self, address: int, nbytes: int) -> bool:
        """Compiled host code copies something there: whether to the device, which is as good as a kernel's store."""
        place = self._place(address)
        if place is not None:
            self._facts.written[place] = self._facts.written.get(place, 0) + nbytes
        return place is not None

    def stored(self, address: int) -> int:
        """Bytes that device code has stored, in this call so far, into the memory that holds an address."""
        written = self._facts.written
        place = address if address in written or not written else self._place(address)
        return written.get(place or 0, 0)

    def _place(self, address: int) -> int | None:
        """Where the memory begins that holds an address."""
        return next((a.address for a in self.allocations() if a.address <= address < a.address + a.nbytes), None)

    def begin_call(self) -> None:
        """Starts a new account of facts; findings and faults are kept for the candidate's whole life."""
        self._facts = CallFacts()
        self.library_ops = []
        self.own_calls = 0
        self._calls += 1
        self._heap_before = self._heap

    def end_call(self) -> CallFacts:
        """The facts since `begin_call`. Memory of in-kernel malloc that the call leaves behind is a warning."""
        kernel, blocks, nbytes = self._heap
        if blocks > self._heap_before[1]:
            message = f"{blocks} blocks ({nbytes} bytes) of in-kernel malloc are still allocated when the call ends"
            self._find(Fault("heap-leak", message, kernel), "warning")
        self._facts.own_calls = self.own_calls
        return self._facts


def in_python(file: str | None) -> bool:
    """Whether a place is in a Python file, as those of Triton's kernels are."""
    return file is not None and file.endswith(".py")


def _note_watched(record: LaunchRecord, report: LaunchReport, table: Sequence[Allocation]) -> None:
    """Adds a watched launch's hot spots and touched bytes to its kernel's record."""
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
    """The names of a kernel's parameters as its source writes them; none where they cannot be read."""
    base = re.escape(kernel.split("<")[0].split("::")[-1])
    found = re.search(rf"\b{base}\s*\(([^(){{}}]*)\)\s*\{{", re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.S))
    if found is None:
        return ()
    names = [re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", part) for part in found[1].split(",")]
    return tuple(n[1] if n else "" for n in names)


@cache
def readable(name: str) -> str:
    """A kernel's name as it is written, without its parameters: `softmax<float, 256>` of `_Z7softmaxIfLi256EEvPT_`."""
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
    """A name whose types that stand for lambdas of host code are told by their lines."""
    while match := re.search(r"\bkw_(?:device|both)<(\d+),", name):
        depth, end = 1, match.end()
        while depth and end < len(name):
            depth += {"<": 1, ">": -1}.get(name[end], 0)
            end += 1
        name = f"{name[: match.start()]}lambda of line {match.group(1)}{name[end:].removeprefix(' ')}"
    return name


def three(size: Sequence[int]) -> tuple[int, int, int]:
    """A grid or block in all of its dimensions."""
    values = [int(s) for s in size] + [1, 1, 1]
    return values[0], values[1], values[2]


_current: Runtime | None = None


def current() -> Runtime | None:
    """The runtime of this process, inside a runner; None elsewhere."""
    return _current


def set_current(runtime: Runtime) -> None:
    """Makes a runtime the one that `kernelwright.cuda` finds."""
    global _current
    _current = runtime
