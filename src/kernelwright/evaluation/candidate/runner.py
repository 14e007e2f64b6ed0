"""The runner: the sandboxed child that loads one candidate and calls it.

It receives the candidate's text, constructor arguments, weights, and one call's inputs at a time. It returns the bytes
of the outputs and the observations made while they were computed. It never holds seeds of inputs, expected outputs,
tolerances or the reference's source, so a candidate can find none of them here. None of its own statements is trusted
for correctness: the judge compares bytes.

Messages in: `load`, `model`, `call`, `strict`, and `built` in answer to a `build`. Out: `ready`, `loaded`, `made`,
`called`, `strict`, `failed`, `build`. Only `strict` brings the reference here, and its answers are claims.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import importlib.abc
import importlib.util
import linecache
import os
import sys
import threading
import types
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.utils.cpp_extension as cpp_extension

from kernelwright import cuda
from kernelwright.backends.extension import Extension
from kernelwright.backends.host_memory import HOST
from kernelwright.backends.source_text.file_scopes import told_apart
from kernelwright.backends.triton import triton_support
from kernelwright.builds import BuildRequest, BuildResult, KernelBuildFailed
from kernelwright.evaluation.candidate import fake_cuda, hidden_package, host_reads, source_files, watched_threads
from kernelwright.evaluation.candidate.audit_hook import Snoops, watch_forbidden
from kernelwright.evaluation.candidate.captured_output import MAX_PRINT, Tail
from kernelwright.evaluation.candidate.fresh_memory import FreshMemory
from kernelwright.evaluation.candidate.patched_functions import Originals
from kernelwright.evaluation.candidate.setup_modules import SetupModules
from kernelwright.evaluation.candidate.source_files import SourceFiles, include_folders
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.program import weight_copies
from kernelwright.evaluation.program.tensor_contents import changed, overwritten
from kernelwright.evaluation.tensor_bytes import ITEM_SIZES, shares_memory
from kernelwright.evaluation.text.first_build import extension_request
from kernelwright.machine.runtime import Runtime
from kernelwright.tasks import gradients, storages


class _MissingLibraries(importlib.abc.MetaPathFinder):
    """Records the third-party libraries that a candidate failed to import; the last finder on the path."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if "." in fullname or fullname in self.names:
            return
        # The import machinery's own frames lie between this one and the import statement.
        frame = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None and frame.f_code.co_filename.endswith("candidate.py"):
            self.names.append(fullname)


