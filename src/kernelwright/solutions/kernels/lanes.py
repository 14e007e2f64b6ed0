"""Writes elementwise kernels: one element a thread, a grid-stride loop, or four floats a thread."""

from __future__ import annotations

import re

from kernelwright.solutions.kernels.fusion import Fusion

_LOAD = re.compile(r"float ([vtu]\d*) = (\w+)\[i\];")
_LANES = "xyzw"


def vectorised(name: str, fusion: Fusion, text: str, parameters: str) -> str:
    """Returns the kernel's text.

    Returns "" where an operand is not float, or is read at an index other than the element's own. The operators become
    a device function of one element. Tensors must begin at multiples of 16 bytes (torch's own allocations do). The last
    elements, where their number is no multiple of four, are computed one by one.
    """
    loads = [m for s in fusion.statements if (m := _LOAD.fullmatch(s.strip()))]
    rest = [s for s in fusion.statements if not _LOAD.fullmatch(s.strip())]
    if not loads or any(re.search(r"\bi\b|\[", s) for s in [*rest, text]):
        return ""
    if not all(re.search(rf"const float\* {m[2]}\b", parameters) for m in loads):
        return ""
    numbers = [(d, n) for n, (d, _) in fusion.operands.table.items() if "*" not in d]
    values = [m[1] for m in loads]
    function = name.replace("_kernel", "_of") if "_kernel" in name else f"{name}_of"
    takes = ", ".join([*(f"float {v}" for v in values), *(d for d, _ in numbers)])
    more = "".join(f", {n}" for _, n in numbers)
    body = "\n".join(["    " + s.strip() for s in rest])
    wide = "\n".join(f"        float4 {m[1]} = *(const float4*)({m[2]} + i);" for m in loads)
    each = "\n".join(
        f"        r.{lane} = {function}({', '.join(f'{v}.{lane}' for v in values)}{more});" for lane in _LANES
    )
    single = ", ".join(f"{m[2]}[i]" for m in loads)
    return f"""
__device__ float {function}({takes}) {{
{body}
    return {text};
}}

extern "C" __global__ void {name}({parameters}) {{
    long long i = 4 * ((long long)blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 3 < n) {{
{wide}
        float4 r;
{each}
        *(float4*)(y + i) = r;
    }} else {{
        for (; i < n; i++) y[i] = {function}({single}{more});
    }}
}}
"""


def by_elements(name: str, fusion: Fusion, text: str, parameters: str, strided: bool) -> str:
    """Returns a kernel with one element a thread, or with a grid-stride loop where `strided`."""
    body = "\n".join(fusion.statements)
    if strided:
        return f"""
extern "C" __global__ void {name}({parameters}) {{
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {{
{body}
        y[i] = {text};
    }}
}}
"""
    return f"""
extern "C" __global__ void {name}({parameters}) {{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
{body}
    y[i] = {text};
}}
"""
