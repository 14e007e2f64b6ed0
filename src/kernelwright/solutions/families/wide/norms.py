"""Batch, instance and group norm with statistics of their own, by rows that are read once.

A row of instance or group norm is contiguous. Those of batch norm are not, where there are dimensions beyond the
channels: one kernel computes the moments of parts of each channel, one merges them, one normalises.
"""

from __future__ import annotations

import math

from kernelwright.solutions.families.norms import NORM_WAYS, Parts
from kernelwright.solutions.families.wide import rows as wide
from kernelwright.solutions.families.wide.lambdas import lambda_text
from kernelwright.solutions.families.wide.rows import INCLUDE, RowLayout
from kernelwright.solutions.kernels.stages import Epilogue, Writer
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node, Unreadable

_TAKEN = tuple(
    "x weight bias n channels inner eps c base mean spread scale v j i r row rows groups parts stats w b acc".split()
)
_BLOCKS = 1056
"""Blocks that a card of 132 multiprocessors holds at once, 8 each."""


def normalisation(writer: Writer, node: Node, parts: Parts, epilogue: Epilogue) -> str:
    """Adds the kernels and returns the output's Python name."""
    if node.op == "batchnorm":
        return (_batch if len(writer.shape(node)) > 2 else _columns)(writer, node, parts, epilogue)
    return _rows(writer, node, parts, epilogue)


def _result(epilogue: Epilogue, value: str, c: str, place: str = "r.at(j)") -> str:
    """Returns the lambda that normalises element j, with the operators after the norm."""
    *more, last = epilogue.store("y", "acc", "i", "    ", {1: "c"}, _TAKEN).split("\n")
    head = [f"long long i = {place};"] if epilogue else []
    head += [f"int c = {c};"] if c else []
    return lambda_text(
        ["int j", "float v"], [*head, f"float acc = {value};", *more], last.partition(" = ")[2].rstrip(";")
    )


def _pointers(parts: Parts) -> tuple[str, str]:
    """Returns the kernel's parameters and arguments for weight and bias, each with a comma after."""
    given = [(n, t) for n, t in (("weight", parts.weight), ("bias", parts.bias)) if t]
    return "".join(f"const float* {n}, " for n, _ in given), "".join(f"{t}, " for _, t in given)


def _affine(parts: Parts, value: str) -> str:
    return f"{value}{' * weight[c]' if parts.weight else ''}{' + bias[c]' if parts.bias else ''}"


def _reading(layout: RowLayout, names: str) -> tuple[str, str, int]:
    """Returns the attributes of a kernel, its first statements, and the threads of its blocks."""
    block = max(layout.threads, 256 if layout.threads < 64 else 0)
    more = f", {layout.blocks}" if layout.blocks > 1 else ""
    head = f"    auto r = kw::rows<{layout.threads}, {layout.packs}{more}>({names});"
    head += "\n    if (r.outside()) return;" if layout.threads < 64 else ""
    bounds = f"__launch_bounds__({block}) " if block > 256 else ""
    bounds += f"__cluster_dims__({layout.blocks}, 1, 1) " if layout.blocks > 1 else ""
    return bounds, f"{head}\n    long long row = r.row;", block


def _grid(rows: str, layout: RowLayout, block: int) -> str:
    each = block // layout.threads
    grid = f"({rows} + {each - 1}) // {each}" if each > 1 else rows
    return f"{grid} * {layout.blocks}" if layout.blocks > 1 else grid


def _count(shape: Shape) -> int:
    return -1 if -1 in shape else math.prod(shape)


