"""The device on which full-size calls run: memory shared between processes, and the clock. Runs in children only.

`CudaDevice` is one GPU. `HostDevice` speaks the same protocol with the CPU and a memory-mapped file. Tests use it to
run the judge's whole path through full-size checks and timing without a GPU; its times never stand for a GPU's.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import mmap
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from kernelwright.evaluation.device.poison_shared_memory import ChipPoison

ALIGNMENT = 512
SPIN_MS, MOST_SPIN_MS = 0.2, 20.0
"""Bounds on the time that the device is kept busy before a timed call, so that the host can run ahead and launch
overhead is not timed as the device's work: the least, and the most, for calls that take the host longer."""
CYCLES_A_MS = 2_000_000
MOST_PADDING = 64
"""A bound on the empty launches before a measurement. The position of a launch in the driver's command buffer decides
whether the device waits a microsecond longer for it; a fixed position would always favour the same process."""
SPIN_KERNEL = "spin_kernel"
"""Part of the name of the kernel that keeps the device busy."""
FLUSH_KERNELS = ("CUDAFunctorOnSelf_add<int>", "reduce_kernel")
"""Parts of the names of the two kernels that flush the cache, in their order."""


@dataclass(frozen=True)
class Times:
    """One measurement, for one call, in milliseconds. `issue_ms` is the host's time to start the call. `slack_ms` is
    how much longer the host saw the device busy than the events on the current stream say (for all calls together)."""

    device_ms: float
    issue_ms: float
    slack_ms: float
    hidden: bool
    """True if the host had issued everything before the device began."""


class Device(Protocol):
    """The device on which full-size calls run."""

    name: str
    launch_ms: float
    """Milliseconds that launching an empty kernel takes on the device, in this process."""

    def create(self, nbytes: int) -> tuple[torch.Tensor, str]:
        """Allocates memory that other processes can open; returns its bytes and the handle that opens it."""

    def open(self, handle: str, nbytes: int) -> torch.Tensor:
        """Opens the memory behind a handle and returns its bytes."""

    def release(self, shared: torch.Tensor, owner: bool) -> None:
        """Frees shared memory (`owner`) or closes it."""

    def synchronize(self) -> None: ...

    def poison_chip(self) -> None:
        """Leaves NaN in on-chip memory that is not cleared for kernels; called before each call, outside the timed
        part."""

    def measure(self, calls: Sequence[Callable[[], Any]], kind: str = "") -> tuple[list[Any], Times]:
        """Runs calls on data that no cache holds, and times them together.

        One call is timed alone. Several calls are short ones: the first is not timed, since it fetches the code, and
        that time depends on where the process's code lies; the others share the fixed cost of a measurement. `kind`
        groups calls whose host time differs from usual ones.
        """

    def begin(self, kind: str) -> None:
        """Begins to time one call that ends with `end`, as `measure` begins one of this kind."""

    def end(self, waited: float) -> Times:
        """Ends that call, and waits for the device; returns its times. The host's are without the seconds for which it
        has `waited` for results."""

    def facts(self) -> dict[str, Any]:
        """Returns the device's name, memory, clocks and throttling now."""


