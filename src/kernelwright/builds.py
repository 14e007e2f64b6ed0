"""What passes between the runner, which meets a candidate's build calls, and the builder, which compiles.

Plain dataclasses that travel as JSON over a pipe; no torch, no compiler. The runner is untrusted, so the builder treats
every field as hostile text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self


class _Message:
    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The message from its JSON object, in which tuples have become lists."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})


@dataclass(frozen=True)
class BuildRequest(_Message):
    """One thing to compile.

    `extension`: what `torch.utils.cpp_extension.load_inline` was given (CUDA text, C++ text, names to bind).
    `device`: CUDA device code only, for the plain form (`Module(code)`, `torch.cuda._compile_kernel`).
    `instances`: further template instances of a device text that was built before.
    `program`: a whole CUDA program with `main`; the result's `library` is an executable.
    `ptxas`: PTX that Triton made in the runner, in `cuda_source`; assembled only to see whether that works.
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
    """The device to make machine code for (`sm_90a`); empty for PTX only."""


@dataclass(frozen=True)
class BuildResult(_Message):
    """What came of a `BuildRequest`."""

    status: Literal["ok", "compile_error", "unsupported"]
    """`compile_error`: the candidate's own fault. `unsupported`: our stand-in or a tool lacks something it needs."""
    log: str = ""
    """Compiler output, with line numbers of the candidate's own source."""
    missing: tuple[str, ...] = ()
    """For `unsupported`: what is missing, by name (`torch::cumsum`, `ptx: wgmma.mma_async`)."""
    ptx: str | None = None
    cubin: str | None = None
    """Machine code in base64, where the request named a device."""
    device_source: str | None = None
    """The device text NVRTC saw, to be sent back in an `instances` request."""
    lowered: dict[str, str] = field(default_factory=dict)
    """Name expression -> mangled entry in `ptx`."""
    library: str | None = None
    """Path of the compiled host part (a shared object in the build cache)."""
    functions: tuple[str, ...] = ()
    """Names that the library exports to Python."""
    built_by: str = "stand-in"
    """`load_inline` for a library that torch built with its real headers: an ordinary Python extension module."""
    resources: dict[str, int] = field(default_factory=dict)
    """What ptxas says of a kernel: `registers`, `spilled_bytes`."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall seconds by stage (`split`, `nvrtc`, `host`), and `cached` = 1.0 for a hit of the build cache."""


def needs_torch(request: BuildRequest, result: BuildResult) -> bool:
    """Whether torch's own build of an extension may do what ours could not."""
    return request.kind == "extension" and bool(request.arch) and result.status == "unsupported"
