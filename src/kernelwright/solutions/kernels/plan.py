"""Writes a plan into a candidate: one line for each operator of forward, and comments where each is computed.

A small model loses its place in a long chain of operators. A plan lists each operator with its operands at the head, in
order, and repeats that line where the operator is computed. Every step can then be copied from a line above it. The
names of the lines are also the names of the values in the candidate: `t3 = tanh(t2)` is the variable `t3` of a kernel,
the tensor `t3` of the host and the kernel `linear_t3`. So a name never depends on how often it was used before. A
reader finds the operators of a fused kernel in the same way.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence

from kernelwright.solutions.kernels.operators import ELEMENTWISE
from kernelwright.solutions.read.reading import Node, nodes

_LEAVES = ("input", "tensor", "number", "count", "size", "constant")
_SPELLED = (*ELEMENTWISE, "softmax", "log_softmax", "softmin")
_HEAD = "kernels = Module("
_MARK, _TITLE = "\x01", "\x02"
"""Marks that no kernel text contains: one stands before an operator's name behind a statement, one before the names
above a kernel. They become comments at the end, because until then kernels are told apart by their text."""
NAME = re.compile(r"[tu]\d+")
"""An operator's name: as in forward (`tasks.normal_form.steps`), or a new one where forward has no name for it."""
_COMMENTS = re.compile(
    r"^(?:# [\w.\[\]]+: (?:\d+d|number|tensor)| *(?:#|//) [tu]\d+(?: = .*|(?:, [tu]\d+)*))\n", re.MULTILINE
)
_SERVED = re.compile(r"\n\n// [tu]\d+(?:, [tu]\d+)*: \w+$", re.MULTILINE)
_UNSEEN = re.compile(f"{_MARK}[tu]\\d+|{_TITLE}[^\n]*\n")


