"""Builds compiled host code of attacks with g++ for `plain_run`: tensors are numpy's memory, launches are loops."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

STUB = r"""
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>
#define __global__ static
#define __constant__ static
#define __device__
#define TORCH_CHECK(condition, ...) do { if (!(condition)) abort(); } while (0)
struct Index3 { long x = 0, y = 0, z = 0; };
static thread_local Index3 blockIdx, threadIdx, blockDim, gridDim;
namespace torch {
enum Kind { kFloat32 };
struct Options {};
struct Tensor {
    std::vector<long> shape; float* at = nullptr;
    long size(int i) const { return shape[i]; }
    long numel() const { long n = 1; for (long d : shape) n *= d; return n; }
    Options options() const { return {}; }
    Tensor cpu() const { return *this; }
    template <typename T> T* data_ptr() const { return at; }
    void copy_(const Tensor& from) { memcpy(at, from.at, numel() * 4); }
};
template <typename O> static Tensor empty(std::initializer_list<long> shape, O) {
    Tensor t; t.shape = shape; t.at = (float*)aligned_alloc(4096, (t.numel() * 4 / 4096 + 1) * 4096); return t;
}
}
enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
static int cudaMemcpy(void* to, const void* from, size_t n, int) { memcpy(to, from, n); return 0; }
static int cudaMemcpyAsync(void* to, const void* from, size_t n, int) { memcpy(to, from, n); return 0; }
static int cudaMemcpyToSymbol(void* to, const void* from, size_t n) { memcpy(to, from, n); return 0; }
static int cudaMemcpy2D(void* to, size_t, const void* from, size_t, size_t w, size_t h, int) {
    memcpy(to, from, w * h); return 0;
}
static int cudaMemset(void* p, int v, size_t n) { memset(p, v, n); return 0; }
static int cudaDeviceSynchronize() { return 0; }
static int cudaFree(void* p) { free(p); return 0; }
template <typename T> static int cudaMalloc(T** p, size_t n) { *p = (T*)malloc(n); return 0; }
template <typename T> static int cudaMallocManaged(T** p, size_t n) { return cudaMalloc(p, n); }
template <typename T> static int cudaMallocHost(T** p, size_t n) { return cudaMalloc(p, n); }
static int cudaLaunchHostFunc(int, void (*f)(void*), void* data) { f(data); return 0; }
"""
ENTRY = """
extern "C" void entry(float** in, const long* dims, const long* ranks, float* out) {
    torch::Tensor t[%d];
    for (int i = 0; i < %d; ++i) { t[i].at = in[i]; t[i].shape.assign(dims, dims + ranks[i]); dims += ranks[i]; }
    auto y = f(%s);
    memcpy(out, y.at, y.numel() * 4);
}
"""
LAUNCH = re.compile(r"\b(\w+)<<<(.+?), (\d+)>>>\((.*)\);")
LOOP = (
    r"{ const long blocks_ = \2; blockDim.x = \3; gridDim.x = blocks_; for (blockIdx.x = 0; blockIdx.x < blocks_;"
    r" ++blockIdx.x) for (threadIdx.x = 0; threadIdx.x < \3; ++threadIdx.x) \1(\4); }"
)


def load_inline(
    shapes: Callable[..., Sequence[int]], name: str, cpp_sources: str, cuda_sources: str, functions: Sequence[str]
) -> Any:
    """Builds the source and returns an object with `f`; `shapes` gives the output's shape for inputs."""
    import torch

    count = cpp_sources.count("torch::Tensor ") - 1
    # Without guards nobody expects pages that are shut: the attack itself would fault on them.
    open_pages = cuda_sources.replace(" all(0);", "")
    body = LAUNCH.sub(LOOP, open_pages.replace("#include <torch/extension.h>", STUB))
    arguments = ", ".join(f"t[{i}]" for i in range(count))
    folder = Path(tempfile.mkdtemp())
    (folder / "a.cpp").write_text(body + ENTRY % (count, count, arguments))
    command = ["g++", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-o", str(folder / "a.so"), str(folder / "a.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[:1000])
    library = ctypes.CDLL(str(folder / "a.so"))

    class Extension:
        @staticmethod
        def f(*ts: torch.Tensor) -> torch.Tensor:
            y = torch.empty(tuple(shapes(*ts)))
            held = [_on_own_pages(t) for t in ts]
            pointers = (ctypes.c_void_p * count)(*[t.data_ptr() for t in held])
            dims = (ctypes.c_long * sum(t.dim() for t in ts))(*[d for t in ts for d in t.shape])
            ranks = (ctypes.c_long * count)(*[t.dim() for t in ts])
            library.entry(pointers, dims, ranks, ctypes.c_void_p(y.data_ptr()))
            return y

    return Extension


def _on_own_pages(t: Any) -> Any:
    """Returns a copy that shares no page with other memory: attacks change the protection of pages."""
    import torch

    room = torch.empty(t.numel() + 4096, dtype=t.dtype)
    skip = (-room.data_ptr() % 4096) // 4
    return room[skip : skip + t.numel()].copy_(t.reshape(-1)).view(t.shape)
