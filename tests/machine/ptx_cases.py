"""Single PTX instructions on arrays of bit patterns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from machine_launch import launch

from kernelwright.machine import Program

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
REGISTER = {1: "%rs", 2: "%rs", 4: "%r", 8: "%rd"}


def kernel(name: str, instruction: str, sizes: Sequence[int]) -> str:
    """Returns a kernel that loads operands of `sizes[1:]` bytes, runs `instruction` and stores `sizes[0]` bytes.

    In the text {d}, {a}, {b}, {c} stand for the registers.
    """
    names = [f"{REGISTER[size]}{10 + i}" for i, size in enumerate(sizes)]
    lines = [f".visible .entry {name}(" + ", ".join(f".param .u64 p{i}" for i in range(len(sizes))) + ") {"]
    lines += [".reg .b16 %rs<20>; .reg .b32 %r<20>; .reg .b64 %rd<30>; .reg .pred %p<4>;", "mov.u32 %r1, %tid.x;"]
    lines += ["mov.u32 %r2, %ctaid.x;", "mad.lo.u32 %r1, %r2, 64, %r1;"]
    for i, size in enumerate(sizes):
        lines += [f"ld.param.u64 %rd1, [p{i}];", f"mad.wide.u32 %rd{20 + i}, %r1, {size}, %rd1;"]
        lines += [f"ld.global.b{8 * size} {names[i]}, [%rd{20 + i}];"]
    lines += [instruction.format(**dict(zip("dabc", names, strict=False))) + ";"]
    lines += [f"st.global.b{8 * sizes[0]} [%rd20], {names[0]};", "ret; }"]
    return "\n".join(lines)


def run(cases: Sequence[tuple[str, Sequence[int]]], inputs: Sequence[Sequence[np.ndarray]]) -> list[list[int]]:
    """Returns the results of each (instruction, sizes) on its arrays of unsigned integers, of lengths 64 * n."""
    text = HEAD + "\n".join(kernel(f"k{i}", *case) for i, case in enumerate(cases))
    loaded = Program.load(text)
    results = []
    for i, ((_, sizes), arrays) in enumerate(zip(cases, inputs, strict=True)):
        out = np.zeros(len(arrays[0]), f"u{sizes[0]}")
        launch(loaded, f"k{i}", len(out) // 64, 64, [out, *arrays])
        results.append(out.tolist())
    return results
