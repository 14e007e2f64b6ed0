"""Exports a candidate that launches from Python (`kernelwright.cuda.Module`) to a KernelBench `ModelNew` file.

The exported file runs without this package. The CUDA text stays unchanged, but for the tile library's headers, which
take the place of their includes. One C++ launcher a kernel, made from the kernel's signature, follows it, and
`load_inline` builds both. A small class in the file keeps `kernels.NAME[grid,
block](...)`, so that `forward` stays unchanged. Executes nothing.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright import syntax
from kernelwright.device import INCLUDE, UnknownHeader, inlined
from kernelwright.errors import CandidateError
from kernelwright.solutions.kernels.annotate import annotated
from kernelwright.solutions.kernels.signature import Argument, KernelSignature, Signatures, base_name

_SHIM = '''\


class {shim}:
    """`kernels.NAME[grid, block, shared_bytes](*args)` launches a kernel of an extension on the current stream."""

    def __init__(self, extension, launchers):
        self._extension, self._launchers = extension, launchers

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__[name] = self.get(name)
        return self.__dict__[name]

    def get(self, name):
        return {shim}Launch(getattr(self._extension, self._launchers["".join(name.split())]))


class {shim}Launch:
    """One kernel. Launches are kept by grid and block, so that they are put together once."""

    def __init__(self, launch):
        self._launch, self._kept = launch, {{}}

    def __getitem__(self, config):
        try:
            return self._kept[config]
        except KeyError:
            keep = len(self._kept) < 256
        except TypeError:  # there is a list in it
            keep = False
        sizes = [[size] if isinstance(size, int) else list(size) for size in config[:2]]
        grid, block = [[int(n) for n in size] + [1] * (3 - len(size)) for size in sizes]
        found = self._start(self._launch, [*grid, *block, int(config[2]) if len(config) > 2 else 0])
        if keep:
            self._kept[config] = found
        return found

    @staticmethod
    def _start(launch, sizes):
        def start(*args):
            for value in args:
                if value is None:
                    args = [torch.empty(0, device="cuda") if one is None else one for one in args]
                    break
            launch(*sizes, *args)

        return start


'''

_MODULE = '''\
{cuda_name} = {cuda}

{cpp_name} = """
{declarations}
"""

{extension_name} = load_inline(
    name="{name}",
    cpp_sources={cpp_name},
    cuda_sources={cuda_name},
    functions={functions},
{flags})

'''

_INCLUDES = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
"""

_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")
_TYPES = {"tensor": "torch::Tensor", "integer": "int64_t", "real": "double", "boolean": "bool"}

# torch compiles without the operators of half types; NVRTC has them.
_HALF_FLAGS = tuple(
    f"-U__CUDA_NO_{name}__"
    for name in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")
)
_HOPPER_ONLY = re.compile(r"\bwgmma\b|\bsetmaxnreg\b")
_HOPPER_FLAG = "-gencode=arch=compute_90a,code=sm_90a"

# A kernel of one of these names compiles alone, but clashes with the C library's function once torch's headers are in.
_TAKEN = frozenset(
    """abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh div erf erfc exp exp2 expm1 fabs fdim
    floor fma fmax fmin fmod frexp gamma hypot index ldexp lgamma log log10 log1p log2 logb modf nan nearbyint pow
    random read remainder remove rename rint round scalbn select signal sin sinh sqrt tan tanh tgamma time trunc write
    y0 y1 j0 j1 link pipe pause access dup labs send accept bind connect listen sync truncate wait""".split()
)


@dataclass(frozen=True)
class _Edit:
    """Bytes [start, end) of the file, and the text that replaces them."""

    start: int
    end: int
    text: str


def export(text: str) -> str:
    """Returns the candidate as a file that needs torch only; unchanged where it uses neither `kernelwright.cuda` nor
    a header of the tile library.

    Raises `CandidateError` where it cannot be exported: CUDA text that is unknown before the file runs, parameters that
    are structs, instances of templates that no constant names, headers that the library does not have.
    """
    if "kernelwright" not in text:
        return text
    tree = _parse(text)
    found = _Imports(tree)
    if not found.statements:
        return with_headers(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and found.is_module(node.func)]
    found.check(tree, {id(call.func) for call in calls})
    if not calls:
        return _edited(text, [_removed(text, statement) for statement in found.statements])
    return _Export(text, tree, found, sorted(calls, key=lambda call: (call.lineno, call.col_offset))).render()


