"""NVRTC, NVIDIA's run-time compiler: CUDA device text to PTX, without a GPU, a driver or a toolkit.

A thin binding by ctypes to the library of the `nvidia-cuda-nvrtc` wheel (or the system's), with the headers of the
CUDA wheels and, before them, our own stand-ins for host headers that device code likes to include (`include/`). It
compiles; it does not run anything.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kernelwright.errors import MachineError

ARCH = "compute_90"
INCLUDE = Path(__file__).resolve().parent / "include"
_SUCCESS = 0
_INVALID_OPTION, _COMPILATION = 5, 6


@dataclass(frozen=True)
class NvrtcResult:
    """What came of one compilation. `lowered` maps name expressions to entries of `ptx`."""

    ok: bool
    ptx: str
    log: str
    lowered: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def _wheel_folders() -> list[Path]:
    """Roots of NVIDIA's wheels: one folder for CUDA 13, one folder a package before that."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    names = ("cu13", "cuda_nvrtc", "cuda_runtime", "cuda_cccl")
    return [root / name for root in roots for name in names if (root / name).is_dir()]


@cache
def load() -> ctypes.CDLL:
    """The library; raises `MachineError` where there is none."""
    found = [lib for root in _wheel_folders() for lib in sorted((root / "lib").glob("libnvrtc.so*"))]
    problem = "no libnvrtc.so was found"
    for name in [str(p) for p in found if "alt" not in p.name] + ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problem = str(error) if found else problem
    raise MachineError(f"NVRTC cannot be loaded: {problem}", hint="pip install 'nvidia-cuda-nvrtc>=13,<14'")


def version() -> tuple[int, int]:
    """NVRTC's version as (major, minor)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    load().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@cache
def include_folders() -> tuple[str, ...]:
    """Where headers are looked for: our stand-ins, then the wheels' runtime headers and CCCL."""
    folders = [INCLUDE]
    for root in _wheel_folders():
        folders += [root / "include", root / "include" / "cccl"]
    return tuple(str(f) for f in folders if f.is_dir())


def options(arch: str, flags: Sequence[str]) -> list[str]:
    """NVRTC's options: ours, the include folders, and the caller's `flags` (already in NVRTC's spelling)."""
    chosen = [f"--gpu-architecture={arch}", "--device-as-default-execution-space", "--generate-line-info"]
    if not any(flag.startswith(("--std", "-std")) for flag in flags):
        chosen.append("--std=c++17")
    chosen += [
        "--pre-include=kernelwright_device.h",
        "-D__KERNELWRIGHT__=1",
        "-DTORCH_EXTENSION_NAME=candidate",
        "--diag-suppress=20044,47,177",
    ]
    return chosen + [f"--include-path={folder}" for folder in include_folders()] + list(flags)


def compile_ptx(
    source: str,
    *,
    arch: str = ARCH,
    flags: Sequence[str] = (),
    expressions: Sequence[str] = (),
    name: str = "cuda.cu",
) -> NvrtcResult:
    """Compiles device text. A text that does not compile is a result, not an error.

    `expressions` are names such as `softmax<float, 256>`: they instantiate templates, and `lowered` tells what they
    are called in the PTX. Raises `MachineError` when NVRTC itself is missing.
    """
    library = load()
    started = time.perf_counter()
    program = ctypes.c_void_p()
    text = source.encode("utf-8", "replace").replace(b"\0", b" ")
    library.nvrtcCreateProgram(ctypes.byref(program), text, name.encode(), 0, None, None)
    try:
        for expression in expressions:
            library.nvrtcAddNameExpression(program, expression.encode())
        chosen = [o.encode() for o in [*options(arch, flags), *_implied(source, expressions)]]
        status = library.nvrtcCompileProgram(program, len(chosen), (ctypes.c_char_p * len(chosen))(*chosen))
        log = _text(library, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
        if status != _SUCCESS:
            if status not in (_COMPILATION, _INVALID_OPTION) and not log.strip():
                log = f"error: NVRTC gave up with status {status}"
            return NvrtcResult(False, "", log, {}, time.perf_counter() - started)
        ptx = _text(library, program, "nvrtcGetPTXSize", "nvrtcGetPTX")
        lowered = {e: _lowered(library, program, e) for e in expressions}
        return NvrtcResult(True, ptx, log, lowered, time.perf_counter() - started)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


# torch/extension.h brings these to nvcc; here they are included where a text names what they declare, since parsing
# them takes longer than compiling most kernels.
_IMPLIED = (
    ("kernelwright_scalar.h", r"\b(?:c10|at|torch)\s*::\s*(?:Half|BFloat16|acc_type|opmath_type)\b"),
    ("cuda_fp16.h", r"\b(?:__half2?|half2?|__half2float|__float2half\w*)\b"),
    ("cuda_bf16.h", r"\b(?:__nv_bfloat162?|nv_bfloat162?|__bfloat162float|__float2bfloat16\w*)\b"),
)


def _implied(source: str, expressions: Sequence[str]) -> list[str]:
    text = "\n".join((source, *expressions))
    return [f"--pre-include={header}" for header, names in _IMPLIED if re.search(names, text)]


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, size_call: str, text_call: str) -> str:
    size = ctypes.c_size_t()
    if getattr(library, size_call)(program, ctypes.byref(size)) != _SUCCESS or size.value <= 1:
        return ""
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, text_call)(program, buffer)
    return buffer.value.decode("utf-8", "replace")


def _lowered(library: ctypes.CDLL, program: ctypes.c_void_p, expression: str) -> str:
    found = ctypes.c_char_p()
    library.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(found))
    return found.value.decode() if found.value else ""


def missing_headers(log: str) -> tuple[str, ...]:
    """Headers that a compilation asked for in vain: a lack of ours rather than a mistake of the text's."""
    return tuple(dict.fromkeys(re.findall(r'cannot open source file "([^"]+)"', log)))
