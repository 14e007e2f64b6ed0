"""Makes torch on a CPU look like torch with one CUDA device, inside the runner.

Candidates ask `x.is_cuda`, call `.cuda()`, make tensors with `device="cuda"` and query device properties. A function
mode answers those queries and turns every CUDA device into the CPU. A dispatch mode beside it records which library
operators computed, and lets `FreshMemory` poison memory that torch leaves uninitialised. It does not run device code
(`machine.runtime` does), and does not emulate streams and graphs.
"""

from __future__ import annotations

import contextlib
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.backends.host_memory import HOST, Memory, address_of, bytes_of, count_of, shares
from kernelwright.backends.moves import MOVES
from kernelwright.evaluation.candidate import fake_torch
from kernelwright.evaluation.candidate.fresh_memory import FreshMemory

CUDA = torch.device("cuda", 0)
_HERE = torch.device("cpu")


def _cuda(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy of a tensor on the host, and a tensor on the device unchanged."""
    return tensor.clone() if tensor in HOST else tensor


def _cpu(tensor: torch.Tensor) -> torch.Tensor:
    if tensor in HOST:
        return tensor
    made = tensor.clone()
    HOST.add(made, fetched=True)
    return made


_ANSWERS: dict[Any, Callable[[Any], Any]] = {
    # Getters reach a function mode as the descriptor's bound `__get__`.
    torch.Tensor.is_cuda.__get__: lambda x: x not in HOST,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: lambda x: x in HOST,  # type: ignore[attr-defined]
    torch.Tensor.device.__get__: lambda x: _HERE if x in HOST else CUDA,  # type: ignore[attr-defined]
    torch.Tensor.get_device: lambda x: -1 if x in HOST else 0,
    torch.get_device: lambda x: -1 if x in HOST else 0,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.cpu: _cpu,
    torch.Tensor.pin_memory: lambda x: x,
    torch.Tensor.is_pinned: lambda _x: False,
}
_TO: tuple[Any, ...] = (torch.Tensor.to, torch._C._nn._parse_to)
"""Functions that take a device, or something else, as their first argument beside the tensor."""
_FROM_NUMPY = (torch.as_tensor, torch.asarray)
"""Functions whose results may lie in the memory of an array."""
LACKING = re.compile(
    r"not compiled with CUDA|NVTX functions not installed|without ATen_cuda|has no attribute '(_cuda\w*)'"
)
"""Matches torch's messages about a build without CUDA."""


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    if isinstance(value, int):  # a device by its number, where a device is expected
        return not isinstance(value, bool)
    return isinstance(value, str) and value.split(":")[0] == "cuda"


def _to_cpu(value: Any) -> Any:
    return _HERE if not isinstance(value, int) and _is_cuda(value) else value


class FakeCuda(TorchFunctionMode):
    """Makes plain CPU tensors report `cuda:0` while it is active, except those that were put on the host.

    Calls `register` with each tensor whose address a candidate may pass to device code.
    """

    unsupported: ClassVar[list[str]] = []
    """Collects the names of features that torch lacks without CUDA; `install` sets the list."""

    def __init__(self, register: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self.register = register

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Exception) and (lacking := LACKING.search(str(error))):
            self.unsupported.append(f"torch._C.{lacking[1]}" if lacking[1] else f"torch: {error}"[:200])
        super().__exit__(kind, error, trace)

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch._C._is_torch_function_enabled() and own_kinds(types_):
            return NotImplemented
        kwargs = kwargs or {}
        answer = _ANSWERS.get(func)
        if answer is not None:
            return answer(args[0])
        if func is torch.Tensor.data_ptr and (args[0] not in HOST or HOST.fetched(args[0])):
            self.register(args[0])
        if func is torch.device:  # a name; tensors made with it are on the CPU
            return func("cuda", *args) if args and type(args[0]) is int else func(*args, **kwargs)
        target = _target(func, args, kwargs)
        if func is _TO[1]:
            named = {k: CUDA if k == "device" and _is_cuda(v) else v for k, v in kwargs.items()}
            return func(*(CUDA if _is_cuda(a) else a for a in args), **named)
        if func is _TO[0] and target is not None and len(args) > 1 and type(args[1]) is int:
            args = (args[0], CUDA, *args[2:])
        args = tuple(_to_cpu(a) for a in args)
        if kwargs.get("device") is not None and target is not None:
            kwargs = dict(kwargs, device=_HERE)
        kwargs.pop("pin_memory", None)
        result = func(*args, **kwargs)
        if target == "cuda" and func in _FROM_NUMPY and not isinstance(args[0], torch.Tensor):
            return result.clone()
        writes = "out" in kwargs or getattr(func, "__name__", "_").endswith("_")
        return _placed([*args, *kwargs.values()], result, target, writes)


def _target(func: Any, args: Any, kwargs: Any) -> str | None:
    """Returns the device that a call names for its result, `cuda` or `cpu`; None if it names none."""
    place = kwargs.get("device")
    if place is None and func is _TO[0]:
        place = args[1] if len(args) > 1 else kwargs.get("other")
        if isinstance(place, torch.Tensor):
            place = _HERE if place in HOST else CUDA
    if place is None and func in _FROM_NUMPY:
        if fake_torch.default_device() == "cuda":
            return "cuda"
        return "cpu" if args and type(args[0]).__module__ == "numpy" else None
    if _is_cuda(place):
        return "cuda"
    return "cpu" if str(place) == "cpu" else None


def _placed(args: list[Any], result: Any, target: str | None, writes: bool) -> Any:
    """Returns a call's result, recorded on the device where a GPU's torch would put it: the requested one, else its
    inputs' one. `writes` means that the call may write into its inputs."""
    if target is None and not HOST.used:
        return result
    given = list(tensors_in(args))
    fetched = any(t not in HOST or HOST.fetched(t) for t in given)
    if target is not None:
        if isinstance(result, torch.Tensor):
            if any(shares(result, t) and (t in HOST) != (target == "cpu") for t in given):
                result = result.clone()
            if target == "cpu":
                HOST.add(result, fetched)
        return result
    hosts = [t for t in given if t in HOST]
    made = tensors_in(result) if hosts and len(hosts) == len(given) else ()
    for tensor in (*made, *(hosts if writes else ())):
        HOST.add(tensor, fetched)
    return result


def own_kinds(kinds: Iterable[type]) -> bool:
    """Tells whether a call has tensors of custom classes. Those define the call themselves and are asked first, and the
    modes stay active, so that they see what the classes call. A mode that called them would not see it."""
    return any(kind not in (torch.Tensor, torch.nn.Parameter) for kind in kinds)


FEW_FIXED = 4096
"""A bound on the elements of weights that an operator may work on in a call, as in the sum of two biases."""
FEW = 256
"""A bound on the elements that Python or numpy may contribute unreported: sizes, offsets, small tables."""


class OperatorLog(TorchDispatchMode):
    """Records each library operator that computes, with the number of elements of its largest tensor.

    Also tracks where data comes from. Memory that no operator made and no `adopt` declared is foreign (numpy's,
    Python's, another thread's), and so is the result of glue on it. Values that follow from weights and sizes alone are
    `fixed`: work on them prepares a call and cannot be the call's own, so a little of it does not count. Values that
    follow from sizes alone are `bare` (tables of positions): work on them never counts, however large. Values that were
    only moved are `plain`, until device code has stored into their memory.
    """

    def __init__(self, memory: FreshMemory | None = None) -> None:
        """`memory` follows what torch leaves uninitialised; None leaves it as it is."""
        super().__init__()
        self.memory = memory
        self.seen: list[tuple[str, int]] = []
        self.pieces: dict[str, int] = {}
        self.aside = 0
        self.reads = 0
        self.strangers: dict[int, int] = {}
        self._crumbs: dict[tuple[int, int], int] = {}
        self._quiet = False
        self._known = Memory()
        self._foreign = Memory()
        self._strange = Memory()
        self._fixed = Memory()
        self._bare = Memory()
        self._plain = Memory()
        self.stored: Callable[[int], int] | None = None
        """Returns how much device code has stored at an address in this call; None if that is not known."""
        self._before: dict[int, int] = {}
        """The same count at the time when memory was allocated there, or fully overwritten: earlier stores no longer
        matter."""
        self._libraries = fake_torch.libraries()
        self._watching: list[Any] = []

    def __enter__(self) -> Any:
        self._watching = self._watching or [
            mode for mode in _get_current_function_mode_stack() if not isinstance(mode, fake_torch.DeviceContext)
        ]
        return super().__enter__()

    def begin(self) -> None:
        """Starts the record of a new call."""
        self.seen.clear()
        self.pieces.clear()
        self.aside = self.reads = 0
        self.strangers.clear()
        self._crumbs.clear()
        self._before.clear()
        self._bare = Memory()  # tables that a constructor made from sizes may be copies of weights

    def report(self) -> dict[str, Any]:
        """Returns the record of the call: its largest operators, all elements that each operator worked on, the number
        of operators that do not count (`aside`), and the elements of tensors of unknown origin that device code was
        given (`strangers`)."""
        seen = [*self.seen, *([("values read by the host", self.reads)] if self.reads > FEW else [])]
        pieces = sorted(self.pieces.items(), key=lambda s: -s[1])
        return {
            "operators": sorted(seen, key=lambda s: -s[1])[:50],
            "pieces": [list(piece) for piece in pieces[:50]],
            "aside": self.aside,
            "strangers": sum(self.strangers.values()),
        }

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Records no operators while torch does another library's work."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def adopt(self, tensors: Iterable[torch.Tensor], fixed: bool = False) -> None:
        """Declares memory as right: inputs, weights (`fixed`), results of a candidate's own host functions."""
        for tensor in tensors:
            self._known.add(tensor)
            self._foreign.discard(tensor)
            self._strange.discard(tensor)
            (self._fixed.add if fixed else self._fixed.discard)(tensor)
            self._bare.discard(tensor)
            self._plain.add(tensor)
            HOST.discard(tensor)

    def imported(self, tensor: torch.Tensor) -> None:
        """Records a tensor that a function which no mode sees made of Python's or numpy's memory."""
        self._known.add(tensor)
        self._foreign.add(tensor)

    def handed_over(self, tensor: torch.Tensor) -> None:
        """Records that device code is given a tensor: it may be written to, and the origin of its values must be
        known."""
        self._fixed.discard(tensor)
        self._bare.discard(tensor)
        if tensor in self._strange or tensor not in self._known:
            address = address_of(tensor)
            self.strangers[address] = max(count_of(tensor), self.strangers.get(address, 0))

    def read(self, name: str, numel: int, tensor: torch.Tensor | None = None) -> None:
        """Records that the host receives values of a tensor, or of memory."""
        self.seen.append((name, numel))
        if tensor is None or tensor not in self._fixed:
            self.reads += numel

    def is_foreign(self, tensor: torch.Tensor, written: bool) -> bool:
        """Tells whether a tensor holds foreign data; `written` means that kernels stored into it."""
        return tensor in self._foreign or not (written or tensor in self._known)

    def __torch_dispatch__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        if own_kinds(types_):
            return NotImplemented
        kwargs = kwargs or {}
        if own := func.namespace not in self._libraries:
            result = self._inside(func, args, kwargs)
        elif self.memory is None:
            result = self.compute(func, args, kwargs)
        else:
            result = self.memory.run(func, args, kwargs, lambda: self.compute(func, args, kwargs))
        given = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        fixed = all(t in self._fixed for t in given)
        bare = not self.reads and all(t in self._bare for t in given)  # numbers that were read may be the inputs'
        if not own and not self._quiet:
            self._note(func.overloadpacket.__name__, args, kwargs, result, fixed, bare)
        made = list(tensors_in(result))
        self._follow(func.overloadpacket.__name__, given, made, fixed)
        over = _overwrites(func.overloadpacket.__name__, made)
        plain = _moves(func.overloadpacket.__name__, args, kwargs) and all(map(self.only_moved, given[over:]))
        for tensor in made:
            (self._bare.add if bare else self._bare.discard)(tensor)
            (self._plain.add if plain else self._plain.discard)(tensor)
            if self.stored is not None and (over or not any(shares(tensor, t) for t in given)):
                self._before[address_of(tensor)] = self.stored(address_of(tensor))
        return result

    def only_moved(self, tensor: torch.Tensor) -> bool:
        """Tells whether a tensor holds only values that the call was given, moved by glue."""
        address = address_of(tensor)
        return (
            self.stored is not None and tensor in self._plain and self.stored(address) == self._before.get(address, 0)
        )

    def _follow(self, name: str, given: list[torch.Tensor], made: list[torch.Tensor], fixed: bool) -> None:
        """Passes on origins: views and in-place writes keep theirs, a new tensor gets that of its inputs."""
        large = [t for t in given if name not in _FACTORIES and (count_of(t) > FEW or self._too_many(name, t))]
        foreign = any(self.is_foreign(t, False) for t in large)
        # This operator brings in tensors of numpy's and Python's values; a candidate that reads no input may make
        # tables so.
        unseen = name not in _FROM_PYTHON and any(t not in self._known for t in large)
        strange = unseen or any(t in self._strange for t in large)
        for tensor in made:
            self._known.add(tensor)
            (self._foreign.add if foreign else self._foreign.discard)(tensor)
            (self._strange.add if strange else self._strange.discard)(tensor)
            (self._fixed.add if fixed else self._fixed.discard)(tensor)

    def _too_many(self, name: str, small: torch.Tensor) -> bool:
        """Tells whether a small tensor is part of foreign data that arrives piece by piece and exceeds the bound in
        all."""
        if name in _FROM_PYTHON or not (self.is_foreign(small, False) or small in self._strange):
            return False
        self._crumbs[address_of(small), int(torch.Tensor.storage_offset(small))] = count_of(small)
        return sum(self._crumbs.values()) > FEW

    def _note(self, name: str, args: Any, kwargs: Any, result: Any, fixed: bool, bare: bool) -> None:
        if name in _ITEMS:
            self.reads += not fixed
        elif not _moves(name, args, kwargs):
            numel = max((_numel(value) for value in (*args, result)), default=0)
            if bare or (fixed and numel <= FEW_FIXED and not self.reads):
                self.aside += 1
            else:
                self.seen.append((name, numel))
            if not fixed:
                self.pieces[name] = self.pieces.get(name, 0) + numel

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs a library operator."""
        return func(*args, **kwargs)

    def _inside(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator that the candidate registered, so that the operators it calls are recorded too."""
        key = "CUDA" if any(t.is_cuda for t in tensors_in(args)) else "CPU"
        with self, contextlib.ExitStack() as within:
            active = _get_current_function_mode_stack()
            for mode in self._watching:  # modes through which this call came do not see what it calls
                if mode not in active:
                    within.enter_context(mode)
            return func.redispatch(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)), *args, **kwargs)