def with_headers(text: str) -> str:
    """Returns a Python file with the tile library's headers in its texts that include them. Raises `CandidateError`."""
    tree = _parse(text)
    edits = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and INCLUDE.search(node.value):
            edits.append(_Edit(*_span(text, node), _literal(whole_text(node.value))))
    return _edited(text, edits)


def whole_text(cuda: str) -> str:
    """Returns a CUDA text with the tile library's headers in it. Raises `CandidateError` for an unknown header."""
    try:
        return inlined(cuda, marks=False)
    except UnknownHeader as error:
        raise CandidateError(str(error)) from error


class _Imports:
    """The names by which a file imports `kernelwright.cuda` and its `Module`."""

    def __init__(self, tree: ast.Module) -> None:
        self.statements: list[ast.Import | ast.ImportFrom] = []
        self.names: set[str] = set()
        self.modules: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in ("kernelwright.cuda", "kernelwright"):
                self.statements.append(node)
                for alias in node.names:
                    wanted = "Module" if node.module == "kernelwright.cuda" else "cuda"
                    if alias.name != wanted:
                        raise CandidateError(f"the candidate imports {alias.name} of {node.module}, not only Module")
                    (self.names if wanted == "Module" else self.modules).add(alias.asname or alias.name)
            elif isinstance(node, ast.Import) and any(a.name.startswith("kernelwright") for a in node.names):
                if len(node.names) > 1 or node.names[0].name != "kernelwright.cuda":
                    raise CandidateError("the candidate imports more of kernelwright than its CUDA module")
                self.statements.append(node)
                self.modules.add(node.names[0].asname or "kernelwright.cuda")

    def is_module(self, node: ast.expr) -> bool:
        """Tells whether an expression is the class `Module`."""
        if isinstance(node, ast.Name):
            return node.id in self.names
        return isinstance(node, ast.Attribute) and node.attr == "Module" and ast.unparse(node.value) in self.modules

    def check(self, tree: ast.Module, called: set[int]) -> None:
        """Raises where `Module` is used other than by calling it."""
        for node in ast.walk(tree):
            if isinstance(node, ast.expr) and id(node) not in called and self.is_module(node):
                raise CandidateError(f"line {node.lineno} uses Module without calling it, which has no other form")


