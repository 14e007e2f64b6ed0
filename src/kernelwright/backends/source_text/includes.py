"""Checks a source's includes: forbidden paths, and names whose headers are missing.

The stand-in is one precompiled header, so every name is visible whether or not its header was included. A real build
would fail, so `missing_includes` reports names whose headers are missing. Paths that leave the include directories are
refused, so that no file of this machine can appear in a log.
"""

from __future__ import annotations

import re
from pathlib import Path

from kernelwright.backends.source_text import known_names
from kernelwright.backends.source_text.tokens import Token, blank, line_at, tokenize
from kernelwright.machine import nvrtc

_LEFT = re.compile(r"(?:cublasXt|cudnn|curand|cufft|cusparse|cusolver|nccl|nvrtc|cutlass|cute|thrust)\w*(?:\.h|/.*)")
"""Libraries outside the stand-in: including their headers fails with an error that names them."""
_DEVICE_PARTS = re.compile(
    r"cuda_fp\d\.h(?:pp)?|cuda_(?:fp16|bf16)\.hpp|helper_cuda\.h|device_functions\.h|cooperative_groups(?:/[\w/]+)?(?:\.h)?"
    r"|cuda/[\w/]+|cub/[\w/]+\.cuh|Python\.h|nvtx3/.*|cublas_v2\.h|cublas_api\.h|cublasLt\.h|curand_kernel\.h|mma\.h|cudnn(?:_ops|_cnn)?\.h"
)
"""Headers with device code only, or with nothing beyond the stand-in."""


def _answered(name: str) -> bool:
    """Tells whether the stand-in covers a header of torch or CUDA; gaps in it are reported by name."""
    if _IN_PCH.fullmatch(name) or _DEVICE_PARTS.fullmatch(name):
        return True
    return not _LEFT.match(name) and known_names.is_header(name)


_IN_PCH = re.compile(
    r"c?(?:assert|float|limits|math|stddef|stdint|stdio|stdlib|string)(?:\.h)?|algorithm|array|functional|"
    r"initializer_list|iostream|map|memory|mutex|numeric|optional|sstream|stdexcept|string_view|tuple|type_traits|"
    r"unordered_map|utility|variant|vector"
)
_STANDARD = {
    "atomic": "atomic atomic_int atomic_bool memory_order",
    "bitset": "bitset",
    "chrono": "chrono",
    "cinttypes": "imaxabs",
    "complex": "complex",
    "condition_variable": "condition_variable",
    "deque": "deque",
    "fstream": "ifstream ofstream fstream",
    "future": "future async promise",
    "iomanip": "setw setprecision setfill hex",
    "list": "list",
    "queue": "queue priority_queue",
    "random": "mt19937 mt19937_64 uniform_real_distribution normal_distribution uniform_int_distribution random_device",
    "set": "set multiset",
    "stack": "stack",
    "thread": "thread this_thread",
    "typeindex": "type_index",
    "typeinfo": "type_info",
    "unordered_set": "unordered_set",
    "any": "any",
    "cctype": "isspace isdigit isalpha tolower toupper",
    "ctime": "time clock",
}
"""Names in std by standard header, for headers that torch/extension.h includes but the precompiled header omits."""
_INCLUDE = re.compile(r"#\s*(?:include|include_next|import|embed)\b\s*(.*)", re.DOTALL)
_UNROLLS = r"\s*\(\s*\"\s*(?:unroll|nounroll)\b[^\"\\]*\"\s*\)"
"""The permitted operand of `_Pragma`."""
_FORBIDDEN = re.compile(
    r"\bincbin\b|%:|\?\?=|#\s*pragma\s+(?:GCC\s+(?:dependency|plugin)|include_alias)" + f"|_Pragma(?!{_UNROLLS})"
)