_FROM_PYTHON = ("lift_fresh", "lift_fresh_copy")
_FACTORIES = frozenset(
    "empty_like zeros_like ones_like full_like rand_like randn_like randint_like new_empty new_empty_strided new_zeros"
    " new_ones new_full".split()
)
"""Operators that take a tensor's form only, none of its values."""
_ITEMS = ("_local_scalar_dense", "item")
"""Operators that return a single value to the host."""


def _moves(name: str, args: Any, kwargs: Any) -> bool:
    """Tells whether an operator only moves data; `index_put_` may also accumulate."""
    adds = name == "index_put_" and bool(args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    return name in MOVES and not adds


def _overwrites(name: str, made: list[torch.Tensor]) -> bool:
    """Tells whether an operator overwrites all of the memory that it writes to."""
    if name not in ("copy_", "fill_", "zero_"):
        return False
    return all(count_of(t) * t.dtype.itemsize == bytes_of(t) for t in made)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors of a nest of lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def _numel(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return count_of(value)
    if isinstance(value, (list, tuple)):
        return max((_numel(v) for v in value), default=0)
    return 0


class _Stream:
    """A stream on a device where everything happens in order."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    device = CUDA
    priority = 0

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...
    def synchronize(self) -> None: ...
    def wait_stream(self, _other: Any) -> None: ...
    def wait_event(self, _event: Any) -> None: ...
    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def query(self) -> bool:
        return True

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_exc: object) -> None: ...


class _Event:
    """An event that has always happened. It measures nothing, because nothing is timed here."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...
    def record(self, _stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...
    def wait(self, _stream: Any = None) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, _other: Any) -> float:
        return 1.0


def device_properties(_device: Any = None) -> types.SimpleNamespace:
    """Returns the functional machine's device properties: the limits of an sm_90 device."""
    return types.SimpleNamespace(
        name="Kernelwright functional machine (sm_90)",
        major=9,
        minor=0,
        multi_processor_count=132,
        total_memory=80 << 30,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=227 << 10,
        shared_memory_per_multiprocessor=228 << 10,
        L2_cache_size=50 << 20,
        gcnArchName="",
        is_integrated=False,
        is_multi_gpu_board=False,
    )


@contextlib.contextmanager
def _nothing(*_args: Any, **_kwargs: Any) -> Iterator[None]:
    yield


def install(unsupported: list[str]) -> None:
    """Patches `torch.cuda` (once, in a runner that never goes back).

    Features that cannot be pretended, such as graphs, raise when they are used, and their names go to `unsupported`.
    torch.compile returns its argument: compiled code computes the same, and there is no compiler in a runner.
    """
    stream = _Stream()
    FakeCuda.unsupported = unsupported

    def missing(name: str) -> Callable[..., Any]:
        def refuse(*_args: Any, **_kwargs: Any) -> Any:
            unsupported.append(name)
            raise RuntimeError(f"{name} is not there on the functional machine")

        return refuse

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _device: None,
        "get_device_name": lambda _device=None: device_properties().name,
        "get_device_capability": lambda _device=None: (9, 0),
        "get_device_properties": device_properties,
        "get_arch_list": lambda: ["sm_90"],
        "is_bf16_supported": lambda *_a, **_k: True,
        "synchronize": lambda _device=None: None,
        "empty_cache": lambda: None,
        "current_stream": lambda _device=None: stream,
        "default_stream": lambda _device=None: stream,
        "set_stream": lambda _stream: None,
        "stream": _nothing,
        "device": _Stream,
        "device_of": _Stream,
        "Stream": _Stream,
        "ExternalStream": _Stream,
        "Event": _Event,
        "memory_allocated": lambda _device=None: 0,
        "max_memory_allocated": lambda _device=None: 0,
        "memory_reserved": lambda _device=None: 0,
        "reset_peak_memory_stats": lambda _device=None: None,
        "mem_get_info": lambda _device=None: (64 << 30, 80 << 30),
        "manual_seed": lambda _seed: None,
        "manual_seed_all": lambda _seed: None,
        "ipc_collect": lambda: None,
        "is_current_stream_capturing": lambda: False,
        **{name: missing(f"torch.cuda.{name}") for name in ("CUDAGraph", "graph", "make_graphed_callables")},
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.cuda.jiterator._JittedFunction.__call__ = missing("torch.cuda.jiterator")  # type: ignore[method-assign]
    fake_torch.install()
    torch.version.cuda = "13.0"
    torch.compile = lambda model=None, **_options: model if model is not None else (lambda f: f)  # type: ignore
    # Replaced as a whole: torch checks the stream's type before a function mode is asked.
    torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign,assignment]
    torch.nn.Module.cuda = (  # type: ignore[method-assign]
        lambda self, device=None: self.to("cuda") if HOST.used else self  # type: ignore[assignment,misc]
    )
