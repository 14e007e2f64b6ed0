"""Triton's driver for the functional machine: the `triton.runtime.driver.active` of a runner without a GPU.

Reports the properties of an sm_90 card, compiles and launches through `machine.runtime`, and replaces `do_bench`: the
machine measures no time, so a call's cost is its count of thread instructions.

A runtime whose records will be repeated on a card (`card_code`) gets the launches of the code for the card itself.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.compiler
import triton.language as tl
import triton.testing
from triton.backends import Backend, backends
from triton.backends.driver import GPUDriver
from triton.backends.nvidia.driver import ty_to_cpp
from triton.runtime import _allocation
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import PTXASError

from kernelwright.backends.triton import triton_compiler, triton_errors, triton_signatures
from kernelwright.backends.triton.triton_compiler import CARD, CARD_SHARED, MachineBackend, MachineCode
from kernelwright.builds import BuildRequest, BuildResult, KernelBuildFailed
from kernelwright.machine import LaunchAttributes, tensor_map
from kernelwright.machine.runtime import Runtime

TUNING_SECONDS = 3.0
"""Wall seconds for autotuning over a candidate's lifetime; the remaining configurations are not tried."""
LIVE_TUNING_SECONDS = 15.0
"""The same where a card measures the time of a call."""
ROWS, ROW_MS, MOST_CALLS = 3, 2.0, 20
"""Rows of calls for one configuration on a card: their number, milliseconds of each, and the most calls of each."""
INSTRUCTIONS_PER_MS = 132 * 128 * 1.98e6
"""Thread instructions per millisecond of a card with 132 multiprocessors, used to express costs in ms."""
CALL_MS = 0.002
REGISTERS = 65536


@dataclass(frozen=True)
class CardCode:
    """A kernel's name and its PTX for the card."""

    name: str
    ptx: str


class Utilities:
    """Replaces Triton's native driver utilities in one runner."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return {
            "max_shared_mem": CARD_SHARED,
            "max_num_regs": REGISTERS,
            "multiprocessor_count": 132,
            "warpSize": 32,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 3_201_000,
            "mem_bus_width": 6144,
        }

    fused = True
    """The floating-point fusion that the kernel to be loaded next asks for; its launcher is made right before."""

    def load_binary(self, name: str, ptx: bytes, shared: int, _device: int) -> tuple[Any, CardCode, int, int, int]:
        """Assembles the card's code by ptxas; returns module, function, registers, spilled bytes, threads per block."""
        flags = () if self.fused else ("--fmad=false",)
        result = self.runtime.compile(BuildRequest("ptxas", name, cuda_source=ptx.decode(), cuda_flags=flags))
        if result.status != "ok":
            raise PTXASError(result.log)
        registers, spilled = result.resources.get("registers", 0), result.resources.get("spilled_bytes", 0)
        self._tell(name, shared, registers, spilled)
        fits = REGISTERS // max(1, -(-registers // 8) * 8) // 32 * 32
        return name, CardCode(name, ptx.decode()), registers, spilled, min(1024, fits)

    def unload_module(self, _module: Any) -> None: ...

    def _tell(self, name: str, shared: int, registers: int, spilled: int) -> None:
        if registers:
            told = f"{name} on sm_90: {registers} registers a thread, {spilled} bytes spilled, {shared} bytes shared"
            self.runtime.tell("kernel-resources", told, name)


