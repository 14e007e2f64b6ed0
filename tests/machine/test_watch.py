"""Findings and counts of watched launches, against values computed by hand."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from machine_launch import launch, program

from kernelwright.machine import Fault, LaunchReport, MachineFault

HEAD = 'extern "C" __global__ void k(const float* x, float* y, int n) {\n    int t = threadIdx.x;\n'


def run(body: str, block: Any = 32, grid: int = 1, n: int = 0, size: int = 4096, **options: Any) -> LaunchReport:
    """Runs a kernel of x, y and n; its body begins on line 3."""
    x, y = np.ones(size, np.float32), np.zeros(size, np.float32)
    return launch(program(HEAD + body + "\n}\n"), "k", grid, block, [x, y, n], watch=True, **options)


def fault(body: str, **options: Any) -> Fault:
    with pytest.raises(MachineFault) as caught:
        run(body, **options)
    return caught.value.fault


def warnings(body: str, **options: Any) -> list[tuple[str, int | None]]:
    return [(w.kind, w.line) for w in run(body, **options).warnings]


def test_leaving_one_shared_variable_is_told_by_name() -> None:
    body = "__shared__ float a[32], b[32];\nb[t] = 1; a[t] = x[t]; __syncthreads();\ny[t] = a[t + 1] + b[t];"
    found = fault(body)
    assert (found.kind, found.line, found.thread) == ("out-of-bounds-read", 5, (31, 0, 0))
    assert "0 bytes past the end of shared variable 'a' (128 bytes)" in found.message
    found = fault(body.replace("a[t + 1]", "a[t]").replace("b[t] = 1", "b[t - 1] = 1"))
    assert (found.kind, found.line) == ("out-of-bounds-write", 4)
    assert "4 bytes before the start of shared variable 'b'" in found.message


def test_gaps_between_variables_change_nothing_else() -> None:
    body = "__shared__ float a[33]; a[t] = d[t] = x[t];\n__syncwarp(); y[t] = a[31 - t];}"
    loaded = program("extern __shared__ float d[];\n" + HEAD + body)
    assert loaded.kernels["k"].static_shared == 132
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    launch(loaded, "k", 1, 32, [x, y, 0], shared=227 * 1024 - 144, watch=True)
    with pytest.raises(MachineFault, match="bytes of shared memory per block"):
        launch(loaded, "k", 1, 32, [x, y, 0], shared=227 * 1024 - 143, watch=True)
    with pytest.raises(MachineFault, match="past the end of shared variable 'd' \\(64 bytes, dynamic\\)"):
        launch(loaded, "k", 1, 32, [x, y, 0], shared=64, watch=True)


def test_unwritten_memory() -> None:
    shared = "__shared__ float a[32];\nif (t < 31) a[t] = x[t];\n__syncthreads();\ny[t] = a[t];"
    assert warnings(shared) == [("uninitialised-read", 6)]
    assert warnings(shared.replace("t < 31", "t < 32")) == []
    local = "float a[8];\nfor (int i = 0; i < (int)x[t] * 7; ++i) a[i] = x[i];\ny[t] = a[(t + n) % 8];"
    assert warnings(local) == [("uninitialised-read", 5)]
    assert warnings(local.replace("* 7", "* 8")) == []


def test_lanes_of_a_warp_need_a_sync() -> None:
    body = "__shared__ float a[64];\na[t] = x[t];\n__syncwarp();\ny[t] = a[t ^ 1];\n"
    body += "__syncwarp();\na[t] = 2.f;\ny[t] += a[t];"
    assert warnings(body, block=64) == []
    assert warnings(body.replace("__syncwarp();\ny", "\ny"), block=64) == [("data-race", 6)]
    assert warnings(body.replace("__syncwarp();\na", "\na"), block=64) == [("data-race", 8)]
    report = run(body.replace("__syncwarp();\ny", "\ny"), block=64)
    assert "RAW inside a warp: byte 4 of shared variable 'a'" in report.warnings[0].message
    assert "(line 4)" in report.warnings[0].message
    # Every lane reads before any writes: together they do so in one statement.
    assert warnings("__shared__ float a[64];\na[t] = a[t + 32] = x[t];\n__syncwarp();\na[t] += a[t + 16];\n") == []


def test_updates_are_lost() -> None:
    assert warnings("y[0] += x[t];") == [("data-race", 3)]
    assert warnings("y[t] += x[t];") == []
    assert warnings("atomicAdd(&y[0], x[t]);") == []


def test_barriers_in_divergent_code() -> None:
    body = "if (t < 16) {\n__syncthreads();\ny[t] = x[t];\n} else {\ny[t] = 2.f;\n__syncthreads();\ny[t] += 3.f;\n}"
    assert [w[0] for w in warnings(body, block=64)] == ["divergent-barrier"]
    assert warnings("if (t >= 40) return;\n__syncthreads();\ny[t] = x[t];", block=64) == []


def test_shuffles_between_lanes_that_are_not_there() -> None:
    body = "float v = x[t];\nif (t < 16) {\nv += __shfl_down_sync(MASK, v, 8);\ny[t] = v;\n}"
    assert warnings(body.replace("MASK", "0xffff")) == [("shuffle-from-inactive", 5)]
    assert ("sync-mask", 5) in warnings(body.replace("MASK", "0x00ff"))
    assert warnings(body.replace("MASK, v, 8", "0xffff, v, 8, 16")) == []


def test_an_index_that_overflows_32_bits() -> None:
    found = fault("int i = t * n;\nif (t < 30)\ny[i] = x[t];", n=100_000_000)
    assert (found.kind, found.line, found.thread) == ("index-overflow", 3, (22, 0, 0))
    assert "2200000000 does not fit" in found.message and "line 5" in found.message
    found = fault("int i = (t + 1) * 1000003 * 100 % n;\ny[t] = x[i];", n=977)
    assert found.kind == "index-overflow"
    assert warnings("int i = t * n;\nif (t < 21)\ny[i % 64] = x[t];", n=100_000_000) == []
    # Unsigned numbers may wrap, and a value that is no address does no harm.
    assert warnings("unsigned h = t * 2654435761u;\ny[t] = x[h >> 22];") == []
    assert warnings("int i = t * n;\ny[t] = i;", n=100_000_000) == []


def test_sectors_and_wavefronts() -> None:
    def traffic(body: str, kind: str, **options: Any) -> tuple[int, int]:
        counters = run(body, **options).counters
        return counters[kind], counters[kind + "_ideal"]

    assert traffic("y[t] = x[t];", "global_load_sectors", block=256) == (32, 32)
    assert traffic("y[t] = x[t * 8];", "global_load_sectors", block=256) == (256, 32)
    assert traffic("y[t] = x[t + 1];", "global_load_sectors", block=256) == (40, 32)
    assert traffic("y[t] = x[n];", "global_load_sectors", block=256) == (8, 8)
    assert traffic("y[t * 2] = x[t];", "global_store_sectors", block=256) == (64, 32)
    tile = "__shared__ float s[32][WIDTH];\nint u = threadIdx.y;\ns[u][t] = x[u * 32 + t];\n__syncthreads();\n"
    tile += "y[u * 32 + t] = s[t][u];"
    plain, padded = tile.replace("WIDTH", "32"), tile.replace("WIDTH", "33")
    assert traffic(plain, "shared_load_wavefronts", block=(32, 32)) == (1024, 32)
    assert traffic(padded, "shared_load_wavefronts", block=(32, 32)) == (32, 32)
    assert traffic(plain, "shared_store_wavefronts", block=(32, 32)) == (32, 32)
    wide = "__shared__ float4 s[64];\ns[t] = reinterpret_cast<const float4*>(x)[t];\n__syncwarp();\ny[t] = s[t].x;"
    assert traffic(wide, "shared_store_wavefronts") == (4, 4)
    assert traffic(wide, "shared_load_wavefronts") == (4, 1)  # one word of four: every fourth bank
    spots = run(plain, block=(32, 32)).hotspots
    assert [(s.kind, s.line, s.actual, s.ideal) for s in spots] == [("shared_load", 7, 1024, 32)]


def test_operations_are_counted() -> None:
    source = """
