"""Writes the signatures of torch's C++ operators, and the names that torch's headers declare, for the host stand-in.

    python benchmarks/torch_signatures.py [--check]

Reads the headers of the installed torch: `ATen/core/TensorBody.h` for the members of at::Tensor and `ATen/ops/*.h` for
the functions in at::. It writes declarations with torch's own parameter types and defaults, so that overload resolution
accepts and refuses the same calls. It also writes a table of names by namespace, which distinguishes a name that the
stand-in lacks from one that torch does not have. Run it again for a newer torch. `--check` only tells if the files
match this torch.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from kernelwright.backends.source_text.declarations import read_chunk
from kernelwright.backends.source_text.tokens import Token, matching, tokenize

INCLUDE = Path(torch.__file__).parent / "include"
BACKENDS = Path(__file__).parent.parent / "src" / "kernelwright" / "backends"
TARGET = BACKENDS / "host_include" / "kw"

HANDWRITTEN = set(
    "to contiguous index index_put index_put_ item new_empty new_zeros new_ones new_full new_empty_strided data"
    " requires_grad_ empty zeros ones rand randn empty_like zeros_like ones_like rand_like randn_like full full_like"
    " empty_strided arange range linspace logspace eye randperm randint randint_like scalar_tensor tril_indices"
    " triu_indices tensor from_blob is_floating_point is_complex is_signed promote_types result_type size stride"
    " is_same_size numel set_ set_data retain_grad cuda cpu"
    " backward output_nr _version is_leaf dim sizes strides storage_offset element_size is_contiguous get_device"
    " hann_window hamming_window kaiser_window blackman_window bartlett_window can_cast".split()
)
"""Members and functions that the stand-in defines by hand."""
UNFINISHED = set("to index index_put_ set_ backward register_hook from_blob tensor".split())
"""Members and functions among them that have call forms which the stand-in does not cover."""
SKIPPED = re.compile(
    r"_(?!softmax$|log_softmax$|convolution$|weight_norm$|unique$|shape_as_tensor$|s_where$).*"
    r"|(?:.*_)?(?:mkldnn|quantized?|quantize|dequantize|fbgemm|miopen|xnnpack|cudnn|sparse|nested|symint|vulkan|flash|mps|ccol|crow"
    r"|coalesce|coalesced|jvp|thnn|hspmm|sspaddmm|smm|int|copy|qint|fused|dequant)(?:_.*)?"
    r"|fake_quantize.*|slow_conv.*|rnn_(?:tanh|relu)_cell|col_indices|row_indices|record_stream|rename.*|refine_.*|align_.*"
    r"|q_(?:scale|zero_point|per_.*)|int_repr.*|is_(?:inference|distributed|conj|neg|pinned|vulkan_available|set_to)"
)
TYPES = {
    "const at::Tensor &": "const Tensor&",
    "at::Tensor &": "Tensor&",
    "const ::std::optional<at::Tensor> &": "const std::optional<Tensor>&",
    "const at::Scalar &": "const Scalar&",
    "const ::std::optional<at::Scalar> &": "const std::optional<Scalar>&",
    "at::IntArrayRef": "IntArrayRef",
    "at::OptionalIntArrayRef": "OptionalIntArrayRef",
    "at::ScalarType": "ScalarType",
    "::std::optional<at::ScalarType>": "std::optional<ScalarType>",
    "int64_t": "int64_t",
    "bool": "bool",
    "double": "double",
    "::std::optional<int64_t>": "std::optional<int64_t>",
    "::std::optional<bool>": "std::optional<bool>",
    "::std::optional<double>": "std::optional<double>",
    "::std::optional<at::MemoryFormat>": "std::optional<MemoryFormat>",
    "at::MemoryFormat": "MemoryFormat",
    "c10::string_view": "std::string_view",
    "::std::string_view": "std::string_view",
    "::std::optional<c10::string_view>": "std::optional<std::string_view>",
    "::std::optional<::std::string_view>": "std::optional<std::string_view>",
    "at::TensorList": "TensorList",
    "const at::ITensorListRef &": "TensorList",
    "::std::optional<at::Generator>": "std::optional<Generator>",
    "at::TensorOptions": "const TensorOptions&",
    "at::ArrayRef<double>": "ArrayRef<double>",
    "::std::optional<at::ArrayRef<double>>": "std::optional<ArrayRef<double>>",
    "::std::array<bool,2>": "std::array<bool, 2>",
    "::std::array<bool,3>": "std::array<bool, 3>",
}
RETURNS = {
    "at::Tensor": ("Tensor", "returns_tensor"),
    "bool": ("bool", "returns_bool"),
    "int64_t": ("int64_t", "returns_integer"),
    "::std::vector<at::Tensor>": ("std::vector<Tensor>", "returns_list"),
    "at::Tensor &": ("Tensor&", ""),
    "const at::Tensor &": ("const Tensor&", ""),
}


@dataclass(frozen=True)
class Operator:
    """One overload: `schema` is its full name (`sum.dim_IntList`), parameters as (type, name, default)."""

    schema: str
    name: str
    returns: str
    parameters: tuple[tuple[str, str, str], ...]
    call: str = ""
    """The arguments of the dispatcher's call, in the schema's order."""


def _parameters(text: str) -> tuple[tuple[str, str, str], ...]:
    out, depth, piece = [], 0, ""
    for character in text + ",":
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if piece.strip():
                head, _, default = piece.strip().partition("=")
                kind, _, name = head.strip().rpartition(" ")
                out.append((kind.strip(), name.strip(), default.strip()))
            piece = ""
        else:
            piece += character
    return tuple(out)


def methods() -> list[Operator]:
    """Returns the members of at::Tensor, with the defaults of the class and the schemas of the definitions below it."""
    text = (INCLUDE / "ATen/core/TensorBody.h").read_text()
    defaults = {}
    for _, name, inside in re.findall(r"^  (\S[^\n(]*?) (\w+)\(([^\n]*)\) const;", text, re.MULTILINE):
        found = _parameters(inside)
        defaults[name, tuple(kind for kind, _, _ in found)] = found
    out = []
    pattern = (
        r"^// aten::([\w.]+)\([^\n]*\n^inline (\S[^\n(]*?) ?Tensor::(\w+)\(([^\n]*)\) const \{\n"
        r" +return [^\n]*?::call(\([^\n]*)"
    )
    for schema, returns, name, inside, call in re.findall(pattern, text, re.MULTILINE):
        found = _parameters(inside)
        key = (name, tuple(kind for kind, _, _ in found))
        out.append(Operator(schema, name, returns.strip(), defaults.get(key, found), call.replace("*this", "self")))
    return out


def functions() -> list[Operator]:
    """Returns the functions of at::."""
    out = []
    pattern = (
        r"^// aten::([\w.]+)\([^\n]*\n^inline (\S[^\n(]*?) ?\b(\w+)\(([^\n]*)\) \{\n +return [^\n]*?::call(\([^\n]*)"
    )
    for path in sorted((INCLUDE / "ATen/ops").glob("*.h")):
        if re.search(r"_(?:ops|native|dispatch|meta)\.h$", path.name):
            continue
        for schema, returns, name, inside, call in re.findall(pattern, path.read_text(), re.MULTILINE):
            out.append(Operator(schema, name, returns.strip(), _parameters(inside), call))
    return out


def _known(op: Operator) -> bool:
    """Tells whether the stand-in can declare this overload."""
    tuples = re.fullmatch(r"::std::tuple<at::Tensor(?: &)?(?:,at::Tensor(?: &)?){1,4}>", op.returns)
    return (op.returns in RETURNS or tuples is not None) and all(kind in TYPES for kind, _, _ in op.parameters)


def _left_out(op: Operator) -> bool:
    """Tells whether an overload is left out: named dimensions or separate options, which are not called by accident."""
    others = [kind for kind, _, _ in op.parameters if kind not in TYPES]
    return bool(others) and all(re.search(r"Dimname|Layout|Device|Storage|Stream", kind) for kind in others)


def _default(text: str) -> str:
    text = text.replace("::std::", "std::").replace("at::Reduction::Mean", "Reduction::Mean")
    return f" = {text}" if text else ""


def _signature(op: Operator, defaults: bool) -> str:
    parts = [
        f"{TYPES[kind]} {_safe(name)}{_default(default) if defaults else ''}" for kind, name, default in op.parameters
    ]
    return f"({', '.join(parts)})"


def _safe(name: str) -> str:
    return name + "_" if name in ("self",) else name


def _return_type(op: Operator) -> tuple[str, str]:
    if op.returns in RETURNS:
        return RETURNS[op.returns]
    count = op.returns.count("at::Tensor")
    kind = "Tensor&" if "&" in op.returns else "Tensor"
    return f"std::tuple<{', '.join([kind] * count)}>", f"returns_{count}"


def _body(op: Operator, member: bool) -> str:
    outs = [name for kind, name, _ in op.parameters if kind == "at::Tensor &"]
    names = [name for _, name, _ in op.parameters] + (["self"] if member else [])
    ordered = sorted(names, key=lambda name: _place(op.call, name))
    if outs and "tuple" not in op.returns and not member and not op.schema.split(".")[0].endswith("_"):
        ordered = [n for n in ordered if n not in outs]
        return f'return kw::updates("{op.schema}", {outs[0]}, {{{_arguments(outs + ordered, member)}}});'
    if op.returns in ("at::Tensor &", "const at::Tensor &"):
        target = "const_cast<Tensor&>(*this)" if member else f"const_cast<Tensor&>({_safe(ordered[0])})"
        return f'return kw::updates("{op.schema}", {target}, {{{_arguments(ordered, member)}}});'
    if "&" in op.returns:
        ordered = [n for n in ordered if n not in outs]
        targets = ", ".join(f"&{name}" for name in outs)
        call = f'kw::updates_all("{op.schema}", {{{targets}}}, {{{_arguments(ordered, member)}}});'
        return f"{call} return {{{', '.join(outs)}}};"
    return f'return kw::{_return_type(op)[1]}("{op.schema}", {{{_arguments(ordered, member)}}});'


def _place(call: str, name: str) -> int:
    found = re.search(rf"\b{name}\b", call)
    return found.start() if found else len(call)


def _arguments(names: list[str], member: bool) -> str:
    return ", ".join("*this" if member and name == "self" else _safe(name) for name in names)


def _wanted(op: Operator) -> bool:
    return (
        op.name not in HANDWRITTEN | {"resize_out", "resize_as_out"}
        and (op.name in ("copy", "copy_") or not SKIPPED.fullmatch(op.name))
        and not op.name.endswith("_outf")
    )


def operators_text() -> tuple[str, str, str]:
    """Returns three include files: members, functions and definitions."""
    head = "// Made by benchmarks/torch_signatures.py of torch's own headers: do not edit.\n"
    members, free, bodies = [head], [head], [head]
    seen: set[tuple[bool, str, str]] = set()
    for is_member, ops in ((True, methods()), (False, functions())):
        for op in ops:
            bare = _signature(op, False) if _known(op) else ""
            key = (is_member, op.name, re.sub(r" \w+(?=[,)])", "", bare))
            if not _wanted(op) or not _known(op) or key in seen:
                continue
            seen.add(key)
            kind = _return_type(op)[0]
            const, scope = (" const", "Tensor::") if is_member else ("", "")
            (members if is_member else free).append(f"{kind} {op.name}{_signature(op, True)}{const};\n")
            bodies.append(f"{kind} {scope}{op.name}{bare}{const} {{ {_body(op, is_member)} }}\n")
    return "".join(members), "".join(free), "".join(bodies)


# --- names -----------------------------------------------------------------------------------------------------------

CLASSES = {
    "c10::TensorOptions": "c10/core/TensorOptions.h",
    "c10::Scalar": "c10/core/Scalar.h",
    "c10::Device": "c10/core/Device.h",
    "c10::cuda::CUDAStream": "c10/cuda/CUDAStream.h",
}
"""Classes whose members are read like those of at::Tensor, and the headers that declare them."""
ROOTS = (
    "torch/extension.h",
    "ATen/cuda/*.h",
    "ATen/cuda/*.cuh",
    "c10/cuda/*.h",
    "torch/csrc/cuda/*.h",
    "torch/library.h",
)
SCOPES = re.compile(
    r"(?:at|c10|torch|caffe2|pybind11|torch::(?:nn|nn::functional|nn::init|nn::utils|autograd|cuda|optim|jit|indexing"
    r"|serialize|data|special|linalg|fft|sparse|nested|utils)|at::(?:cuda|indexing|native|cuda::blas|cuda::detail"
    r"|autocast|sparse_csr|tracer|impl|functorch|Reduction|symint)|c10::(?:cuda|util|impl|cuda::impl"
    r"|cuda::CUDACachingAllocator)|pybind11::(?:literals|detail))"
)


def _reachable() -> list[Path]:
    """Returns the headers that `ROOTS` include, directly or not."""
    waiting = [p for root in ROOTS for p in sorted(INCLUDE.glob(root))]
    seen = set(waiting)
    bases = (INCLUDE, INCLUDE / "torch/csrc/api/include")
    while waiting:
        path = waiting.pop()
        for name in re.findall(r'^#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(errors="replace"), re.MULTILINE):
            for candidate in (*(base / name for base in bases), path.parent / name):
                if candidate.is_file() and candidate not in seen:
                    seen.add(candidate)
                    waiting.append(candidate)
    return sorted(seen)


def _declared(tokens: list[Token], start: int, stop: int, scope: list[str], out: dict[str, set[str]]) -> None:
    k = start
    while k < stop:
        text = tokens[k].text
        if tokens[k].kind == "directive" or text in (";", "}", "{"):
            k += 1
            continue
        inline = text == "inline" and k + 1 < stop and tokens[k + 1].text == "namespace"
        if text == "namespace" or inline:
            opening = k
            while opening < stop and tokens[opening].text not in ("{", ";", "="):
                opening += 1
            if opening < stop and tokens[opening].text == "{":
                names = [t.text for t in tokens[k + 1 : opening] if t.kind == "word" and t.text != "namespace"]
                closing = matching(tokens, opening, stop)
                inside = scope if inline else scope + names
                _declared(tokens, opening + 1, min(closing, stop), inside, out)
                k = closing + 1
                continue
        chunk = read_chunk(tokens, k, stop)
        where = "::".join(scope)
        if SCOPES.fullmatch(where):
            out.setdefault(where, set()).update(_names(tokens, chunk.start, chunk.stop, chunk.name, chunk.is_type))
        k = max(chunk.stop, k + 1)


def _names(tokens: list[Token], start: int, stop: int, name: str, is_type: bool) -> set[str]:
    found = {name} if re.fullmatch(r"[A-Za-z_]\w*", name) else set()
    texts = [t.text for t in tokens[start : min(stop, start + 40)]]
    for k, text in enumerate(texts[:-1]):
        if text in ("struct", "class", "enum", "using") and re.fullmatch(r"[A-Za-z]\w+", texts[k + 1]):
            found.add(texts[k + 1])
            if k + 2 < len(texts) and re.fullmatch(r"[A-Za-z]\w+", texts[k + 2]):
                found.add(texts[k + 2])
        elif text == "{":
            break
    if texts[:1] == ["using"]:
        found.add(texts[-2] if texts[-1] == ";" else name)
    return {n for n in found if len(n) > 1}


_NOISE = {
    "const",
    "final",
    "namespace",
    "class",
    "struct",
    "default",
    "false",
    "true",
    "override",
    "TORCH_API",
    "C10_API",
}


def _loosely(text: str) -> set[str]:
    """Finds types, aliases and functions line by line, which the walk over declarations misses behind macros."""
    types = re.findall(r"\b(?:struct|class|enum|using)\s+(?:\w+_API\s+)?(\w+)", text)
    functions = re.findall(r"^(?![#/* }])[^\n(;={]*?\b(\w+)\(", text, re.MULTILINE)
    return {name for name in (*types, *functions) if len(name) > 2}


def _members(path: Path) -> set[str]:
    return set(re.findall(r"\b([A-Za-z_]\w*)\s*\(", path.read_text()))


def _cuda_include() -> Path:
    import nvidia

    return next(Path(root) / "cu13" / "include" for root in nvidia.__path__)


def _cuda_names() -> set[str]:
    """Returns the names that the headers of the CUDA runtime and driver declare."""
    out: set[str] = set()
    for name in (
        "cuda_runtime_api.h",
        "cuda_runtime.h",
        "driver_types.h",
        "cuda.h",
        "library_types.h",
        "cuda_occupancy.h",
    ):
        text = (_cuda_include() / name).read_text(errors="replace")
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
        out |= set(re.findall(r"\b(?:cuda[A-Z]|cu[A-Z]|CU_|CUDA_|CU[a-z])\w+", text))
    return {name for name in out if not name.startswith(("CUDA_VERSION", "CUDARTAPI"))}


def _headers() -> list[str]:
    """Returns the headers of torch and CUDA, except those of single operators, which have the operators' names."""
    torch_api = INCLUDE / "torch/csrc/api/include"
    found = set()
    for base, folders in ((INCLUDE, ("ATen", "c10", "torch", "pybind11", "caffe2")), (torch_api, ("torch",))):
        for folder in folders:
            for path in (base / folder).rglob("*.*h"):
                name = str(path.relative_to(base))
                if not name.startswith(("ATen/ops/", "torch/csrc/api/include")):
                    found.add(name)
    found |= {path.name for path in _cuda_include().glob("*.h*")}
    return sorted(found)


