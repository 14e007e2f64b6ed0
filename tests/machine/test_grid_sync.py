"""Blocks that wait for one another: grid barriers, look-back, and grids too large to be resident at once."""

from __future__ import annotations

import time

import numpy as np
import pytest
from machine_launch import ORDERS, launch, program

from kernelwright.machine import Fault, MachineFault

GROUPS = r"""#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void sum_all(const float* x, float* part, float* out, int n) {
  cg::grid_group grid = cg::this_grid();
  float s = 0;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) s += x[i];
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  __shared__ float w[8];
  if (threadIdx.x % 32 == 0) w[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    float t = 0;
    for (int i = 0; i < blockDim.x / 32; i++) t += w[i];
    part[blockIdx.x] = t;
  }
  grid.sync();
  float t = 0;
  for (int i = 0; i < gridDim.x; i++) t += part[i];
  if (threadIdx.x == 0) out[blockIdx.x] = t;
}
extern "C" __global__ void stencil(float* a, float* b, int n, int steps) {
  cg::grid_group grid = cg::this_grid();
  int i = grid.thread_rank();
  for (int s = 0; s < steps; s++) {
    if (i > 0 && i < n - 1) b[i] = (a[i - 1] + a[i] + a[i + 1]) / 3;
    else if (i < n) b[i] = a[i];
    grid.sync();
    float* t = a; a = b; b = t;
  }
}
extern "C" __global__ void half_sync(float* a) {
  if (blockIdx.x % 2) cg::this_grid().sync();
  a[blockIdx.x] = 1;
}
"""
SPINS = r"""__device__ unsigned count, sense;
extern "C" __global__ void spin_barrier(int* x, int* y, unsigned* arrived) {
  if (threadIdx.x == 0) {
    x[blockIdx.x] = blockIdx.x + 1;
    __threadfence();
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < gridDim.x) ;
  }
  __syncthreads();
  int s = 0;
  for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) s += ((volatile int*)x)[i];
  atomicAdd(&y[blockIdx.x], s);
}
extern "C" __global__ void look_ahead(volatile int* flag, int* y) {  // waits for the block behind it
  if (threadIdx.x == 0) {
    if (blockIdx.x + 1 < gridDim.x) while (flag[blockIdx.x + 1] == 0) __nanosleep(20);
    y[blockIdx.x] = blockIdx.x + 1 < gridDim.x ? ((volatile int*)y)[blockIdx.x + 1] + 1 : 1;
    __threadfence();
    flag[blockIdx.x] = 1;
  }
}
extern "C" __global__ void look_back(const int* x, int* y, volatile int* state, volatile int* total) {
  __shared__ int s[64], before;
  int i = blockIdx.x * 64 + threadIdx.x;
  s[threadIdx.x] = x[i];
  __syncthreads();
  for (int o = 1; o < 64; o *= 2) {
    int v = threadIdx.x >= o ? s[threadIdx.x - o] : 0;
    __syncthreads();
    s[threadIdx.x] += v;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    int p = 0;
    if (blockIdx.x) { while (state[blockIdx.x - 1] == 0) ; __threadfence(); p = total[blockIdx.x - 1]; }
    total[blockIdx.x] = p + s[63];
    __threadfence();
    state[blockIdx.x] = 1;
    before = p;
  }
  __syncthreads();
  y[i] = s[threadIdx.x] + before;
}
extern "C" __global__ void never(volatile int* flag, int* y) {
  while (flag[0] == 0) ;
  y[blockIdx.x] = 1;
}
extern "C" __global__ void patient(volatile int* flag, int* y) {  // gives up by itself
  int n = 0;
  while (flag[0] == 0 && n < 200) n++;
  y[blockIdx.x] = n;
}
"""


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.int32)


def fault(source: str, kernel: str, grid: int, block: int, args: list[object], **options: object) -> Fault:
    with pytest.raises(MachineFault) as caught:
        launch(program(source), kernel, grid, block, args, **options)  # type: ignore[arg-type]
    return caught.value.fault


@pytest.mark.parametrize("order", ORDERS)
def test_reduction_over_a_cooperative_grid(order: str) -> None:
    x = np.arange(10000, dtype=np.float32)
    part, out = np.full(40, np.nan, np.float32), np.full(40, np.nan, np.float32)
    report = launch(program(GROUPS), "sum_all", 40, 256, [x, part, out, 10000], order=order, cooperative=True)
    assert np.allclose(out, x.sum(dtype=np.float64), rtol=1e-6)
    assert not report.warnings


