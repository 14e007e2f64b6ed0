"""Reads of shared and local memory that nothing has written: found by who wrote, in every kind of block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machine_launch import ORDERS, launch, program
from test_bulk_copies import HEAD as COPIES

from kernelwright.machine import Fault, MachineFault

SOURCE = (
    COPIES
    + r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void bytes(const unsigned char* x, float* y, int n) {
  __shared__ unsigned char s[64];
  if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void grid(const unsigned char* x, float* y, int n) {
  __shared__ unsigned char s[64];
  if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];
  cg::this_grid().sync();
  y[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) neighbour(const unsigned char* x, float* y, int n) {
  __shared__ unsigned char s[64];
  cg::cluster_group c = cg::this_cluster();
  if (threadIdx.x < n) *c.map_shared_rank(s + threadIdx.x, c.block_rank() ^ 1) = x[threadIdx.x];
  c.sync();
  y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x] + *c.map_shared_rank(s + threadIdx.x, c.block_rank() ^ 1);
  c.sync();
}
extern "C" __global__ void rounds(const unsigned char* x, float* y, int n) {  // of barriers, with an atomic
  __shared__ unsigned char s[64];
  for (int i = 0; i < 200; i++) {
    if (threadIdx.x == 0) atomicAdd(y, 0.0f);
    __syncthreads();
  }
  if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void stored(const unsigned char* x, float* y, int n) {  // a bulk copy out of shared memory
  __shared__ alignas(128) float s[64];
  if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) store(y, s, 256), commit(), drain();
}
extern "C" __global__ void either(const unsigned char* x, float* y, int n) {  // one store in two spaces
  __shared__ float s[64];
  float* p = threadIdx.x < n ? s + threadIdx.x : y + threadIdx.x;
  *p = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x % 48];
}
__device__ __noinline__ float frame(int n, int depth) {
  float a[8];
  for (int i = 0; i < n; i++) a[(i + depth) % 8] = i;
  return a[(depth + 7) % 8] + (depth ? frame(n - 1, depth - 1) : 0);
}
extern "C" __global__ void frames(const unsigned char* x, float* y, int n) {  // each call writes one element less
  y[threadIdx.x] = frame(9, 1) + frame(n, 0);
}
extern "C" __global__ void copies(const unsigned char* x, float* y, int n) {
  __shared__ alignas(128) float s[64];
  __shared__ unsigned long long full;
  int t = threadIdx.x;
  if (t == 0) init(&full, 1);
  __syncthreads();
  if (t == 0) expect(&full, n), load(s, x, n, &full);
  wait(&full, 0);
  y[t] = s[t];
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(s + t)), "l"(x + t * 4));
  asm volatile("cp.async.wait_all;" ::: "memory");
  y[t] += s[t];
}
extern "C" __global__ void wraps(const unsigned char* x, float* y, int n) {
  cg::this_grid().sync();
  int i = (blockIdx.x * 64 + threadIdx.x) * n;
  y[(long long)i] = 1;
}
"""
)
SIZES = {"stored": (64, 63), "either": (48, 47), "frames": (8, 7), "copies": (256, 240)}
"""For a kernel, what it has to write (`n`), and too little."""


def findings(kernel: str, n: int, value: int = 0xFF, **options: Any) -> list[Fault]:
    x, y = np.full(256, value, np.uint8), np.zeros(256, np.float32)
    grid = 2 if kernel in ("grid", "neighbour", "rounds") else 1
    report = launch(program(SOURCE), kernel, grid, 64, [x, y, n], watch=True, cooperative=kernel == "grid", **options)
    return [w for w in report.warnings if w.kind == "uninitialised-read"]


KERNELS = ["bytes", "grid", "neighbour", "rounds", *SIZES]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_what_was_written_is_not_called_unwritten(kernel: str, order: str) -> None:
    for value in (0xFF, 0x5A, 0x7E):
        assert findings(kernel, SIZES.get(kernel, (64, 0))[0], value, order=order, seed=value) == []


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_what_was_not_written_is_found(kernel: str, order: str) -> None:
    for poison in (0xFF, 0, 0x42):
        found = findings(kernel, SIZES.get(kernel, (0, 63))[1], order=order, poison=poison)
        assert len(found) == (2 if kernel == "neighbour" else 1), found
        assert found[0].line


def test_an_index_that_overflows_after_a_grid_barrier() -> None:
    with pytest.raises(MachineFault) as caught:
        launch(program(SOURCE), "wraps", 2, 64, [np.zeros(4, np.uint8), np.zeros(64, np.float32), 1 << 25],
               watch=True, cooperative=True)  # fmt: skip
    assert caught.value.fault.kind == "index-overflow"