class _Export:
    """One file that is being exported."""

    def __init__(self, text: str, tree: ast.Module, found: _Imports, calls: Sequence[ast.Call]) -> None:
        self.text, self.tree, self.found, self.calls = text, tree, found, calls
        self.constants = _constants(tree)
        self.taken = set(re.findall(r"[^\W\d]\w*", text))
        self.shim = self._free("Kernels")
        self.instances = list(_instances(tree, self.constants))

    def _free(self, name: str) -> str:
        """Returns the name, or one with a number, that the file does not use."""
        chosen = next(
            n for n in itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2))) if n not in self.taken
        )
        self.taken.add(chosen)
        return chosen

    def render(self) -> str:
        edits = [_removed(self.text, s) for s in self.found.statements]
        edits[0] = _Edit(edits[0].start, edits[0].end, _replacing_import(self.tree, self.found.statements[0]))
        before: dict[int, list[str]] = {}
        for call in self.calls:
            block, value = self._module(call)
            before.setdefault(self._statement(call), []).append(block)
            edits.append(_Edit(*_span(self.text, call), value))
        shim = _SHIM.format(shim=self.shim)
        if not any(isinstance(n, ast.Import) and any(a.name == "torch" for a in n.names) for n in self.tree.body):
            shim = f"import torch\n\n{shim}"
        for place in sorted(before):
            edits.append(_Edit(place, place, shim + "".join(before[place])))
            shim = ""
        return _edited(self.text, edits)

    def _statement(self, call: ast.Call) -> int:
        """Returns the start of the top-level statement around a call, its decorators included."""
        for node in self.tree.body:
            if node.lineno <= call.lineno <= (node.end_lineno or node.lineno):
                decorators = getattr(node, "decorator_list", [])
                return _offset(self.text, min([node.lineno, *(d.lineno for d in decorators)]), 0)
        raise CandidateError(f"line {call.lineno}: the call of Module is in no statement")

    def _module(self, call: ast.Call) -> tuple[str, str]:
        """Returns the text to put before the statement that calls `Module`, and the text that replaces the call."""
        cuda, flags = self._arguments(call)
        signatures = Signatures(cuda)
        renamed = {n: f"{n}_kernel" for n in signatures.declared if n in _TAKEN}
        if renamed:
            cuda = _renamed(cuda, renamed)
            signatures = Signatures(cuda)
        back = {new: old for old, new in renamed.items()}
        kernels = signatures.kernels([_renamed(i, renamed) for i in self.instances])
        self._check(signatures, kernels, call)
        launchers = _launcher_names(kernels)
        names = [self._free(name) for name in ("cuda_source", "cpp_source", "extension")]
        bodies = "\n".join(_launcher(k, launchers[k.callee]) for k in kernels)
        whole = whole_text(annotated(cuda))
        source = f"{_INCLUDES}{whole}\n{bodies}"
        block = _MODULE.format(
            cuda_name=names[0],
            cpp_name=names[1],
            extension_name=names[2],
            cuda=_literal(source),
            declarations="\n".join(f"{_head(k, launchers[k.callee])};" for k in kernels),
            name=f"kernels_{hashlib.sha256(source.encode()).hexdigest()[:12]}",
            functions=_listed(list(launchers.values())),
            flags=f"    extra_cuda_cflags={_listed(wanted)},\n" if (wanted := _flags(whole, flags)) else "",
        )
        table = {"".join(_renamed(callee, back).split()): launcher for callee, launcher in launchers.items()}
        return block, f"{self.shim}({names[2]}, {_listed(table)})"

    def _arguments(self, call: ast.Call) -> tuple[str, tuple[str, ...]]:
        """Returns the CUDA text and the flags that `Module` is called with."""
        given: dict[str, ast.expr] = dict(zip(("source", "flags"), call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg}
        try:
            cuda = _value(given["source"], self.constants)
            flags = _value(given["flags"], self.constants) if "flags" in given else ()
        except (KeyError, _NotFixed) as error:
            raise CandidateError(
                f"line {call.lineno}: the CUDA text or its flags are not known before the file runs ({error})",
                hint="write the text as one constant string",
            ) from error
        if not isinstance(cuda, str):
            raise CandidateError(f"line {call.lineno}: Module takes CUDA text, not a {type(cuda).__name__}")
        return cuda, tuple(str(flag) for flag in flags)

    def _check(self, signatures: Signatures, kernels: Sequence[KernelSignature], call: ast.Call) -> None:
        if not signatures.declared:
            raise CandidateError(f"line {call.lineno}: the CUDA text has no __global__ function")
        named = {kernel.name for kernel in kernels}
        for name, declared in signatures.declared.items():
            if declared.template and name not in named:
                raise CandidateError(
                    f"the kernel {name} is a template, and no constant names an instance of it",
                    hint=f'name instances where they are fetched: module.get("{name}<float>")',
                )


# --- C++ ------------------------------------------------------------------------------------------------------------


def _launcher_names(kernels: Sequence[KernelSignature]) -> dict[str, str]:
    """Returns the name of each kernel's launcher, by callee."""
    found: dict[str, str] = {}
    for kernel in kernels:
        base = "launch_" + re.sub(r"\W+", "_", kernel.name)
        count = sum(name == base or name.startswith(f"{base}_instance") for name in found.values())
        found[kernel.callee] = f"{base}_instance{count + 1}" if kernel.instance else base
    return found


def _head(kernel: KernelSignature, launcher: str) -> str:
    sizes = [f"int64_t {name}" for name in _SIZES]
    given = [f"{_TYPES[a.kind]} {_cpp_name(a)}" for a in kernel.arguments]
    return f"void {launcher}({', '.join(sizes + given)})"


def _cpp_name(argument: Argument) -> str:
    return f"{argument.name}_" if argument.name in (*_SIZES, "stream", "guard", "status") else argument.name


def _launcher(kernel: KernelSignature, launcher: str) -> str:
    tensors = [a for a in kernel.arguments if a.kind == "tensor"]
    lines = [f"{_head(kernel, launcher)} {{"]
    lines += [f"    {binding}" for binding in kernel.bindings]
    for tensor in tensors:
        name = _cpp_name(tensor)
        lines.append(f'    TORCH_CHECK({name}.is_cuda(), "{kernel.name}: {tensor.name} is not on the GPU");')
    if tensors:
        lines.append(f"    const c10::cuda::CUDAGuard guard({_cpp_name(tensors[0])}.device());")
    lines.append("    if (shared_bytes > 48 * 1024) {")
    lines.append(
        f"        const cudaError_t status = cudaFuncSetAttribute("
        f"{kernel.callee}, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));"
    )
    lines.append("        C10_CUDA_CHECK(status);")
    lines.append("    }")
    given = ", ".join(_passed(a) for a in kernel.arguments)
    lines.append(
        f"    {kernel.callee}<<<dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z), shared_bytes, "
        f"c10::cuda::getCurrentCUDAStream()>>>({given});"
    )
    lines.append("    C10_CUDA_KERNEL_LAUNCH_CHECK();")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _passed(argument: Argument) -> str:
    """Returns one argument of the launch, converted to the parameter's type."""
    name = _cpp_name(argument)
    value = f"{name}.data_ptr()" if argument.kind == "tensor" else name
    return f"({argument.type}){value}" if argument.kind == "tensor" else f"static_cast<{argument.type}>({value})"


def _flags(cuda: str, given: Sequence[str]) -> list[str]:
    """Returns nvcc's flags: the flags of `Module`, and flags that make nvcc read the text as NVRTC does."""
    flags = list(given)
    if re.search(r"half|bfloat16|__nv_", cuda):
        flags += _HALF_FLAGS
    if _HOPPER_ONLY.search(cuda):
        flags.append(_HOPPER_FLAG)
    return flags


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Renames whole words in the text, except members (`a.max`) and qualified names."""
    if not names:
        return text
    pattern = rf"(?<![\w.>:])({'|'.join(map(re.escape, names))})(?!\w)"
    return re.sub(pattern, lambda match: names[match[1]], text)


# --- Python ---------------------------------------------------------------------------------------------------------


class _NotFixed(Exception):
    """The file's text does not fix the value of an expression."""


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CandidateError(f"the candidate is not Python: {error}", hint="mend it first") from error


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Returns the names that are assigned once in the whole file, at the top level."""
    counts: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] = counts.get(node.id, 0) + 1
    found: dict[str, ast.expr] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and counts.get(target.id) == 1:
                found[target.id] = statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            if counts.get(statement.target.id) == 1:
                found[statement.target.id] = statement.value
    return found


_METHODS = ("replace", "strip", "lstrip", "rstrip", "format", "join", "lower", "upper")
_NUMBERS = {ast.Add: "__add__", ast.Sub: "__sub__", ast.Mult: "__mul__", ast.FloorDiv: "__floordiv__"}


def _value(node: ast.expr, names: Mapping[str, ast.expr]) -> Any:
    """Returns the value of a constant expression: texts, numbers, lists of them. Raises `_NotFixed`."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return _value(names[node.id], {k: v for k, v in names.items() if k != node.id})
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item, names) for item in node.elts]
    if isinstance(node, ast.JoinedStr):
        return "".join(_formatted(part, names) for part in node.values)
    if isinstance(node, ast.BinOp) and type(node.op) in _NUMBERS:
        left, right = _value(node.left, names), _value(node.right, names)
        if all(isinstance(x, int) for x in (left, right)) or (
            isinstance(node.op, ast.Add) and type(left) is type(right)
        ):
            try:
                return getattr(left, _NUMBERS[type(node.op)])(right)
            except (ArithmeticError, AttributeError) as error:
                raise _NotFixed(ast.unparse(node)[:60]) from error
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _called(node, node.func, names)
    raise _NotFixed(ast.unparse(node)[:60])