MORE = Path(__file__).parents[1] / "host_more"
_MORE = (
    # names, the headers that declare them, and our replacement files
    (
        re.compile(r"\bcublasLt"),
        re.compile(r"cublasLt\.h|ATen/cuda/(?:CUDAContext(?:Light)?|CUDABlas)\.h"),
        ("cublas_lt.h",),
    ),
    (
        re.compile(r"\b(?:cudnn|CUDNN_|getCudnnHandle)"),
        re.compile(r"cudnn(?:_ops|_cnn)?\.h|ATen/cudnn/.*"),
        ("cudnn_descriptors.h", "cudnn_calls.h", "cudnn_training.h"),
    ),
    (re.compile(r"\bcub\b"), re.compile(r"cub/.*"), ("cub_blocks.h",)),
)


def more_headers(source: str) -> str:
    """Returns the stand-in's text for rarely used libraries outside the precompiled header: cublasLt and cuDNN."""
    wanted = [(headers, files) for names, headers, files in _MORE if names.search(source)]
    seen = [include_name(token) or "" for token in tokenize(source)] if wanted else []
    files = [file for headers, files in wanted if any(map(headers.fullmatch, seen)) for file in files]
    texts = [f'#line 1 "/kw-include/{file}"\n{(MORE / file).read_text()}' for file in files]
    return "".join(texts) + (_complex() if re.search(r"#\s*include\s*[<\"]cuComplex\.h", source) else "")


def _complex() -> str:
    """Returns an include of NVIDIA's own cuComplex.h, which needs only the vector types of the stand-in."""
    places = (Path(folder) / "cuComplex.h" for folder in nvrtc.include_folders())
    found = next((place for place in places if place.is_file()), None)
    return f'#define __VECTOR_TYPES_H__\n#include "{found}"\n' if found else ""


class RefusedInclude(Exception):
    """Raised for an include that could read a file outside the include directories."""

    def __init__(self, message: str, line: int, file: str) -> None:
        super().__init__(f"{file}:{line}: error: {message}")


def check(source: str, file: str) -> tuple[str, ...]:
    """Returns the headers that `source` includes. Raises `RefusedInclude` for absolute, `..` or computed paths."""
    names = []
    # Most texts hold no forbidden construct; only the others are checked token by token.
    suspect = any(_FORBIDDEN.search(text) for text in (source, re.sub(r"\\\r?\n", "", source)))
    for token in tokenize(source):
        if suspect:
            _refuse_forbidden(token, source, file)
        name = include_name(token)
        if name is None:
            continue
        if not name or name.startswith("/") or ".." in name or "\\" in name:
            line = line_at(source, token.start)
            raise RefusedInclude("only plain header names can be included", line, file)
        names.append(name)
    return tuple(names)


def _refuse_forbidden(token: Token, source: str, file: str) -> None:
    line = line_at(source, token.start)
    unrolls = token.text == "_Pragma" and re.compile(_UNROLLS).match(source, token.end)
    if not unrolls and _FORBIDDEN.search(re.sub(r"\\\r?\n", "", token.text)) and not _is_plain_pragma(token):
        raise RefusedInclude("this construct can read files of the machine and is not allowed", line, file)
    if token.kind == "punct" and token.text == "%" and source[token.end : token.end + 1] == ":":
        raise RefusedInclude("digraph directives are not allowed", line, file)


def _is_plain_pragma(token: Token) -> bool:
    return token.kind == "string" and "incbin" not in token.text


def include_name(token: Token) -> str | None:
    """Returns the header of an include directive, "" when it is not a literal name, None for any other token."""
    if token.kind != "directive":
        return None
    text = re.sub(r"\\\r?\n", "", token.text)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    match = _INCLUDE.match(text)
    if not match:
        return "" if re.search(r"__has_(?:include|embed)", text) and re.search(r"[\"<](?:/|\.\.)", text) else None
    literal = re.fullmatch(r'<([^>"]*)>|"([^"]*)"', match.group(1).strip())
    return (literal.group(1) or literal.group(2) or "").strip() if literal else ""


