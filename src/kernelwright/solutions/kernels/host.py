"""Adds Python lines of forward from templates, whose own names avoid the reference's names."""

from __future__ import annotations

import ast
import re
from typing import Any

from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.reading import Node


def add_lines(writer: Writer, template: str, **values: str) -> None:
    """Adds a template's lines to forward, with `@name` marks filled in.

    The template's own names get an underscore where the reference's forward uses them; filled-in text stays unchanged.
    A later operator's lines may assign the names again, so use them at once.
    """
    kept = _forward_names(writer)
    text = re.sub(r"(?<![\w.@'\"])([A-Za-z_]\w*)", lambda m: m[1] + "_" if m[1] in kept else m[1], template.strip("\n"))
    for name in sorted(values, key=len, reverse=True):
        text = text.replace(f"@{name}", values[name])
    for line in text.split("\n"):
        if line.strip():
            writer.line(line)


def add_kernel(writer: Writer, op: str, text: str) -> str:
    """Adds a kernel whose name is the mark `@name`, and returns its name; an equal kernel is used again."""
    text = text.strip("\n")
    for number in range(1, len(writer.kernels) + 1):
        name = f"{op}_kernel{number if number > 1 else ''}"
        if writer.has_kernel(text.replace("@name", name)):
            return name
    name = writer.kernel_name(op)
    writer.kernel(text.replace("@name", name))
    return name


def _forward_names(writer: Writer) -> set[str]:
    """Returns the inputs' names, and the names that forward takes from the module."""
    forward = writer.reference.forward
    assigned = {n.id for n in ast.walk(forward) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    loaded = {n.id for n in ast.walk(forward) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return {*writer.reference.inputs, *(loaded - assigned)} - {"torch", "nn", "F", "self", "math"}


def argument(writer: Writer, node: Node, name: str, default: Any = None) -> Any:
    """Returns the argument that a module was made with, or its default; `default` where the text does not tell.

    `node.text` is the module's attribute, e.g. `self.conv`.
    """
    found = writer.facts.attributes.get(f"{node.text.removeprefix('self.')}.{name}")
    return default if found is None else found
