"""Asynchronous copies and mbarriers: data arrives at the wait, and a missing wait is detected."""

from __future__ import annotations

import numpy as np
import pytest
from machine_launch import ORDERS, launch, program

from kernelwright.machine import Fault, LaunchReport, MachineFault

COPIES = r"""#include <cuda_pipeline.h>
extern "C" __global__ void staged(const float* x, float* y, int tiles, int keep) {  // right when keep is 1
  __shared__ float4 s[2][64];
  const float4* from = (const float4*)x;
  __pipeline_memcpy_async(&s[0][threadIdx.x], &from[threadIdx.x], 16);
  __pipeline_commit();
  for (int t = 0; t < tiles; t++) {
    if (t + 1 < tiles) __pipeline_memcpy_async(&s[(t + 1) & 1][threadIdx.x], &from[(t + 1) * 64 + threadIdx.x], 16);
    __pipeline_commit();
    if (keep == 1) __pipeline_wait_prior(1);
    else __pipeline_wait_prior(2);
    __syncthreads();
    ((float4*)y)[t * 64 + threadIdx.x] = s[t & 1][threadIdx.x ^ 33];
    __syncthreads();
  }
}
extern "C" __global__ void no_wait(const float* x, float* y) {
  __shared__ float s[32];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
  __pipeline_commit();
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x];
  __pipeline_wait_prior(0);
}
extern "C" __global__ void leaks(const float* x, float* y) {
  __shared__ float s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
  y[threadIdx.x] = 1;
}
extern "C" __global__ void no_barrier(const float* x, float* y) {
  __shared__ float s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  y[threadIdx.x] = s[threadIdx.x ^ 32];
}
extern "C" __global__ void zero_fill(const float* x, float* y, int n) {
  __shared__ float4 s[32];
  int have = min(max(n - 4 * (int)threadIdx.x, 0), 4) * 4;
  __pipeline_memcpy_async(&s[threadIdx.x], (const float4*)x + threadIdx.x, 16, 16 - have);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  ((float4*)y)[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void divergent(const float* x, float* y) {  // odd threads have one group more
  __shared__ float s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
  __pipeline_commit();
  if (threadIdx.x & 1) { __pipeline_memcpy_async(&s[32 + threadIdx.x], &x[32 + threadIdx.x], 4); __pipeline_commit(); }
  __pipeline_wait_prior(1);
  y[threadIdx.x] = s[threadIdx.x];
  __pipeline_wait_prior(0);
  if (threadIdx.x & 1) y[threadIdx.x + 32] = s[threadIdx.x + 32];
}
"""
OBJECTS = r"""#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
using barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void phases(int* y, int n) {
  __shared__ barrier bar;
  __shared__ int s[128];
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  int v = threadIdx.x;
  for (int i = 0; i < n; i++) {
    s[threadIdx.x] = v;
    bar.arrive_and_wait();
    v += s[(threadIdx.x + 1) % 128];
    bar.arrive_and_wait();
  }
  y[threadIdx.x] = v;
}
extern "C" __global__ void hand_over(const float* x, float* y, int tiles) {  // one warp produces, three consume
  __shared__ float s[2][32];
  __shared__ barrier full[2], empty[2];
  if (threadIdx.x < 2) init(&full[threadIdx.x], 128), init(&empty[threadIdx.x], 128);
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int t = 0; t < tiles; t++) {
      empty[t & 1].arrive_and_wait();
      s[t & 1][threadIdx.x] = x[t * 32 + threadIdx.x];
      (void)full[t & 1].arrive();
    }
  } else {
    (void)empty[0].arrive();
    (void)empty[1].arrive();
    for (int t = 0; t < tiles; t++) {
      full[t & 1].arrive_and_wait();
      float v = s[t & 1][31 - threadIdx.x % 32];
      if (threadIdx.x / 32 == 1 + t % 3) y[t * 32 + threadIdx.x % 32] = v;
      (void)empty[t & 1].arrive();
    }
  }
}
extern "C" __global__ void dropping(int* y) {
  __shared__ barrier bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  if (threadIdx.x >= 32) { bar.arrive_and_drop(); return; }
  for (int i = 0; i < 3; i++) bar.arrive_and_wait();
  y[threadIdx.x] = 1;
}
extern "C" __global__ void pipelined(const float* x, float* y, int tiles) {
  __shared__ float s[2][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  pipe.producer_acquire();
  cuda::memcpy_async(block, s[0], x, sizeof(float) * 128, pipe);
  pipe.producer_commit();
  for (int t = 0; t < tiles; t++) {
    if (t + 1 < tiles) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, s[(t + 1) & 1], x + (t + 1) * 128, sizeof(float) * 128, pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    y[t * 128 + threadIdx.x] = s[t & 1][threadIdx.x ^ 65];
    pipe.consumer_release();
  }
}
extern "C" __global__ void whole_block(const float* x, float* y) {
  __shared__ alignas(128) float s[1024];
  __shared__ barrier bar;
  if (threadIdx.x == 0) { init(&bar, blockDim.x); asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::memcpy_async(s, x, cuda::aligned_size_t<16>(sizeof(s)), bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, 0);
  } else {
    token = bar.arrive();
  }
  bar.wait(static_cast<barrier::arrival_token&&>(token));
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) y[i] = s[i ^ 512];
}
extern "C" __global__ void one_missing(int* y) {
  __shared__ barrier bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x + 1);
  __syncthreads();
  bar.arrive_and_wait();
  y[0] = 1;
}
extern "C" __global__ void unset(int* y) {
  __shared__ barrier bar;
  bar.arrive_and_wait();
  y[0] = 1;
}
extern "C" __global__ void crowded(int* y) {
  __shared__ barrier bar;
  if (threadIdx.x == 0) init(&bar, 16);
  __syncthreads();
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0], 17; }" ::"r"((unsigned)__cvta_generic_to_shared(&bar)));
  y[0] = 1;
}
"""  # noqa: E501
NAMED = r"""extern "C" __global__ void specialised(const float* x, float* y, int tiles) {  // named barriers with counts
  __shared__ float s[2][32];
  if (threadIdx.x < 32) {
    for (int t = 0; t < tiles; t++) {
      asm volatile("bar.sync %0, 64;" ::"r"(3 + (t & 1)) : "memory");
      s[t & 1][threadIdx.x] = x[t * 32 + threadIdx.x];
      asm volatile("bar.arrive %0, 64;" ::"r"(1 + (t & 1)) : "memory");
    }
  } else {
    asm volatile("bar.arrive 3, 64;" ::: "memory");
    asm volatile("bar.arrive 4, 64;" ::: "memory");
    for (int t = 0; t < tiles; t++) {
      asm volatile("bar.sync %0, 64;" ::"r"(1 + (t & 1)) : "memory");
      y[t * 32 + threadIdx.x % 32] = 2 * s[t & 1][threadIdx.x % 32];
      if (t + 2 < tiles) asm volatile("bar.arrive %0, 64;" ::"r"(3 + (t & 1)) : "memory");
    }
  }
}
extern "C" __global__ void elected(int* y) {
  asm volatile("{ .reg .pred p; .reg .b32 l; elect.sync l|p, -1; @p st.global.u32 [%0], 7; @p st.global.u32 [%0+4], l; }"
               ::"l"(y) : "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
"""  # noqa: E501


