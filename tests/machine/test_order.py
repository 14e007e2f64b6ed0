"""Orders between blocks, lanes and copies: what lacks one is found, and what has one is not."""

from __future__ import annotations

import numpy as np
import pytest
from machine_launch import launch, program

from kernelwright.machine import MachineFault

LAST_BLOCK = """__device__ unsigned done;
extern "C" __global__ void k(const float* x, float* part, float* y) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    part[blockIdx.x] = x[blockIdx.x];
    FENCE;
    last = atomicAdd(&done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += part[b];
    y[0] = sum;
    done = 0;
  }
}"""
FLAG = """extern "C" __global__ void k(const float* x, volatile float* part, volatile int* flag, float* y) {
  if (blockIdx.x == 0) {
    part[0] = x[0];
    FENCE;
    flag[0] = 1;
  } else {
    while (flag[0] == 0) { }
    y[0] = part[0];
  }
}"""
TILES = """extern "C" __global__ void k(int* ticket, volatile int* state, int* seen) {
  int tile = atomicAdd(ticket, 1);
  state[tile] = 1;
  __threadfence();
  if (tile > 0) {
    int s;
    while ((s = state[tile - 1]) == 0) { }
    atomicAdd(&seen[s], 1);
  }
  state[tile] = 2;
}"""


def kinds(source: str, grid: int, block: int, args: list[object], **options: object) -> set[str]:
    report = launch(program(source), "k", grid, block, args, watch=True, **options)
    return {w.kind for w in report.warnings}


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
@pytest.mark.parametrize("fence", ["", "__threadfence()", "__threadfence_block()"])
def test_a_count_publishes_what_a_device_wide_fence_covers(fence: str, order: str) -> None:
    args = [np.ones(20, np.float32), np.zeros(20, np.float32), np.zeros(1, np.float32)]
    found = kinds(LAST_BLOCK.replace("FENCE", fence), 20, 64, args, order=order)
    assert found == (set() if fence == "__threadfence()" else {"missing-fence"})


@pytest.mark.parametrize("fence", ["", "__threadfence()"])
def test_a_flag_publishes_what_a_fence_covers(fence: str) -> None:
    args = [np.ones(1, np.float32), np.zeros(1, np.float32), np.zeros(1, np.int32), np.zeros(1, np.float32)]
    assert kinds(FLAG.replace("FENCE", fence), 2, 1, args) == ({"missing-fence"} if not fence else set())


def test_blocks_run_interleaved_and_differently_by_seed() -> None:
    told = set()
    for seed in range(6):
        ticket, state, seen = (np.zeros(n, np.int32) for n in (1, 40, 3))
        launch(program(TILES), "k", 40, 1, [ticket, state, seen], order="random", seed=seed)
        assert seen.sum() == 39 and state.min() == 2
        told.add(int(seen[1]))
    assert len(told) > 1 and max(told) > 0
    ticket, state, seen = (np.zeros(n, np.int32) for n in (1, 40, 3))
    launch(program(TILES), "k", 40, 1, [ticket, state, seen], order="forward")
    assert seen[1] == 0


INVERSE = """extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float m[64];
  int t = threadIdx.x;
  m[t] = x[t]; m[t + 32] = 1;
  __syncwarp();
  for (int r = 0; r < 2; ++r) {
    float f = m[r * 32];
    SYNC;
    m[r * 32 + t] -= f;
  }
  __syncwarp();
  y[t] = m[31 - t];
}"""


@pytest.mark.parametrize("sync", ["", "__syncwarp()"])
def test_an_older_read_of_another_lane_is_remembered(sync: str) -> None:
    args = [np.ones(32, np.float32), np.zeros(32, np.float32)]
    assert kinds(INVERSE.replace("SYNC", sync), 1, 32, args) == ({"data-race"} if not sync else set())


def test_a_statement_of_a_converged_warp_is_no_hazard() -> None:
    body = 'extern "C" __global__ void k(float* y) {\n  __shared__ float s[64];\n  int t = threadIdx.x;\n'
    body += "  s[t] = t; s[t + 32] = t;\n  __syncwarp();\n  s[t] += s[t + 16];\n  __syncwarp();\n  y[t] = s[t];\n}"
    assert kinds(body, 1, 32, [np.zeros(32, np.float32)]) == set()


PIPELINE = """#include <cuda_pipeline.h>
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  float sum = 0;
  s[threadIdx.x] = 0;
  for (int r = 0; r < 3; ++r) {
    __syncthreads();
    sum += s[63 - threadIdx.x];
    SYNC;
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }
  y[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("sync", ["", "__syncthreads()"])
def test_the_destination_of_an_asynchronous_copy_is_written_from_its_start(sync: str, order: str) -> None:
    args = [np.ones(64, np.float32), np.zeros(64, np.float32)]
    found = kinds(PIPELINE.replace("SYNC", sync), 1, 64, args, order=order)
    assert found <= {"data-race", "async-copy"} and bool(found) == (not sync)


GATE = """#include <cuda/barrier>
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ cuda::barrier<cuda::thread_scope_block> gate;
  __shared__ float s[64];
  if (threadIdx.x == 0) init(&gate, 64);
  SYNC;
  s[threadIdx.x] = x[threadIdx.x];
  gate.arrive_and_wait();
  y[threadIdx.x] = s[63 - threadIdx.x];
}"""


def test_an_mbarrier_orders_a_block_and_its_warps() -> None:
    args = [np.ones(64, np.float32), np.zeros(64, np.float32)]
    assert kinds(GATE.replace("SYNC", "__syncthreads()"), 1, 64, args) == set()


def test_initialising_an_mbarrier_is_a_write() -> None:
    args = [np.ones(64, np.float32), np.zeros(64, np.float32)]
    assert "data-race" in kinds(GATE.replace("SYNC", ""), 1, 64, args)


INDEX = 'extern "C" __global__ void k(const char* x, char* y, int row) {\n  int lane = threadIdx.x;\n'


@pytest.mark.parametrize(
    "index",
    [
        "int at = row * 64 + lane",
        "int at = row << 6 | lane",
        "int at = (row << 6) + lane",
        "int at = row * 64 ^ lane",
        "int at = (int)((long long)row * 64 + lane)",
        "int at = max(row * 64 + lane, lane)",
        "int at = lane & 1 ? row * 64 : row * 64 + 1",
    ],
)
def test_an_index_that_overflows_is_found_in_every_form(index: str) -> None:
    source = f"{INDEX}  {index};\n  y[at] = x[lane];\n}}"
    args = [np.ones(64, np.int8), np.ones(1 << 16, np.int8), 1 << 26]
    with pytest.raises(MachineFault) as caught:
        launch(program(source), "k", 1, 32, args, watch=True)
    assert caught.value.fault.kind == "index-overflow"
    launch(program(source), "k", 1, 32, [*args[:2], 5], watch=True)


def test_masked_and_unsigned_numbers_may_wrap() -> None:
    body = "  int at = (row * 2654435761u >> 8) & 1023; unsigned h = (unsigned)((long long)row * 7919 * 7919);\n"
    source = f"{INDEX}{body}  y[at + h % 64u + lane] = x[lane];\n}}"
    launch(program(source), "k", 1, 32, [np.ones(64, np.int8), np.ones(2048, np.int8), 1 << 26], watch=True)
