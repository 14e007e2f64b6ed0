"""The functional CUDA machine: interprets PTX on the CPU, checks every access, and reports each fault with its place.

`Program.load` takes PTX text from NVRTC or Triton and refuses unknown features. `Program.launch` runs one kernel.
Device memory is this process's own memory: pointers in the arguments are real addresses, and a kernel may touch only
the ranges that the caller lists. The machine measures no time and models no hardware; it computes approximate
instructions with accurate functions. Blocks run one after another. Blocks that wait for other blocks stay resident,
as many at a time as an H200 holds, and take turns.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernelwright.errors import MachineError
from kernelwright.machine import library
from kernelwright.machine.device_memory import Shadow
from kernelwright.machine.texture import Texture, entries

ORDERS = {"forward": 0, "reverse": 1, "random": 2}


class UnsupportedPTX(Exception):
    """Raised at load, before anything runs, for PTX features that the machine does not support."""

    def __init__(self, features: Sequence[str]) -> None:
        self.features: tuple[str, ...] = tuple(features)
        super().__init__("unsupported PTX: " + ", ".join(self.features))


class PTXError(Exception):
    """Raised for text that is not well-formed PTX."""


@dataclass(frozen=True)
class Fault:
    """One fault or warning of a kernel, with its place.

    `kind`: out-of-bounds-read, out-of-bounds-write, misaligned-access, index-overflow, barrier-deadlock, grid-deadlock,
    instruction-budget, invalid-launch, trap, assert, stack-overflow, use-after-free, double-free, invalid-free,
    barrier-misuse, mbarrier-misuse or bad-descriptor; or a warning: data-race, divergent-barrier, sync-mask,
    uninitialised-read, shuffle-from-inactive, async-copy (memory used before a wait for the copy into it) or
    leaked-copy. `block` and `thread` are CUDA's indices, `line` is the user's source line, `ptx` the instruction.
    """

    kind: str
    message: str
    kernel: str
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    line: int | None = None
    file: str | None = None
    ptx: str = ""
    header: str = ""
    """The place in a header of the tile library, `kernelwright/NAME.cuh:LINE`; `line` is then its caller's."""

    def __str__(self) -> str:
        place = f" line {self.line}" if self.line else ""
        where = f" [block {self.block} thread {self.thread}]" if self.block and self.thread else ""
        return f"{self.kind} in {self.kernel}{place}{where}: {self.message}"


class MachineFault(Exception):
    """Raised when a launch ends with a fault. Carries the thread instructions run before it, the text printed by device
    code, and the earlier warnings."""

    def __init__(self, fault: Fault, instructions: int = 0, printed: str = "", warnings: Sequence[Fault] = ()) -> None:
        self.fault = fault
        self.instructions = instructions
        self.printed = printed
        self.warnings = tuple(warnings)
        super().__init__(str(fault))


@dataclass(frozen=True)
class Allocation:
    """One range of device memory: `nbytes` bytes from `address` in this process."""

    address: int
    nbytes: int
    name: str
    writable: bool = True
    shadow: Shadow | None = None
    """The labels of its bytes, which the launch checks and marks. None: kernels have stored every byte."""
    checked: bool = True
    """False if all of it was written before its shadow began: then the launch only marks what it stores."""


@dataclass(frozen=True)
class KernelInfo:
    """A kernel's signature: `params` holds (bytes, alignment) of each parameter; memory sizes are in bytes."""

    name: str
    params: tuple[tuple[int, int], ...]
    static_shared: int
    max_threads: int
    local_bytes: int = 0
    register_bytes: int = 0


@dataclass(frozen=True)
class LineTraffic:
    """Memory traffic of one source line, where it exceeds the minimum. `actual` and `ideal` count sectors of 32 bytes
    (`kind` global_load, global_store) or wavefronts (`kind` shared_load, shared_store); `accesses` counts warp
    instructions."""

    kind: str
    line: int
    accesses: int
    actual: int
    ideal: int


