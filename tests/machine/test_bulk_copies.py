"""Bulk copies and TMA: plain ranges, tiles with swizzles and edges, clusters, reductions, and faults."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from machine_launch import ORDERS, launch

from kernelwright.machine import Allocation, Fault, LaunchReport, MachineFault, Program
from kernelwright.machine.nvrtc import compile_ptx
from kernelwright.machine.tensor_map import encode_tiled

HEAD = r"""struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };
typedef unsigned u32;
__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(void* b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ void expect(void* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(bytes) : "memory");
}
__device__ void wait(void* b, int parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }"
               ::"r"(at(b)), "r"(parity) : "memory");
}
__device__ void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ void drain() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ void load(void* s, const void* g, int n, void* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(at(s)), "l"(g), "r"(n), "r"(at(b)) : "memory");
}
__device__ void store(void* g, const void* s, int n) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(g), "r"(at(s)), "r"(n) : "memory");
}
__device__ void load2(void* s, const CUtensorMap* m, int x, int y, void* b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(at(s)), "l"(m), "r"(x), "r"(y), "r"(at(b)) : "memory");
}
__device__ void store2(const CUtensorMap* m, int x, int y, const void* s) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
               ::"l"(m), "r"(x), "r"(y), "r"(at(s)) : "memory");
}
"""  # noqa: E501
BULK = (
    HEAD
    + r"""
extern "C" __global__ void scale(const float* x, float* y, int tiles) {  // four stages, one thread feeds
  __shared__ alignas(128) float in[4][256], out[256];
  __shared__ unsigned long long full[4];
  if (threadIdx.x < 4) init(&full[threadIdx.x], 1);
  __syncthreads();
  if (threadIdx.x == 0)
    for (int t = 0; t < 3 && t < tiles; t++) { expect(&full[t], 1024); load(in[t], x + t * 256, 1024, &full[t]); }
  for (int t = 0; t < tiles; t++) {
    if (threadIdx.x == 0 && t + 3 < tiles) {
      int s = (t + 3) % 4;
      expect(&full[s], 1024);
      load(in[s], x + (t + 3) * 256, 1024, &full[s]);
    }
    wait(&full[t % 4], t / 4 & 1);
    for (int i = threadIdx.x; i < 256; i += blockDim.x) out[i] = 3 * in[t % 4][255 - i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) { store(y + t * 256, out, 1024); commit(); drain(); }
    __syncthreads();
  }
}
extern "C" __global__ void reuse(const float* x, float* y, int wait_for) {  // overwrites what is still being stored
  __shared__ alignas(16) float s[32];
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  if (threadIdx.x == 0) { store(y, s, 128); commit(); if (wait_for) drain(); }
  __syncwarp();
  s[threadIdx.x] = -1;
  __syncwarp();
  if (threadIdx.x == 0) drain();
}
extern "C" __global__ void unawaited(const float* x, float* y) {
  __shared__ alignas(16) float s[32];
  __shared__ unsigned long long b;
  if (threadIdx.x == 0) { init(&b, 1); expect(&b, 128); load(s, x, 128, &b); }
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void wrong_count(const float* x, float* y) {
  __shared__ alignas(16) float s[32];
  __shared__ unsigned long long b;
  if (threadIdx.x == 0) { init(&b, 1); expect(&b, 256); load(s, x, 128, &b); }
  __syncwarp();
  wait(&b, 0);
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void misfit(const float* x, int skip, int bytes) {
  __shared__ alignas(16) float s[32];
  __shared__ unsigned long long b;
  init(&b, 1);
  expect(&b, bytes);
  load(s, x + skip, bytes, &b);
  wait(&b, 0);
}
extern "C" __global__ void add_up(const int* x, int* y) {
  __shared__ alignas(16) int s[64];
  s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], %2;" ::"l"(y), "r"(at(s)), "r"(256)
                 : "memory");
    commit();
    drain();
  }
}
extern "C" __global__ void __cluster_dims__(4, 1, 1) spread(const float* x, float* y) {  // every block loads a quarter for all
  __shared__ alignas(128) float s[128];
  __shared__ unsigned long long b;
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) { init(&b, 1); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); expect(&b, 512); }
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                 ::"r"(at(s + 32 * rank)), "l"(x + 32 * rank), "r"(128), "r"(at(&b)), "h"((short)15) : "memory");
  wait(&b, 0);
  y[blockIdx.x * 128 + threadIdx.x] = s[threadIdx.x];
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) across(const float* x, float* y) {  // shared memory to shared memory
  __shared__ alignas(128) float s[64], t[64];
  __shared__ unsigned long long b;
  u32 rank, to, barrier;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) { init(&b, 1); expect(&b, 256); }
  s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  asm volatile("fence.proxy.async;" ::: "memory");
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  if (threadIdx.x == 0) {
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at(t)), "r"(rank ^ 1));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(at(&b)), "r"(rank ^ 1));
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "r"(at(s)), "r"(256), "r"(barrier) : "memory");
  }
  wait(&b, 0);
  y[blockIdx.x * 64 + threadIdx.x] = t[threadIdx.x];
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) pass_on(const int* x, int* y) {  // st.async to the other block
  __shared__ alignas(16) int s[64];
  __shared__ unsigned long long b;
  u32 rank, to, barrier;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) { init(&b, 1); expect(&b, 256); }
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at(s + 2 * threadIdx.x)), "r"(rank ^ 1));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(at(&b)), "r"(rank ^ 1));
  const int* mine = x + blockIdx.x * 64 + 2 * threadIdx.x;
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
               ::"r"(to), "r"(mine[0]), "r"(mine[1]), "r"(barrier) : "memory");
  wait(&b, 0);
  for (int k = 0; k < 2; k++) y[blockIdx.x * 64 + threadIdx.x + 32 * k] = s[threadIdx.x + 32 * k];
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
}
extern "C" __global__ void registers(int* y) {
  if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  y[threadIdx.x] = threadIdx.x;
}
"""  # noqa: E501
)
TILES = (
    HEAD
    + r"""