class Launcher:
    """Launches one compiled kernel. Triton constructs it from the source and the metadata of the card's compilation."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.source, self.metadata = source, metadata
        self.code: MachineCode | None = None
        self.types: list[str] = []
        triton.runtime.driver.active.utils.fused = bool(metadata.enable_fp_fusion)

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: Any,
        function: CardCode,
        _packed: Any,
        launch_metadata: Any,
        enter_hook: Any,
        exit_hook: Any,
        *args: Any,
    ) -> None:
        runtime = triton.runtime.driver.active.runtime
        grid = (operator.index(x), operator.index(y), operator.index(z))
        programs = grid[0] * grid[1] * grid[2]
        signature = tuple(self.source.signature.values())
        for_card = getattr(runtime, "card_code", False)
        if self.code is None:
            made = self._for_card(function) if for_card else triton_compiler.machine_code(self.source, self.metadata)
            self.code = made
            self.types = list(triton_signatures.expanded(signature, bool(self.code.tensor_descriptors)))
        program = runtime.program(BuildResult("ok", ptx=self.code.ptx))
        on_card = self._allocate_on_card(programs, stream)
        maps = self.code.tensor_descriptors or ()
        values = triton_signatures.arguments(signature, args, maps)
        packed = [_packed_argument(t, v, runtime) for t, v in zip(self.types, values, strict=True)]
        scratch = on_card if for_card else self._scratch(programs * self.code.scratch_bytes, runtime)
        packed += [struct.pack("<Q", _address(scratch, runtime)), bytes(8)]
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if programs > 0:  # Triton's own launcher skips an empty grid
            block = (self.code.threads, 1, 1)
            ctas = self.metadata.num_ctas if for_card else 1
            cluster = (ctas, 1, 1) if ctas > 1 else None
            runtime.launch(
                program,
                self.code.name,
                (grid[0] * ctas, *grid[1:]),
                block,
                self.code.shared,
                packed,
                own_shared=False,
                attributes=LaunchAttributes(bool(self.metadata.launch_cooperative_grid), cluster),
            )
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _for_card(self, code: CardCode) -> MachineCode:
        """Returns the code that was compiled for the card."""
        made = self.metadata
        maps = getattr(made, "tensordesc_meta", None)
        return MachineCode(code.name, code.ptx, made.num_warps * 32, made.shared, 0, maps)

    def _scratch(self, nbytes: int, runtime: Runtime) -> torch.Tensor | None:
        """Returns cleared scratch memory for one launch; None if it needs none."""
        if nbytes <= 0:
            return None
        return torch.zeros(nbytes, dtype=torch.int8, device="cuda" if getattr(runtime, "handles", False) else "cpu")

    def _allocate_on_card(self, programs: int, stream: Any) -> Any:
        """Returns the card's scratch memory from the candidate's allocator, None if it needs none. Without an allocator
        a launch fails, as on the card."""
        if not self.metadata.global_scratch_size:
            return None
        nbytes = programs * self.metadata.num_ctas * self.metadata.global_scratch_size
        return _allocation._allocator.get()(nbytes, self.metadata.global_scratch_align, stream)


_INTEGERS = {f"{sign}{bits}": bits // 8 for sign in "iu" for bits in (8, 16, 32, 64)} | {"i1": 1, "u1": 1}


def _packed_argument(kind: str, value: Any, runtime: Runtime) -> bytes:
    """Packs one argument into its parameter's bytes, with the conversions of Triton's own launcher."""
    if kind == triton_signatures.TENSOR_MAP:
        return _tensor_map(value, runtime)
    if kind.startswith("*"):
        return struct.pack("<Q", _address(value, runtime))
    if kind in _INTEGERS:
        bits = 8 * _INTEGERS[kind]
        return (operator.index(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
    if kind in ("fp32", "f32"):
        return bytes(ctypes.c_float(float(value)))
    if kind == "fp64":
        return bytes(ctypes.c_double(float(value)))
    if kind == "bf16":
        return bytes(ctypes.c_float(float(value)))[2:]  # truncated, not rounded
    if kind == "fp16":
        return struct.pack("<e", float(value))
    runtime.unsupported.append(f"triton: argument of type {kind}")
    raise KernelBuildFailed(f"an argument of type {kind} cannot be passed on the functional machine")


_HOST_TYPES = {8: 10, 9: 8, 10: 9}
"""Numbers of element types that differ between instructions, which Triton's metadata has, and the driver."""
_TF32 = 11


def _tensor_map(described: triton_signatures.Mapped, runtime: Runtime) -> bytes:
    """Returns the tensor map of a descriptor, in the machine's format."""
    made, meta = described.descriptor, described.metadata
    if meta.get("is_im2col"):
        runtime.unsupported.append("triton: an im2col descriptor")
        raise KernelBuildFailed("an im2col descriptor cannot be passed here")
    shape = [*map(int, made.shape)]
    if meta["fp4_padded"]:
        shape[-1] *= 2
    size = meta["elem_size"]
    rounds = bool(getattr(made, "round_f32_to_tf32", False))
    kind = _TF32 if rounds else _HOST_TYPES.get(meta["elem_type"], meta["elem_type"])
    strides = [int(n) * size for n in made.strides[:-1]]
    box = [int(n) for n in meta["block_size"]]
    address = _address(made.base, runtime)
    nan = made.padding == "nan"
    return tensor_map.described(kind, size, address, shape[::-1], strides[::-1], box[::-1], meta["swizzle"], nan)


def _address(value: Any, runtime: Runtime) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value & (2**64 - 1)
    holder = getattr(value, "base", value)  # the tensor that `triton.reinterpret` wraps
    if isinstance(holder, torch.Tensor):
        if runtime.on_host(holder):
            raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
        runtime.register(holder)
    address = getattr(value, "data_ptr", None)
    if address is None:
        raise TypeError("Pointer argument must be either uint64 or have data_ptr method")
    return int(address()) & (2**64 - 1)