@dataclass(frozen=True)
class LineWork:
    """The instructions that one source line has executed: of warps, and of the threads active in them. `doubles`,
    `special` (divisions, roots, exponentials) and `barriers` are those of the warp instructions that are such."""

    line: int
    issued: int
    threads: int
    doubles: int = 0
    special: int = 0
    barriers: int = 0


@dataclass(frozen=True)
class SiteWork:
    """The accesses of one source line to one memory. `kind` is a memory and an access: `global_load`, `shared_store`,
    `global_atomic`, `local_load`. `argument` is the index of the allocation that it touched last, -1 for none of them.
    `accesses` counts warp instructions, `actual` and `ideal` as in `LineTraffic`, `bytes` those of all lanes."""

    kind: str
    argument: int
    line: int
    accesses: int
    actual: int
    ideal: int
    bytes: int


@dataclass(frozen=True)
class LaunchAttributes:
    """Attributes of a launch as CUDA has them. A `cooperative` launch may wait for its whole grid."""

    cooperative: bool = False
    cluster: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class LaunchOptions:
    """Options by which the machine runs a launch."""

    budget: int = 4_000_000_000
    """The bound on thread instructions."""
    detect_races: bool = True
    order: str = "forward"
    """Order of blocks and warps: "forward", "reverse" or "random"; "random" also shuffles divergent paths of a warp."""
    seed: int = 0
    """The seed of the random order."""
    textures: Sequence[Texture] = ()
    """Texture and surface objects that the kernel may use."""
    print_limit: int = 1 << 20
    """The bound on bytes of device printf."""
    watch: bool = False
    """Turns on the slow checks: the state of shared and local memory, hazards inside a warp, overflow of indices,
    sectors and bank conflicts."""
    poison: int = 0xFF
    """The byte in unwritten memory."""
    sample: int = 0
    """Runs only about this many blocks, including the first and the last; 0 runs all."""
    attributes: LaunchAttributes = LaunchAttributes()


_DEFAULTS = LaunchOptions()


@dataclass(frozen=True)
class LaunchReport:
    """The result of one launch. `instructions` counts thread instructions. `written` and `read` are bytes moved per
    allocation, in the order passed. `warnings` holds races and other misuse that did not end the launch. `printed` is
    the output of device printf (at most the launch's `print_limit` bytes, then a line that says so).

    A watched launch adds `hotspots`, worst first, the distinct bytes touched in each allocation, and the work of the
    busiest lines."""

    instructions: int
    counters: dict[str, int]
    warnings: tuple[Fault, ...]
    written: tuple[int, ...]
    read: tuple[int, ...]
    printed: str = ""
    hotspots: tuple[LineTraffic, ...] = ()
    touched_written: tuple[int, ...] = ()
    touched_read: tuple[int, ...] = ()
    lines: tuple[LineWork, ...] = ()
    sites: tuple[SiteWork, ...] = ()


def set_heap_limit(nbytes: int) -> None:
    """Empties the heap of in-kernel malloc and sets its size to `nbytes` (initially 8 MB). There is one per process."""
    library.load().kw_heap_limit(min(max(nbytes, 0), 2**40))


def _triple(text: str) -> tuple[int, int, int] | None:
    if not text:
        return None
    x, y, z = (int(part) for part in text.split(","))
    return x, y, z


def _fault(kernel: str, fields: Sequence[str]) -> Fault:
    kind, message, block, thread, line, file, ptx, header = fields
    place = int(line) if line else None, file or None
    return Fault(kind, message, kernel, _triple(block), _triple(thread), *place, ptx, header)


def _kernel(fields: Sequence[str]) -> KernelInfo:
    name, shared, threads, local, registers, *params = fields
    sizes = tuple((int(p.split(":")[0]), int(p.split(":")[1])) for p in params)
    return KernelInfo(name, sizes, int(shared), int(threads), int(local), int(registers))


