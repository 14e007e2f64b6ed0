"""Compiles CUDA device text to PTX with NVRTC, NVIDIA's run-time compiler; needs no GPU, driver or toolkit.

A thin ctypes binding to the library of the `nvidia-cuda-nvrtc` wheel (or the system's). The include path holds our
stand-ins for host headers that device code often includes (`include/`), then the headers of the CUDA wheels. Runs
nothing.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from kernelwright import device
from kernelwright.errors import MachineError
from kernelwright.machine import device_std, preambles

RELOCATABLE = "--relocatable-device-code=true"
"""NVRTC needs this option to compile a kernel that launches kernels."""
ARCH = "compute_90a"  # "a": with architecture-specific instructions, as for the GPU
INCLUDE = Path(__file__).resolve().parent / "include"
BOTH = INCLUDE / "both"
"""Headers of ours for host and device code alike: the samples' helper_math.h."""
DEFINES = re.compile(r"-(?:D\w+(?:\([\w, ]*\))?(?:=[^\n]*)?|U\w+)")
"""Matches `-D` (with or without macro parameters) and `-U` flags."""
_SUCCESS = 0
_INVALID_OPTION, _COMPILATION = 5, 6


# Host headers that device texts include. They are empty here: kernelwright_device.h, included before every text,
# declares the names that kernels use from them.
_STANDARD = """
algorithm any array atomic bit bitset cassert cctype cerrno cfenv cfloat chrono cinttypes climits cmath complex concepts
condition_variable cstdarg cstdbool cstddef cstdint cstdio cstdlib cstring ctime deque exception execution filesystem
fstream functional future initializer_list iomanip ios iosfwd iostream istream iterator limits list map memory mutex new
numbers numeric optional ostream queue random ranges ratio regex set shared_mutex span sstream stack stdexcept streambuf
string string_view system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray
variant vector assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h limits.h malloc.h math.h memory.h omp.h
signal.h stdarg.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h sys/time.h sys/types.h time.h unistd.h
"""
_TORCH = """
torch/all.h torch/cuda.h torch/custom_class.h torch/extension.h torch/library.h torch/python.h torch/script.h
torch/torch.h torch/types.h torch/utils.h torch/csrc/autograd/custom_function.h pybind11/numpy.h pybind11/pybind11.h
pybind11/stl.h Python.h ATen/ATen.h ATen/Context.h ATen/Dispatch.h ATen/Functions.h ATen/Parallel.h ATen/Tensor.h
ATen/TensorUtils.h ATen/core/Tensor.h ATen/core/TensorAccessor.h ATen/cuda/CUDAContext.h ATen/cuda/CUDAContextLight.h
ATen/cuda/CUDAEvent.h ATen/cuda/CUDAUtils.h ATen/cuda/Exceptions.h ATen/CUDAContext.h THC/THC.h THC/THCGeneral.h
c10/core/Device.h c10/core/DeviceGuard.h c10/core/ScalarType.h c10/core/TensorOptions.h c10/cuda/CUDACachingAllocator.h
c10/cuda/CUDAException.h c10/cuda/CUDAFunctions.h c10/cuda/CUDAGuard.h c10/cuda/CUDAMacros.h c10/cuda/CUDAStream.h
c10/macros/Export.h c10/macros/Macros.h c10/util/ArrayRef.h c10/util/Exception.h c10/util/Optional.h
ATen/AccumulateType.h ATen/OpMathType.h c10/util/BFloat16.h c10/util/Half.h
c10/util/Float8_e4m3fn.h c10/util/Float8_e5m2.h
cuda_profiler_api.h nvToolsExt.h nvtx3/nvToolsExt.h
"""
_EMPTY_HEADERS = tuple(name.encode() for name in (_STANDARD + _TORCH).split())


@dataclass(frozen=True)
class NvrtcResult:
    """The result of one compilation. `lowered` maps name expressions to entries of `ptx`; `cubin` is non-empty when
    `arch` named a real device (`sm_90`)."""

    ok: bool
    ptx: str
    log: str
    lowered: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    cubin: bytes = b""


def _wheel_folders() -> list[Path]:
    """Returns the roots of NVIDIA's wheels: one folder for CUDA 13, one per package for older versions."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    names = ("cu13", "cuda_nvrtc", "cuda_runtime", "cuda_crt", "cuda_cccl")
    return [root / name for root in roots for name in names if (root / name).is_dir()]


def _toolkit() -> Path:
    """Returns the root of the system's CUDA toolkit, the fallback for files that the wheels lack."""
    return Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")


