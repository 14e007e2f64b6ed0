"""Reads from a candidate's text the build that it is certain to start first: if that fails, no runner is needed.

Covers only a `load_inline` or `Module` among the module's own top-level statements, with literal arguments, after
nothing but imports of installed modules, constants and definitions. Everything else is left to the runner, which meets
the same build again and gets it from the cache. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelwright import syntax
from kernelwright.builds import BuildRequest

_SAFE_IMPORTS = frozenset(
    "torch math typing os sys numpy functools collections itertools warnings time __future__ kernelwright.cuda".split()
)
_PARAMETERS = ("name", "cpp_sources", "cuda_sources", "functions", "extra_cflags", "extra_cuda_cflags")
_BUILDERS = {
    "torch.utils.cpp_extension.load_inline": "load_inline",
    "kernelwright.cuda.Module": "Module",
}


MAX_MADE = 1 << 20
"""A bound on the characters of all texts that are concatenated here: thirty lines of `a = a + a` would make a
gigabyte."""


class _Unknown(Exception):
    """The text alone does not determine what happens."""


@dataclass
class _Seen:
    """The names that the statements so far have defined."""

    constants: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Full names of imports."""
    room: int = MAX_MADE

    def made(self, length: int) -> None:
        """Counts the length of a text before it is made; raises `_Unknown` beyond the bound."""
        self.room -= length
        if self.room < 0:
            raise _Unknown


def first_build(source: str) -> BuildRequest | None:
    """Returns the build that executing this module starts with, whatever else it does; None if that is not certain."""
    try:
        tree = syntax.parse(source)
        seen = _Seen()
        for statement in tree.body:
            request = _statement(statement, seen)
            if request is not None:
                return request
    except (_Unknown, SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return None


def _statement(node: ast.stmt, seen: _Seen) -> BuildRequest | None:
    """Records what a statement defines; returns the build that it starts, if any. Raises `_Unknown` for all other
    statements."""
    if _is_text(node):
        return None
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        _imported(node, seen)
        return None
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        target = node.targets[0].id
        if isinstance(node.value, ast.Call):
            return _built(node.value, seen)
        seen.names.pop(target, None)
        seen.constants[target] = _literal(node.value, seen)
        return None
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and _only_defines(node):
        seen.names.pop(node.name, None)
        seen.constants.pop(node.name, None)
        return None
    raise _Unknown


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _only_defines(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Tells whether executing a definition runs nothing but plain lookups."""
    if node.decorator_list:
        return False
    if isinstance(node, ast.FunctionDef):
        defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
        return all(isinstance(d, ast.Constant) for d in defaults)
    bases = all(_dotted(b) in ("nn.Module", "torch.nn.Module", "torch.autograd.Function") for b in node.bases)
    docstring = (ast.FunctionDef, ast.Expr, ast.Pass)
    plain = all(
        isinstance(n, docstring) and (not isinstance(n, ast.FunctionDef) or _only_defines(n)) for n in node.body
    )
    return bases and not node.keywords and plain


def _imported(node: ast.Import | ast.ImportFrom, seen: _Seen) -> None:
    origin = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    if any(not {name, name.split(".")[0]} & _SAFE_IMPORTS for name in origin):
        raise _Unknown
    for alias in node.names:
        if alias.name == "*":
            raise _Unknown
        full = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        bound = alias.asname or alias.name
        if isinstance(node, ast.Import) and not alias.asname:
            full = bound = alias.name.split(".")[0]
        seen.constants.pop(bound, None)
        seen.names[bound] = full


def _built(call: ast.Call, seen: _Seen) -> BuildRequest:
    first, _, rest = _dotted(call.func).partition(".")
    full = seen.names.get(first, "") + (f".{rest}" if rest else "")
    builder = _BUILDERS.get(full)
    if (
        builder is None
        or any(isinstance(a, ast.Starred) for a in call.args)
        or any(k.arg is None for k in call.keywords)
    ):
        raise _Unknown
    if builder == "Module":
        if len(call.args) != 1 or call.keywords:
            raise _Unknown
        text = _literal(call.args[0], seen)
        if not isinstance(text, str) or "__global__" not in text:
            raise _Unknown
        return BuildRequest("device", cuda_source=text)
    given = dict(zip(_PARAMETERS, (_literal(a, seen) for a in call.args), strict=False))
    if len(call.args) > len(_PARAMETERS):
        raise _Unknown
    if any(k.arg in given for k in call.keywords):
        raise _Unknown
    given |= {str(k.arg): _literal(k.value, seen) for k in call.keywords}
    if given.get("extra_include_paths"):
        raise _Unknown  # the runner reads the headers
    return extension_request(**{name: _texts(given[name], seen) for name in _PARAMETERS if name in given})


def _texts(value: Any, seen: _Seen) -> Any:
    """Returns an argument that is a text, a list of texts, or None; raises `_Unknown` for all others."""
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(text, str) for text in listed):
        raise _Unknown
    seen.made(sum(map(len, listed)))  # a list may name one long text many times
    return value


def extension_request(
    name: str = "inline_extension",
    cpp_sources: str | Sequence[str] = "",
    cuda_sources: str | Sequence[str] = "",
    functions: Sequence[str] | dict[str, str] | str | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
) -> BuildRequest:
    """Returns the request that a call of `load_inline` with these arguments builds."""
    named = [functions] if isinstance(functions, str) else list(functions or ())
    return BuildRequest(
        kind="extension",
        name=str(name),
        cuda_source=_joined(cuda_sources),
        cpp_source=_joined(cpp_sources),
        functions=tuple(str(f) for f in named),
        cuda_flags=tuple(str(f) for f in extra_cuda_cflags or ()),
        cpp_flags=tuple(str(f) for f in extra_cflags or ()),
    )


def _joined(sources: str | Sequence[str] | None) -> str:
    return sources if isinstance(sources, str) else "\n".join(sources or ())


def _literal(node: ast.expr, seen: _Seen) -> Any:
    """Evaluates an expression of constants only; raises `_Unknown` otherwise."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in seen.constants:
        return seen.constants[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_literal(item, seen) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left, seen), _literal(node.right, seen)
        if isinstance(left, str) and isinstance(right, str):
            seen.made(len(left) + len(right))
            return left + right
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand, seen)
        if isinstance(value, (int, float)):
            return -value
    raise _Unknown


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *parts[::-1]]) if isinstance(node, ast.Name) else ""