class _Raw:
    """Device memory at an address, in the form that torch wraps without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def bytes_at(address: int, nbytes: int) -> torch.Tensor:
    """Returns the bytes at an address of the current GPU as a tensor, without a copy."""
    return torch.as_tensor(_Raw(address, nbytes), device="cuda")


class HostTimes:
    """The host times of recent calls, in milliseconds, by kind."""

    def __init__(self) -> None:
        self._recent: dict[str, collections.deque[float]] = {}

    def note(self, kind: str, took: float) -> None:
        self._recent.setdefault(kind, collections.deque(maxlen=9)).append(took)

    def spin_ms(self, kind: str, calls: int) -> float:
        """Returns the milliseconds to keep the device busy before this number of calls: long enough for recent calls of
        their kind, or else for usual ones. First calls, which set things up, soon drop out of the record."""
        recent = self._recent.get(kind) or self._recent.get("")
        usual = statistics.median(recent) if recent else 0.0
        return min(MOST_SPIN_MS, max(SPIN_MS, 1.5 * usual * calls))


class CudaDevice:
    """The current GPU of this process."""

    name = "cuda"

    def __init__(self) -> None:
        from kernelwright.machine import driver

        self.driver = driver
        properties = torch.cuda.get_device_properties(0)
        cache = getattr(properties, "L2_cache_size", 64 << 20)
        self._flush = torch.zeros(2 * cache // 4, dtype=torch.int32, device="cuda")
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        # Saved now: a candidate may replace them.
        self._stream = torch.cuda.current_stream()
        self._record, self._elapsed = torch._C._CudaEventBase.record, torch._C._CudaEventBase.elapsed_time
        self._wait, self._sleep, self._clock = torch._C._cuda_synchronize, torch._C._cuda_sleep, time.perf_counter
        self._random = random.Random()
        self._host = HostTimes()
        self._poison = ChipPoison(0)
        self._begun = "", 0.0, 0.0
        """The kind of the call that has begun, the host's time at which the device was kept busy for it, and the time
        at which it began."""
        self.launch_ms = 0.0

    def create(self, nbytes: int) -> tuple[torch.Tensor, str]:
        address = self.driver.allocate(nbytes)
        return bytes_at(address, nbytes), self.driver.export(address)

    def open(self, handle: str, nbytes: int) -> torch.Tensor:
        return bytes_at(self.driver.open_shared(handle), nbytes)

    def release(self, shared: torch.Tensor, owner: bool) -> None:
        address = shared.data_ptr()
        (self.driver.free if owner else self.driver.close_shared)(address)

    def synchronize(self) -> None:
        self._wait()

    def poison_chip(self) -> None:
        self._poison.spread(self._stream.cuda_stream)

    def measure(self, calls: Sequence[Callable[[], Any]], kind: str = "") -> tuple[list[Any], Times]:
        _, start, end = self._events
        untimed = 1 if len(calls) > 1 else 0
        clock, record = self._clock, self._record
        began = self._kept_busy(kind, len(calls))
        issuing = clock()
        results = [call() for call in calls[:untimed]]
        record(start, self._stream)
        ready = clock()
        for call in calls[untimed:]:
            results.append(call())
        issued = clock()
        record(end, self._stream)
        self._host.note(kind, 1e3 * (issued - issuing) / len(calls))
        return results, self._times(began, ready, issued, len(calls) - untimed)

    def _kept_busy(self, kind: str, calls: int) -> float:
        """Keeps the device busy while the host issues this number of calls on data that no cache holds; returns the
        time of the host's clock at which that began."""
        self._wait()
        self.driver.reset_persisting_l2()
        for _ in range(self._random.randrange(MOST_PADDING)):
            self._sleep(0)
        began = self._clock()
        self._record(self._events[0], self._stream)
        # Write, then read: dirty cache lines would be written back during the timed call.
        self._flush.add_(1)
        self._flush.sum()
        self._sleep(int(self._host.spin_ms(kind, calls) * CYCLES_A_MS))
        return began

    def _times(self, began: float, ready: float, issued: float, count: int) -> Times:
        """Waits for the device; returns the times of `count` calls between the events, of which the host issued the
        first at `ready` and the last until `issued`."""
        first, start, end = self._events
        self._wait()
        done = self._clock()
        lead = self._elapsed(first, start)
        device = self._elapsed(start, end)
        # The host's time beyond the events: launch latency, and work on streams that nothing waits for.
        slack = (done - began) * 1e3 - lead - device
        issue = (issued - ready) * 1e3 / count
        return Times(device / count, issue, slack, (issued - began) * 1e3 < lead)

    def begin(self, kind: str) -> None:
        began = self._kept_busy(kind, 1)
        self._record(self._events[1], self._stream)
        self._begun = kind, began, self._clock()

    def end(self, waited: float) -> Times:
        kind, began, ready = self._begun
        issued = self._clock()
        self._record(self._events[2], self._stream)
        found = self._times(began, ready, issued, 1)
        own = max(0.0, found.issue_ms - 1e3 * waited)
        self._host.note(kind, own)
        return dataclasses.replace(found, issue_ms=own)

    def facts(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info()
        return {"name": properties.name, "free_bytes": free, "total_bytes": total, **_clocks()}


def _clocks() -> dict[str, Any]:
    """Returns the SM and memory clock in MHz and the throttle reasons from NVML; empty if NVML is missing."""
    import ctypes

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {}
    nvml.nvmlInit_v2()
    handle, value, reasons = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_ulonglong()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if visible.isdigit():
        missing = nvml.nvmlDeviceGetHandleByIndex_v2(int(visible), ctypes.byref(handle))
    else:
        missing = nvml.nvmlDeviceGetHandleByUUID(visible.encode(), ctypes.byref(handle))
    if missing:
        return {}
    found: dict[str, Any] = {}
    for name, kind in (("sm_mhz", 1), ("memory_mhz", 2)):
        if nvml.nvmlDeviceGetClockInfo(handle, kind, ctypes.byref(value)) == 0:
            found[name] = value.value
    if nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)) == 0:
        found["throttle_reasons"] = reasons.value
    return found