class Variable(NamedTuple):
    """A variable of device code: its address in this process, its size in bytes, and whether it is `__constant__`."""

    address: int
    nbytes: int
    constant: bool


class Program:
    """Loaded PTX. Its `__device__` variables keep their contents between launches, for the lifetime of the object."""

    def __init__(self, handle: int, kernels: dict[str, KernelInfo], variables: dict[str, Variable]) -> None:
        self._handle = handle
        self._order = {name: index for index, name in enumerate(kernels)}
        self._variables = variables
        self.kernels = kernels
        self._unload = weakref.finalize(self, library.load().kw_unload, handle)

    @classmethod
    def load(cls, ptx: str, first: int = 0) -> Program:
        """Decodes all kernels of `ptx`. The memory of its variables begins at the address `first`, or anywhere. Raises
        `UnsupportedPTX`, `PTXError`, or `MachineError` without a compiler."""
        lib = library.load()
        data = ptx.encode("utf-8", "replace").replace(b"\0", b" ")
        handle = lib.kw_load_at(data, len(data), first)
        status = lib.kw_status(handle)
        text: str = lib.kw_text(handle).decode("utf-8", "replace")
        if status:
            lib.kw_unload(handle)
            if status == 2:
                raise UnsupportedPTX([name for name in text.split("\n") if name])
            raise PTXError(text)
        rows = [line.split("\t") for line in text.split("\n")]
        kernels = {row[1]: _kernel(row[1:]) for row in rows if row[0] == "kernel"}
        found = [row[1:] for row in rows if row[0] == "variable"]
        variables = {name: Variable(int(at), int(size), constant == "1") for name, at, size, constant in found}
        return cls(handle, kernels, variables)

    def unload(self) -> None:
        """Frees the code and the memory of its variables. Nothing may be launched afterwards; may be called twice."""
        self._unload()

    def global_symbol(self, name: str) -> tuple[int, int]:
        """Returns address and size in bytes of a `__device__` or `__constant__` variable; raises `KeyError`."""
        variable = self._variables[name]
        return variable.address, variable.nbytes

    def variables(self) -> dict[str, Variable]:
        """Returns every `__device__` and `__constant__` variable, by name."""
        return self._variables

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[bytes],
        shared_bytes: int = 0,
        allocations: Sequence[Allocation] = (),
        options: LaunchOptions = _DEFAULTS,
    ) -> LaunchReport:
        """Runs one kernel to its end.

        `args` holds one bytes object per parameter; `shared_bytes` is the dynamic shared memory. Raises `MachineFault`
        for a faulting kernel or an invalid launch, `KeyError` for an unknown kernel, `ValueError` for an unknown order.
        """
        info = self.kernels[kernel]
        if options.order not in ORDERS:
            raise ValueError(f"order {options.order!r} is none of {', '.join(ORDERS)}")
        request = self._request(info, grid, block, args, shared_bytes, allocations)
        request.budget, request.seed = min(max(options.budget, 0), 2**63), options.seed & (2**64 - 1)
        request.races, request.order = int(options.detect_races), ORDERS[options.order]
        table = entries(options.textures)
        device = library.DeviceRequest(table, len(options.textures), options.print_limit)
        request.device = ctypes.pointer(device)
        attributes = options.attributes
        request.cluster[:], request.cooperative = attributes.cluster or (0, 0, 0), int(attributes.cooperative)
        request.watch, request.poison = int(options.watch), options.poison & 0xFF
        request.sample = max(options.sample, 0)
        lib = library.load()
        result = lib.kw_launch(self._handle, ctypes.byref(request))
        try:
            text: str = lib.kw_result_text(result).decode("utf-8", "replace")
            size = ctypes.c_uint64()
            data = lib.kw_result_printed(result, ctypes.byref(size))
            printed = ctypes.string_at(data, size.value).decode("utf-8", "replace")
        finally:
            lib.kw_result_free(result)
        return _report(kernel, text, printed)

    def _request(
        self,
        info: KernelInfo,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[bytes],
        shared_bytes: int,
        allocations: Sequence[Allocation],
    ) -> library.LaunchRequest:
        """Builds the library's launch structure; raises `MachineFault` of kind invalid-launch."""
        for name, value in [("grid", v) for v in grid] + [("block", v) for v in block] + [("shared", shared_bytes)]:
            if not 0 <= value < 2**32:
                raise MachineFault(Fault("invalid-launch", f"{name} value {value} is out of range", info.name))
        request = library.LaunchRequest()
        request.grid[:], request.block[:] = tuple(grid), tuple(block)
        request.shared_bytes = shared_bytes
        request.kernel = self._order[info.name]
        entries = (library.AllocationEntry * max(len(allocations), 1))()
        for entry, a in zip(entries, allocations, strict=False):
            entry.address, entry.bytes, entry.flags = a.address, a.nbytes, int(a.writable) | (0 if a.checked else 2)
            if a.shadow is not None:
                entry.shadow = ctypes.pointer(a.shadow.entry)
        request.allocations, request.allocation = len(allocations), entries
        names = "".join(a.name.replace("\n", " ").replace("\0", " ") + "\n" for a in allocations)
        request.names = names.encode("utf-8", "replace")
        request.params = packed = _pack(info, args)
        request.param_bytes = len(packed)
        return request


