"""Scans along a dimension: cumsum, cumprod, cummax, cummin, logcumsumexp; from the end; without the element itself."""

from __future__ import annotations

from kernelwright.solutions.families.remaps import dim_of
from kernelwright.solutions.fusion import NUMBERS, Fusion, Operands, leaves, same
from kernelwright.solutions.reading import Node
from kernelwright.solutions.stages import Epilogue, Writer, anchor

_STEPS = {
    "cumsum": ("float acc = 0.0f;", ["acc += {v};"]),
    "exclusive_cumsum": ("float acc = 0.0f;", ["acc += {v};"]),
    "cumprod": ("float acc = 1.0f;", ["acc *= {v};"]),
    "cummax": ("float acc = -INFINITY;", ["acc = fmaxf(acc, {v});"]),
    "cummin": ("float acc = INFINITY;", ["acc = fminf(acc, {v});"]),
    "logcumsumexp": (
        "float high = -INFINITY, total = 0.0f;",
        [
            "float top = fmaxf(high, {v});",
            "total = total * expf(high - top) + expf({v} - top);",
            "high = top;",
            "float acc = high + logf(total);",
        ],
    ),
    "cummax_indices": ("float acc = -INFINITY;\n    long long at = 0;", ["if ({v} >= acc) {{ acc = {v}; at = j; }}"]),
    "cummin_indices": ("float acc = INFINITY;\n    long long at = 0;", ["if ({v} <= acc) {{ acc = {v}; at = j; }}"]),
}


@anchor("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
@anchor("exclusive_cumsum", "cummax_indices", "cummin_indices", fuses=False)
def scan(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """One thread a row, element after element."""
    shape = writer.shape(node)
    dim = dim_of(writer, node)
    indices = node.op.endswith("indices")
    inside = node.args[0]
    reads = writer.reads(Node("", (inside,)))
    operands = Operands(
        {"y", "i", "j", "n", "row", "base", "rows", "inner", "acc", "high", "total", "top", "at", "result"}, first="x"
    )
    fusion = Fusion(writer, shape, "i", {dim: "j"}, " " * 8, operands, reads=reads)
    value = fusion.start(inside)
    start, steps = _STEPS[node.op]
    body = [*fusion.statements, *("        " + step.format(v=value) for step in steps)]
    if epilogue and not indices:  # which may change the variable that it is given
        body.append("        float result = acc;")
    if node.op == "exclusive_cumsum":
        body.insert(len(fusion.statements), "        y[i] = acc;")
    else:
        body.append(_store(fusion, epilogue, dim, indices))
    x = row_bearer(writer, inside, reads)
    y = writer.fresh("y")
    name = writer.kernel_name(writer.title(node) or node.op)
    (pointers, tensors), (numbers, values) = operands.pointers(y), operands.numbers(y)
    reverse = bool(node.option("reverse"))
    loop = "int j = n - 1; j >= 0; j--" if reverse else "int j = 0; j < n; j++"
    inner = [d for d in range(dim + 1, len(shape)) if shape[d] != 1]
    base = "row / inner * n * inner + row % inner" if inner else "row * n"
    place = "base + (long long)j * inner" if inner else "base + j"
    more = ", int inner" if inner else ""
    lines = "\n".join(body)
    pointers += f"{'long long' if indices else 'float'}* y"
    numbers += epilogue.parameters
    writer.kernel(f"""
extern "C" __global__ void {name}({pointers}, long long rows, int n{more}{numbers}) {{
    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    long long base = {base};
    {start}
    for ({loop}) {{
        long long i = {place};
{lines}
    }}
}}
""")
    n, width, rows = (writer.local(name) for name in ("n", "inner", "rows"))
    writer.line(f"{n} = {x}.shape[{dim}]")
    if inner:
        writer.line(f"{width} = {' * '.join(f'{x}.shape[{d}]' for d in inner)}")
    writer.line(f"{rows} = {x}.numel() // {n}")
    dtype = ", dtype=torch.int64" if indices else "" if x in writer.floats else ", dtype=torch.float32"
    writer.line(f"{y} = torch.empty_like({x}{dtype})")
    block = writer.schedule.block
    given = f"{tensors}{y}, {rows}, {n}{f', {width}' if inner else ''}{values}{epilogue.arguments(y)}"
    writer.launch(name, f"({rows} + {block - 1}) // {block}", given)
    return y


def _store(fusion: Fusion, epilogue: Epilogue, dim: int, indices: bool) -> str:
    """The statements that store a row's next result."""
    if indices:
        return "        y[i] = at;"
    value = "result" if epilogue else "acc"
    return epilogue.store("y", value, "i", " " * 8, {dim: "j"}, tuple(fusion.variables), fusion.operands)


def row_bearer(writer: Writer, inside: Node, reads: frozenset[Node]) -> str:
    """Python text of a tensor that has the shape of an elementwise expression."""
    shape = writer.shape(inside)
    for leaf in leaves(inside, reads):
        if leaf.op not in NUMBERS and same(writer.shape(leaf), shape):
            return writer.bearer(leaf)
    return writer.tensor(inside)