class HostDevice:
    """The CPU in place of a GPU, for tests of the protocol."""

    name = "cpu"
    launch_ms = 0.0

    def create(self, nbytes: int) -> tuple[torch.Tensor, str]:
        path = Path.cwd() / f"exchange-{os.getpid()}-{time.monotonic_ns()}"
        with open(path, "wb") as file:
            file.truncate(nbytes)
        return self.open(str(path), nbytes), str(path)

    def open(self, handle: str, nbytes: int) -> torch.Tensor:
        with open(handle, "r+b") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), nbytes), dtype=torch.uint8)

    def release(self, shared: torch.Tensor, owner: bool) -> None:
        if owner:
            for path in Path.cwd().glob(f"exchange-{os.getpid()}-*"):
                with contextlib.suppress(OSError):
                    path.unlink()

    def synchronize(self) -> None:
        return

    def poison_chip(self) -> None:
        return

    def measure(self, calls: Sequence[Callable[[], Any]], kind: str = "") -> tuple[list[Any], Times]:
        untimed = 1 if len(calls) > 1 else 0
        results = [call() for call in calls[:untimed]]
        began = time.perf_counter()
        results += [call() for call in calls[untimed:]]
        each = (time.perf_counter() - began) * 1e3 / (len(calls) - untimed)
        return results, Times(each, each, 0.0, True)

    def begin(self, kind: str) -> None:
        self._began = time.perf_counter()

    def end(self, waited: float) -> Times:
        took = (time.perf_counter() - self._began) * 1e3
        return Times(took, max(0.0, took - waited * 1e3), 0.0, False)

    def facts(self) -> dict[str, Any]:
        return {"name": "host", "free_bytes": 8 << 30, "total_bytes": 8 << 30}


def make(name: str, index: str = "0", streams: bool = False) -> tuple[Device, tuple[int, ...]]:
    """Opens a child's device in a fresh fork before it is confined; returns it and the descriptors that the driver
    keeps.

    Everything that is slow to start, or needs files that a confined child cannot open, starts here. Streams run one
    after another unless `streams` is true: with one queue the driver makes a context in a third of the time.
    """
    if name != "cuda":
        return HostDevice(), ()
    held = set(os.listdir("/proc/self/fd"))
    os.environ["CUDA_VISIBLE_DEVICES"] = index
    if not streams:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    torch.cuda.init()
    # float32 means float32, for candidates and baselines alike: torch would run convolutions in TF32.
    allow_tf32(False)
    device = CudaDevice()
    a = torch.randn(64, 64, device="cuda")
    device.measure([lambda: a @ a])
    device.launch_ms = launch_cost(device)
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]):  # CUPTI takes a second to start
        a.add_(1)
        torch.cuda.synchronize()
    _load_operators()
    return device, tuple(int(fd) for fd in os.listdir("/proc/self/fd") if fd not in held)