#include <cuda_fp16.h>
extern "C" __global__ void mm(const float* a, const float* b, float* c, int n) {
    __shared__ float s[16][16], p[16][16];
    int t = threadIdx.x, u = threadIdx.y, r = blockIdx.y * 16 + u, q = blockIdx.x * 16 + t;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        s[u][t] = a[r * n + k + t];
        p[u][t] = b[(k + u) * n + q];
        __syncthreads();
        for (int j = 0; j < 16; ++j) sum += s[u][j] * p[j][t];
        __syncthreads();
    }
    c[r * n + q] = sum;
}
extern "C" __global__ void halves(const __half2* a, __half2* b) {
    b[threadIdx.x] = __hfma2(a[threadIdx.x], a[0], a[1]);
}
extern "C" __global__ void doubles(const double* a, double* b) { b[threadIdx.x] = a[threadIdx.x] * 3.0; }
"""
    n = 64
    a, b, c = (np.ones((n, n), np.float32) for _ in range(3))
    report = launch(program(source), "mm", (4, 4), (16, 16), [a, b, c, n], watch=True)
    assert report.counters["flops_f32"] == 2 * n**3
    assert report.counters["barriers"] == 256 * 16 * 2 * n // 16
    assert report.touched_read == (n * n * 4, n * n * 4, 0) and report.touched_written == (0, 0, n * n * 4)
    assert report.counters["global_load_sectors"] == report.counters["global_load_sectors_ideal"]
    assert report.instructions <= 32 * report.counters["warp_instructions"]
    h, g = np.ones(128, np.float16), np.ones(128, np.float16)
    assert launch(program(source), "halves", 1, 64, [h, g]).counters["flops_f16"] == 64 * 4
    d, e = np.ones(64), np.ones(64)
    assert launch(program(source), "doubles", 1, 64, [d, e]).counters["flops_f64"] == 64


def test_tensor_core_operations_are_counted_by_type() -> None:
    source = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(const __half* a, const __half* b, float* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
"""
    a, b, c = np.ones(256, np.float16), np.ones(256, np.float16), np.zeros(256, np.float32)
    counters = launch(program(source), "k", 1, 64, [a, b, c]).counters
    assert counters["tensor_ops_f16"] == 2 * 2 * 16**3


