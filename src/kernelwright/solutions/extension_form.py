"""The older form of an answer, one `load_inline` extension, for what the `Writer` does not lower yet."""

from __future__ import annotations

import ast
import copy
import textwrap

from kernelwright.solutions import rows
from kernelwright.solutions.reading import Node, Reference, safe_name
from kernelwright.solutions.schedule import Schedule
from kernelwright.solutions.shaped import SHAPED

_FILE = '''\
{head}

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
{cuda}
"""

cpp_source = "{declaration}"

extension = load_inline(
    name="{name}",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["{function}"],
)


class ModelNew(nn.Module):
{init}
    def forward(self, {arguments}):
{forward}
'''


def candidate(reference: Reference, name: str, cuda: str, declaration: str, forward: str) -> str:
    """The whole file. `declaration` is the host function's signature in C++, `forward` the body in Python."""
    function = declaration.split("(")[0].split()[-1]
    return _FILE.format(
        head=_head(reference),
        cuda=cuda.strip("\n"),
        declaration=declaration,
        name=f"kernelwright_{name}",
        function=function,
        init=_init(reference),
        arguments=_arguments(reference),
        forward=textwrap.indent(textwrap.dedent(forward).strip("\n"), " " * 8),
    )


def _arguments(reference: Reference) -> str:
    """forward's parameters, renamed where they would clash with the body's own names."""
    given = copy.deepcopy(reference.forward.args)
    given.args = given.args[1:]
    for argument in given.args:
        argument.arg = safe_name(argument.arg)
    return ast.unparse(given)


def _head(reference: Reference) -> str:
    """Imports, and the constants that constructor or forward may name."""
    lines = ["import torch", "import torch.nn as nn", "import torch.nn.functional as F"]
    lines.append("from torch.utils.cpp_extension import load_inline")
    for node in reference.tree.body:
        text = ast.unparse(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and text not in lines:
            lines.append(text)
        elif isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) for t in node.targets):
            lines.append(text)
    return "\n".join(lines)


def _init(reference: Reference) -> str:
    """The reference's constructor, so that arguments, attributes and weights keep their names."""
    found = next((n for n in reference.model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if found is None:
        return ""
    text = ast.unparse(found).replace("super(Model, self)", "super(ModelNew, self)")
    return textwrap.indent(text, "    ") + "\n"


def write(reference: Reference, node: Node, plan: Schedule) -> str:
    """A candidate for an expression. Raises `Unreadable` where no template fits."""
    generate = SHAPED.get(node.op, rows.generate)
    cuda, declaration, body = generate(reference, _renamed(node), plan)
    return candidate(reference, node.op if node.op.isidentifier() else "kernel", cuda, declaration, body)


def _renamed(node: Node) -> Node:
    """Inputs by the names that this form's forward gives them."""
    if node.op == "input":
        return Node("input", text=safe_name(node.text))
    return Node(node.op, tuple(_renamed(a) for a in node.args), node.text, node.options)