class Runner:
    """The state of one candidate: its module, its model, and the runtime that launches its kernels."""

    more: ClassVar[dict[str, str]] = {}
    """Further messages that a kind of runner answers: the method's name, and the kind of its answer."""
    launch_ms = 0.0
    """`Device.launch_ms`; reported before there is a candidate."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._asking = threading.Lock()
        """Held while the judge is asked, since candidates build in several threads."""
        self.runtime: Any = self.make_runtime()
        shadows = getattr(self.runtime, "shadows", None)  # there is none on a GPU
        self.operators = fake_cuda.OperatorLog(FreshMemory(shadows) if shadows is not None else None)
        self.runtime.adopt = lambda tensor: self.operators.adopt([tensor])
        self.runtime.quietly = lambda: self.operators.quietly()
        if hasattr(self.runtime, "stored"):
            self.operators.stored = self.runtime.stored
        self.missing = _MissingLibraries()
        self.snoops = Snoops()
        sys.addaudithook(self.snoops)
        self.originals = Originals()
        self.prints = Tail()
        self.module: types.ModuleType | None = None
        self.model: Any = None
        self.copies: weight_copies.Copies = []
        """Copies of the weights that the model's constructor has made."""
        self.entry = "ModelNew"
        self.on_cuda = True
        self.buffers: list[torch.Tensor] = []  # the inputs of the previous call
        self.pair: Any = None  # with the reference, of `kernelbench_runner` only
        self.active: list[Any] = []
        """The modes under which the candidate runs at the moment; none while it does not."""
        self.kept_inputs: dict[int, tuple[Any, torch.Tensor]] = {}
        """The handles of the previous call's inputs, with their places."""

    def make_runtime(self) -> Any:
        """Returns the runtime that launches this candidate's kernels: here, the functional machine."""
        return Runtime(self._build, on_host=HOST.__contains__)

    def pretend(self) -> list[Any]:
        """Returns the modes that pretend a GPU to candidate code."""
        return [fake_cuda.FakeCuda(self.runtime.register)] if self.on_cuda else []

    def modes(self) -> list[Any]:
        """Returns the modes under which candidate code runs."""
        return [*self.pretend(), host_reads.HostReads(self.operators), self.operators]

    def watch(self) -> None:
        """Watches the reads and the threads that no mode sees."""
        host_reads.install(self.operators)
        watched_threads.install(lambda: self.active)

    def received(self, value: Any) -> Any:
        """Returns a value from the judge, with its tensors on the device where the candidate expects them."""
        return value

    def sent(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns an output in host memory."""
        return tensor

    def ready(self) -> None:
        """Poisons memory that a call might read before it has written it."""

    def device_failed(self) -> bool:
        """Tells whether the device is left in a state in which no call can work; never without a GPU."""
        return False

    def settle(self) -> None:
        """Waits for the work that a call has started."""

    def _build(self, request: BuildRequest) -> BuildResult:
        """Asks the builder, through the judge. Raises `ChannelClosed` when the judge is gone."""
        with self._asking:
            self.channel.send({"kind": "build", "request": dataclasses.asdict(request)})
            answer = self.channel.receive()
        return BuildResult.from_fields(answer.header["result"])

    def install(self) -> None:
        """Prepares this process for the candidate's module."""
        if self.on_cuda:
            fake_cuda.install(self.runtime.unsupported)
            register = self.runtime.register

            def handed_over(tensor: torch.Tensor) -> None:
                register(tensor)
                self.operators.handed_over(tensor)

            self.runtime.register = handed_over

    def load(self, message: Frame) -> dict[str, Any]:
        """Executes the candidate's module; success returns no facts."""
        self.load_candidate(message.header)
        return {}

    def load_candidate(self, header: dict[str, Any]) -> None:
        """Loads as `load` does, from the fields of its message."""
        self.entry = header["entry_point"]
        if header.get("precision") == "tf32":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
        self.on_cuda = header["language"] != "cpp"
        self.runtime.device = "cuda" if self.on_cuda else "cpu"
        self.install()
        self.watch()
        watch_forbidden(self.snoops.seen)
        patch_builds(self.runtime)
        if self.on_cuda and triton_support.wanted(header["source"]):
            if isinstance(self.runtime, Runtime) or getattr(self.runtime, "handles", False):
                triton_support.attach(self.runtime)
            else:
                triton_support.keep_errors(self.runtime.compile_errors)
        text, path = header["source"], "candidate.py"
        module = types.ModuleType("candidate")
        module.__file__ = os.path.abspath(path)
        # A file and a line cache: candidates and torch.jit read their own source.
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
        source_files.write(header.get("files", ()), os.getcwd())
        self._open_files([path for path, _ in header.get("files", ())])
        linecache.checkcache(module.__file__)
        sys.modules["candidate"] = module
        self.module = module
        code = compile(text, module.__file__, "exec", dont_inherit=True)
        self.originals.keep()
        hidden_package.hide(self.snoops.seen)
        with self._watching():
            exec(code, module.__dict__)
        if not callable(module.__dict__.get(self.entry)):
            raise NoEntryPoint(f"the candidate defines no {self.entry}")
        if header["gradients"]:
            module.__dict__[self.entry] = gradients.differentiated(module.__dict__[self.entry])

    def _open_files(self, paths: Sequence[str]) -> None:
        """Lets the candidate import its own packages, and the extensions that its `setup.py` describes."""
        if any(path.endswith(".py") for path in paths):
            sys.path.append(os.getcwd())
        if "setup.py" in paths:
            sys.meta_path.append(SetupModules(os.getcwd(), cpp_extension.load, self.runtime.unsupported))

    def candidate_class(self) -> Any:
        """Returns the candidate's object of the entry point's name."""
        assert self.module is not None
        return self.module.__dict__[self.entry]

    def make(self, message: Frame) -> dict[str, Any]:
        """Constructs the model; returns how its weights were set."""
        (args, named), state = (self.received(value) for value in wire.unpack_values(message))
        if message.header["keep"] and self.model is not None:
            return {"weights": load_weights(self.model, state, self.copies, new=False)}
        self.model = None
        gc.collect()
        torch.manual_seed(message.header["weight_seed"])
        with self._watching():
            self.model = self.placed(self.candidate_class()(*args, **named))
        self.copies.clear()  # the copies that follow are ours, made outside the watch
        return {"weights": load_weights(self.model, state, self.copies)}

    def placed(self, model: Any) -> Any:
        """Returns the candidate's model on the device of its inputs."""
        return model

    def call(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Runs one forward pass on fresh contents; returns facts and outputs."""
        inputs = self.received(wire.unpack_values(message)[0])
        if message.header.get("reuse"):
            inputs = self._at_same_addresses(inputs)
        self.buffers = wire.tensors_of(inputs)
        given = wire.tensors_of(inputs)
        before = storages.copies(given)
        self.runtime.given(given, weights_of(self.model))
        self.operators.adopt(given)
        self.operators.adopt(weights_of(self.model), fixed=True)
        self.operators.begin()
        self.runtime.begin_call(message.header["call_seed"])
        torch.manual_seed(message.header["call_seed"])
        self.ready()
        with self._watching(), torch.no_grad():
            result = self.model(*inputs)
            self.settle()
            # Read the bytes first, and still under the log: code that runs after the call counts as the call's, too.
            outputs, problems = plain_outputs(result, given)
            with torch._C.DisableTorchFunction():
                returned = [*outputs, *(given[i] for i in message.header.get("changed", ()))]
                packed = [wire.pack_tensor(t, read_bytes(self.sent(t))) for t in returned]
        facts = self.finished()
        report = {
            "facts": facts.fields(),
            "written": [written_bytes(facts, t) for t in outputs],
            "foreign": self.foreign(outputs, facts),
            "idle": bool(outputs) and all(map(self.operators.only_moved, outputs)),
            **self.operators.report(),
            "mutated": changed(before, given),
            "problems": problems,
        }
        return report, packed

    def finished(self) -> Any:
        """Returns the device code's facts of the call that ended. Host functions of a CUDA candidate do not count as
        its kernels: on a GPU they could not touch the tensors that they work on here."""
        facts = self.runtime.end_call()
        if self.on_cuda:
            facts.own_calls = 0
        return facts

    def foreign(self, outputs: Sequence[torch.Tensor], facts: Any) -> list[list[int]]:
        """Returns number and size of the outputs whose values neither kernels nor glue made."""
        strange = [self.operators.is_foreign(t, written_bytes(facts, t) > 0) for t in outputs]
        return [[i, outputs[i].numel()] for i, is_strange in enumerate(strange) if is_strange]

    def _at_same_addresses(self, inputs: Any) -> Any:
        """Copies the inputs into the memory of the previous call, if they are laid out in the same way."""
        return wire.replace_tensors(inputs, overwritten(self.buffers, wire.tensors_of(inputs)))

    def _watching(self) -> Any:
        """Pretends CUDA, logs operators and captures output while candidate code runs."""
        return _Watch(self)

    def state(self) -> dict[str, Any]:
        """Returns the observations that every answer carries besides outputs."""
        runtime = self.runtime
        return {
            "unsupported": [str(name)[:500] for name in runtime.unsupported[:100]],
            "findings": list(runtime.findings),
            "compile_errors": runtime.compile_errors[:100],
            "faults": [dataclasses.asdict(f) for f in runtime.faults],
            "missing_libraries": self.missing.names[:20],
            "library_ops": [list(op) for op in getattr(runtime, "library_ops", [])][:50],
            "prints": (self.prints.text + "".join(getattr(runtime, "printed", [])))[-MAX_PRINT:],
            "snooped": self.snoops.seen[:10],
            "patched": self.originals.changed()[:10],
        }


class NoEntryPoint(Exception):
    """The candidate's file has no class of the expected name."""


class _Watch:
    def __init__(self, owner: Runner) -> None:
        self.owner = owner
        self.modes: list[Any] = owner.modes()

    def __enter__(self) -> None:
        self.streams = (sys.stdout, sys.stderr)
        sys.stdout = sys.stderr = self.owner.prints  # type: ignore[assignment]
        sys.meta_path.append(self.owner.missing)
        for mode in self.modes:
            mode.__enter__()
        self.owner.active = self.modes
        self.owner.snoops.active = True

    def __exit__(self, *exc: Any) -> None:
        self.owner.snoops.active = False
        self.owner.active = []
        for mode in reversed(self.modes):
            mode.__exit__(*exc)
        if self.owner.missing in sys.meta_path:
            sys.meta_path.remove(self.owner.missing)
        sys.stdout, sys.stderr = self.streams


def patch_builds(runtime: Runtime) -> None:
    """Points torch's extension builders at our builder."""
    cuda.set_runtime(runtime)

    def load_inline(
        name: str,
        cpp_sources: str | Sequence[str],
        cuda_sources: str | Sequence[str] = "",
        functions: Sequence[str] | dict[str, str] | str | None = None,
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        *_args: Any,
        **kwargs: Any,
    ) -> Any:
        _known_options("load_inline", kwargs)
        if folders := kwargs.get("extra_include_paths"):
            cpp_sources, cuda_sources = (
                list(map(SourceFiles(folders, named).with_headers, [text] if isinstance(text, str) else text or ()))
                for text, named in ((cpp_sources, "main.cpp"), (cuda_sources, "cuda.cu"))
            )
        request = extension_request(name, cpp_sources, cuda_sources, functions, extra_cflags, extra_cuda_cflags)
        result = runtime.compile(request)
        if result.status != "ok":
            raise KernelBuildFailed(f"Error building extension {name!r}:\n{result.log}")
        if result.built_by == "load_inline" and not kwargs.get("is_python_module", True):
            return torch.ops.load_library(result.library)
        if result.built_by == "load_inline":
            return _imported(request.name, result.library or "")
        return Extension(result, runtime, kwargs.get("is_python_module", True))

    def load(name: str, sources: str | Sequence[str], *_args: Any, **kwargs: Any) -> Any:
        _known_options("load", kwargs)
        texts: dict[bool, list[str]] = {True: [], False: []}
        paths = kwargs.get("extra_include_paths") or []
        paths = [paths] if isinstance(paths, str) else list(paths)
        flags = {True: kwargs.get("extra_cuda_cflags"), False: kwargs.get("extra_cflags")}
        names = {True: "cuda.cu", False: "main.cpp"}
        files = {cuda: SourceFiles([*paths, *include_folders(flags[cuda])], names[cuda]) for cuda in texts}
        for source in [sources] if isinstance(sources, (str, os.PathLike)) else sources:
            is_cuda = str(source).endswith((".cu", ".cuh"))
            texts[is_cuda].append(files[is_cuda].text(str(source)))
        apart = {cuda: told_apart(of_language, files[cuda].own) for cuda, of_language in texts.items()}
        try:
            return load_inline(
                name,
                apart[False].texts,
                apart[True].texts,
                None,
                kwargs.get("extra_cflags"),
                kwargs.get("extra_cuda_cflags"),
                is_python_module=kwargs.get("is_python_module", True),
            )
        except KernelBuildFailed:
            runtime.unsupported += [
                f"{word}, defined by two files of one extension" for one in apart.values() for word in one.doubtful
            ]
            raise

    cpp_extension.load_inline = load_inline  # type: ignore[assignment]
    cpp_extension.load = load  # type: ignore[assignment]
    torch.cuda._compile_kernel = cuda.compile_kernel  # type: ignore[attr-defined]


_OPTIONS = frozenset(
    "sycl_sources extra_cflags extra_cuda_cflags extra_sycl_cflags extra_ldflags extra_include_paths build_directory"
    " verbose with_cuda with_sycl is_python_module is_standalone with_pytorch_error_handling keep_intermediates use_pch"
    " no_implicit_headers".split()
)
"""The options of torch's builders by name, of all versions, beside names and sources."""


def _known_options(function: str, given: dict[str, Any]) -> None:
    """Raises TypeError, as torch does, for an argument that no version has."""
    if unknown := sorted(given.keys() - _OPTIONS):
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}")


def _imported(name: str, library: str) -> Any:
    """Imports the module of an extension that torch built."""
    spec = importlib.util.spec_from_file_location(name, library)
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights_of(model: Any) -> list[torch.Tensor]:
    if not isinstance(model, torch.nn.Module):
        return []
    return [*model.parameters(), *model.buffers()]


def load_weights(
    model: Any, state: dict[str, torch.Tensor], built: weight_copies.Copies | None = None, new: bool = True
) -> str:
    """Gives the candidate the reference's weights: by name, else by order of equal shapes, else as constructed.

    A file without Python (`as_module`) has no weights of its own and is called with the reference's, which are set by
    name. Returns the way used: `none`, `names`, `order` or `seed`. Both models were constructed under one seed, so
    `seed` still means equal weights when the candidate makes its parameters in the reference's order. Copies follow:
    those that were `built` with the model, recorded there when it is `new`, and others if they are easily found.
    """
    if not state or not isinstance(model, torch.nn.Module):
        return "none"
    own = model.state_dict()
    if hasattr(model, "reference_weights") and not own:
        plain: Any = model
        plain.reference_weights = state
        return "names"
    fits = {name: t for name, t in state.items() if name in own and own[name].shape == t.shape}
    with torch.no_grad():
        if len(fits) == len(state):
            how, pairs = "names", [(own[name], tensor) for name, tensor in fits.items()]
        elif [t.shape for t in own.values()] == [t.shape for t in state.values()]:
            how, pairs = "order", list(zip(own.values(), state.values(), strict=True))
        else:
            return "seed"
        weights = {str(i): mine for i, (mine, _) in enumerate(pairs)}
        copies = weight_copies.copies(model, weights, packed=new)
        if built is not None and new:
            built += copies
        elif built is not None:
            copies = built + copies
        for mine, given in pairs:
            mine.copy_(given)
        weight_copies.follow(copies)
    return how


def plain_outputs(result: Any, inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[tuple[str, str]]]:
    """Returns the tensors of a result, read by address, and their faults as objects: (rule, evidence) pairs.

    No method of the candidate's objects is called: it would run after the call, when its clock has stopped.
    """
    with torch.no_grad(), torch._C.DisableTorchFunction():
        return _plain_outputs(result, [_identity(t) for t in inputs])


def _identity(tensor: torch.Tensor) -> int:
    """Returns a number that tells a tensor's memory from others; 0 for an empty tensor."""
    storage = torch.Tensor.untyped_storage(tensor)
    return (storage.data_ptr() or storage._cdata) if storage.nbytes() else 0


def _plain_outputs(result: Any, inputs: Sequence[int]) -> tuple[list[torch.Tensor], list[tuple[str, str]]]:
    problems: list[tuple[str, str]] = []
    outputs: list[torch.Tensor] = []
    for position, value in enumerate(wire.flatten(result)):
        if issubclass(type(value), (int, float)):
            value = torch.tensor(value)
        if not issubclass(type(value), torch.Tensor):
            problems.append(("not-a-tensor", f"output {position} is a {type(value).__name__}, not a tensor"))
            continue
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            problems.append(("lazy-output", f"output {position} is a {type(value).__name__}, a subclass of Tensor"))
            continue
        own, value = vars(value), torch.Tensor.detach(value)
        if wire.dtype_name(value.dtype) not in ITEM_SIZES:
            problems.append(("not-a-tensor", f"output {position} has dtype {value.dtype}, which no task declares"))
            continue
        if names := sorted({n if type(n) is str else "?" for n in own} - {"_backward_hooks"}):
            problems.append(("patched-output", f"output {position} carries attributes of its own: {names}"))
        if 0 in value.stride() and value.numel() > 1 and any(s > 1 for s in value.shape):
            if any(s == 0 and n > 1 for s, n in zip(value.stride(), value.shape, strict=True)):
                problems.append(("broadcast-output", f"output {position} is a stride-0 view of fewer elements"))
        storage = _identity(value)
        for index, given in enumerate(inputs):
            if storage and storage == given:
                problems.append(("aliased-output", shares_memory(position, index)))
        outputs.append(value)
    return outputs, problems


def written_bytes(facts: Any, tensor: torch.Tensor) -> int:
    """Returns the bytes that kernels stored into a tensor's memory; on a GPU, which does not count them, nonzero if any
    kernel ran."""
    address = tensor.untyped_storage().data_ptr()
    return int(facts.written.get(address, facts.written.get(0, 0)))


def read_bytes(tensor: torch.Tensor) -> bytes:
    """Returns the tensor's values in row-major order, copied by address, so that no method of a candidate's object
    runs."""
    if not torch.Tensor.is_contiguous(tensor):
        tensor = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    count = tensor.numel() * tensor.element_size()
    return bytes((_BYTE * count).from_address(torch.Tensor.data_ptr(tensor))) if count else b""


_BYTE = ctypes.c_char
"""A type, saved here: functions of `ctypes` may be replaced by the time they are needed."""
