"""What a task's forward computes, an operator a line, as comments at the head of an answer.

A small model loses its place in a long chain; a line for each operator, in order and with its operands, is something
that it can copy from the task and then write from.
"""

from __future__ import annotations

from kernelwright.solutions import understood
from kernelwright.solutions.reading import Node, readable

_LEAVES = ("input", "tensor", "number")
_HEAD = "kernels = Module("


def plan(source: str) -> list[str]:
    """`# v1 = sigmoid(x)` for each operator, operands first; a value that is used twice has one line.

    Raises `reading.Unreadable`.
    """
    with readable():
        _, _, root = understood(source)
    names: dict[Node, str] = {}
    lines: list[str] = []
    stack = [root]
    while stack:
        node = stack[-1]
        missing = [a for a in node.args if a not in names]
        if missing:
            stack += missing[::-1]
            continue
        stack.pop()
        if node in names:
            continue
        names[node] = node.text or node.op if node.op in _LEAVES else f"v{len(lines) + 1}"
        if node.op not in _LEAVES:
            lines.append(f"# {names[node]} = {_call(node, names)}")
    return lines


def _call(node: Node, names: dict[Node, str]) -> str:
    """An operator with its operands; of a layer its name in place of its options."""
    parts = [names[a] for a in node.args]
    parts += [node.text] if node.text else [f"{name}={text}" for name, text in node.options]
    return f"{node.op}({', '.join(parts)})"


def with_plan(source: str, answer: str) -> str:
    """An answer in the module form with the plan of its task before its kernels. Raises `reading.Unreadable`."""
    return answer.replace(_HEAD, "".join(f"{line}\n" for line in plan(source)) + _HEAD, 1)
