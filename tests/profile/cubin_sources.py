"""Kernels whose resource use is known from their text, and the machine code that NVRTC makes of them."""

from __future__ import annotations

import os
import shutil
import sysconfig
from functools import cache

from kernelwright.machine.nvrtc import compile_ptx

SOURCE = r"""
#include <mma.h>
extern "C" __global__ void plain(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}
extern "C" __global__ void wide(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
extern "C" __global__ void __launch_bounds__(256) shared_tile(const float* x, float* y) {
    __shared__ float tile[100];
    if (threadIdx.x < 100) tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x * 7 % 100];
}
extern "C" __global__ void local_array(const float* x, float* y, int n) {
    float kept[128];
    for (int i = 0; i < 128; ++i) kept[i] = x[i * n];
    float sum = 0;
    for (int i = 0; i < 128; ++i) sum += kept[(i * n) & 127];
    y[threadIdx.x] = sum;
}
extern "C" __global__ void doubles(const double* x, double* y) { y[0] = x[0] * x[1] + x[2]; }
extern "C" __global__ void atomics(const float* x, float* y) { atomicAdd(y, x[threadIdx.x]); }
extern "C" __global__ void shuffles(const float* x, float* y) {
    float v = x[threadIdx.x];
    y[threadIdx.x] = v + __shfl_xor_sync(0xffffffffu, v, 1);
}
extern "C" __global__ void tensor_cores(const __half* a, const __half* b, float* c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> left;
    fragment<matrix_b, 16, 16, 16, __half, col_major> right;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.f);
    load_matrix_sync(left, a, 16);
    load_matrix_sync(right, b, 16);
    mma_sync(sum, left, right, sum);
    store_matrix_sync(c, sum, 16, mem_row_major);
}
"""
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_120")


@cache
def cubin(arch: str) -> bytes:
    """Returns the machine code of `SOURCE`."""
    made = compile_ptx(SOURCE, arch=arch)
    assert made.ok, made.log
    return made.cubin


def tool(name: str) -> str | None:
    """Returns the path of a CUDA tool: from the PATH, the toolkit, or NVIDIA's wheel; None where it is missing."""
    packages = sysconfig.get_path("purelib")
    folders = f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin", f"{packages}/nvidia/cu13/bin"
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))
