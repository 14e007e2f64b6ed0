"""Scans along a dimension: cumsum, cumprod, cummax, cummin, logcumsumexp; also from the end, and exclusive."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernelwright.solutions.families.remaps import dim_of
from kernelwright.solutions.kernels.fusion import NUMBERS, Fusion, Operands, leaves, same
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor
from kernelwright.solutions.read.reading import Node

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


_COMBINED = {
    "cumsum": ("0.0f", "{a} + {b}"),
    "cumprod": ("1.0f", "{a} * {b}"),
    "cummax": ("-INFINITY", "fmaxf({a}, {b})"),
    "cummin": ("INFINITY", "fminf({a}, {b})"),
}
"""Scans that a block can compute together -> the neutral value, and the expression that combines two parts."""

SCAN_WAYS: dict[str, Callable[[Writer, Node, Epilogue], str]] = {}
"""Value of `Schedule.memory` -> a function that does the work of `scan`; it returns "" where it cannot."""


@anchor("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
@anchor("exclusive_cumsum", "cummax_indices", "cummin_indices", fuses=False)
def scan(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Adds a kernel with one thread a row or, by schedule, one block a row."""
    if (way := SCAN_WAYS.get(writer.schedule.memory)) and (found := way(writer, node, epilogue)):
        return found
    shape, dim = writer.shape(node), dim_of(writer, node)
    by_block = writer.schedule.shuffle and node.op in _COMBINED
    inside = node.args[0]
    reads = writer.reads(Node("", (inside,)))
    operands = Operands(set(_LOCALS), first="x")
    fusion = Fusion(writer, shape, "i", {dim: "j"}, " " * (12 if by_block else 8), operands, reads=reads)
    value = fusion.start(inside)
    inner = [d for d in range(dim + 1, len(shape)) if shape[d] != 1]
    text = (_block if by_block else _thread)(writer, node, fusion, epilogue, value, bool(inner))
    x, y = row_bearer(writer, inside, reads), writer.result()
    name = writer.kernel_name(writer.title(node) or node.op)
    (pointers, tensors), (numbers, values) = operands.pointers(y), operands.numbers(y)
    indices = node.op.endswith("indices")
    pointers += f"{'long long' if indices else 'float'}* y"
    sizes = ("" if by_block else ", long long rows") + ", int n" + (", int inner" if inner else "")
    writer.kernel(f"""
extern "C" __global__ void {name}({pointers}{sizes}{numbers}{epilogue.parameters}) {{
{text}
}}
""")
    n, width, rows = (writer.local(word) for word in ("n", "inner", "rows"))
    writer.line(f"{n} = {x}.shape[{dim}]")
    if inner:
        writer.line(f"{width} = {' * '.join(f'{x}.shape[{d}]' for d in inner)}")
    writer.line(f"{rows} = {x}.numel() // {n}")
    dtype = ", dtype=torch.int64" if indices else "" if x in writer.floats else ", dtype=torch.float32"
    made = f"empty({x}.shape{dtype}, device={x}.device)" if writer.moved(x) else f"empty_like({x}{dtype})"
    writer.line(f"{y} = torch.{made}")
    block = writer.schedule.block
    given = f"{tensors}{y}{'' if by_block else f', {rows}'}, {n}{f', {width}' if inner else ''}"
    grid = rows if by_block else f"({rows} + {block - 1}) // {block}"
    writer.launch(name, grid, f"{given}{values}{epilogue.arguments(y)}")
    return y


_LOCALS = """
y i j n row base rows inner acc high total top at result s carry lane warp start before other k w inside
""".split()


def _base(inner: bool) -> str:
    return "row / inner * n * inner + row % inner" if inner else "row * n"


def _place(inner: bool) -> str:
    return "base + (long long)j * inner" if inner else "base + j"


def _thread(writer: Writer, node: Node, fusion: Fusion, epilogue: Epilogue, value: str, inner: bool) -> str:
    """Returns a kernel whose threads walk along one row each."""
    start, steps = _STEPS[node.op]
    indices = node.op.endswith("indices")
    body = [*fusion.statements, *("        " + step.format(v=value) for step in steps)]
    if epilogue and not indices:  # the epilogue may change its variable
        body.append("        float result = acc;")
    if node.op == "exclusive_cumsum":
        body.insert(len(fusion.statements), "        y[i] = acc;")
    else:
        body.append(_store(fusion, epilogue, fusion.axes, indices))
    loop = "int j = n - 1; j >= 0; j--" if node.option("reverse") else "int j = 0; j < n; j++"
    return "\n".join(
        [
            "    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;",
            "    if (row >= rows) return;",
            f"    long long base = {_base(inner)};",
            f"    {start}",
            f"    for ({loop}) {{",
            f"        long long i = {_place(inner)};",
            *body,
            "    }",
        ]
    )


def _block(writer: Writer, node: Node, fusion: Fusion, epilogue: Epilogue, value: str, inner: bool) -> str:
    """Returns a kernel whose block walks along its row in blocks: a scan within warps by shuffles, then over the
    warps."""
    neutral, combine = _COMBINED[node.op]
    block = writer.schedule.block
    store = epilogue.store("y", "acc", "i", " " * 12, fusion.axes, tuple(fusion.variables), fusion.operands)
    index = "n - 1 - start - threadIdx.x" if node.option("reverse") else "start + threadIdx.x"
    loaded = "\n".join([*fusion.statements, f"            acc = {value};"])
    return f"""    __shared__ float s[32];
    long long row = blockIdx.x;
    long long base = {_base(inner)};
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float carry = {neutral};
    for (int start = 0; start < n; start += {block}) {{
        int j = {index};
        bool inside = start + (int)threadIdx.x < n;
        long long i = {_place(inner)};
        float acc = {neutral};
        if (inside) {{
{loaded}
        }}
        for (int k = 1; k < 32; k *= 2) {{
            float other = __shfl_up_sync(0xffffffff, acc, k);
            if (lane >= k) acc = {combine.format(a="other", b="acc")};
        }}
        if (lane == 31) s[warp] = acc;
        __syncthreads();
        float before = carry;
        for (int w = 0; w < {block // 32}; w++) {{
            if (w < warp) before = {combine.format(a="before", b="s[w]")};
            carry = {combine.format(a="carry", b="s[w]")};
        }}
        acc = {combine.format(a="before", b="acc")};
        if (inside) {{
{store}
        }}
        __syncthreads();
    }}"""


def _store(fusion: Fusion, epilogue: Epilogue, axes: Mapping[int, str], indices: bool) -> str:
    """Returns the statements that store a row's next result."""
    if indices:
        return "        y[i] = at;"
    value = "result" if epilogue else "acc"
    return epilogue.store("y", value, "i", " " * 8, axes, tuple(fusion.variables), fusion.operands)


def row_bearer(writer: Writer, inside: Node, reads: frozenset[Node]) -> str:
    """Returns Python text of a tensor that has the shape of an elementwise expression."""
    shape = writer.shape(inside)
    for leaf in leaves(inside, reads):
        if leaf.op not in NUMBERS and same(writer.shape(leaf), shape):
            return writer.bearer(leaf)
    return writer.tensor(inside)
