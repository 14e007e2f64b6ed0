"""Whole kernels with wgmma on the machine: tiles, swizzles and pipelines, and their faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machine_launch import ORDERS, launch, program
from tensor_layouts import FORMATS

from kernelwright.machine import LaunchReport, MachineFault, Program

# D = A B^T, a block of two warpgroups for a tile of 128 x 64; both operands in tiles of 64 halves along k with 128-byte
# swizzle, the descriptor moved along k inside the swizzled rows as CUTLASS does.
MATMUL = r"""#include <cuda_fp16.h>
__device__ unsigned long long descriptor(const void* p, unsigned stride) {
  unsigned long long at = (unsigned)__cvta_generic_to_shared(p);
  return at >> 4 & 0x3fff | 1ull << 16 | (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}
__device__ void copy(char* to, const half* from, int rows, int k, int t) {
  for (int i = t; i < rows * 8; i += 256) {
    int row = i / 8, unit = i % 8;
    *(uint4*)(to + row * 128 + ((unit ^ row % 8) * 16)) = *(const uint4*)(from + row * k + unit * 8);
  }
}
__device__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b, int keep) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,"
    "%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;}\n"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
      "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
      "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
      "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
    : "l"(a), "l"(b), "r"(keep));
}
extern "C" __global__ void matmul(const half* a, const half* b, float* c, int n, int k) {
  extern __shared__ __align__(1024) char s[];
  char *sa = s, *sb = s + 128 * 128;
  int t = threadIdx.x, group = t / 128, lane = t % 32, warp = t / 32 % 4;
  float d[32];
  for (int k0 = 0; k0 < k; k0 += 64) {
    copy(sa, a + blockIdx.y * 128 * k + k0, 128, k, t);
    copy(sb, b + blockIdx.x * 64 * k + k0, 64, k, t);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    BEFORE
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < 4; i++)
      multiply(d, descriptor(sa + group * 8192, 1024) + i * 2, descriptor(sb, 1024) + i * 2, k0 + i > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    WAIT
    __syncthreads();
  }
  int row = blockIdx.y * 128 + group * 64 + warp * 16 + lane / 4, column = blockIdx.x * 64 + lane % 4 * 2;
  for (int i = 0; i < 32; i++) c[(row + i / 2 % 2 * 8) * n + column + i / 4 * 8 + i % 2] = d[i];
}"""
BEFORE = "__syncthreads();"
WAIT = 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");'


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def run(rng: np.random.Generator, before: str = BEFORE, wait: str = WAIT, **options: Any) -> tuple[LaunchReport, float]:
    """Runs the product of 256 x 192 and 128 x 192; returns the report and the largest difference."""
    a, b = rng.standard_normal((256, 192)).astype(np.float16), rng.standard_normal((128, 192)).astype(np.float16)
    c = np.zeros((256, 128), np.float32)
    loaded = program(MATMUL.replace("BEFORE", before).replace("WAIT", wait))
    report = launch(loaded, "matmul", (2, 2), 256, [a, b, c, 128, 192], 24576, **options)
    return report, float(np.abs(c - a.astype(np.float64) @ b.T.astype(np.float64)).max())


@pytest.mark.parametrize("order", ORDERS)
def test_matmul_of_swizzled_tiles(order: str, rng: np.random.Generator) -> None:
    report, difference = run(rng, order=order)
    assert not report.warnings
    assert difference < 1e-4
    assert report.counters["mma"] == 4 * 3 * 4 * 8  # of each warp


def test_a_missing_barrier_before_wgmma_is_a_race(rng: np.random.Generator) -> None:
    report, _ = run(rng, before="")
    assert any("wgmma" in w.ptx or "read after write" in w.message for w in report.warnings)


SMALL = r"""extern "C" __global__ void k(unsigned long long a, unsigned long long b) {
  float d[4] = {};
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
}"""


def test_descriptors_are_checked() -> None:
    loaded = program(SMALL)
    inside = 128 >> 4 << 16 | 256 >> 4 << 32
    launch(loaded, "k", 1, 128, [inside, inside], 4096)
    with pytest.raises(MachineFault, match="out-of-bounds shared read of 16 bytes"):
        launch(loaded, "k", 1, 128, [inside, inside | 4000 >> 4], 4096)
    with pytest.raises(MachineFault, match="warpgroup of fewer than four warps"):
        launch(loaded, "k", 1, 96, [inside, inside], 4096)


@pytest.mark.parametrize("wait", ["", WAIT.replace(" 0;", " 1;")], ids=["none", "one group left"])
def test_reading_accumulators_before_the_wait(wait: str, rng: np.random.Generator) -> None:
    report, difference = run(rng, wait=wait)
    early = [w for w in report.warnings if "wgmma.wait_group" in w.message]
    # A wait that leaves groups pending is taken as a wait for all: its reads are not told from good ones.
    assert bool(early) == (not wait)
    assert difference < 1e-4


@pytest.mark.parametrize(
    ("kind", "triton_type", "n_major", "stages"),
    [("f16", "fp16", True, 3), ("bf16", "bf16", False, 1), ("tf32", "fp32", False, 2), ("e4m3", "fp8e4nv", False, 2)],
)
def test_code_that_triton_makes_for_sm_90(
    kind: str, triton_type: str, n_major: bool, stages: int, rng: np.random.Generator
) -> None:
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton_dot import dot

    sizes = {"BM": 64, "BN": 128, "BK": 64, "N_MAJOR": n_major}
    pointers = {name: f"*{t}" for name, t in (("a", triton_type), ("b", triton_type), ("c", "fp32"))}
    signature = {**pointers, "n": "i32", "k": "i32", **dict.fromkeys(sizes, "constexpr")}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(5)}
    source = ASTSource(fn=dot, signature=signature, constexprs=sizes, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_stages": stages})
    assert "wgmma.mma_async" in made.asm["ptx"]
    form, k = FORMATS[kind], 256
    bytes_type = {8: np.uint8, 16: np.uint16, 32: np.uint32}[form.bits]
    a, b = (form.encode(rng.standard_normal((rows, k))).astype(bytes_type) for rows in (128, 128))
    c = np.zeros((128, 128), np.float32)
    loaded = Program.load(made.asm["ptx"])
    rest = [0] * (len(loaded.kernels[made.metadata.name].params) - 5)
    args = [a, np.ascontiguousarray(b.T) if n_major else b, c, 128, k, *rest]
    report = launch(loaded, made.metadata.name, 2, 128, args, made.metadata.shared)
    assert not report.warnings
    np.testing.assert_allclose(c, form.decode(a) @ form.decode(b).T, atol=1e-4)