@pytest.mark.parametrize("order", ORDERS)
def test_time_steps_with_a_grid_barrier_between(order: str) -> None:
    a = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    expected, x, y = a.astype(np.float64), a.copy(), np.zeros(1000, np.float32)
    for _ in range(10):
        expected[1:-1] = (expected[:-2] + expected[1:-1] + expected[2:]) / 3
    report = launch(program(GROUPS), "stencil", 8, 128, [x, y, 1000, 10], order=order, cooperative=True)
    assert np.allclose(x, expected, atol=1e-5)
    assert not report.warnings


def test_grid_sync_without_a_cooperative_launch() -> None:
    found = fault(GROUPS, "stencil", 8, 128, [np.zeros(1000, np.float32), np.zeros(1000, np.float32), 1000, 1])
    assert found.kind == "trap" and "cudaLaunchCooperativeKernel" in found.message


def test_a_cooperative_grid_must_fit() -> None:
    a = np.zeros(2, np.float32)
    found = fault(GROUPS, "stencil", 132 * 2 + 1, 1024, [a, a.copy(), 2, 1], cooperative=True)
    assert found.kind == "invalid-launch" and "264 of this size" in found.message


def test_a_grid_barrier_that_half_of_the_blocks_skip() -> None:
    found = fault(GROUPS, "half_sync", 8, 64, [np.zeros(8, np.float32)], cooperative=True)
    assert found.kind == "barrier-deadlock" and "ld.acquire" in found.message


@pytest.mark.parametrize("order", ORDERS)
def test_spin_barrier_over_all_resident_blocks(order: str) -> None:
    x, y = zeros(132 * 2), zeros(132 * 2)
    report = launch(program(SPINS), "spin_barrier", 264, 1024, [x, y, zeros(1)], order=order)
    assert (y == 264 * 265 // 2).all()
    assert not report.warnings


def test_spin_barrier_over_more_blocks_than_fit_is_named() -> None:
    started = time.process_time()
    found = fault(SPINS, "spin_barrier", 265, 1024, [zeros(265), zeros(265), zeros(1)])
    assert found.kind == "grid-deadlock" and found.line == 7 and found.thread == (0, 0, 0)
    assert "all 264 blocks that can be resident" in found.message
    assert time.process_time() - started < 5
    found = fault(SPINS, "spin_barrier", 132 * 32 + 1, 32, [zeros(4225), zeros(4225), zeros(1)])
    assert found.kind == "grid-deadlock" and "all 4224 blocks" in found.message


@pytest.mark.parametrize("order", ORDERS)
def test_waiting_for_a_later_block(order: str) -> None:
    y = zeros(100)
    launch(program(SPINS), "look_ahead", 100, 32, [zeros(100), y], order=order)
    assert y.tolist() == list(range(100, 0, -1))


@pytest.mark.parametrize("order", ORDERS)
def test_decoupled_look_back(order: str) -> None:
    x, y = np.arange(6400, dtype=np.int32), zeros(6400)
    report = launch(program(SPINS), "look_back", 100, 64, [x, y, zeros(100), zeros(100)], order=order)
    assert np.array_equal(y, np.cumsum(x))
    assert not report.warnings


@pytest.mark.parametrize("order", ORDERS)
def test_look_back_over_more_blocks_than_fit(order: str) -> None:
    n = 132 * 32 + 500
    x, y = np.ones(64 * n, np.int32), zeros(64 * n)
    launch(program(SPINS), "look_back", n, 64, [x, y, zeros(n), zeros(n)], order=order)
    assert np.array_equal(y, np.cumsum(x))


def test_a_flag_that_nobody_sets() -> None:
    found = fault(SPINS, "never", 4, 32, [zeros(1), zeros(4)])
    assert found.kind == "barrier-deadlock" and "waits for something" in found.message


def test_a_wait_that_gives_up_is_no_deadlock() -> None:
    y = zeros(600)
    launch(program(SPINS), "patient", 600, 1024, [zeros(1), y])
    assert (y == 200).all()