def drop_known(source: str) -> str:
    """Removes includes that the precompiled header covers from `source`; keeps line numbers."""
    out, position = [], 0
    for token in tokenize(source):
        name = include_name(token)
        if name and _answered(name):
            out += [source[position : token.start], blank(token.text)]
            position = token.end
    out.append(source[position:])
    return "".join(out)


def standard_includes(source: str) -> str:
    """Returns include lines for names of std in `source` that torch's headers would provide."""
    used = set(re.findall(r"\bstd\s*::\s*(\w+)", source))
    wanted = [header for header, names in _STANDARD.items() if used & set(names.split())]
    if re.search(r"\bstd\s*::\s*chrono\b", source):
        wanted.append("chrono")
    return "".join(f"#include <{header}>\n" for header in dict.fromkeys(wanted))


_NEEDS = (
    # name, and headers of which the CUDA file itself must include one
    (
        r"(?:getCurrentCUDAStream|getDefaultCUDAStream|getStreamFromPool|CUDAStream)",
        r"ATen/cuda/.*|c10/cuda/CUDA(?:Stream|Guard|CachingAllocator|Functions)\.h|ATen/CUDAContext\.h|THC/.*"
        r"|torch/csrc/cuda/.*|ATen/cudnn/.*|c10/cuda/impl/.*",
    ),
    (r"(?:CUDAGuard|OptionalCUDAGuard|CUDAStreamGuard)", r"ATen/cuda/.*|c10/cuda/CUDAGuard\.h|THC/.*|c10/cuda/impl/.*"),
    (r"(?:getCurrentDeviceProperties|AT_CUDA_CHECK)", r"ATen/cuda/.*|THC/.*|ATen/CUDAContext\.h"),
    (r"(?:C10_CUDA_KERNEL_LAUNCH_CHECK|C10_CUDA_CHECK)", r"ATen/cuda/.*|c10/cuda/.*|THC/.*"),
    (r"getCurrentCUDABlasHandle", r"ATen/cuda/CUDAContext(?:Light)?\.h|ATen/cuda/CUDABlas\.h|ATen/cuda/Exceptions\.h"),
    (
        r"cublas(?:Handle_t|Create|[SDH]gemm\w*|Gemm\w*|Set\w+|Operation_t|Status_t)",
        r"cublas_v2\.h|cublasLt\.h|ATen/cuda/.*",
    ),
    (r"cublasLt\w+", r"cublasLt\.h|ATen/cuda/.*"),
    (
        r"cudnn(?:Handle_t|Status_t|\w+Descriptor_t|Create\w*|Set\w*Descriptor\w*|\w+Forward)|CUDNN_(?:STATUS|DATA|TENSOR)_\w+",
        r"cudnn(?:_\w+)?\.h|ATen/(?:native/)?cudnn/.*",
    ),
    (r"getCudnnHandle", r"ATen/(?:native/)?cudnn/.*"),
    (r"AT_CUDNN_CHECK", r"ATen/cuda/.*|ATen/(?:native/)?cudnn/.*"),
    (r"PYBIND11_MODULE", r"torch/extension\.h|torch/python\.h|pybind11/.*|torch/csrc/.*"),
)
_NEEDY = re.compile("|".join(f"(?:{pattern})" for pattern, _ in _NEEDS))


def missing_includes(source: str, file: str, seen: tuple[str, ...]) -> str | None:
    """Returns an error line for the first name of `source` whose header is not among `seen`; None if all are."""
    words = {t.text: t for t in reversed(tokenize(source)) if t.kind == "word" and _NEEDY.fullmatch(t.text)}
    for pattern, headers in _NEEDS:
        if any(re.fullmatch(headers, name) for name in seen):
            continue
        for word, token in words.items():
            if re.fullmatch(pattern, word):
                line = line_at(source, token.start)
                return f"{file}:{line}: error: '{word}' is not declared: the header that declares it is not included"
    return None
