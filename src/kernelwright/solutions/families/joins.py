"""Operators that join tensors or pad them: cat, stack, pad."""

from __future__ import annotations

import ast

from kernelwright import syntax
from kernelwright.solutions.families.remaps import dim_of
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor, shape_rule
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node, Unreadable


@shape_rule("cat")
def _cat_shape(writer: Writer, node: Node) -> Shape:
    shapes = [writer.shape(a) for a in node.args]
    dim = dim_of(writer, node)
    size = -1 if any(s[dim] == -1 for s in shapes) else sum(s[dim] for s in shapes)
    return (*shapes[0][:dim], size, *shapes[0][dim + 1 :])


def _stack_dim(writer: Writer, node: Node) -> int:
    rank = len(writer.shape(node.args[0])) + 1
    dim = writer.option(node, "dim", "0")
    if not isinstance(dim, int) or not -rank <= dim < rank:
        raise Unreadable(f"dim={dim} of {rank} dimensions")
    return dim % rank


@shape_rule("stack")
def _stack_shape(writer: Writer, node: Node) -> Shape:
    shape, dim = writer.shape(node.args[0]), _stack_dim(writer, node)
    return (*shape[:dim], len(node.args), *shape[dim:])


@anchor("cat", "stack", fuses=False)
def joined(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Launches once an operand: each is copied to its place, `width` of `total` elements at a time from `start` on."""
    stack = node.op == "stack"
    dim = _stack_dim(writer, node) if stack else dim_of(writer, node)
    rank = len(writer.shape(node.args[0]))
    names = [writer.floats_of(a) for a in node.args]
    name, y = writer.kernel_name(node.op), writer.result()
    writer.kernel(f"""
extern "C" __global__ void {name}(const float* x, float* y, long long n, int width, int total, int start) {{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i / width * total + start + i % width] = x[i];
}}
""")
    x, count = names[0], len(names)
    if stack:
        sizes = [f"{x}.shape[{d}]" for d in range(rank)]
        sizes.insert(dim, str(count))
    else:
        along = " + ".join(f"{n}.shape[{dim}]" for n in names)
        sizes = [along if d == dim else f"{x}.shape[{d}]" for d in range(rank)]
    writer.line(
        f"{y} = torch.empty({', '.join(sizes)}, device={x}.device)"
        if len(sizes) > 1
        else f"{y} = torch.empty(({sizes[0]},), device={x}.device)"
    )
    inner = " * ".join(f"{x}.shape[{d}]" for d in range(dim if stack else dim + 1, rank))
    whole = f"{count} * {inner}" if stack else f"{y}.shape[{dim}] * {inner}"
    total, width, first = (writer.local(n) for n in ("total", "width", "start"))
    writer.line(f"{total} = {whole if inner else whole.removesuffix(' * ')}")
    start = "0"
    block = writer.schedule.block
    for n in names:
        size = inner if stack else f"{n}.shape[{dim}]{' * ' + inner if inner else ''}"
        writer.line(f"{width} = {size or '1'}")
        given = f"{n}, {y}, {n}.numel(), {width}, {total}, {start}"
        writer.launch(name, f"({n}.numel() + {block - 1}) // {block}", given)
        if n != names[-1] or names.count(n) > 1:
            writer.line(f"{first} = {width}" if start == "0" else f"{first} += {width}")
            start = first
    return y


# Padding -------------------------------------------------------------------------------------------------------------


def _layer(writer: Writer, node: Node) -> str:
    """Returns the class of a padding layer, "" for a function."""
    return writer.reference.modules[node.text.removeprefix("self.")][0] if node.text else ""


def _amounts(writer: Writer, node: Node) -> list[tuple[str, str, int]]:
    """Returns for each padded dimension, last first: Python texts of the padding before and after it, and its
    number."""
    rank = len(writer.shape(node.args[0]))
    if kind := _layer(writer, node):
        text = f"{node.text}.padding"
        items = [f"{text}[{i}]" for i in range(2 * int(kind[-2]))]
    else:
        text = node.option("pad")
        tree = syntax.expression(text)
        if isinstance(tree, (ast.Tuple, ast.List)):
            items = [ast.unparse(e) for e in tree.elts]
        else:
            items = [f"({text})[{i}]" for i in range(len(writer.value(text)))]
    return [(items[2 * i], items[2 * i + 1], rank - 1 - i) for i in range(len(items) // 2)]


def _mode(writer: Writer, node: Node) -> str:
    kind = _layer(writer, node)
    if not kind:
        return str(writer.option(node, "mode", "'constant'"))
    names = {"Zero": "constant", "Constant": "constant", "Reflection": "reflect", "Replication": "replicate"}
    return names[kind.partition("Pad")[0]]


@shape_rule("pad")
def _pad_shape(writer: Writer, node: Node) -> Shape:
    shape = list(writer.shape(node.args[0]))
    for before, after, d in _amounts(writer, node):
        try:
            shape[d] = -1 if shape[d] == -1 else shape[d] + writer.value(before) + writer.value(after)
        except Unreadable:
            shape[d] = -1
    return tuple(shape)


_OUTSIDE = {
    "reflect": "{i} = {i} < 0 ? -{i} : ({i} >= {n} ? 2 * {n} - 2 - {i} : {i});",
    "replicate": "{i} = {i} < 0 ? 0 : ({i} >= {n} ? {n} - 1 : {i});",
    "circular": "{i} = ({i} + {n}) % {n};",
}


@anchor("pad")
def padded(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Adds a kernel with one thread an element of the result."""
    rank, amounts, mode = len(writer.shape(node.args[0])), _amounts(writer, node), _mode(writer, node)
    if mode != "constant" and mode not in _OUTSIDE:
        raise Unreadable(f"no template for padding with mode={mode}")
    x, y = writer.tensor(node.args[0]), writer.result()
    dims = sorted(d for _, _, d in amounts)
    before = {d: b for b, _, d in amounts}
    lines, rest, index = [], "i", ""
    for d in dims[::-1]:
        lines.append(f"    int j{d} = {rest} % out{d} - before{d};")
        rest = f"{rest} / out{d}"
    index = rest if dims[0] > 0 else "0"
    for d in dims:
        index = f"({index}) * n{d} + j{d}" if index != "0" else f"j{d}"
    inside = " && ".join(f"j{d} >= 0 && j{d} < n{d}" for d in dims)
    if mode == "constant":
        value = f"{node.text}.value" if "Constant" in _layer(writer, node) else node.option("value") or "0.0"
        value = "0.0" if value == "None" else value
        lines.append(f"    float acc = {inside} ? x[{index}] : value;")
    else:
        lines += ["    " + _OUTSIDE[mode].format(i=f"j{d}", n=f"n{d}") for d in dims]
        lines.append(f"    float acc = x[{index}];")
    taken = tuple(f"{w}{d}" for w in ("j", "n", "out", "before") for d in dims)
    lines.append(epilogue.store("y", "acc", "i", taken=(*taken, "x", "n", "value")))
    name = writer.kernel_name("pad")
    parameters = "".join(f", int out{d}, int n{d}, int before{d}" for d in dims)
    parameters += ", float value" if mode == "constant" else ""
    body = "\n".join(lines)
    writer.kernel(f"""
extern "C" __global__ void {name}(const float* x, float* y, long long n{parameters}{epilogue.parameters}) {{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
{body}
}}
""")
    after = {d: a for _, a, d in amounts}
    sizes = [f"{x}.shape[{d}]" + (f" + {before[d]} + {after[d]}" if d in before else "") for d in range(rank)]
    writer.line(f"{y} = torch.empty(({', '.join(sizes)},), device={x}.device)")
    given = "".join(f", {y}.shape[{d}], {x}.shape[{d}], {before[d]}" for d in dims)
    given += f", float({value})" if mode == "constant" else ""
    block = writer.schedule.block
    writer.launch(
        name, f"({y}.numel() + {block - 1}) // {block}", f"{x}, {y}, {y}.numel(){given}{epilogue.arguments(y)}"
    )
    return y