def run(source: str, kernel: str, block: int, args: list[object], **options: object) -> LaunchReport:
    return launch(program(source), kernel, 1, block, args, **options)  # type: ignore[arg-type]


def fault(source: str, kernel: str, block: int, args: list[object]) -> Fault:
    with pytest.raises(MachineFault) as caught:
        run(source, kernel, block, args)
    return caught.value.fault


def numbers(n: int) -> np.ndarray:
    return np.arange(1, n + 1, dtype=np.float32)


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.float32)


@pytest.mark.parametrize("order", ORDERS)
def test_a_pipeline_of_two_stages(order: str) -> None:
    x, y = numbers(64 * 4 * 7), zeros(64 * 4 * 7)
    report = run(COPIES, "staged", 64, [x, y, 7, 1], order=order)
    assert np.array_equal(y, x.reshape(7, 64, 4)[:, np.arange(64) ^ 33].ravel())
    assert not report.warnings


def test_a_pipeline_that_waits_for_too_little() -> None:
    x, y = numbers(64 * 4 * 7), zeros(64 * 4 * 7)
    report = run(COPIES, "staged", 64, [x, y, 7, 2])
    assert np.isnan(y[:256]).all()
    found = next(w for w in report.warnings if w.kind == "async-copy")
    assert found.line == 13 and "(line 5)" in found.message