class TuningBench:
    """Replaces `do_bench`: calls once and returns a cost in simulated milliseconds.

    The cost is proportional to thread instructions; it ranks configurations but is not a time. Where a card executes
    the records as they arrive, it is the card's time. Once the tuning budget
    is spent and a configuration of the same kernel has run, the remaining ones are skipped.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.left = LIVE_TUNING_SECONDS if getattr(runtime, "live", False) else TUNING_SECONDS
        self.chosen = False

    def begin(self) -> None:
        """Starts a new autotuning run."""
        self.chosen = False

    def tune(self, call: Callable[[], Any], quantiles: Any = None, **_options: Any) -> Any:
        """Returns one configuration's cost for the autotuner; infinite if skipped."""
        if self.chosen and self.left <= 0:
            return [float("inf")] * len(quantiles or (0,))
        started = time.monotonic()
        try:
            cost = self.do_bench(call, quantiles=quantiles)
            self.chosen = True
        finally:
            self.left -= time.monotonic() - started
        return cost

    def do_bench(
        self,
        fn: Callable[[], Any],
        warmup: Any = 25,
        rep: Any = 100,
        grad_to_none: Any = None,
        quantiles: Any = None,
        return_mode: str = "mean",
    ) -> Any:
        """Implements the interface of `triton.testing.do_bench`."""
        if getattr(self.runtime, "live", False):
            cost = self._milliseconds(fn)
        else:
            before = self.runtime.instructions()
            fn()
            cost = CALL_MS + (self.runtime.instructions() - before) / INSTRUCTIONS_PER_MS
        if quantiles is not None:
            return [cost] * len(quantiles) if len(quantiles) != 1 else cost
        return [cost] if return_mode == "all" else cost

    def _milliseconds(self, fn: Callable[[], Any]) -> float:
        """Returns the time of a call on the card: the least mean of a few rows of calls."""
        runtime: Any = self.runtime
        fn()  # compiles, and loads the code

        def row(calls: int) -> float:
            first = runtime.mark()
            for _ in range(calls):
                fn()
            return float(runtime.elapsed(first, runtime.mark())) / calls

        calls = max(1, min(MOST_CALLS, int(ROW_MS / max(row(1), 1e-3))))
        return min(row(calls) for _ in range(ROWS))


class MachineDriver(GPUDriver):  # type: ignore[misc]
    """A driver with one card and one stream; kernels run on `runtime`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.utils = Utilities(runtime)
        self.launcher_cls = Launcher
        self.bench = TuningBench(runtime)
        self.get_device_capability = lambda _device=0: divmod(CARD.arch, 10)
        self.get_current_stream = lambda _device=0: 0
        self.get_current_device = lambda: 0
        self.set_current_device = lambda _device: None

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        return CARD

    def get_active_torch_device(self) -> Any:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def map_python_to_cpp_type(self, ty: str) -> str:
        return str(ty_to_cpp(ty))

    def get_benchmarker(self) -> Callable[..., Any]:
        return self.bench.tune

    def get_empty_cache_for_benchmark(self) -> Any:
        return torch.empty(1, dtype=torch.int)

    def clear_cache(self, cache: Any) -> None:
        cache.zero_()


def activate(runtime: Runtime) -> None:
    """Makes this process's Triton use `runtime`, permanently."""
    made = MachineDriver(runtime)
    backends["nvidia"] = Backend(MachineBackend, MachineDriver)
    triton.runtime.driver.set_active(made)
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = made.bench.do_bench
    triton_errors.keep(runtime.compile_errors)
    prune = Autotuner.prune_configs

    def begin(self: Any, kwargs: dict[str, Any]) -> Any:
        made.bench.begin()
        return prune(self, kwargs)

    Autotuner.prune_configs = begin


@triton.jit
def _first(x, y, n, size: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(y + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)


def warm() -> None:
    """Compiles a small kernel for both targets, to initialise LLVM and Triton's lookups.

    Leaves Triton's own backend in place: later forks of this process may have a GPU.
    """
    own = backends["nvidia"]
    backends["nvidia"] = Backend(MachineBackend, MachineDriver)
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "size": "constexpr"}
    try:
        for arch in (CARD.arch, triton_compiler.FUNCTION_ARCH):
            source = triton.compiler.ASTSource(_first, signature, {(3,): 256})
            triton.compile(source, target=triton_compiler.GPUTarget("cuda", arch, 32))
    finally:
        backends["nvidia"] = own
