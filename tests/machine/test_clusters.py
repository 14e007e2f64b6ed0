"""Clusters: their barrier, the shared memory of other blocks, and faults with both."""

from __future__ import annotations

import numpy as np
import pytest
from machine_launch import ORDERS, launch, program

from kernelwright.machine import Fault, MachineFault

SOURCE = r"""#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(4, 1, 1) histogram(const int* x, int* bins, int n) {  // 64 bins a block
  extern __shared__ int s[];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) s[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int b = x[i];
    atomicAdd(cluster.map_shared_rank(s, b / 64) + b % 64, 1);
  }
  cluster.sync();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(&bins[cluster.block_rank() * 64 + i], s[i]);
}
extern "C" __global__ void __cluster_dims__(2, 2, 1) places(int* y) {
  cg::cluster_group c = cg::this_cluster();
  int at = 8 * (blockIdx.x + gridDim.x * blockIdx.y);
  if (threadIdx.x == 0) {
    y[at] = c.block_rank(), y[at + 1] = c.block_index().x, y[at + 2] = c.block_index().y, y[at + 3] = c.num_blocks();
    y[at + 4] = c.dim_blocks().y, y[at + 5] = c.dim_threads().x, y[at + 6] = c.thread_rank(), y[at + 7] = c.num_threads();
  }
}
extern "C" __global__ void rotate(const float* x, float* y) {  // cluster size of the launch
  __shared__ float s[64];
  cg::cluster_group c = cg::this_cluster();
  s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  c.sync();
  unsigned next = (c.block_rank() + 1) % c.num_blocks();
  y[blockIdx.x * 64 + threadIdx.x] = *c.map_shared_rank(s + threadIdx.x, next);
  c.sync();
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) split_phase(float* y) {
  __shared__ float s;
  cg::cluster_group c = cg::this_cluster();
  for (int k = 0; k < 5; k++) {
    if (threadIdx.x == 0) *c.map_shared_rank(&s, c.block_rank() ^ 1) = k + 10 * c.block_rank();
    auto token = c.barrier_arrive();
    c.barrier_wait(static_cast<decltype(token)&&>(token));
    if (threadIdx.x == k) y[blockIdx.x * 5 + k] = s;
    c.sync();
  }
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) leaves_early(const float* x, float* y) {
  __shared__ float s[32];
  cg::cluster_group c = cg::this_cluster();
  s[threadIdx.x] = x[threadIdx.x];
  c.sync();
  if (c.block_rank() == 1) return;
  float t = 0;
  for (int i = 0; i < 5000; i++) t += *c.map_shared_rank(s + (threadIdx.x + i) % 32, 1);
  y[threadIdx.x] = t;
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) half_arrives(float* y) {
  cg::cluster_group c = cg::this_cluster();
  if (c.block_rank() == 0) c.sync();
  else { while (((volatile float*)y)[0] == 0) ; }
  y[1] = 1;
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) too_far(float* y) {
  __shared__ float s[8];
  cg::cluster_group c = cg::this_cluster();
  s[0] = 1;
  c.sync();
  y[0] = c.map_shared_rank(s, 1)[threadIdx.x * 64];
  c.sync();
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) window(int* y) {
  __shared__ int s;
  cg::cluster_group c = cg::this_cluster();
  int* other = c.map_shared_rank(&s, c.block_rank() ^ 1);
  int* own = c.map_shared_rank(&s, c.block_rank());
  unsigned a = c.query_shared_rank(other), b = c.query_shared_rank(&s);
  y[blockIdx.x] = (__isShared(&s) != 0) + 2 * (__isShared(own) != 0) + 4 * (__isClusterShared(other) != 0) +
                  8 * (__isClusterShared(&s) != 0) + 16 * a + 32 * b;
  c.sync();
}
"""  # noqa: E501


def fault(kernel: str, grid: object, block: object, args: list[object], shared: int = 0, **options: object) -> Fault:
    with pytest.raises(MachineFault) as caught:
        launch(program(SOURCE), kernel, grid, block, args, shared, **options)  # type: ignore[arg-type]
    return caught.value.fault


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.float32)


@pytest.mark.parametrize("order", ORDERS)
def test_histogram_over_the_shared_memory_of_a_cluster(order: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, 5000).astype(np.int32)
    bins = np.zeros(256, np.int32)
    report = launch(program(SOURCE), "histogram", 8, 128, [x, bins, 5000], 256, order=order)
    assert np.array_equal(bins, np.bincount(x, minlength=256))
    assert not report.warnings


def test_where_a_block_is_in_its_cluster() -> None:
    y = np.full(8 * 16, -1, np.int32)
    launch(program(SOURCE), "places", (4, 4), 32, [y])
    for index, row in enumerate(y.reshape(16, 8).tolist()):
        x, z = index % 4 % 2, index // 4 % 2
        assert row == [x + 2 * z, x, z, 4, 2, 64, 32 * (x + 2 * z), 128]


@pytest.mark.parametrize("size", [1, 2, 8])
def test_cluster_size_of_the_launch(size: int) -> None:
    x, y = np.arange(8 * 64, dtype=np.float32), zeros(8 * 64)
    launch(program(SOURCE), "rotate", 8, 64, [x, y], cluster=(size, 1, 1))
    assert np.array_equal(y, np.roll(x.reshape(-1, size, 64), -1, 1).ravel())


@pytest.mark.parametrize("order", ORDERS)
def test_arrive_and_wait_apart(order: str) -> None:
    y = zeros(20)
    launch(program(SOURCE), "split_phase", 4, 64, [y], order=order)
    assert y.tolist() == [10, 11, 12, 13, 14, 0, 1, 2, 3, 4] * 2


def test_addresses_know_their_block() -> None:
    y = np.zeros(2, np.int32)
    launch(program(SOURCE), "window", 2, 1, [y])
    assert y.tolist() == [15 + 16, 15 + 32]


def test_memory_of_a_block_that_has_exited() -> None:
    found = fault("leaves_early", 2, 32, [zeros(32), zeros(32)])
    assert found.kind == "out-of-bounds-read" and "block 1 of the cluster, which has exited" in found.message
    assert (found.line, found.block) == (50, (0, 0, 0))


def test_a_block_that_never_comes_to_the_cluster_barrier() -> None:
    found = fault("half_arrives", 2, 32, [zeros(2)])
    assert found.kind == "barrier-deadlock"


def test_past_the_end_of_another_block() -> None:
    found = fault("too_far", 2, 32, [zeros(2)])
    assert found.kind == "out-of-bounds-read" and "224 bytes past the end of shared variable" in found.message


@pytest.mark.parametrize(("grid", "options"), [(3, {}), (4, {"cluster": (4, 1, 1)})])
def test_clusters_that_do_not_fit_the_launch(grid: int, options: dict[str, object]) -> None:
    assert fault("split_phase", grid, 32, [zeros(20)], **options).kind == "invalid-launch"
    assert fault("rotate", 34, 64, [zeros(2176), zeros(2176)], cluster=(17, 1, 1)).kind == "invalid-launch"
