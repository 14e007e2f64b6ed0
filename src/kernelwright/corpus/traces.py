"""Writes short reasoning for an answer, made of statements that are derived from its text and the task's text.

A statement is written only where the text proves it: a number in a trace occurs in the task or the answer, or is a
product that the trace writes out. Nothing else is mentioned.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from functools import lru_cache

from kernelwright import syntax
from kernelwright.solutions.read.declared import Declared
from kernelwright.solutions.read.facts import read_facts
from kernelwright.solutions.read.reading import Unreadable, read

_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "long": 8, "int": 4, "bool": 1}


@dataclass(frozen=True)
class TracedLaunch:
    """A launch statement of forward; grid and block are Python text."""

    kernel: str
    grid: str
    block: str


def trace(source: str, answer: str) -> str:
    """Returns the trace: sizes of inputs, then for each kernel its parallelism, memory use, and tail handling."""
    lines = list(_task_lines(source))
    kernels, helpers = kernel_bodies(answer), kernel_bodies(answer, "__device__")
    for launch in launches(answer):
        body = kernels.get(launch.kernel)
        if body is not None:
            lines += _kernel_lines(launch, body, helpers)
    return "\n".join(lines)


@lru_cache(maxsize=64)
def _task_lines(source: str) -> tuple[str, ...]:
    """Returns a line per input: its size, and the bytes to read."""
    try:
        facts = read_facts(read(source))
    except Unreadable:
        return ()
    given = {name: d for name, d in facts.inputs.items() if isinstance(d, Declared) and d.dtype in _BYTES}
    lines = []
    for name, declared in given.items():
        if not declared.shape or min(declared.shape) < 1:
            continue
        count = math.prod(declared.shape)
        sizes = " x ".join(map(str, declared.shape))
        each = _BYTES[declared.dtype]
        product = f"{sizes} = {count} elements" if len(declared.shape) > 1 else f"{count} elements"
        lines.append(f"{name}: {product} of {declared.dtype}, {count} x {each} = {count * each} bytes to read.")
    return tuple(lines)


def kernel_bodies(answer: str, kind: str = "__global__") -> dict[str, str]:
    """Maps the functions of a kind in an answer's CUDA strings to the text of their bodies."""
    found: dict[str, str] = {}
    pattern = re.compile(rf"{kind}\s+(?:__forceinline__\s+)?\w+\s+(?:__\w+__\([^)]*\)\s*)*(\w+)\s*\(")
    for text in cuda_strings(answer):
        at = 0
        while match := pattern.search(text, at):
            start = text.find("{", match.end())
            at = _closing(text, start) if start >= 0 else len(text)  # functions do not nest
            found[match[1]] = text[start:at] if start >= 0 else ""
    return found