extern "C" __global__ void tile_bytes(const __grid_constant__ CUtensorMap m, unsigned char* y, int bytes, int i, int j) {
  extern __shared__ __align__(1024) unsigned char s[];
  __shared__ unsigned long long b;
  if (threadIdx.x == 0) { init(&b, 1); expect(&b, bytes); load2(s, &m, i, j, &b); }
  __syncthreads();
  wait(&b, 0);
  for (int k = threadIdx.x; k < bytes; k += blockDim.x) y[k] = s[k];
}
extern "C" __global__ void turn(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to) {
  __shared__ alignas(1024) float s[32][32], t[32][32];
  __shared__ unsigned long long b;
  if (threadIdx.x == 0) { init(&b, 1); expect(&b, 4096); load2(s, &from, blockIdx.x * 32, blockIdx.y * 32, &b); }
  __syncthreads();
  wait(&b, 0);
  for (int k = threadIdx.x; k < 1024; k += blockDim.x) t[k % 32][k / 32] = s[k / 32][k % 32];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) { store2(&to, blockIdx.y * 32, blockIdx.x * 32, t); commit(); drain(); }
}
extern "C" __global__ void volume(const __grid_constant__ CUtensorMap m, float* y, int a, int b, int c) {
  __shared__ alignas(128) float s[2 * 3 * 8];
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) {
    init(&bar, 1);
    expect(&bar, sizeof(s));
    asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 ::"r"(at(s)), "l"(&m), "r"(a), "r"(b), "r"(c), "r"(at(&bar)) : "memory");
  }
  __syncthreads();
  wait(&bar, 0);
  for (int k = threadIdx.x; k < 48; k += 32) y[k] = s[k];
}
extern "C" __global__ void reduce_tile(const __grid_constant__ CUtensorMap m) {
  __shared__ alignas(128) float s[64];
  s[threadIdx.x] = threadIdx.x + 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(&m), "r"(4), "r"(0), "r"(at(s)) : "memory");
    commit();
    drain();
  }
}
"""  # noqa: E501
)


@cache
def program(source: str) -> Program:
    result = compile_ptx(source)
    assert result.ok, result.log
    return Program.load(result.ptx)


def run(source: str, kernel: str, grid: object, block: int, args: list[object], **options: object) -> LaunchReport:
    return launch(program(source), kernel, grid, block, args, **options)  # type: ignore[arg-type]


def fault(source: str, kernel: str, block: int, args: list[object], **options: object) -> Fault:
    with pytest.raises(MachineFault) as caught:
        run(source, kernel, 1, block, args, **options)
    return caught.value.fault


def numbers(n: int) -> np.ndarray:
    return np.arange(1, n + 1, dtype=np.float32)


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.float32)


@pytest.mark.parametrize("order", ORDERS)
def test_a_pipeline_of_bulk_copies(order: str) -> None:
    x, y = numbers(256 * 9), zeros(256 * 9)
    report = run(BULK, "scale", 1, 128, [x, y, 9], order=order)
    assert np.array_equal(y, 3 * x.reshape(9, 256)[:, ::-1].ravel())
    assert not report.warnings
    assert report.written[1] == report.read[0] == 256 * 9 * 4


def test_a_buffer_that_is_reused_before_it_was_read() -> None:
    y = zeros(32)
    run(BULK, "reuse", 1, 32, [numbers(32), y, 1])
    assert np.array_equal(y, numbers(32))
    run(BULK, "reuse", 1, 32, [numbers(32), y, 0])
    assert (y == -1).all()


def test_a_bulk_copy_that_nobody_waits_for() -> None:
    y = zeros(32)
    report = run(BULK, "unawaited", 1, 32, [numbers(32), y])
    assert np.isnan(y).all()
    assert {w.kind for w in report.warnings} == {"async-copy", "leaked-copy"}


def test_an_mbarrier_that_expects_more_bytes_than_come() -> None:
    found = fault(BULK, "wrong_count", 32, [numbers(32), zeros(32)])
    assert found.kind == "barrier-deadlock" and "mbarrier.try_wait" in found.message


@pytest.mark.parametrize(
    ("skip", "size", "kind", "text"),
    [
        (1, 64, "misaligned-access", "global address"),
        (0, 72, "misaligned-access", "number of bytes"),
        (16, 128, "out-of-bounds-read", "across the end of the 128-byte allocation"),
        (0, 4096, "out-of-bounds-write", "shared memory"),
    ],
)
def test_bulk_copies_that_do_not_fit(skip: int, size: int, kind: str, text: str) -> None:
    x = np.zeros(48, np.float32)
    x = x[-(x.ctypes.data % 16) // 4 % 4 :][:32]  # aligned to 16 bytes
    found = fault(BULK, "misfit", 1, [x, skip, size])
    assert found.kind == kind and text in found.message


def test_reductions_by_bulk_copies() -> None:
    x, y = np.arange(5 * 64, dtype=np.int32), np.full(64, 7, np.int32)
    run(BULK, "add_up", 5, 64, [x, y])
    assert np.array_equal(y, 7 + x.reshape(5, 64).sum(0))


@pytest.mark.parametrize("order", ORDERS)
def test_copies_between_the_blocks_of_a_cluster(order: str) -> None:
    x, y = numbers(128), zeros(1024)
    run(BULK, "spread", 8, 128, [x, y], order=order)
    assert np.array_equal(y, np.tile(x, 8))
    x, y = numbers(256), zeros(256)
    run(BULK, "across", 4, 64, [x, y], order=order)
    assert np.array_equal(y, x.reshape(2, 2, 64)[:, ::-1].ravel())


def test_stores_that_an_mbarrier_counts() -> None:
    x, y = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    report = run(BULK, "pass_on", 4, 32, [x, y])
    assert np.array_equal(y, x.reshape(2, 2, 64)[:, ::-1].ravel()) and not report.warnings
    z = np.zeros(256, np.int32)
    run(BULK, "registers", 1, 256, [z])
    assert np.array_equal(z, np.arange(256))


def swizzled(tile: np.ndarray, width: int) -> np.ndarray:
    """Returns a tile's bytes in TMA's layout: 16-byte chunks exchanged by bits of the number of their 128-byte line."""
    flat = tile.reshape(-1, 16)
    out = np.empty_like(flat)
    for chunk in range(len(flat)):
        line = chunk // 8
        out[chunk ^ (line % (width // 16) if width else 0)] = flat[chunk]
    return out.ravel()


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("corner", [(0, 0), (16, 8), (60, 36), (-5, -3), (200, 0)])
def test_tiles_with_swizzle_and_edges(swizzle: int, corner: tuple[int, int]) -> None:
    a = np.random.default_rng(3).integers(1, 2**15, (40, 72)).astype(np.uint16)
    columns = swizzle // 2 or 32
    box = (columns, 16)
    raw = encode_tiled("u16", a.ctypes.data, (72, 40), (144,), box, swizzle=swizzle)
    padded = np.zeros((40 + 60, 72 + 500), np.uint16)
    padded[20:60, 100:172] = a
    i, j = corner
    tile = padded[20 + j : 36 + j, 100 + i : 100 + i + columns]
    y = np.zeros(tile.nbytes, np.uint8)
    loaded = program(TILES)
    tables = [Allocation(a.ctypes.data, a.nbytes, "a"), Allocation(y.ctypes.data, y.nbytes, "y")]
    numbers_ = [v.to_bytes(4, "little", signed=True) for v in (tile.nbytes, i, j)]
    loaded.launch(
        "tile_bytes", (1, 1, 1), (64, 1, 1), [raw, y.ctypes.data.to_bytes(8, "little"), *numbers_], tile.nbytes, tables
    )
    assert np.array_equal(y, swizzled(np.ascontiguousarray(tile).view(np.uint8), swizzle))


def with_maps(kernel: str, grid: tuple[int, int, int], args: list[bytes], arrays: list[np.ndarray]) -> LaunchReport:
    tables = [Allocation(a.ctypes.data, a.nbytes, f"array{k}") for k, a in enumerate(arrays)]
    return program(TILES).launch(kernel, grid, (64, 1, 1), args, 0, tables)


def test_a_transpose_by_tiles() -> None:
    a = np.random.default_rng(4).standard_normal((100, 60)).astype(np.float32)
    b = np.zeros((60, 100), np.float32)
    maps = [encode_tiled("f32", m.ctypes.data, m.shape[::-1], (m.strides[0],), (32, 32)) for m in (a, b)]
    report = with_maps("turn", (2, 4, 1), maps, [a, b])
    assert np.array_equal(b, a.T)
    assert report.written == (0, b.nbytes) and not report.warnings


@pytest.mark.parametrize("steps", [(1, 1, 1), (1, 2, 3)])
def test_three_dimensions_element_strides_and_nan(steps: tuple[int, int, int]) -> None:
    a = np.arange(5 * 7 * 12, dtype=np.float32).reshape(5, 7, 12)
    box = tuple(n * s for n, s in zip((8, 3, 2), steps, strict=True))
    raw = encode_tiled("f32", a.ctypes.data, (12, 7, 5), (48, 336), box, steps, fill_nan=True)
    y = np.zeros(48, np.float32)
    at = [v.to_bytes(4, "little", signed=True) for v in (6, 4, -1)]
    with_maps("volume", (1, 1, 1), [raw, y.ctypes.data.to_bytes(8, "little"), *at], [a, y])
    expected = np.full((2, 3, 8), np.nan, np.float32)
    for p, q, r in np.ndindex(2, 3, 8):
        z, v, u = -1 + p * steps[2], 4 + q * steps[1], 6 + r
        if 0 <= z < 5 and v < 7 and u < 12:
            expected[p, q, r] = a[z, v, u]
    assert np.array_equal(y.reshape(2, 3, 8), expected, equal_nan=True)


def test_a_reduction_into_a_tile_past_the_edge() -> None:
    a = np.ones((6, 8), np.float32)
    raw = encode_tiled("f32", a.ctypes.data, (8, 6), (32,), (8, 8))
    with_maps("reduce_tile", (1, 1, 1), [raw], [a])
    expected = np.ones((6, 8), np.float32)
    expected[:, 4:] += (np.arange(64).reshape(8, 8) + 1)[:6, :4]
    assert np.array_equal(a, expected)


def test_descriptors_that_are_wrong() -> None:
    a, b = np.zeros((64, 64), np.float32), np.zeros((32, 32), np.float32)
    good = encode_tiled("f32", a.ctypes.data, (64, 64), (256,), (32, 32))
    for bad, kind in [
        (bytes(128), "bad-descriptor"),
        (encode_tiled("f32", a.ctypes.data, (64,), (), (32,)), "bad-descriptor"),
        (encode_tiled("f32", a.ctypes.data, (64, 65), (256,), (32, 32)), None),
        (encode_tiled("f32", b.ctypes.data, (64, 64), (256,), (32, 32)), "out-of-bounds-read"),
    ]:
        if kind is None:
            with_maps("turn", (1, 1, 1), [bad, good], [a, b])
            continue
        with pytest.raises(MachineFault) as caught:
            with_maps("turn", (1, 1, 1), [bad, good], [a, b])
        assert caught.value.fault.kind == kind


@pytest.mark.parametrize(
    ("dims", "strides", "box", "options"),
    [
        ((64, 64), (250,), (32, 32), {}),
        ((64, 64), (256,), (257, 32), {}),
        ((64, 64), (256,), (3, 32), {}),
        ((64, 64), (256,), (64, 32), {"swizzle": 128}),
        ((0, 64), (256,), (32, 32), {}),
        ((64, 64), (256,), (32, 32), {"element_strides": (9, 1)}),
    ],
)
def test_what_the_driver_refuses_to_encode(
    dims: object, strides: object, box: object, options: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="CUresult 1"):
        encode_tiled("f32", 4096, dims, strides, box, **options)  # type: ignore[arg-type]
