"""Reads of device memory that nothing has written: found by the shadow of written bytes, never by the bytes' value."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from machine_launch import dims, program
from test_bulk_copies import HEAD as COPIES

from kernelwright.machine import Allocation, Fault, LaunchOptions, MachineFault
from kernelwright.machine.device_memory import POISON, Shadow
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
extern "C" __global__ void drop(float* x, int first) {
  if (threadIdx.x == 0) asm volatile("discard.global.L2 [%0], 128;" ::"l"(x + first) : "memory");
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
BYTES = SIZE * 4


class Block:
    """A block of 64 floats that nothing has written, or that holds an upload."""

    def __init__(self, name: str, written: Any = None, poison: int = POISON) -> None:
        self.name = name
        self.memory = np.full(BYTES, poison, np.uint8)
        self.address = self.memory.ctypes.data
        self.shadow = Shadow(BYTES)
        if written is not None:
            self.upload(0, np.ascontiguousarray(written).tobytes())

    def upload(self, offset: int, data: bytes) -> None:
        self.memory[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        self.shadow.mark(offset, len(data))

    def allocation(self) -> Allocation:
        return Allocation(self.address, BYTES, self.name, shadow=self.shadow)

    def floats(self) -> np.ndarray:
        return self.memory.view(np.float32)


def run(kernel: str, *args: Any, threads: int = SIZE, **options: Any) -> list[Fault]:
    """Launches a kernel on blocks and numbers; returns the warnings."""
    loaded = program(COPIES + KERNELS)
    blocks = [a for a in args if isinstance(a, Block)]
    sizes = [size for size, _align in loaded.kernels[kernel].params]
    packed = [
        struct.pack("<Q", a.address) if isinstance(a, Block) else int(a).to_bytes(size, "little")
        for a, size in zip(args, sizes, strict=True)
    ]
    table = [b.allocation() for b in {id(b): b for b in blocks}.values()]
    report = loaded.launch(kernel, dims(1), dims(threads), packed, 0, table, LaunchOptions(**options))
    return [w for w in report.warnings if w.kind == "uninitialised-read"]


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("value", [0xFF, 0x5A, 0x7E, 0x00])
def test_bytes_that_were_written_are_written_whatever_they_are(value: int, watch: bool) -> None:
    x, y = Block("x", np.full(SIZE * 4, value, np.uint8)), Block("y")
    assert run("bytes", x, y, watch=watch) == []
    assert run("bytes", y, Block("z"), watch=watch) == []
    assert run("copy", x, y, watch=watch) == []


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("value", [0xFF, 0x00, 0x42])
def test_bytes_that_nothing_has_written_are_found_whatever_they_are(value: int, watch: bool) -> None:
    x = Block("x", poison=value)
    found = run("copy", x, Block("y"), watch=watch)
    assert [(w.line, w.thread) for w in found] == [(line_of("void copy"), (0, 0, 0))]
    assert "read of x at byte 0 (of 256), which nothing has written" in found[0].message
    assert (x.memory == value).all()


def line_of(text: str) -> int:
    lines = (COPIES + KERNELS).split("\n")
    return next(i for i, line in enumerate(lines, 1) if text in line)


def test_the_shadow_lasts_across_launches() -> None:
    x = Block("x")
    assert run("half", x) == []
    found = run("copy", x, Block("y"))
    assert [(w.thread, "at byte 4 " in w.message) for w in found] == [((1, 0, 0), True)]
    assert run("odds", x) == []
    assert x.shadow.complete()
    assert run("copy", x, Block("y")) == []


def test_scattered_uniform_and_wide_accesses() -> None:
    x = Block("x")
    assert [w.thread for w in run("first", x, Block("y"))] == [(0, 0, 0)]
    x.upload(0, bytes(4))
    assert run("first", x, Block("y")) == []
    x.upload(4, bytes(60))
    assert run("quads", x, Block("y"), threads=4) == []
    found = run("quads", x, Block("y"), threads=8)
    assert [(w.thread, "at byte 64 " in w.message) for w in found] == [((4, 0, 0), True)]
    written = Block("y")
    run("quads", Block("x", np.ones(SIZE, np.float32)), written, threads=4)
    assert [written.shadow.unwritten(0, 64), written.shadow.unwritten(64, 192)] == [0, 192]


@pytest.mark.parametrize("kernel", ["add", "swap"])
def test_an_atomic_reads_what_it_changes(kernel: str) -> None:
    x, y = Block("x", np.ones(SIZE, np.float32)), Block("y")
    assert [w.line for w in run(kernel, x, y)] == [line_of(f"void {kernel}")]
    y = Block("y", np.zeros(SIZE, np.float32))
    assert run(kernel, x, y) == []
    assert y.floats()[0] == (8 if kernel == "add" else 1)


def test_an_atomic_writes_what_a_later_launch_reads() -> None:
    x, y = Block("x", np.ones(SIZE, np.float32)), Block("y")
    run("swap", x, y)
    assert y.shadow.complete()
    assert run("copy", y, Block("z")) == []


@pytest.mark.parametrize("kernel", ["async", "bulk"])
def test_asynchronous_copies_read(kernel: str) -> None:
    x, y = Block("x", np.arange(SIZE, dtype=np.float32)), Block("y")
    assert run(kernel, x, y) == []
    assert y.shadow.complete()
    x = Block("x", np.arange(SIZE - 1, dtype=np.float32))
    assert ["at byte 252 " in w.message for w in run(kernel, x, Block("y"))] == [True]


def test_a_bulk_reduction_reads_what_it_changes() -> None:
    x, y = Block("x", np.ones(SIZE, np.float32)), Block("y", np.ones(SIZE, np.float32))
    assert run("raise", x, y) == []
    assert (y.floats() == 2).all()
    y = Block("y")
    assert ["read of y at byte 0 " in w.message for w in run("raise", x, y)] == [True]
    assert y.shadow.complete()


def test_lanes_in_different_spaces() -> None:
    x = Block("x", np.ones(8, np.float32))
    assert run("either", x, Block("y"), 8) == []
    assert [w.thread for w in run("either", x, Block("y"), 9)] == [(8, 0, 0)]


def test_surfaces() -> None:
    x, y = Block("x"), Block("y")
    loaded = program(COPIES + KERNELS)
    seen = Texture(0x77, x.address, SIZE, kind="linear", shape="1d", surface=True)

    def launch(to: int) -> list[str]:
        args, table = [struct.pack("<Q", 0x77), struct.pack("<Q", to)], [x.allocation(), y.allocation()]
        options = LaunchOptions(textures=[seen])
        return [w.kind for w in loaded.launch("surface", (1, 1, 1), (SIZE, 1, 1), args, 0, table, options).warnings]

    assert launch(y.address) == ["uninitialised-read"]
    assert launch(0) == []
    assert launch(y.address) == []
    assert x.shadow.complete()


def test_memory_of_in_kernel_malloc() -> None:
    assert run("heap", Block("y"), 4) == []
    found = run("heap", Block("y"), 3)
    assert [w.line for w in found] == [line_of("y[t] = p[3]")]


def test_a_copy_carries_the_marks() -> None:
    x, y = Block("x"), Block("y", np.zeros(SIZE, np.float32))
    assert y.shadow.complete()
    run("half", x)
    y.shadow.copy_from(128, x.shadow.marks(0, 128))
    assert [y.shadow.unwritten(0, 128), y.shadow.unwritten(128, 128)] == [0, 64]
    assert ["at byte 132 " in w.message for w in run("copy", y, Block("z"))] == [True]
    y.shadow.copy_from(128, y.shadow.marks(0, 128))
    assert run("copy", y, Block("z")) == []
    assert y.shadow.complete()


def test_a_shadow_of_another_size_is_refused() -> None:
    x = Block("x")
    x.shadow = Shadow(BYTES - 1)
    with pytest.raises(MachineFault, match="the shadow of 'x' has another size"):
        run("half", x)


def test_a_discarded_line_is_unwritten() -> None:
    x = Block("x")
    x.upload(0, bytes(252))
    first = -x.address % 128 // 4
    assert run("drop", x, first, poison=0x42) == []
    assert (x.memory[first * 4 : first * 4 + 128] == 0x42).all()
    assert x.shadow.unwritten(first * 4, 128) == 128


def test_elements_of_a_strided_tensor() -> None:
    x = Block("x")
    x.shadow.elements(4, (8, 4), (8, 1), 4)[:] = 1  # columns 1 to 4 of rows of 8
    marks = x.shadow.marks(0, 256).reshape(8, 8, 4)
    assert marks[:, 1:5].all()
    assert not marks[:, 0].any()
    assert not marks[:, 5:].any()
