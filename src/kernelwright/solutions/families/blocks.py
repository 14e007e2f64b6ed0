"""Writes the device functions that reduce a value over a block: a tree in shared memory, or warp shuffles."""

from __future__ import annotations

from kernelwright.solutions.kernels.stages import Writer

KINDS = {
    # start, the step for an element, the combination of two threads' results
    "sum": ("0.0f", "{acc} += {v};", "{a} + {b}"),
    "mean": ("0.0f", "{acc} += {v};", "{a} + {b}"),
    "prod": ("1.0f", "{acc} *= {v};", "{a} * {b}"),
    "max": ("-INFINITY", "{acc} = fmaxf({acc}, {v});", "fmaxf({a}, {b})"),
    "min": ("INFINITY", "{acc} = fminf({acc}, {v});", "fminf({a}, {b})"),
}
"""Kind of a reduction -> its neutral value, the step for an element, the combination of two parts."""


def block_function(writer: Writer, kind: str) -> str:
    """Adds the device function that reduces a value over a block, and returns its name; every thread gets the
    result."""
    kind = "sum" if kind == "mean" else kind
    start, _, combine = KINDS[kind]
    block = writer.schedule.block
    name = f"block_{kind}"
    if writer.schedule.shuffle:
        writer.kernel(f"""
__device__ float {name}(float v) {{
    __shared__ float s[32];
    for (int k = 16; k > 0; k /= 2) v = {combine.format(a="v", b="__shfl_xor_sync(0xffffffff, v, k)")};
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < {block // 32} ? s[threadIdx.x % 32] : {start};
    for (int k = 16; k > 0; k /= 2) v = {combine.format(a="v", b="__shfl_xor_sync(0xffffffff, v, k)")};
    __syncthreads();
    return v;
}}
""")
        return name
    pair = combine.format(a="s[threadIdx.x]", b="s[threadIdx.x + k]")
    writer.kernel(f"""
__device__ float {name}(float v) {{
    __shared__ float s[{block}];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = {half_of(block)}; k > 0; k /= 2) {{
        if ({within(block)}) s[threadIdx.x] = {pair};
        __syncthreads();
    }}
    v = s[0];
    __syncthreads();
    return v;
}}
""")
    return name


def half_of(block: int) -> int:
    """Returns the first distance of a tree over a block: half of the next power of two."""
    return 1 << (block - 1).bit_length() - 1


def within(block: int) -> str:
    """Returns the C condition for a thread to take part in a tree's step at distance k."""
    return "threadIdx.x < k" if block & (block - 1) == 0 else f"threadIdx.x < k && threadIdx.x + k < {block}"
