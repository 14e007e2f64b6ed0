"""The CUDA runtime of a candidate's process: it records what the candidate asks of the device, and holds no device.

Every launch, copy and operator becomes a record for the device process. The candidate waits for an answer only where it
asks for values, loads device code, or synchronises. A launch that faults is reported there, as on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.backends import device_addresses
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import DeviceError
from kernelwright.evaluation.candidate.handles import HandleTable, is_handle
from kernelwright.evaluation.processes.wire import unpack_tensor
from kernelwright.evaluation.program.stream import RecordStream, StreamRecord
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.machine import Fault, KernelInfo, LaunchAttributes
from kernelwright.machine.runtime import KernelBuildFailed, three

_PLAIN = LaunchAttributes()


class RefusedOnDevice(RuntimeError):
    """The library rule does not allow an operator of torch on the device."""


@dataclass(frozen=True)
class ModuleHandle:
    """Loaded device code: its name, its kernels, and its variables' addresses and sizes in bytes."""

    name: str
    kernels: dict[str, KernelInfo]
    symbols: dict[str, tuple[int, int]]

    def global_symbol(self, name: str) -> tuple[int, int]:
        """Returns address and size in bytes of a device variable; raises `KeyError`."""
        return self.symbols[name]


class RecordingRuntime:
    """Records launches, copies and operators. `build` sends a request to the builder and returns its result."""

    handles = True
    """Tells host code that device tensors are handles."""
    device = "cuda"
    card_code = False
    """True if a GPU will execute the records: Triton then records launches of its code for the card."""
    live = False
    """True if it executes them as they arrive, and so measures time."""

    def __init__(self, build: Callable[[BuildRequest], BuildResult], stream: RecordStream) -> None:
        self._build = build
        self.stream = stream
        self.tensors = HandleTable(stream)
        self.builds: list[BuildResult] = []
        self.findings: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        self.unsupported: list[str] = []
        self.compile_errors: list[dict[str, Any]] = []
        self.library_ops: list[tuple[str, int]] = []
        self.printed: list[str] = []
        self.own_calls = 0
        self.adopt: Callable[[Any], None] = lambda _tensor: None
        self.standing_for: Callable[[str], AbstractContextManager[Any]] = lambda _name: contextlib.nullcontext()
        """A context in which operators are recorded as the work of a library's routine."""
        self.watched: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
        """A context in which operators of a thread that compiled code started are recorded."""
        self._allocated: set[int] = set()
        self._modules: dict[str, ModuleHandle] = {}
        self._symbols: list[tuple[int, int]] = []

    # Builds and device code.

    def compile(self, request: BuildRequest) -> BuildResult:
        """Sends a build request; records the result even if the candidate ignores it."""
        result = self._build(request)
        self.builds.append(result)
        return result

    def program(self, result: BuildResult) -> ModuleHandle:
        """Loads the device code of a build in the device process. Raises `KernelBuildFailed` for code that it cannot
        run."""
        text = (result.ptx or "").encode()
        name = hashlib.sha256(text).hexdigest()
        if name not in self._modules:
            source = (result.device_source or "").encode("utf-8", "replace")
            kernels, symbols = self._ask("module", parts=(text, source)).fields
            found = {
                k: KernelInfo(k, tuple(map(tuple, params)), shared, threads) for k, params, shared, threads in kernels
            }
            places = {k: (address, nbytes) for k, (address, nbytes) in symbols.items()}
            self._modules[name] = ModuleHandle(name, found, places)
            self._symbols += places.values()
        return self._modules[name]

    def launch(
        self,
        program: ModuleHandle,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        args: Sequence[bytes],
        *,
        own_shared: bool = True,
        attributes: LaunchAttributes = _PLAIN,
    ) -> None:
        """Records a launch."""
        cluster = list(attributes.cluster) if attributes.cluster else None
        packed = [bytes(a).hex() for a in args]
        self.stream.write(
            "launch",
            program.name,
            kernel,
            three(grid),
            three(block),
            int(shared_bytes),
            packed,
            own_shared,
            attributes.cooperative,
            cluster,
        )
        self.stream.flush()

    def instructions(self) -> int:
        """Returns the thread instructions of the current call so far."""
        return int(self._ask("count").fields[0])

    def mark(self) -> int:
        """Returns the number of the present point of the device's work."""
        return int(self._ask("mark").fields[0])

    def elapsed(self, first: int, second: int) -> float:
        """Returns the milliseconds between two points, after waiting for them."""
        return float(self._ask("elapsed", first, second).fields[0])

    def tell(self, rule: str, evidence: str, kernel: str) -> None:
        """Records an `info` finding about a kernel, once per rule."""
        if len(self.findings) < 50 and not any((f["rule"], f["kernel"]) == (rule, kernel) for f in self.findings):
            self.findings.append(
                {"rule": rule, "evidence": evidence, "severity": "info", "kernel": kernel, "line": None}
            )

    # Memory.

    def on_host(self, tensor: torch.Tensor) -> bool:
        """Tells whether a tensor is in host memory, which kernels cannot read."""
        return not is_handle(tensor)

    def register(self, tensor: torch.Tensor) -> None:
        """Does nothing: every handle is in the device's memory."""

    def address_of(self, tensor: torch.Tensor) -> int:
        """Returns the address of a tensor's first element, on the device or on the host."""
        if is_handle(tensor):
            return self.tensors.address(tensor)
        with torch._C.DisableTorchFunction():
            return torch.Tensor.data_ptr(tensor)

    def tensor_at(self, address: int, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
        """Returns a handle over device memory. Raises ValueError if its address is not aligned to its dtype."""
        return self.tensors.at(address, dtype, list(sizes), list(strides))

    def is_device(self, address: int) -> bool:
        """Tells whether an address is the device's: of its memory, or of a variable."""
        if device_addresses.is_device(address):
            return True
        return any(start <= address < start + nbytes for start, nbytes in self._symbols)

    def allocate(self, nbytes: int) -> int:
        """Returns the address of new device memory."""
        address = self.tensors.reserve(max(1, nbytes))
        self.stream.write("integers", address)  # its dtype is unknown
        self._allocated.add(address)
        return address

    def free(self, address: int) -> bool:
        """Frees memory of `allocate`; returns False for any other address."""
        if address not in self._allocated:
            return False
        self._allocated.discard(address)
        self.tensors.freed(address)
        return True

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copies bytes; at least one of the addresses is the device's."""
        if not nbytes:
            return
        if self.is_device(to) and self.is_device(source):
            self.stream.write("copy", to, source, nbytes)
        elif self.is_device(to):
            self.stream.write("upload", to, parts=(ctypes.string_at(source, nbytes),))
        else:
            data = self._ask("download", source, nbytes).parts[0]
            ctypes.memmove(to, bytes(data), nbytes)

    def fill(self, address: int, value: int, nbytes: int) -> None:
        """Sets bytes of device memory to one value."""
        self.stream.write("fill", address, value, nbytes)

    def synchronize(self) -> None:
        """Waits for the device. Raises `DeviceError` for the fault of an earlier launch."""
        self._ask("sync")

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a host tensor with a handle's values."""
        place = self.tensors.place(tensor)
        if 0 in place[2]:
            return torch.empty(tuple(place[2]), dtype=tensor.dtype)
        data = self._ask("fetch", place).parts[0]
        return unpack_tensor(TensorBytes(data, place[1], tuple(place[2])))

    # Operators.

    def operator(self, name: str, library: str, arguments: tuple[Any, list[bytes]], results: list[Any]) -> None:
        """Records an operator; `results` are the places of its new tensors, None for returned arguments."""
        encoded, parts = arguments
        self.stream.write("op", name, library, encoded, results, parts=parts)

    def value(self, name: str, library: str, arguments: tuple[Any, list[bytes]]) -> Any:
        """Returns the value of an operator that gives no tensor."""
        encoded, parts = arguments
        return self._ask("value", name, library, encoded, parts=parts).fields[0]

    def shaped(self, name: str, library: str, arguments: tuple[Any, list[bytes]]) -> list[Any]:
        """Runs an operator whose results' shapes depend on values; returns the places of its results."""
        encoded, parts = arguments
        return list(self._ask("shaped", name, library, encoded, parts=parts).fields[0])

    def missing(self, name: str) -> RuntimeError:
        """Records a feature that is not supported, and returns the error about it."""
        self.unsupported.append(name)
        return RuntimeError(f"{name} is not supported here")

    def _ask(self, kind: str, *fields: Any, parts: Iterable[bytes] = ()) -> StreamRecord:
        answer = self.stream.ask(kind, *fields, parts=tuple(parts))
        if answer.kind == "answer":
            return answer
        cause, text, _ = answer.fields
        if cause == "refused":
            raise RefusedOnDevice(text)
        if cause == "build":
            raise KernelBuildFailed(text)
        if cause in ("device", "memory", "record"):
            raise DeviceError(text if text.startswith("CUDA error") else f"CUDA error: {text}")
        raise RuntimeError(text)