class AnswerPlan:
    """Names the operators of an expression, and tells which operator a lowered node is a part of.

    `named`: nodes to which forward gives names of its own, such as `t1`.
    """

    def __init__(self, root: Node, named: Mapping[Node, str] = {}) -> None:
        self.names: dict[Node, str] = {}
        self.lines: dict[str, str] = {}
        """Name -> the operator with its operands: `sigmoid(t1)`."""
        once = Counter(named.values())
        self._given = {n: name for n, name in named.items() if NAME.fullmatch(name) and once[name] == 1}
        taken = {node.text for node in nodes(root)}  # an input may have such a name, too
        numbered = (f"{'u' if self._given else 't'}{k}" for k in itertools.count(1))
        self._free = (name for name in numbered if name not in taken)
        self.ranks: dict[str, int] = {}
        """Name of an operator or input -> its number of dimensions, where that is known."""
        self.attributes: dict[str, str] = {}
        """Attributes that are operands -> their number of dimensions, or that they are numbers."""
        self._owners: dict[Node, str] = {}
        self._results: dict[Node, str] = {}
        used = set(nodes(root))
        stack = [root, *reversed([node for node in self._given if node in used])]  # in the order of the text
        while stack:
            node = stack[-1]
            missing = [a for a in node.args if a not in self.names]
            if missing:
                stack += missing[::-1]
                continue
            stack.pop()
            if node not in self.names:
                self._add(node)

    def _add(self, node: Node) -> None:
        if node.op in _LEAVES:
            self.names[node] = node.text or node.op
            return
        parts = [self.names[a] for a in node.args]  # and a layer's name, or options that are kernel parameters
        spelled = not node.text or (node.op in _SPELLED and node.options)
        parts += [f"{name}={text}" for name, text in node.options] if spelled else [node.text]
        self.names[node] = self._given.get(node) or next(self._free)
        self.lines[self.names[node]] = f"{node.op}({', '.join(parts)})"

    def own(self, node: Node, lowered: Node, operands: Container[Node], dim: str, rank: int | None) -> None:
        """Records that an operator of the text became `lowered`; its `operands` belong to other operators.

        `dim`: the dimension that it works along, where known, in place of the option's text. `rank`: the number of
        dimensions of its value; None where the text does not tell.
        """
        if node.text.startswith("self.") and node.op in ("tensor", "number"):
            kind = "tensor" if rank is None else f"{rank}d"
            self.attributes[node.text] = kind if node.op == "tensor" else "number"
        if rank is not None and (node.op == "input" or self.names[node] in self.lines):
            self.ranks[self.names[node]] = rank
        if dim and (name := self.names[node]) in self.lines:
            self.lines[name] = re.sub(r"\bdim=[^,()]+(?=[,)])", f"dim={dim}", self.lines[name])
        if node.op in _LEAVES:
            return
        if lowered not in operands and lowered.op not in _LEAVES:
            self._results.setdefault(lowered, self.names[node])
        stack = [lowered]
        while stack:
            part = stack.pop()
            if part in self._owners or part in operands or part.op in _LEAVES:
                continue
            self._owners[part] = self.names[node]
            stack += part.args

    def owner(self, part: Node) -> str:
        """Returns the name of the operator that a lowered node is a part of; empty for none."""
        return self._owners.get(part, "")

    def result(self, node: Node) -> str:
        """Returns the name of the operator whose value a lowered node is; empty for a mere part of one."""
        return self._results.get(node, "")

    def part(self, what: str, node: Node) -> str:
        """Returns a name for a part of the operator that a lowered node belongs to: `linear_t2`."""
        owner = self.result(node) or self.owner(node)
        return f"{what}_{owner}" if owner else what

    def computed(self, root: Node, there: Container[Node]) -> list[str]:
        """Returns the names that are computed for a lowered node, in order, given the nodes that are `there`
        already."""
        seen: set[Node] = set()
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in seen and node not in there:
                seen.add(node)
                stack += node.args
        names = {self.owner(n) for n in seen}
        return [name for name in self.lines if name in names]

    def written(self, text: str, inputs: Sequence[str]) -> str:
        """Returns the candidate with marks as comments, and with the operands and all operators listed at its head."""
        text = re.sub(f"{_TITLE}([^\n]*)\n", r"// \1\n", text)
        text = "\n\n".join(map(self._explained, text.split("\n\n")))  # a kernel has no empty lines
        lines = "".join(f"# {name}: {self.ranks[name]}d\n" for name in inputs if name in self.ranks)
        lines += "".join(f"# {name}: {kind}\n" for name, kind in self.attributes.items())
        for name, line in self.lines.items():
            rank = f" -> {self.ranks[name]}d" if name in self.ranks else ""
            lines += f"# {name} = {line}{rank}\n"
        return text.replace(_HEAD, lines + _HEAD, 1)

    def _explained(self, kernel: str) -> str:
        """Puts a comment before each marked statement of a kernel; the first one of an operator gives its full line."""
        lines: list[str] = []
        said: set[str] = set()
        for line in kernel.split("\n"):
            statement, _, name = line.partition(_MARK)
            if name:
                indent = statement[: len(statement) - len(statement.lstrip())]
                lines.append(f"{indent}// {name}" + ("" if name in said else f" = {self.lines[name]}"))
                said.add(name)
            lines.append(statement)
        return "\n".join(lines)


def marked(statement: str, name: str) -> str:
    """Marks a statement that begins an operator."""
    return f"{statement}{_MARK}{name}"


def titled(kernels: str, names: list[str]) -> str:
    """Puts names above the first kernel of a text."""
    return re.sub(r'^extern "C"', f'{_TITLE}{", ".join(names)}\nextern "C"', kernels, count=1, flags=re.MULTILINE)


def title(kernels: str) -> str:
    """Returns the names above a text's first kernel; empty for none."""
    found = re.search(f"{_TITLE}([^\n]*)\n", kernels)
    return found[1] if found else ""


def stands_for(names: str, kernel: str) -> str:
    """Returns the line that replaces a shared kernel: it names the kernel that computes these values, too."""
    return f"// {names}: {kernel}"


def without_plan(answer: str) -> str:
    """Returns a candidate of `write` without its plan."""
    return _COMMENTS.sub("", _SERVED.sub("", answer))


def unmarked(text: str) -> str:
    """Returns a text without marks and titles."""
    return _UNSEEN.sub("", text)