def _pack(info: KernelInfo, args: Sequence[bytes]) -> bytes:
    """Packs the arguments at the parameters' aligned offsets; raises `MachineFault` on a wrong count or size."""
    if len(args) != len(info.params):
        message = f"{len(args)} arguments for {len(info.params)} parameters"
        raise MachineFault(Fault("invalid-launch", message, info.name))
    data = bytearray()
    for index, (value, (size, align)) in enumerate(zip(args, info.params, strict=True)):
        if len(value) != size:
            message = f"argument {index} has {len(value)} bytes, the parameter {size}"
            raise MachineFault(Fault("invalid-launch", message, info.name))
        data += bytes(-len(data) % align) + value
    return bytes(data)


def _report(kernel: str, text: str, printed: str) -> LaunchReport:
    """Parses the library's result text; raises `MachineFault` when it contains a fault."""
    facts: dict[str, Any] = {"written": (), "read": (), "total": 0}
    counters: dict[str, int] = {}
    warnings: list[Fault] = []
    hotspots: list[LineTraffic] = []
    lines: list[LineWork] = []
    sites: list[SiteWork] = []
    fault: Fault | None = None
    for line in text.split("\n"):
        word, *fields = line.split("\t")
        if word == "counter":
            counters[fields[0]] = int(fields[1])
        elif word == "warning":
            warnings.append(_fault(kernel, fields))
        elif word == "hotspot":
            hotspots.append(LineTraffic(fields[0], *(int(v) for v in fields[1:])))
        elif word == "line":
            lines.append(LineWork(*(int(v) for v in fields)))
        elif word == "site":
            sites.append(SiteWork(fields[0], *(int(v) for v in fields[1:])))
        elif word == "fault":
            fault = _fault(kernel, fields)
        elif word == "error":
            raise MachineError(f"the CUDA machine failed in {kernel}: {fields[0]}")
        elif word == "child":
            raise UnsupportedPTX([f"a kernel launched from kernel {kernel}, outside of a whole program"])
        elif word == "total":
            facts["total"] = int(fields[0])
        else:
            facts[word] = tuple(int(v) for v in fields)
    if fault:
        raise MachineFault(fault, facts["total"], printed, warnings)
    touched = facts.get("touched_written", ()), facts.get("touched_read", ())
    return LaunchReport(
        facts["total"],
        counters,
        tuple(warnings),
        facts["written"],
        facts["read"],
        printed,
        tuple(hotspots),
        *touched,
        lines=tuple(lines),
        sites=tuple(sites),
    )
