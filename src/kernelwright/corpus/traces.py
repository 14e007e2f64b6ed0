"""Short reasoning for an answer, made of statements that are read off its text and the task's text: none is invented.

A statement is written only where the text shows what it says: a number in a trace stands in the task or the answer, or
is a product that the trace writes out. What cannot be read off is not mentioned.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass

from kernelwright.solutions.facts import Declared, read_facts
from kernelwright.solutions.reading import Unreadable, read

_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "long": 8, "int": 4, "bool": 1}


@dataclass(frozen=True)
class Launch:
    """A launch statement of forward, as Python text."""

    kernel: str
    grid: str
    block: str


def trace(source: str, answer: str) -> str:
    """A few lines: what the task gives, what runs in parallel, what is kept where, and how the tail is handled."""
    lines = _task_lines(source)
    kernels = kernel_bodies(answer)
    for launch in launches(answer):
        body = kernels.get(launch.kernel)
        if body is not None:
            lines += _kernel_lines(launch, body)
    return "\n".join(lines)


def _task_lines(source: str) -> list[str]:
    """Inputs with their sizes, and the bytes that must be read at least."""
    try:
        facts = read_facts(read(source))
    except Unreadable:
        return []
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
    return lines


def kernel_bodies(answer: str) -> dict[str, str]:
    """Kernels of the CUDA strings in an answer, by name, with the text of their bodies."""
    found: dict[str, str] = {}
    for text in cuda_strings(answer):
        for match in re.finditer(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(", text):
            start = text.find("{", match.end())
            found[match[1]] = text[start : _closing(text, start)] if start >= 0 else ""
    return found


def cuda_strings(answer: str) -> list[str]:
    """Strings of a Python file that hold a CUDA kernel; none where it does not parse."""
    try:
        tree = ast.parse(answer)
    except (SyntaxError, ValueError, RecursionError):
        return []
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [t for t in texts if "__global__" in t]


def _closing(text: str, start: int) -> int:
    """Index behind the brace that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at + 1
    return len(text)


def launches(answer: str) -> list[Launch]:
    """Launches `kernels.NAME[grid, block](...)` in their order."""
    try:
        tree = ast.parse(answer)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)):
            continue
        kernel, where = node.func.value, node.func.slice
        if isinstance(kernel, ast.Attribute) and isinstance(where, ast.Tuple) and len(where.elts) >= 2:
            grid, block = (ast.unparse(e) for e in where.elts[:2])
            found.append((node.lineno, Launch(kernel.attr, grid, block)))
    return [launch for _, launch in sorted(found, key=lambda f: f[0])]


def _kernel_lines(launch: Launch, body: str) -> list[str]:
    """What a kernel's text shows, in at most a handful of lines."""
    lines = [f"{launch.kernel}: {launch.grid} blocks of {launch.block} threads."]
    lines += [line for line in (_share(body), _staging(body), _exchange(body), _width(body), _tail(body)) if line]
    return lines


def _share(body: str) -> str:
    """What one thread or block works on."""
    stride = re.search(
        r"\+=\s*(?:\(long long\)\s*)?(?:gridDim\.x\s*\*\s*blockDim\.x|blockDim\.x\s*\*\s*gridDim\.x)", body
    )
    if stride:
        return "Each thread walks through its elements in steps of the whole grid, so neighbours read neighbours."
    if re.search(r"\+=\s*blockDim\.x\b", body):
        return "The threads of a block share a row and walk along it in steps of blockDim.x."
    index = re.search(r"(\w+)\s*=\s*(?:\(long long\)\s*)?blockIdx\.x\s*\*\s*blockDim\.x\s*\+\s*threadIdx\.x\s*;", body)
    return f"Each thread has one {index[1]}; neighbouring threads have neighbouring ones." if index else ""


def _staging(body: str) -> str:
    """What is kept in shared memory."""
    arrays = re.findall(r"__shared__\s+\w+\s+([^;]+);", body)
    if not arrays:
        return ""
    names = ", ".join(" ".join(a.split()) for a in arrays)
    barriers = "__syncthreads()" in body
    return f"Shared memory holds {names}" + ("; a barrier parts writing from reading." if barriers else ".")


def _exchange(body: str) -> str:
    if "__shfl" in body:
        return "Lanes of a warp add up through shuffles." if "_sync" in body and "+=" in body else "Lanes use shuffles."
    if "atomicAdd(" in body:
        return "Partial results meet by atomicAdd."
    return ""


def _width(body: str) -> str:
    if "float4" in body:
        return "Loads take float4, four floats at once."
    if "half2" in body:
        return "Loads take half2, two values at once."
    if "wmma::" in body:
        return "Tensor cores multiply the tiles (wmma)."
    return ""


def _tail(body: str) -> str:
    """The guard that keeps threads beyond the end out."""
    early = re.search(r"if \(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*return;", body)
    if early:
        return f"Tail: threads with {early[1]} return."
    inside = re.search(r"if \((\w+ < \w+(?: && \w+ < \w+)*)\)", body)
    return f"Tail: work is done only if {inside[1]}." if inside else ""
