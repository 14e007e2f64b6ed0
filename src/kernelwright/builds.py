"""The messages between the runner, which receives a candidate's build calls, and the builder, which compiles.

Plain dataclasses, sent as JSON over a pipe; no torch, no compiler. The runner is untrusted, so the builder treats every
field as hostile text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self


class KernelBuildFailed(RuntimeError):
    """Raised into the candidate when a build fails: like torch, a RuntimeError with the compiler's output."""


class _Message:
    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """Builds the message from its JSON object; turns lists back into tuples."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})


@dataclass(frozen=True)
class BuildRequest(_Message):
    """One build request.

    `extension`: the arguments of `torch.utils.cpp_extension.load_inline` (CUDA text, C++ text, names to bind).
    `device`: CUDA device code only, for the plain form (`Module(code)`, `torch.cuda._compile_kernel`).
    `instances`: more template instances of a device text that was built before.
    `program`: a whole CUDA program with `main`; the result's `library` is an executable.
    `ptxas`: PTX that Triton produced in the runner, in `cuda_source`; assembled for its own target.
    """

    kind: Literal["extension", "device", "instances", "program", "ptxas"]
    name: str = ""
    cuda_source: str = ""
    cpp_source: str = ""
    functions: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    cpp_flags: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()
    """NVRTC name expressions, e.g. `softmax<float, 256>`, for `device` and `instances`."""
    arch: str = ""
    """The target of machine code (`sm_90a`); empty for PTX only."""
    unit_names: tuple[str, ...] = ()
    """Further files of a `program`, compiled each for itself: `.cu`, `.cpp` or `.c`."""
    unit_sources: tuple[str, ...] = ()
    """Their texts."""


@dataclass(frozen=True)
class BuildResult(_Message):
    """The result of a `BuildRequest`."""

    status: Literal["ok", "compile_error", "unsupported"]
    """`compile_error`: the candidate's fault. `unsupported`: our stand-in or a tool lacks a required feature."""
    log: str = ""
    """Compiler output, with line numbers of the candidate's own source."""
    missing: tuple[str, ...] = ()
    """For `unsupported`: the missing names (`torch::cumsum`, `ptx: wgmma.mma_async`)."""
    ptx: str | None = None
    cubin: str | None = None
    """Machine code in base64, if the request named a target."""
    device_source: str | None = None
    """The device text passed to NVRTC, to be sent back in an `instances` request."""
    lowered: dict[str, str] = field(default_factory=dict)
    """Name expression -> mangled entry in `ptx`."""
    library: str | None = None
    """Path of the compiled host part (a shared object in the build cache)."""
    functions: tuple[str, ...] = ()
    """Functions that the library exports to Python."""
    module: str = ""
    """The extension's name: `PyInit_` with this name is the library's entry, if it is a Python module."""
    built_by: str = "stand-in"
    """`load_inline` for a library built by torch with its real headers: a normal Python extension module."""
    resources: dict[str, int] = field(default_factory=dict)
    """A kernel's resources from ptxas: `registers`, `spilled_bytes`."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall seconds by stage (`split`, `nvrtc`, `host`); `cached` is 1.0 on a build cache hit."""


DYNAMIC_PARALLELISM = "dynamic parallelism: a kernel that launches kernels"
"""The name of the missing feature."""


def needs_torch(request: BuildRequest, result: BuildResult) -> bool:
    """Tells whether torch's own build of an extension should be tried after ours."""
    linked = DYNAMIC_PARALLELISM not in result.missing  # torch's build does not link relocatable device code
    return request.kind == "extension" and bool(request.arch) and result.status == "unsupported" and linked
