"""Scans by a warp or a block a row, or by a thread a row where the elements lie apart (`kernelwright/scan.cuh`)."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.solutions.families.remaps import dim_of
from kernelwright.solutions.families.scans import SCAN_WAYS, row_bearer
from kernelwright.solutions.families.wide.lambdas import LambdaFusion, lambda_text
from kernelwright.solutions.kernels.fusion import Operands, same
from kernelwright.solutions.kernels.stages import Epilogue, Writer
from kernelwright.solutions.read.reading import Node

INCLUDE = "#include <kernelwright/scan.cuh>"
OPERATIONS = {
    "cumsum": "Add",
    "exclusive_cumsum": "Add",
    "cumprod": "Multiply",
    "cummax": "Largest",
    "cummin": "Smallest",
}
_LOCALS = ("y", "i", "j", "n", "row", "base", "rows", "inner", "acc")


@dataclass
class ScanLambda(LambdaFusion):
    """Elementwise operators at element j of a row that begins at `base`."""

    def reader(self, node: Node) -> str:
        """Returns C++ text of a pointer to the row's first element; empty for other operands."""
        shape = self.writer.shape(node)
        wide = (1,) * (len(self.shape) - len(shape)) + tuple(shape)
        return f"{self.pointer_of(node, self.writer.flat(node))} + base" if same(wide, self.shape) else ""


def scan(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Adds the kernel and returns the output's Python name; empty for scans that the library does not have."""
    if node.op not in OPERATIONS:
        return ""
    shape, dim, inside = writer.shape(node), dim_of(writer, node), node.args[0]
    inner = [d for d in range(dim + 1, len(shape)) if shape[d] != 1]
    reads = writer.reads(Node("", (inside,)))
    operands = Operands(set(_LOCALS), first="x")
    place = "base + (long long)j * inner" if inner else "base + j"
    fusion = ScanLambda(writer, shape, "i", {dim: "j"}, operands=operands, reads=reads)
    value = fusion.start(inside)
    head = f"long long i = {place};"
    element = lambda_text(["int j", *fusion.loads], fusion.statements, value, head if fusion.indexed else "")
    *more, last = epilogue.store("y", "acc", "i", "    ", {dim: "j"}, tuple(fusion.variables), operands).split("\n")
    result = lambda_text(["int j", "float acc"], more, last.partition(" = ")[2].rstrip(";"), head if epilogue else "")
    x, y = row_bearer(writer, inside, reads), writer.result()
    name = writer.kernel_name(writer.title(node) or node.op)
    (pointers, tensors), (numbers, values) = operands.pointers(y), operands.numbers(y)
    flags = f"{', true' if node.option('reverse') else ', false'}{', true' if node.op.startswith('excl') else ''}"
    given = f"{element}, {result}" + "".join(f", {p}" for p in fusion.loads.values())
    threads, packs, block = layout_of(shape[dim])
    operation = f"kw::{OPERATIONS[node.op]}"
    if inner:
        body = f"""    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    long long base = row / inner * n * inner + row % inner;
    kw::scan_apart<8, {operation}{flags}>(y + base, n, inner, {given});"""
        block, each = 128, 128
    else:
        body = f"""    long long row = kw::scan_row<{threads}>();
    if (row >= rows) return;
    long long base = row * n;
    kw::scan<{threads}, {packs}, {operation}{flags}>(y + base, n, {given});"""
        each = block // threads
    writer.kernel(INCLUDE)
    writer.kernel(f"""
extern "C" __global__ void {name}({pointers}float* y, long long rows, int n{", int inner" if inner else ""}{numbers}) {{
{body}
}}
""")
    n, width, rows = (writer.local(word) for word in ("n", "inner", "rows"))
    writer.line(f"{n} = {x}.shape[{dim}]")
    if inner:
        writer.line(f"{width} = {' * '.join(f'{x}.shape[{d}]' for d in inner)}")
    writer.line(f"{rows} = {x}.numel() // {n}")
    dtype = "" if x in writer.floats else ", dtype=torch.float32"
    made = f"empty({x}.shape{dtype}, device={x}.device)" if writer.moved(x) else f"empty_like({x}{dtype})"
    writer.line(f"{y} = torch.{made}")
    grid = f"({rows} + {each - 1}) // {each}" if each > 1 else rows
    writer.launch(name, grid, f"{tensors}{y}, {rows}, {n}{f', {width}' if inner else ''}{values}", block)
    return y


def layout_of(n: int) -> tuple[int, int, int]:
    """Returns threads and packs of a row of n elements (-1: unknown), and the threads of a block."""
    if 0 < n <= 1024:
        return 32, max(1, -(-n // 128)), 256
    if 0 < n <= 8192:
        return 256, 4 if n > 2048 else 2, 256
    return 512, 8, 512


SCAN_WAYS["wide"] = scan