@cache
def load() -> ctypes.CDLL:
    """Loads NVRTC; raises `MachineError` if it is missing."""
    found = [lib for root in _wheel_folders() for lib in sorted((root / "lib").glob("libnvrtc.so*"))]
    problem = "no libnvrtc.so was found"
    system = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", str(_toolkit() / "lib64" / "libnvrtc.so")]
    for name in [str(p) for p in found if "alt" not in p.name] + system:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problem = str(error) if found else problem
    raise MachineError(f"NVRTC cannot be loaded: {problem}", hint="pip install 'nvidia-cuda-nvrtc>=13,<14'")


def version() -> tuple[int, int]:
    """Returns NVRTC's version as (major, minor)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    load().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@cache
def version_macros() -> dict[str, int]:
    """Returns the version macros of torch's and the CUDA runtime's headers, which sources test in `#if`."""
    major, minor = version()
    cuda = {"CUDART_VERSION": 1000 * major + 10 * minor, "CUDA_VERSION": 1000 * major + 10 * minor}
    return cuda | torch_version_macros()


@cache
def torch_version_macros() -> dict[str, int]:
    """Returns torch's version macros."""
    numbers = re.findall(r"\d+", importlib.metadata.version("torch"))[:3]
    return {f"TORCH_VERSION_{n}": int(v) for n, v in zip(("MAJOR", "MINOR", "PATCH"), numbers, strict=False)}


@cache
def include_folders() -> tuple[str, ...]:
    """Returns the include path: our stand-ins, then runtime headers and CCCL of the wheels, then of the toolkit, then
    our stand-ins for libraries that may be missing."""
    folders = [INCLUDE, BOTH]
    for root in (*_wheel_folders(), _toolkit()):
        folders += [root / "include", root / "include" / "cccl"]
    folders.append(INCLUDE / "last")
    return tuple(str(f) for f in folders if f.is_dir())


