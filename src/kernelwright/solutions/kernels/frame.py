"""Writes the frame of a canonical candidate: imports, one CUDA string, the reference's constructor, forward."""

from __future__ import annotations

import ast
import copy
import symtable
import textwrap
from collections.abc import Iterator

from kernelwright.solutions.read.reading import ReferenceText


def module_text(
    reference: ReferenceText, kernels: list[str], lines: list[str], result: str, functions: list[str] | None = None
) -> str:
    """Returns the whole file: `kernels` are CUDA texts, `lines` forward's statements, `result` its return value,
    `functions` Python functions that forward calls."""
    body = textwrap.indent("\n".join([*lines, f"return {result}"]), " " * 8)
    init = constructor(reference)
    used = f"{init}    def forward(self, {_arguments(reference)}):\n{body}\n"
    own = "".join(f"\n{text}\n\n" for text in functions or ())
    parts = [
        imports(reference, used),
        'kernels = Module(r"""\n' + "\n\n".join(kernels) + '\n""")\n',
        f"{own}\nclass ModelNew(nn.Module):\n{init}    def forward(self, {_arguments(reference)}):\n{body}\n",
    ]
    return "\n".join(parts)


def _arguments(reference: ReferenceText) -> str:
    """Returns forward's parameters without annotations."""
    given = _bare(reference.forward.args)
    given.args = given.args[1:]
    return ast.unparse(given)


def _bare(arguments: ast.arguments) -> ast.arguments:
    """Returns parameters without annotations; unchanged parts are shared with the original."""
    bare = copy.copy(arguments)
    bare.args = [ast.arg(argument.arg) for argument in arguments.args]
    return bare


def constructor(reference: ReferenceText) -> str:
    """Returns the reference's constructor without docstring, so that arguments, attributes and weights keep their
    names.

    The attributes of the class come before it, the methods that it calls after it.
    """
    model = next(
        (n for n in _own(reference).body if isinstance(n, ast.ClassDef) and n.name == "Model"), reference.model
    )
    own = [ast.unparse(n) for n in model.body if isinstance(n, ast.Assign | ast.AnnAssign) and n.value is not None]
    attributes = textwrap.indent("\n".join(own), "    ") + "\n\n" if own else ""
    found = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if found is None:
        return attributes
    bare = copy.copy(found)
    bare.args, bare.returns = _bare(found.args), None
    if found.body and isinstance(found.body[0], ast.Expr) and isinstance(found.body[0].value, ast.Constant):
        bare.body = found.body[1:] or [ast.Pass()]
    texts = [ast.unparse(n) for n in (bare, *_helpers(model, found))]
    text = "\n\n".join(texts).replace("super(Model, self)", "super()")
    return attributes + textwrap.indent(text, "    ") + "\n\n"


def _helpers(model: ast.ClassDef, init: ast.FunctionDef) -> list[ast.FunctionDef]:
    """Returns the methods that a constructor calls, directly or through others, in the order of the class."""
    methods = {
        n.name: n for n in model.body if isinstance(n, ast.FunctionDef) and n.name not in ("__init__", "forward")
    }
    called: set[str] = set()
    waiting = [init]
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Attribute) and node.attr in methods.keys() - called:
                called.add(node.attr)
                waiting.append(methods[node.attr])
    return [method for name, method in methods.items() if name in called]


def _own(reference: ReferenceText) -> ast.Module:
    """Returns the file that the candidate's constructor comes from."""
    return reference.own or reference.tree


def imports(reference: ReferenceText, used: str) -> str:
    """Returns the imports and module constants that constructor and forward name, and those of every candidate."""
    names = _names(used)
    needed = list(_needed(reference, names))
    names |= {n.id for node in needed for n in ast.walk(node) if isinstance(n, ast.Name)}
    lines = ["import torch", "import torch.nn as nn"]
    if "math" in names:
        lines.insert(0, "import math")
    for node in _own(reference).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            given = _given(node)
            if given & names and not given & {"torch", "nn", "math"} and ast.unparse(node) not in lines:
                lines.append(ast.unparse(node))
    constants = [ast.unparse(node) for node in needed]
    helpers = sorted(names & {"_single", "_pair", "_triple"})
    if helpers:
        lines.append(f"from torch.nn.modules.utils import {', '.join(helpers)}")
    lines.append("from kernelwright.cuda import Module\n")
    return "\n".join(lines + ([*constants, ""] if constants else []))


def lacking(reference: ReferenceText, init: str, has: set[str]) -> list[str]:
    """Returns the reference's imports and definitions that a constructor needs and a file with the names `has`
    lacks."""
    wanted = _names(init)
    found = [n for n in _needed(reference, wanted) if not _given(n) & has]
    wanted |= {n.id for node in found for n in ast.walk(node) if isinstance(n, ast.Name)}
    brought = [
        n for n in _own(reference).body if isinstance(n, ast.Import | ast.ImportFrom) and _given(n) & wanted - has
    ]
    return [ast.unparse(n) for n in [*brought, *found]]


def _given(node: ast.stmt) -> set[str]:
    """Returns the names that a statement of a module sets."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).split(".")[0] for a in node.names}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _needed(reference: ReferenceText, names: set[str]) -> Iterator[ast.stmt]:
    """Yields the module-level assignments and functions that are named, directly or through others, in their order."""
    tree = [
        n for n in _own(reference).body if isinstance(n, (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef))
    ]
    wanted = set(names)
    chosen: list[ast.stmt] = []
    for node in reversed(tree):
        if _given(node) & wanted:
            chosen.append(node)
            wanted |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    yield from chosen[::-1]


def _names(text: str) -> set[str]:
    """Returns the outside names that a class body's functions use."""
    table = symtable.symtable("class _:\n" + text, "candidate", "exec")
    found: set[str] = set()
    scopes = table.get_children()
    while scopes:
        scope = scopes.pop()
        found |= {s.get_name() for s in scope.get_symbols() if s.is_global()}
        scopes += scope.get_children()
    return found
