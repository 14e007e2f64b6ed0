"""Reads of device memory that nothing has written: found by the shadow of written bytes, never by the bytes' value."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from machine_launch import dims, program
from test_bulk_copies import HEAD as COPIES

from kernelwright.machine import Allocation, Fault, LaunchOptions
from kernelwright.machine.device_memory import DeviceBlock
from kernelwright.machine.texture import Texture

KERNELS = r"""
#define AT int t = blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void half(float* x) { AT; if (t % 2 == 0) x[t] = t; }
extern "C" __global__ void odds(float* x) { AT; if (t % 2) x[t] = t; }
extern "C" __global__ void copy(const float* x, float* y) { AT; y[t] = x[t]; }
extern "C" __global__ void bytes(const unsigned char* x, unsigned char* y) { AT; y[t] = x[t]; }
extern "C" __global__ void quads(const float4* x, float4* y) { AT; y[t] = x[t]; }
extern "C" __global__ void first(const float* x, float* y) { AT; y[t] = x[0]; }
extern "C" __global__ void add(const float* x, float* y) { AT; atomicAdd(&y[t / 8], x[t]); }
extern "C" __global__ void swap(const float* x, float* y) { AT; atomicExch(&y[t], x[t]); }
extern "C" __global__ void async(const float* x, float* y) {
  __shared__ float s[64];
  AT;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(s + t)), "l"(x + t));
  asm volatile("cp.async.wait_all;" ::: "memory");
  y[t] = s[t];
}
extern "C" __global__ void bulk(const float* x, float* y) {
  __shared__ alignas(128) float s[64];
  __shared__ unsigned long long full;
  AT;
  if (t == 0) init(&full, 1), expect(&full, 256), load(s, x, 256, &full);
  __syncthreads();
  wait(&full, 0);
  s[t] += 1;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) store(y, s, 256), commit(), drain();
}
extern "C" __global__ void raise(const float* x, float* y) {
  __shared__ alignas(128) float s[64];
  AT;
  s[t] = x[t];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 256;"
                 ::"l"(y), "r"(at(s)) : "memory");
    commit(), drain();
  }
}
extern "C" __global__ void either(const float* x, float* y, int n) {
  __shared__ float s[64];
  AT;
  s[t] = 1;
  __syncthreads();
  const float* p = t < n ? x + t : s + t;  // lanes of one load in two spaces
  y[t] = *p;
}
extern "C" __global__ void surface(cudaSurfaceObject_t s, float* y) {
  AT;
  if (y) y[t] = surf1Dread<float>(s, t * 4);
  else surf1Dwrite<float>(t, s, t * 4);
}
extern "C" __global__ void heap(float* y, int n) {
  AT;
  float* p = (float*)malloc(64);
  for (int i = 0; i < n; i++) p[i] = -1;
  y[t] = p[3];
  free(p);
}
"""
SIZE = 64


def block(name: str, written: Any = None) -> DeviceBlock:
    """Returns a block of 64 floats that nothing has written, or that holds an upload."""
    made = DeviceBlock.fresh(SIZE * 4, name)
    if written is not None:
        made.upload(0, np.ascontiguousarray(written).tobytes())
    return made


def run(kernel: str, *args: Any, threads: int = SIZE, **options: Any) -> list[Fault]:
    """Launches a kernel on blocks and numbers; returns the warnings."""
    loaded = program(COPIES + KERNELS)
    blocks = [a for a in args if isinstance(a, DeviceBlock)]
    sizes = [size for size, _align in loaded.kernels[kernel].params]
    packed = [
        struct.pack("<Q", a.address) if isinstance(a, DeviceBlock) else int(a).to_bytes(size, "little")
        for a, size in zip(args, sizes, strict=True)
    ]
    table = [Allocation.of(b) for b in {id(b): b for b in blocks}.values()]
    report = loaded.launch(kernel, dims(1), dims(threads), packed, 0, table, LaunchOptions(**options))
    for b in blocks:
        b.settle()
    return [w for w in report.warnings if w.kind == "uninitialised-read"]


def floats(source: DeviceBlock) -> np.ndarray:
    return np.frombuffer(source.download(0, source.nbytes), np.float32)


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("value", [0xFF, 0x5A, 0x7E, 0x00])
def test_bytes_that_were_written_are_written_whatever_they_are(value: int, watch: bool) -> None:
    x, y = block("x", np.full(SIZE * 4, value, np.uint8)), block("y")
    assert run("bytes", x, y, watch=watch) == []
    assert run("bytes", y, block("z"), watch=watch) == []
    assert run("copy", x, y, watch=watch) == []


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("value", [0xFF, 0x00, 0x42])
def test_bytes_that_nothing_has_written_are_found_whatever_they_are(value: int, watch: bool) -> None:
    x = DeviceBlock.fresh(SIZE * 4, "x", poison=value)
    found = run("copy", x, block("y"), watch=watch)
    assert [(w.line, w.thread) for w in found] == [(line_of("void copy"), (0, 0, 0))]
    assert "read of x at byte 0 (of 256), which nothing has written" in found[0].message
    assert x.download(0, 256) == bytes([value]) * 256


def line_of(text: str) -> int:
    lines = (COPIES + KERNELS).split("\n")
    return next(i for i, line in enumerate(lines, 1) if text in line)


def test_the_shadow_lasts_across_launches() -> None:
    x = block("x")
    assert run("half", x) == []
    found = run("copy", x, block("y"))
    assert [(w.thread, "at byte 4 " in w.message) for w in found] == [((1, 0, 0), True)]
    assert run("odds", x) == []
    assert x.shadow is None
    assert run("copy", x, block("y")) == []


def test_scattered_uniform_and_wide_accesses() -> None:
    x = block("x")
    assert [w.thread for w in run("first", x, block("y"))] == [(0, 0, 0)]
    x.upload(0, bytes(4))
    assert run("first", x, block("y")) == []
    x.upload(4, bytes(60))
    assert run("quads", x, block("y"), threads=4) == []
    found = run("quads", x, block("y"), threads=8)
    assert [(w.thread, "at byte 64 " in w.message) for w in found] == [((4, 0, 0), True)]
    written = block("y")
    run("quads", block("x", np.ones(SIZE, np.float32)), written, threads=4)
    assert [written.unwritten(0, 64), written.unwritten(64, 192)] == [0, 192]


@pytest.mark.parametrize("kernel", ["add", "swap"])
def test_an_atomic_reads_what_it_changes(kernel: str) -> None:
    x, y = block("x", np.ones(SIZE, np.float32)), block("y")
    assert [w.line for w in run(kernel, x, y)] == [line_of(f"void {kernel}")]
    y = block("y", np.zeros(SIZE, np.float32))
    assert run(kernel, x, y) == []
    assert floats(y)[0] == (8 if kernel == "add" else 1)


def test_an_atomic_writes_what_a_later_launch_reads() -> None:
    x, y = block("x", np.ones(SIZE, np.float32)), block("y")
    run("swap", x, y)
    assert y.shadow is None
    assert run("copy", y, block("z")) == []


@pytest.mark.parametrize("kernel", ["async", "bulk"])
def test_asynchronous_copies_read(kernel: str) -> None:
    x, y = block("x", np.arange(SIZE, dtype=np.float32)), block("y")
    assert run(kernel, x, y) == []
    assert y.shadow is None
    x = block("x", np.arange(SIZE - 1, dtype=np.float32))
    assert ["at byte 252 " in w.message for w in run(kernel, x, block("y"))] == [True]


def test_a_bulk_reduction_reads_what_it_changes() -> None:
    x, y = block("x", np.ones(SIZE, np.float32)), block("y", np.ones(SIZE, np.float32))
    assert run("raise", x, y) == []
    assert (floats(y) == 2).all()
    y = block("y")
    assert ["read of y at byte 0 " in w.message for w in run("raise", x, y)] == [True]
    assert y.shadow is None


def test_lanes_in_different_spaces() -> None:
    x = block("x", np.ones(8, np.float32))
    assert run("either", x, block("y"), 8) == []
    assert [w.thread for w in run("either", x, block("y"), 9)] == [(8, 0, 0)]


def test_surfaces() -> None:
    x, y = block("x"), block("y")
    loaded = program(COPIES + KERNELS)
    seen = Texture(0x77, x.address, SIZE, kind="linear", shape="1d", surface=True)

    def launch(to: int) -> list[str]:
        args, table = [struct.pack("<Q", 0x77), struct.pack("<Q", to)], [Allocation.of(x), Allocation.of(y)]
        options = LaunchOptions(textures=[seen])
        return [w.kind for w in loaded.launch("surface", (1, 1, 1), (SIZE, 1, 1), args, 0, table, options).warnings]

    assert launch(y.address) == ["uninitialised-read"]
    assert launch(0) == []
    assert launch(y.address) == []
    x.settle()
    assert x.shadow is None


def test_memory_of_in_kernel_malloc() -> None:
    assert run("heap", block("y"), 4) == []
    found = run("heap", block("y"), 3)
    assert [w.line for w in found] == [line_of("y[t] = p[3]")]


def test_a_copy_carries_the_marks() -> None:
    x, y = block("x"), block("y", np.zeros(SIZE, np.float32))
    run("half", x)
    y.copy_from(128, x, 0, 128)
    assert [y.unwritten(0, 128), y.unwritten(128, 128)] == [0, 64]
    assert ["at byte 132 " in w.message for w in run("copy", y, block("z"))] == [True]
    y.copy_from(128, y, 0, 128)
    assert run("copy", y, block("z")) == []
    assert y.shadow is None


def test_fills_and_uploads_of_parts() -> None:
    x = block("x")
    x.fill(0, 128, struct.pack("<f", 2.5))
    assert x.unwritten(0, 256) == 128
    x.upload(124, bytes(132))
    assert x.shadow is None
    assert [floats(x)[0], floats(x)[30], floats(x)[31]] == [2.5, 2.5, 0]
    for wrong in (lambda: x.upload(200, bytes(57)), lambda: x.fill(0, 257, b"\0"), lambda: x.download(-1, 1)):
        with pytest.raises(ValueError, match="bytes at"):
            wrong()
    with pytest.raises(ValueError, match="pattern of 3"):
        x.fill(0, 256, b"abc")


def test_elements_of_a_strided_tensor() -> None:
    x = block("x")
    assert x.shadow is not None
    x.shadow.elements(4, (8, 4), (8, 1), 4)[:] = 1  # columns 1 to 4 of rows of 8
    marks = x.shadow.marks(0, 256).reshape(8, 8, 4)
    assert marks[:, 1:5].all()
    assert not marks[:, 0].any()
    assert not marks[:, 5:].any()