def _formatted(part: ast.expr, names: Mapping[str, ast.expr]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    if isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None:
        return str(_value(part.value, names))
    raise _NotFixed(ast.unparse(part)[:60])


def _called(node: ast.Call, method: ast.Attribute, names: Mapping[str, ast.expr]) -> Any:
    """Returns the value of a method of a text, or of `textwrap.dedent`."""
    arguments = [_value(a, names) for a in node.args]
    if ast.unparse(method) == "textwrap.dedent" and arguments:
        import textwrap

        return textwrap.dedent(str(arguments[0]))
    owner = _value(method.value, names)
    if isinstance(owner, str) and method.attr in _METHODS:
        try:
            return getattr(owner, method.attr)(
                *arguments, **{k.arg or "": _value(k.value, names) for k in node.keywords}
            )
        except (TypeError, ValueError, LookupError) as error:
            raise _NotFixed(ast.unparse(node)[:60]) from error
    raise _NotFixed(ast.unparse(node)[:60])


def _instances(tree: ast.Module, names: Mapping[str, ast.expr]) -> Iterator[str]:
    """Returns the template instances that the file names in calls of `get`: `scale<float, 256>`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            yield from (text for text in _possible(node.args[0], names) if base_name(text))


def _possible(node: ast.expr, names: Mapping[str, ast.expr]) -> list[str]:
    """Returns the possible texts of an expression: both sides of a choice, every value of a constant dictionary."""
    if isinstance(node, ast.IfExp):
        return _possible(node.body, names) + _possible(node.orelse, names)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        table = names.get(node.value.id)
        return [t for v in table.values for t in _possible(v, names)] if isinstance(table, ast.Dict) else []
    if isinstance(node, ast.JoinedStr):
        parts = [_possible(p.value if isinstance(p, ast.FormattedValue) else p, names) for p in node.values]
        return ["".join(chosen) for chosen in itertools.islice(itertools.product(*parts), 1024)]
    try:
        value = _value(node, names)
    except _NotFixed:
        return []
    return [str(value)] if isinstance(value, (str, int)) else []


def _replacing_import(tree: ast.Module, statement: ast.stmt) -> str:
    """Returns the text that replaces the import of `Module`; empty where the file has it already."""
    if statement not in tree.body:
        return "from torch.utils.cpp_extension import load_inline"
    for node in tree.body[: tree.body.index(statement)]:
        if isinstance(node, ast.ImportFrom) and any(a.name == "load_inline" and a.asname is None for a in node.names):
            return ""
    return "from torch.utils.cpp_extension import load_inline"


def _listed(value: Any) -> str:
    """Returns a list or dictionary of texts as Python text, with double quotes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(_literal(v) for v in value) + "]"


def _literal(text: str) -> str:
    """Returns a text as a Python literal: raw and over several lines where it has line breaks."""
    if "\n" not in text:
        return f'"{text}"' if text.isprintable() and '"' not in text and "\\" not in text else repr(text)
    plain = text.replace("\n", "").replace("\t", "").isprintable()
    for quotes in ('"""', "'''"):
        if plain and quotes not in text and not text.endswith((quotes[0], "\\")):
            return f"r{quotes}{text}{quotes}"
    return repr(text)


def _offset(text: str, line: int, column: int) -> int:
    """Returns the byte offset of a place given by `ast`, which counts columns in bytes."""
    starts = [0, *(m.end() for m in re.finditer(rb"\r\n|\r|\n", text.encode()))]
    return starts[line - 1] + column


def _span(text: str, node: ast.expr | ast.stmt) -> tuple[int, int]:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return _offset(text, node.lineno, node.col_offset), _offset(text, end_line, end_column)


def _removed(text: str, statement: ast.stmt) -> _Edit:
    """Returns the edit that removes an import; within a block a statement has to stay."""
    start, end = _span(text, statement)
    return _Edit(start, end, "pass" if statement.col_offset else "")


def _edited(text: str, edits: Sequence[_Edit]) -> str:
    data = text.encode()
    for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data.decode()