def test_a_missing_wait_in_one_warp() -> None:
    y = zeros(32)
    report = run(COPIES, "no_wait", 32, [numbers(32), y])
    assert np.isnan(y).all()
    assert [(w.kind, w.line) for w in report.warnings] == [("async-copy", 22)]


def test_a_copy_that_nobody_waits_for() -> None:
    report = run(COPIES, "leaks", 64, [numbers(64), zeros(64)])
    assert [(w.kind, w.line) for w in report.warnings] == [("leaked-copy", 27)]


def test_waiting_is_no_barrier() -> None:
    report = run(COPIES, "no_barrier", 64, [numbers(64), zeros(64)])
    assert {w.kind for w in report.warnings} <= {"data-race", "async-copy"} and report.warnings


def test_short_sources_are_filled_with_zeros() -> None:
    x, y = numbers(128), zeros(128)
    report = run(COPIES, "zero_fill", 32, [x[:30].copy(), y, 30])
    assert np.array_equal(y, np.where(np.arange(128) < 30, x, 0))
    assert not report.warnings


def test_groups_are_counted_for_each_thread() -> None:
    x, y = numbers(64), zeros(64)
    report = run(COPIES, "divergent", 32, [x, y])
    assert y[1:32:2].tolist() == x[1:32:2].tolist() and y[33::2].tolist() == x[33::2].tolist()
    assert np.isnan(y[0:32:2]).all() and [w.kind for w in report.warnings] == ["async-copy"]


@pytest.mark.parametrize("order", ORDERS)
def test_barrier_objects(order: str) -> None:
    y, v = np.zeros(128, np.int32), np.arange(128)
    report = run(OBJECTS, "phases", 128, [y, 5], order=order)
    for _ in range(5):
        v = v + np.roll(v, -1)
    assert np.array_equal(y, v) and not report.warnings
    x, z = numbers(32 * 9), zeros(32 * 9)
    report = run(OBJECTS, "hand_over", 128, [x, z, 9], order=order)
    assert np.array_equal(z, x.reshape(9, 32)[:, ::-1].ravel()) and not report.warnings
    run(OBJECTS, "dropping", 96, [y], order=order)
    assert y[:32].tolist() == [1] * 32


@pytest.mark.parametrize("order", ORDERS)
def test_copies_behind_barrier_objects(order: str) -> None:
    x, y = numbers(128 * 6), zeros(128 * 6)
    report = run(OBJECTS, "pipelined", 128, [x, y, 6], order=order)
    assert np.array_equal(y, x.reshape(6, 128)[:, np.arange(128) ^ 65].ravel())
    assert not report.warnings
    x, y = numbers(1024), zeros(1024)
    report = run(OBJECTS, "whole_block", 64, [x, y], order=order)
    assert np.array_equal(y, np.roll(x, 512)) and not report.warnings


def test_what_goes_wrong_with_barrier_objects() -> None:
    y = np.zeros(4, np.int32)
    found = fault(OBJECTS, "one_missing", 64, [y])
    assert found.kind == "barrier-deadlock" and "mbarrier.try_wait" in found.message
    found = fault(OBJECTS, "unset", 64, [y])
    assert found.kind == "mbarrier-misuse" and "not initialised" in found.message
    found = fault(OBJECTS, "crowded", 64, [y])
    assert found.kind == "mbarrier-misuse" and "17 arrivals" in found.message


@pytest.mark.parametrize("order", ORDERS)
def test_warps_with_different_work(order: str) -> None:
    x, y = numbers(32 * 8), zeros(32 * 8)
    report = run(NAMED, "specialised", 64, [x, y, 8], order=order)
    assert np.array_equal(y, 2 * x) and not report.warnings
    one = np.zeros(2, np.int32)
    run(NAMED, "elected", 32, [one])
    assert one.tolist() == [7, 0]