def cuda_strings(answer: str) -> list[str]:
    """Returns the strings of a Python file that contain a CUDA kernel; none where it does not parse."""
    texts = [n.value for n in _nodes(answer) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [t for t in texts if "__global__" in t]


@lru_cache(maxsize=4)
def _nodes(answer: str) -> tuple[ast.AST, ...]:
    """Returns the nodes of a Python file's tree; none where it does not parse."""
    try:
        return tuple(ast.walk(syntax.parse(answer)))
    except (SyntaxError, ValueError, RecursionError):
        return ()


def _closing(text: str, start: int) -> int:
    """Returns the index after the brace that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at + 1
    return len(text)


def launches(answer: str) -> list[TracedLaunch]:
    """Returns the launches `kernels.NAME[grid, block](...)` in order of their lines."""
    found = []
    for node in _nodes(answer):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)):
            continue
        kernel, where = node.func.value, node.func.slice
        if isinstance(kernel, ast.Attribute) and isinstance(where, ast.Tuple) and len(where.elts) >= 2:
            grid, block = (ast.unparse(e) for e in where.elts[:2])
            found.append((node.lineno, TracedLaunch(kernel.attr, grid, block)))
    return [launch for _, launch in sorted(found, key=lambda f: f[0])]


def _kernel_lines(launch: TracedLaunch, body: str, helpers: dict[str, str]) -> list[str]:
    """Returns a kernel's statements, at most seven lines."""
    parts = (_share(body), _tile(body), _staging(body), _meeting(body, helpers), _width(body), _tail(body))
    return [f"{launch.kernel}: {launch.grid} blocks of {launch.block} threads.", *(line for line in parts if line)]


_CAST = r"(?:\(long long\)\s*)?"
_STRIDE = rf"\+=\s*{_CAST}(?:gridDim\.x\s*\*\s*blockDim\.x|blockDim\.x\s*\*\s*gridDim\.x|gridDim\.x\s*\*\s*\d+)"
_WALK = r"for \((?:int|long long) (\w+) = threadIdx\.x; \1 < (\w+); \1 \+= (\w+(?:\.x)?)\)"
_INDEX = rf"(\w+)\s*=\s*{_CAST}blockIdx\.x\s*\*\s*(?:blockDim\.x|\d+)\s*\+\s*threadIdx\.x\s*;"


def _share(body: str) -> str:
    """Describes the work of one thread or block, and its memory access."""
    if re.search(_STRIDE, body):
        return "Each thread walks on in steps of the whole grid, so neighbours read neighbouring elements."
    walks = re.findall(_WALK, body)
    if walks:
        name, bound, step = walks[0]
        times = f" There are {len(walks)} such loops." if len(walks) > 1 else ""
        return f"The threads of a block share one row: {name} runs to {bound} in steps of {step}.{times}"
    index = re.search(_INDEX, body)
    if index is None:
        return ""
    line = f"Each thread has one {index[1]}; neighbouring threads have neighbouring ones."
    if "for (" not in body and "__shared__" not in body:
        line += " Without a loop and without sharing, the cost is reading and writing memory."
    return line


def _tile(body: str) -> str:
    """Describes the output tile of a matrix product's block, and the reuse of a loaded value."""
    rows = re.search(r"\b(m0?) = blockIdx\.\w \* (\d+)LL", body)
    columns = re.search(r"\b(n0?) = blockIdx\.\w \* (\d+)LL", body)
    if rows is None or columns is None or "__shared__" not in body:
        return ""
    m, n = rows[2], columns[2]
    line = f"A block makes a tile of {m} x {n} results, so a loaded value serves {n} or {m} of them."
    depth = re.search(r"k0 \+= (\d+)", body)
    if depth:
        line += f" It goes along the summed index in steps of {depth[1]}."
    held = re.search(r"float sums\[(\d+)\]\[(\d+)\]", body)
    if held:
        product = f"{held[1]} x {held[2]} = {int(held[1]) * int(held[2])}"
        line += f" A thread keeps {product} sums in registers."
    return line


def _staging(body: str) -> str:
    """Describes the arrays in shared memory."""
    arrays = re.findall(r"__shared__\s+(?:__align__\(\d+\)\s+)?\w+\s+([^;]+);", body)
    if not arrays:
        return ""
    names = ", ".join(" ".join(a.split()) for a in arrays)
    barrier = "; a barrier parts writing from reading" if "__syncthreads()" in body else ""
    return f"Shared memory holds {names}{barrier}."


def _meeting(body: str, helpers: dict[str, str]) -> str:
    """Describes the reduction over threads and blocks."""
    used = [name for name in helpers if re.search(rf"\b{name}\(", body) and name.startswith(("block_", "warp_"))]
    lines = []
    for name in used:
        inner = helpers[name]
        way = (
            "shuffles within warps"
            if "__shfl" in inner
            else "halving steps in shared memory"
            if "/= 2" in inner
            else ""
        )
        if way:
            lines.append(f"{name} joins the threads' values by {way}.")
    if not used and "__shfl" in body:
        lines.append("Lanes of a warp exchange values by shuffles.")
    if "atomicAdd(" in body:
        lines.append("Blocks add up their parts by atomicAdd.")
    return " ".join(lines)


def _width(body: str) -> str:
    if "wmma::" in body:
        return "Tensor cores multiply the fragments (wmma)."
    if "float4" in body:
        return "Four floats are moved at once (float4)."
    return "Two half values are moved at once (half2)." if "half2" in body else ""


def _tail(body: str) -> str:
    """Describes the handling of the last, partial block or tile."""
    lines = []
    early = re.search(r"if \(((?:[^()]|\([^()]*\))*)\) (return|continue);", body)
    if early and re.search(r">=|>", early[1]):
        done = "return" if early[2] == "return" else "are skipped"
        what = "threads" if early[2] == "return" else "results"
        lines.append(f"Tail: {what} with {early[1]} {done}.")
    if re.search(r"< [MNK]\b[^;?]*\? [^;]*: 0\.0f;", body):
        lines.append("Places of a tile beyond the edges hold zeros.")
    return " ".join(lines)
