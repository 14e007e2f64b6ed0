"""wgmma fed by TMA: the usual pipeline of Hopper kernels, and one that forgets to wait."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from machine_launch import ORDERS, program
from test_wgmma import MATMUL

from kernelwright.machine import Allocation, LaunchOptions, LaunchReport, MachineFault, library


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2)


# The same product with tiles that TMA brings, two stages, one thread that feeds them.
PIPELINED = (
    MATMUL.split("extern")[0]
    + r"""struct alignas(64) Map { char bytes[128]; };
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void fetch(void* to, const Map& m, int x, int y, void* full) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
               "[%4];" ::"r"(at(to)), "l"(&m), "r"(x), "r"(y), "r"(at(full)) : "memory");
}
__device__ void feed(char* stage, const Map& ma, const Map& mb, int k0, unsigned long long* full) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 24576;" ::"r"(at(full)) : "memory");
  fetch(stage, ma, k0, blockIdx.y * 128, full);
  fetch(stage + 16384, mb, k0, blockIdx.x * 64, full);
}
extern "C" __global__ void pipelined(const __grid_constant__ Map ma, const __grid_constant__ Map mb, float* c, int n,
                                     int k) {
  extern __shared__ __align__(1024) char s[];
  __shared__ unsigned long long full[2];
  int t = threadIdx.x, group = t / 128, lane = t % 32, warp = t / 32 % 4;
  if (t < 2) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&full[t])) : "memory");
  __syncthreads();
  if (t == 0) feed(s, ma, mb, 0, full);
  float d[32];
  for (int i = 0; i < k / 64; i++) {
    if (t == 0 && i + 1 < k / 64) feed(s + (i + 1) % 2 * 24576, ma, mb, (i + 1) * 64, full + (i + 1) % 2);
    LOADED
    char* stage = s + i % 2 * 24576;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int j = 0; j < 4; j++)
      multiply(d, descriptor(stage + group * 8192, 1024) + j * 2, descriptor(stage + 16384, 1024) + j * 2, i + j > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  int row = blockIdx.y * 128 + group * 64 + warp * 16 + lane / 4, column = blockIdx.x * 64 + lane % 4 * 2;
  for (int i = 0; i < 32; i++) c[(row + i / 2 % 2 * 8) * n + column + i / 4 * 8 + i % 2] = d[i];
}"""
)
LOADED = r"""asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; "
                 "@!p bra again; }"
                 ::"r"(at(&full[i % 2])), "r"(i / 2 & 1) : "memory");"""


def tensor_map(array: np.ndarray, rows: int) -> bytes:
    """Returns a tensor map of a matrix of halves, in boxes of `rows` x 64 with 128-byte swizzle."""
    room = ctypes.create_string_buffer(192)
    raw = ctypes.addressof(room) + -ctypes.addressof(room) % 64
    sizes, strides = (ctypes.c_uint64 * 2)(*array.shape[::-1]), (ctypes.c_uint64 * 1)(array.strides[0])
    box, steps = (ctypes.c_uint32 * 2)(64, rows), (ctypes.c_uint32 * 2)(1, 1)
    address = ctypes.c_void_p(array.ctypes.data)
    assert (
        library.load().kw_encode_tiled(ctypes.c_void_p(raw), 6, 2, address, sizes, strides, box, steps, 0, 3, 0, 0) == 0
    )
    return ctypes.string_at(raw, 128)


def run_pipelined(rng: np.random.Generator, loaded: str, order: str = "forward") -> tuple[LaunchReport, float]:
    a, b = rng.standard_normal((256, 320)).astype(np.float16), rng.standard_normal((128, 320)).astype(np.float16)
    c = np.zeros((256, 128), np.float32)
    table = [Allocation(x.ctypes.data, x.nbytes, name) for x, name in ((a, "a"), (b, "b"), (c, "c"))]
    numbers = [c.ctypes.data.to_bytes(8, "little"), (128).to_bytes(4, "little"), (320).to_bytes(4, "little")]
    args = [tensor_map(a, 128), tensor_map(b, 64), *numbers]
    kernels = program(PIPELINED.replace("LOADED", loaded))
    report = kernels.launch("pipelined", (2, 2, 1), (256, 1, 1), args, 49152, table, LaunchOptions(order=order))
    return report, float(np.abs(c - a.astype(np.float64) @ b.T.astype(np.float64)).max())


@pytest.mark.parametrize("order", ORDERS)
def test_matmul_of_tiles_from_tma(order: str, rng: np.random.Generator) -> None:
    report, difference = run_pipelined(rng, LOADED, order)
    assert not report.warnings
    assert difference < 1e-4


def test_wgmma_that_does_not_wait_for_its_tiles(rng: np.random.Generator) -> None:
    try:
        report, difference = run_pipelined(rng, "")
    except MachineFault:
        return
    assert report.warnings or difference > 1e-2
