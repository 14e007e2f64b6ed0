"""The frame of a canonical answer: imports, one CUDA string, the reference's constructor, forward."""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Iterator

from kernelwright.solutions.reading import Reference


def module_text(reference: Reference, kernels: list[str], lines: list[str], result: str) -> str:
    """The whole file: `kernels` are CUDA texts, `lines` forward's statements, `result` what it returns."""
    body = textwrap.indent("\n".join([*lines, f"return {result}"]), " " * 8)
    init = constructor(reference)
    used = f"{init}    def forward(self, {_arguments(reference)}):\n{body}\n"
    parts = [
        imports(reference, used),
        'kernels = Module(r"""\n' + "\n\n".join(kernels) + '\n""")\n',
        f"\nclass ModelNew(nn.Module):\n{init}    def forward(self, {_arguments(reference)}):\n{body}\n",
    ]
    return "\n".join(parts)


def _arguments(reference: Reference) -> str:
    """forward's parameters, without annotations."""
    given = copy.deepcopy(reference.forward.args)
    given.args = given.args[1:]
    for argument in given.args:
        argument.annotation = None
    return ast.unparse(given)


def constructor(reference: Reference) -> str:
    """The reference's constructor without docstring, so that arguments, attributes and weights keep their names."""
    found = next((n for n in reference.model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if found is None:
        return ""
    found = copy.deepcopy(found)
    if found.body and isinstance(found.body[0], ast.Expr) and isinstance(found.body[0].value, ast.Constant):
        found.body = found.body[1:] or [ast.Pass()]
    for argument in found.args.args:
        argument.annotation = None
    found.returns = None
    text = ast.unparse(found).replace("super(Model, self)", "super()")
    return textwrap.indent(text, "    ") + "\n\n"


def imports(reference: Reference, used: str) -> str:
    """Imports and module constants that the constructor or forward name, and what a candidate always needs."""
    names = _names(used)
    lines = ["import torch", "import torch.nn as nn"]
    constants = []
    if "math" in names:
        lines.insert(0, "import math")
    for node in reference.tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            given = {(a.asname or a.name).split(".")[0] for a in node.names}
            if given & names and not given & {"torch", "nn", "math"} and ast.unparse(node) not in lines:
                lines.append(ast.unparse(node))
    for node in _needed(reference, names):
        constants.append(ast.unparse(node))
    helpers = sorted(names & {"_single", "_pair", "_triple"})
    if helpers:
        lines.append(f"from torch.nn.modules.utils import {', '.join(helpers)}")
    lines.append("from kernelwright.cuda import Module\n")
    return "\n".join(lines + ([*constants, ""] if constants else []))


def _needed(reference: Reference, names: set[str]) -> Iterator[ast.stmt]:
    """Module-level assignments and functions that are named, also by one another, in their order."""
    tree = [n for n in reference.tree.body if isinstance(n, (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef))]
    wanted = set(names)
    chosen: list[ast.stmt] = []
    for node in reversed(tree):
        given = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            given = {node.name}
        if given & wanted:
            chosen.append(node)
            wanted |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    yield from chosen[::-1]


def _names(text: str) -> set[str]:
    """Names that a class body's functions take from outside of themselves."""
    tree = ast.parse("class _:\n" + text if text.strip() else "")
    found: set[str] = set()
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        names = [n for part in function.body for n in ast.walk(part) if isinstance(n, ast.Name)]
        own = {a.arg for a in function.args.args} | {n.id for n in names if isinstance(n.ctx, ast.Store)}
        found |= {n.id for n in names} - own
        found |= {n.id for d in function.args.defaults for n in ast.walk(d) if isinstance(n, ast.Name)}
    return found