def allow_tf32(allowed: bool) -> None:
    """Tells torch whether products of float32 operands on a GPU may round them to TF32, in cuBLAS and in cuDNN."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed


def _load_operators() -> None:
    """Uses once each operator that handles a call's tensors: an operator's first use loads its code, which takes
    milliseconds that a candidate would otherwise spend while it has the GPU."""
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32):
        x = torch.zeros(8, dtype=dtype, device="cuda")
        x.view(torch.uint8).fill_(0xFF)
        x.copy_(x.clone())
        if not dtype.is_floating_point:
            bool((x == x).all())


HUGE_BYTES = 1 << 31
"""A task whose tensors have more bytes competes with itself for the device's memory."""
PROBE_CALLS, PROBES = 16, 25


def launch_cost(device: Device) -> float:
    """Returns the milliseconds that launching an empty kernel takes, among back-to-back launches.

    Two processes on one H200 differ by up to 0.2 us a launch (apparently by where the driver put their command
    buffers), while their kernels take equally long: this number makes short times comparable.
    """
    probes = [device.measure([lambda: torch.cuda._sleep(0)] * PROBE_CALLS)[1].device_ms for _ in range(PROBES)]
    return statistics.median(probes)


def spare(name: str) -> None:
    """Returns memory that torch has cached to the device, if it is more than `HUGE_BYTES`: other processes need it for
    the same task."""
    if name == "cuda" and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > HUGE_BYTES:
        torch.cuda.empty_cache()


def give_back(name: str, everything: bool = False) -> None:
    """Returns memory that torch has cached to the device, if it is more than a 64th of the device's memory or
    `everything` is true. Allocating it again for the next task costs milliseconds, many when other processes call the
    driver."""
    if name != "cuda":
        return
    if everything or torch.cuda.memory_reserved() > torch.cuda.get_device_properties(0).total_memory // 64:
        torch.cuda.empty_cache()


def layout(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Returns the offsets at which blocks of these sizes (bytes) start, and the total bytes."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
    return offsets, max(end, ALIGNMENT)


def poison(device: Device, outputs: Sequence[Sequence[Any]], calls: int) -> None:
    """Leaves NaN in memory that the outputs (offset, dtype, shape) of this number of calls will probably get."""
    blocks = []
    for _, dtype, shape in list(outputs) * calls:
        block = torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=device.name)
        blocks.append(block.view(torch.uint8).fill_(0xFF) if block.dim() and block.numel() else block)


def laid_out(memories: Sequence[torch.Tensor], forms: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
    """Returns tensors of these forms (`wire.forms_of`, with the number of the `memory`) over flat bytes."""
    made = []
    for form in forms:
        memory, kind = memories[form["memory"]], getattr(torch, form["dtype"])
        start = memory.storage_offset() // kind.itemsize + form["offset"]
        whole = torch.empty(0, dtype=kind, device=memory.device)
        made.append(whole.set_(memory.untyped_storage(), start, form["shape"], form["strides"]))  # type: ignore[call-overload]
    return made


def memories_of(tensors: Sequence[torch.Tensor], forms: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
    """Returns the bytes that tensors of these forms lie in, once each: the reverse of `laid_out`."""
    found: dict[int, torch.Tensor] = {}
    for tensor, form in zip(tensors, forms, strict=True):
        if form["memory"] not in found:
            start = (tensor.storage_offset() - form["offset"]) * tensor.element_size()
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            found[form["memory"]] = flat.set_(tensor.untyped_storage(), start, (form["nbytes"],))  # type: ignore[call-overload]
    return [found[number] for number in sorted(found)]


def view(shared: torch.Tensor, offset: int, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Returns the tensor at an offset of shared memory."""
    count = 1
    for size in shape:
        count *= size
    return shared[offset : offset + count * dtype.itemsize].view(dtype).reshape(tuple(shape))