def _rows(writer: Writer, node: Node, parts: Parts, epilogue: Epilogue) -> str:
    """Adds the kernel of a norm whose rows are contiguous: instance and group norm."""
    shape = writer.shape(node)
    grouped = node.op == "groupnorm"
    try:
        groups = int(writer.value(parts.groups)) if grouped else shape[1]
    except (Unreadable, TypeError, ValueError):
        groups = -1
    size = _count(shape[1:])
    layout = wide.contiguous_layout(size // groups if size > 0 and groups > 0 else -1, 1)
    x, y = writer.tensor(node.args[0]), writer.result()
    bounds, head, block = _reading(layout, "rows, n, x")
    wanted = bool(parts.weight or parts.bias or epilogue)
    first = (
        f"    int {'first' if grouped else 'c'} = row % groups{' * (n / inner)' if grouped else ''};\n"
        if wanted
        else ""
    )
    c = "first + j / inner" if grouped and wanted else ""
    element = _result(epilogue, _affine(parts, "(v - mean) * scale"), c)
    parameters, given = _pointers(parts)
    name = writer.kernel_name("group_norm" if grouped else "instance_norm")
    writer.kernel(INCLUDE)
    writer.kernel(f"""
extern "C" __global__ void {bounds}{name}(const float* x, {parameters}float* y, long long rows, int n, int groups, int inner, float eps{epilogue.parameters}) {{
{head}
{first}    float spread;
    float mean = r.moments(spread, [&](int j, float v) {{ return v; }});
    float scale = rsqrtf(spread + eps);
    r.store(y, {element});
}}
""")  # noqa: E501
    count, many = writer.local("rows"), parts.groups if grouped else f"{x}.shape[1]"
    writer.line(f"{count} = {x}.shape[0] * {many}")
    writer.line(f"{y} = torch.empty_like({x})")
    inner = " * ".join(f"{x}.shape[{d}]" for d in range(2, len(shape))) or "1"
    arguments = f"{x}, {given}{y}, {count}, {x}.numel() // {count}, {many}, {inner}, {parts.eps}{epilogue.arguments(y)}"
    writer.launch(name, _grid(count, layout, block), arguments, block)
    return y


def _columns(writer: Writer, node: Node, parts: Parts, epilogue: Epilogue) -> str:
    """Adds the kernel of batch norm of a matrix, whose rows are its columns."""
    shape = writer.shape(node)
    x, y = writer.tensor(node.args[0]), writer.result()
    layout = wide.strided_layout(shape[0], 1)
    element = _result(epilogue, _affine(parts, "(v - mean) * scale"), "")
    parameters, given = _pointers(parts)
    name, block = writer.kernel_name("batch_norm"), 32 * layout.threads
    bounds = f"__launch_bounds__({block}) " if block > 256 else ""
    writer.kernel(INCLUDE)
    writer.kernel(f"""
extern "C" __global__ void {bounds}{name}(const float* x, {parameters}float* y, int n, int channels, float eps{epilogue.parameters}) {{
    auto r = kw::columns<{layout.threads}, {layout.packs}>(n, channels, x);
    int c = r.row;
    float spread;
    float mean = r.moments(spread, [&](int j, float v) {{ return v; }});
    float scale = rsqrtf(spread + eps);
    r.store(y, {element});
}}
""")  # noqa: E501
    writer.line(f"{y} = torch.empty_like({x})")
    arguments = f"{x}, {given}{y}, {x}.shape[0], {x}.shape[1], {parts.eps}{epilogue.arguments(y)}"
    writer.launch(name, f"({x}.shape[1] + 31) // 32", arguments, block)
    return y


def _batch(writer: Writer, node: Node, parts: Parts, epilogue: Epilogue) -> str:
    """Adds the three kernels of batch norm over several dimensions."""
    shape = writer.shape(node)
    x, y = writer.tensor(node.args[0]), writer.result()
    layout = wide.contiguous_layout(min(_count(shape[2:]), 4096), 1)  # what is read once needs no room in registers
    bounds, head, block = _reading(layout, "rows, n, x")
    element = _result(epilogue, f"(v - mean) * scale{' + bias[c]' if parts.bias else ''}", "")
    weight, bias = _pointers(Parts(parts.weight, None, "")), _pointers(Parts(None, parts.bias, ""))
    names = [writer.kernel_name(n) for n in ("moments", "merge", "batch_norm")]
    writer.kernel(INCLUDE)
    writer.kernel(f"""
extern "C" __global__ void {names[0]}(const float* x, float* parts, int batch, int channels, int inner) {{
    kw::channel_moments<256>(parts, x, batch, channels, inner);
}}
""")
    writer.kernel(f"""
extern "C" __global__ void {names[1]}(const float* parts, {weight[0]}float* stats, int count, int channels, float eps) {{
    int c = blockIdx.x;
    kw::Moments m = kw::merged(parts + 3LL * c * count, count);
    if (threadIdx.x == 0) {{
        stats[c] = m.mean;
        stats[channels + c] = rsqrtf(m.squares / m.count + eps){" * weight[c]" if parts.weight else ""};
    }}
}}
""")  # noqa: E501
    writer.kernel(f"""
extern "C" __global__ void {bounds}{names[2]}(const float* x, const float* stats, {bias[0]}float* y, long long rows, int n, int channels{epilogue.parameters}) {{
{head}
    int c = row % channels;
    float mean = stats[c], scale = stats[channels + c];
    r.store(y, {element});
}}
""")  # noqa: E501
    batch, channels = f"{x}.shape[0]", f"{x}.shape[1]"
    inner = " * ".join(f"{x}.shape[{d}]" for d in range(2, len(shape)))
    count, table, stats = writer.local("count"), writer.fresh("parts"), writer.fresh("stats")
    writer.line(f"{count} = max(1, min({_BLOCKS} // {channels}, {batch} * {inner} // 4096))")
    writer.line(f"{table} = torch.empty({channels}, {count}, 3, device={x}.device)")
    writer.line(f"{stats} = torch.empty(2, {channels}, device={x}.device)")
    writer.line(f"{y} = torch.empty_like({x})")
    writer.launch(names[0], f"({count}, {channels})", f"{x}, {table}, {batch}, {channels}, {inner}", 256)
    writer.launch(names[1], channels, f"{table}, {weight[1]}{stats}, {count}, {channels}, {parts.eps}", 32)
    rows = f"{batch} * {channels}"
    arguments = f"{x}, {stats}, {bias[1]}{y}, {rows}, {inner}, {channels}{epilogue.arguments(y)}"
    writer.launch(names[2], _grid(f"({rows})", layout, block), arguments, block)
    return y


NORM_WAYS["wide"] = normalisation