def names_text() -> str:
    """Returns one line for each scope: its name, a colon, and the names that torch's headers declare in it."""
    found: dict[str, set[str]] = {}
    macros: set[str] = set()
    anywhere: set[str] = set()
    for path in _reachable():
        text = path.read_text(errors="replace")
        macros |= set(re.findall(r"^#\s*define\s+((?:AT|TORCH|C10|PYBIND11|CUDA|THRUST)_\w+)", text, re.MULTILINE))
        anywhere |= _loosely(text)
        for scope in re.findall(r"^namespace ((?:torch|at|c10)(?:::\w+)+)", text, re.MULTILINE):
            if SCOPES.fullmatch(scope):
                found.setdefault(scope, set())
        tokens = tokenize(text)
        _declared(tokens, 0, len(tokens), [], found)
    found.setdefault("at", set()).update(op.name for op in functions())
    found["at::Tensor"] = {op.name for op in methods()}
    for name in ("core/TensorBody.h", "core/TensorBase.h"):
        found["at::Tensor"] |= _members(INCLUDE / "ATen" / name)
    modules = INCLUDE / "torch/csrc/api/include/torch/nn/modules"
    for path in modules.rglob("*.h"):
        found.setdefault("torch::nn", set()).update(re.findall(r"TORCH_MODULE\((\w+)\)", path.read_text()))
    for path in (INCLUDE / "torch/csrc/api/include/torch/nn/functional").glob("*.h"):
        found.setdefault("torch::nn::functional", set()).update(
            re.findall(r"^inline \S+ (\w+)\(", path.read_text(), re.M)
        )
    for name, path in CLASSES.items():
        found[name] = _members(INCLUDE / path)
    found["macros"] = macros
    found["cuda"] = _cuda_names()
    found["anywhere"] = anywhere
    every = [op for op in (*methods(), *functions()) if not op.name.endswith("_symint")]
    found["incomplete"] = {op.name for op in every if not _known(op) and not _left_out(op)} | UNFINISHED
    properties = (_cuda_include() / "driver_types.h").read_text()
    inside = properties[properties.index("cudaDeviceProp\n") :].split("};")[0]
    found["cudaDeviceProp"] = set(re.findall(r"\b(\w+)(?:\[\w+\])?;", inside))
    lines = ["# Made by benchmarks/torch_signatures.py of torch's own headers: do not edit.\n"]
    for scope in sorted(found):
        plain = sorted(
            n
            for n in found[scope]
            if not n.endswith(("_symint", "_outf")) and re.fullmatch(r"\w+", n) and n not in _NOISE
        )
        lines.append(f"{scope}: {' '.join(plain)}\n")
    lines.append(f"headers: {' '.join(_headers())}\n")
    return "".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the files differ")
    check = parser.parse_args().check
    members, free, bodies = operators_text()
    files = {
        TARGET / "aten_methods.inc": members,
        TARGET / "aten_functions.inc": free,
        TARGET / "aten_definitions.inc": bodies,
        BACKENDS / "source_text" / "torch_names.txt": names_text(),
    }
    differing = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in differing:
        print(f"{'differs' if check else 'written'}: {path.name}")
        if not check:
            path.write_text(files[path])
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