def device_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Returns the nvcc flags that change the meaning of device code; drops the rest (optimisation, output)."""
    out = []
    for flag in flags:
        if re.fullmatch(r"--?(?:use_fast_math|ftz=\w+|prec-div=\w+|prec-sqrt=\w+|fmad=\w+)", flag):
            out.append("--" + flag.lstrip("-"))
        elif DEFINES.fullmatch(flag) or re.fullmatch(r"--?std=c\+\+(?:14|17|20)", flag):
            out.append(flag if flag[1] in "DU" else "--" + flag.lstrip("-"))
        elif flag == RELOCATABLE:
            out.append(flag)
    return tuple(out)


def options(arch: str, flags: Sequence[str]) -> list[str]:
    """Returns NVRTC's options: ours, the include folders, and the caller's `flags` filtered by `device_flags`."""
    flags = device_flags(flags)
    chosen = [f"--gpu-architecture={arch}", "--device-as-default-execution-space", "--generate-line-info"]
    if not any(flag.startswith(("--std", "-std")) for flag in flags):
        chosen.append("--std=c++17")
    chosen += [
        "--pre-include=kernelwright_device.h",
        "-D__KERNELWRIGHT__=1",
        "-DTORCH_EXTENSION_NAME=candidate",
        *(f"-D{name}={value}" for name, value in version_macros().items()),
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
    """Compiles device text, which may include the tile library's headers. A failed compilation is a result with `ok`
    False, not an exception. `flags` are nvcc's.

    `expressions` are names such as `softmax<float, 256>`: they instantiate templates, and `lowered` maps them to their
    names in the PTX. Raises `MachineError` when NVRTC itself is missing.
    """
    try:
        source = device.inlined(source, name)
    except device.UnknownHeader as error:
        return NvrtcResult(False, "", str(error))
    before = device_std.preamble("\n".join((source, *expressions)))
    source = f'{before}#line 1 "{name}"\n{source}' if before else source
    chosen = [*options(arch, flags), *_implied(source, expressions)]
    kept = _kept[0].further_options(chosen) if _kept else []
    done = _compiled(source, [*chosen, *kept], expressions, name)
    if kept and _kept[0].failed(chosen, done.log):
        done = _compiled(source, chosen, expressions, name)
    return replace(done, log=preambles.MEMORY.sub("error: the compiler ran out of memory", done.log))


_kept: list[preambles.Preambles] = []


def keep_preambles(folder: Path) -> None:
    """Turns on precompiled headers for this process, stored in `folder`, which no other process may use."""

    def compiles(chosen: Sequence[str]) -> bool:
        return _compiled("", chosen, (), "cuda.cu").ok

    _kept[:] = [preambles.Preambles(folder, compiles)] if version() >= preambles.FIRST_VERSION else []


def _compiled(source: str, chosen: Sequence[str], expressions: Sequence[str], name: str) -> NvrtcResult:
    """Runs NVRTC once with exactly these options."""
    library = load()
    started = time.perf_counter()
    program = ctypes.c_void_p()
    text = source.encode("utf-8", "replace").replace(b"\0", b" ")
    count = len(_EMPTY_HEADERS)
    texts, names = (ctypes.c_char_p * count)(*[b""] * count), (ctypes.c_char_p * count)(*_EMPTY_HEADERS)
    library.nvrtcCreateProgram(ctypes.byref(program), text, name.encode(), count, texts, names)
    try:
        for expression in expressions:
            library.nvrtcAddNameExpression(program, expression.encode("utf-8", "replace"))
        plain = [option.encode() for option in chosen]
        status = library.nvrtcCompileProgram(program, len(plain), (ctypes.c_char_p * len(plain))(*plain))
        log = _text(library, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
        if status != _SUCCESS:
            if status not in (_COMPILATION, _INVALID_OPTION) and not log.strip():
                log = f"error: NVRTC gave up with status {status}"
            return NvrtcResult(False, "", log, {}, time.perf_counter() - started)
        ptx = _text(library, program, "nvrtcGetPTXSize", "nvrtcGetPTX")
        for_device = any(re.match(r"--gpu-architecture=sm_", option) for option in chosen)
        cubin = _bytes(library, program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN") if for_device else b""
        lowered = {e: _lowered(library, program, e) for e in expressions}
        return NvrtcResult(True, ptx, log, lowered, time.perf_counter() - started, cubin)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


# torch/extension.h includes these for nvcc. Here they are included only for texts that use their names, since parsing
# them takes longer than compiling most kernels.
_HALF = r"\b(?:void|bool|int|unsigned|float|double|auto)\s+(?:__launch_bounds__\s*\([^()]*\)\s*)?half\s*\("
_IMPLIED = (
    ("kernelwright_scalar.h", r"\b(?:Half|BFloat16|acc_type|opmath_type|AccumulateType|OpMathType)\b"),
    ("kernelwright_float8.h", r"\bFloat8_e(?:4m3fn|5m2)\b"),
    ("kernelwright_accessor.h", r"\b(?:\w*TensorAccessor(?:32|64)?|\w*PtrTraits)\b"),
    ("cuda.h", r"\A(?![\s\S]*\bstruct\b[^;{]*\bCUtensorMap\s*\{)[\s\S]*\bCUtensorMap\b"),
    # A text that defines a function named half does not include the header that defines the type.
    ("cuda_fp16.h", rf"\A(?![\s\S]*{_HALF})[\s\S]*\b(?:__half2?|half2?|__half2float|__float2half\w*)\b"),
    ("cuda_bf16.h", r"\b(?:__nv_bfloat162?|nv_bfloat162?|__bfloat162float|__float2bfloat16\w*)\b"),
)


# Cooperative groups need CCCL, which takes a second to parse, only for features built on cuda:: atomics and barriers.
_NEEDS_CCCL = r"\bcuda\s*::|<\s*(?:cuda|cub|thrust)/|_async\b|_update\b|\bbarrier_"


def _implied(source: str, expressions: Sequence[str]) -> list[str]:
    text = "\n".join((source, *expressions))
    found = [f"--pre-include={header}" for header, names in _IMPLIED if re.search(names, text)]
    if "cooperative_groups" in text and not re.search(_NEEDS_CCCL, text):
        found.append("-D_CG_LIMIT_INCLUDED_DEPENDENCIES")
    return found


def _bytes(library: ctypes.CDLL, program: ctypes.c_void_p, size_call: str, bytes_call: str) -> bytes:
    size = ctypes.c_size_t()
    if getattr(library, size_call)(program, ctypes.byref(size)) != _SUCCESS or size.value <= 1:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, bytes_call)(program, buffer)
    return buffer.raw


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, size_call: str, text_call: str) -> str:
    return _bytes(library, program, size_call, text_call).split(b"\0", 1)[0].decode("utf-8", "replace")


def _lowered(library: ctypes.CDLL, program: ctypes.c_void_p, expression: str) -> str:
    found = ctypes.c_char_p()
    library.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(found))
    return found.value.decode() if found.value else ""