def test_only_a_sample_of_blocks() -> None:
    x, y = np.zeros(1, np.float32), np.zeros(1 << 20, np.float32)
    body = "y[(long long)blockIdx.x * 32 + t] = 1.f;"
    launch(program(HEAD + body + "}"), "k", 1 << 15, 32, [x, y, 0], watch=True, sample=8)
    ran = np.flatnonzero(y.reshape(-1, 32)[:, 0])
    assert {0, 1, (1 << 15) - 1, (1 << 15) - 2} <= set(ran.tolist()) and len(ran) <= 8


def test_a_sparse_launch_at_full_size() -> None:
    """A few blocks touch some of more than 2^31 elements: memory is allocated on the first touch."""
    elements = (1 << 31) + (1 << 20)
    pages = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    x = np.frombuffer(mmap.mmap(-1, elements, flags=pages), np.uint8)
    y = np.frombuffer(mmap.mmap(-1, elements, flags=pages), np.uint8)
    source = """
extern "C" __global__ void k(const unsigned char* x, unsigned char* y, long long n, int columns) {
    int row = blockIdx.x, column = threadIdx.x;
    INDEX i = (INDEX)row * columns + column;
    if (i < n) y[i] = x[i] + 1;
}
"""
    columns = 1 << 20
    options = {"grid": (elements // columns,), "block": 64, "args": [x, y, elements, columns], "sample": 12}
    with pytest.raises(MachineFault, match="2147483648 does not fit 32 bits") as caught:
        launch(program(source.replace("INDEX", "int")), "k", watch=True, **options)
    assert (caught.value.fault.kind, caught.value.fault.line) == ("index-overflow", 4)
    launch(program(source.replace("INDEX", "long long")), "k", watch=True, **options)
    assert y[elements - columns] == 1 and y[0] == 1
