"""Faults of kernels are reported with kind, source line, block and thread."""

from __future__ import annotations

import numpy as np
import pytest
from machine_launch import ORDERS, launch, program

from kernelwright.machine import Allocation, Fault, LaunchOptions, MachineFault, Program

SOURCE = r"""extern "C" __global__ void read_past(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i < n ? i : 0] = x[i];
}
extern "C" __global__ void write_past(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) x[i] = 1;
}
extern "C" __global__ void misaligned(const float* x, float4* y) {
  y[threadIdx.x] = *(const float4*)(x + threadIdx.x * 4 + 1);
}
extern "C" __global__ void shared_past(float* y) {
  __shared__ float s[64];
  s[threadIdx.x * 2] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void shuffle_half(float* y) {
  float v = y[threadIdx.x];
  if (threadIdx.x < 16) v += __shfl_xor_sync(0xffffffff, v, 1);
  else asm volatile("bar.sync 1, 64;");
  y[threadIdx.x] = v;
}
extern "C" __global__ void barrier_short(float* y) {
  if (threadIdx.x < 32) asm volatile("bar.sync 1, 128;");
  y[threadIdx.x] = 1;
}
extern "C" __global__ void endless(volatile int* f) {
  while (f[0] == 0);
  f[1] = 1;
}
extern "C" __global__ void trapping(int* y) {
  if (threadIdx.x == 7) __trap();
  y[threadIdx.x] = 1;
}
extern "C" __global__ void asserting(int* y) {
  if (y[threadIdx.x] != 0) __assertfail("y == 0", "mine.cu", 37, "asserting", 1);
}
extern "C" __global__ void store_one(float* y) {
  y[threadIdx.x] = 1;
}
extern "C" __global__ void __launch_bounds__(64) bounded(float* y) { y[threadIdx.x] = 1; }
extern "C" __global__ void local_past(int* y, int n) {
  int a[4] = {1, 2, 3, 4};
  a[n] += 1;
  y[0] = a[n & 1];
}
__device__ __forceinline__ float inner(const float* p, int i) {
  return p[i];
}
extern "C" __global__ void inlined(const float* x, float* y) {
  y[0] = inner(x, 99);
}
"""

RACES = r"""extern "C" __global__ void no_sync(const float* x, float* y) {
  __shared__ float s[128];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void reduce_no_sync(const float* x, float* y) {
  __shared__ float s[128];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  for (int o = 64; o; o >>= 1) if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o];
  if (!threadIdx.x) y[0] = s[0];
}
extern "C" __global__ void accumulate(const float* x, float* y) {
  y[0] += x[blockIdx.x * blockDim.x + threadIdx.x];
}
extern "C" __global__ void blocks_overwrite(const float* x, float* y) {
  y[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
}
extern "C" __global__ void missing_init_sync(const int* x, int* y) {
  __shared__ int h[64];
  if (threadIdx.x < 64) h[threadIdx.x] = 0;
  atomicAdd(&h[x[threadIdx.x] & 63], 1);
  __syncthreads();
  if (threadIdx.x < 64) y[threadIdx.x] = h[threadIdx.x];
}
extern "C" __global__ void in_place(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 1 < n) x[i] = x[i + 1] * 2;
}
"""

CLEAN = r"""extern "C" __global__ void same_flag(int* flag) { if (threadIdx.x % 3 == 0) flag[0] = 1; }
extern "C" __global__ void warp_tail(const float* x, float* y) {
  __shared__ volatile float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 32) for (int o = 32; o; o >>= 1) s[threadIdx.x] += s[threadIdx.x + o];
  if (!threadIdx.x) y[0] = s[0];
}
extern "C" __global__ void two_stage(float* y) {
  __shared__ float s[128];
  for (int k = 0; k < 5; k++) {
    s[threadIdx.x] = threadIdx.x + k;
    __syncthreads();
    float v = s[(threadIdx.x + 40) % 128];
    __syncthreads();
    y[threadIdx.x] = v;
    __syncthreads();
    y[127 - threadIdx.x] = v + 1;
    __syncthreads();
  }
}
extern "C" __global__ void locked(int* lock, int* c) {
  bool done = false;
  while (!done) if (atomicCAS(lock, 0, 1) == 0) {
    c[0] = ((volatile int*)c)[0] + 1;
    __threadfence();
    atomicExch(lock, 0);
    done = true;
  }
}
__device__ unsigned tickets;
extern "C" __global__ void last_block(const float* x, float* part, float* out) {
  __shared__ bool last;
  if (!threadIdx.x) {
    part[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    last = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && !threadIdx.x) {
    float t = 0;
    for (int j = 0; j < gridDim.x; j++) t += part[j];
    out[0] = t;
  }
}
"""


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.float32)


def fault(kernel: str, grid: object, block: object, args: list[object], shared: int = 0, **options: object) -> Fault:
    with pytest.raises(MachineFault) as caught:
        launch(program(SOURCE), kernel, grid, block, args, shared, **options)  # type: ignore[arg-type]
    return caught.value.fault


@pytest.mark.parametrize("order", ORDERS)
def test_read_past_the_end(order: str) -> None:
    found = fault("read_past", 4, 256, [ones(1000), ones(1000), 1000], order=order)
    assert (found.kind, found.line, found.block, found.thread) == ("out-of-bounds-read", 3, (3, 0, 0), (232, 0, 0))
    assert "0 bytes past the end of the 4000-byte allocation 'arg0'" in found.message
    assert found.ptx.startswith("ld.global")


def test_write_past_the_end() -> None:
    found = fault("write_past", 4, 256, [ones(1000), 1000])
    assert (found.kind, found.line, found.thread) == ("out-of-bounds-write", 7, (232, 0, 0))


def test_write_to_a_read_only_allocation() -> None:
    y = ones(32)
    allocation = Allocation(y.ctypes.data, y.nbytes, "y", writable=False)
    with pytest.raises(MachineFault) as caught:
        address = y.ctypes.data.to_bytes(8, "little")
        program(SOURCE).launch("store_one", (1, 1, 1), (32, 1, 1), [address], 0, [allocation])
    assert caught.value.fault.kind == "out-of-bounds-write"
    assert "read-only y" in caught.value.fault.message
    assert y.tolist() == [1.0] * 32


def test_null_pointer() -> None:
    found = fault("store_one", 1, 32, [0])
    assert found.kind == "out-of-bounds-write" and "null pointer" in found.message


def test_misaligned_vector_load() -> None:
    found = fault("misaligned", 1, 32, [ones(256), ones(128)])
    assert (found.kind, found.line) == ("misaligned-access", 10)


def test_shared_memory_overflow() -> None:
    found = fault("shared_past", 1, 64, [ones(64)])
    assert (found.kind, found.line, found.thread) == ("out-of-bounds-write", 14, (32, 0, 0))
    assert "shared" in found.message


def test_local_array_overflow() -> None:
    found = fault("local_past", 1, 1, [np.zeros(1, np.int32), 1000])
    assert found.kind.startswith("out-of-bounds") and "local" in found.message


def test_fault_inside_an_inlined_function_names_the_users_line() -> None:
    found = fault("inlined", 1, 1, [ones(10), ones(1)])
    assert (found.line, found.file) == (49, "cuda.cu")


@pytest.mark.parametrize(("kernel", "line"), [("shuffle_half", 20), ("barrier_short", 25)])
def test_deadlock(kernel: str, line: int) -> None:
    found = fault(kernel, 1, 32, [ones(64)])
    assert (found.kind, found.line) == ("barrier-deadlock", line)
    assert "warp 0" in found.message


def test_instruction_budget() -> None:
    found = fault("endless", 1, 32, [np.zeros(2, np.int32)], budget=1_000_000)
    assert (found.kind, found.line) == ("instruction-budget", 29)


def test_trap_and_assert() -> None:
    found = fault("trapping", 1, 32, [np.zeros(32, np.int32)])
    assert (found.kind, found.thread) == ("trap", (7, 0, 0))
    found = fault("asserting", 1, 32, [np.ones(32, np.int32)])
    assert found.kind == "assert" and "y == 0 (mine.cu:37, asserting)" in found.message


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [(0, 32, 0), (1, 0, 0), (1, 1025, 0), ((1, 70000), 32, 0), ((1, 1, 70000), 32, 0), (1, (32, 64), 0)]
    + [(1, (1, 1, 65), 0), (1, 32, 228 * 1024), (-1, 32, 0), (1, 32, -4), (2**31, 1, 0)],
)
def test_invalid_launches(grid: object, block: object, shared: int) -> None:
    assert fault("store_one", grid, block, [ones(32)], shared).kind == "invalid-launch"


def test_launch_bounds() -> None:
    assert fault("bounded", 1, 65, [ones(128)]).kind == "invalid-launch"
    launch(program(SOURCE), "bounded", 1, 64, [ones(64)])


def test_wrong_arguments_and_overlapping_allocations() -> None:
    loaded, y = program(SOURCE), ones(64)
    for args in ([], [b"1234"], [b"12345678", b"12345678"]):
        with pytest.raises(MachineFault, match="argument"):
            loaded.launch("store_one", (1, 1, 1), (1, 1, 1), args)
    overlapping = [Allocation(y.ctypes.data, 64, "a"), Allocation(y.ctypes.data + 32, 64, "b")]
    with pytest.raises(MachineFault, match="overlap"):
        loaded.launch("store_one", (1, 1, 1), (1, 1, 1), [bytes(8)], 0, overlapping)
    with pytest.raises(KeyError):
        loaded.launch("missing", (1, 1, 1), (1, 1, 1), [])
    with pytest.raises(ValueError, match="order"):
        loaded.launch("store_one", (1, 1, 1), (1, 1, 1), [bytes(8)], options=LaunchOptions(order="sideways"))


def race(kernel: str, grid: int, args: list[np.ndarray | int], order: str = "forward") -> tuple[Fault, ...]:
    return launch(program(RACES), kernel, grid, 128, args, order=order).warnings


def test_shared_race_names_both_lines() -> None:
    found = race("no_sync", 1, [ones(128), ones(128)])
    assert {w.kind for w in found} == {"data-race"}
    raw = next(w for w in found if "RAW" in w.message)
    assert raw.line == 4 and "(line 3)" in raw.message


@pytest.mark.parametrize("order", ORDERS)
def test_missing_barrier_in_a_reduction(order: str) -> None:
    assert [w.line for w in race("reduce_no_sync", 1, [ones(128), ones(1)], order)][:1] == [10]


@pytest.mark.parametrize("grid", [1, 4])
def test_unsynchronised_accumulation(grid: int) -> None:
    x = np.arange(512, dtype=np.float32)
    assert any("WAW" in w.message and w.line == 14 for w in race("accumulate", grid, [x, ones(1)]))


def test_blocks_that_overwrite_each_other() -> None:
    found = race("blocks_overwrite", 2, [np.arange(256, dtype=np.float32), ones(128)])
    assert any("of block 0" in w.message for w in found)
    assert not race("blocks_overwrite", 2, [ones(256), ones(128)])  # the same values: no harm


def test_atomics_race_with_plain_stores() -> None:
    found = race("missing_init_sync", 1, [np.arange(128, dtype=np.int32), np.zeros(64, np.int32)])
    assert [w.line for w in found][:1] == [22]


def test_neighbours_read_what_others_write() -> None:
    assert any("RAW" in w.message for w in race("in_place", 4, [ones(512), 512], "reverse"))


def test_races_can_be_left_out() -> None:
    report = launch(program(RACES), "no_sync", 1, 128, [ones(128), ones(128)], detect_races=False)
    assert not report.warnings


@pytest.mark.parametrize("order", ORDERS)
def test_right_kernels_have_no_warnings(order: str) -> None:
    loaded = program(CLEAN)
    out, x = ones(1), np.arange(64, dtype=np.float32)
    assert not launch(loaded, "same_flag", 3, 96, [np.zeros(1, np.int32)], order=order).warnings
    assert not launch(loaded, "warp_tail", 1, 64, [x, out], order=order).warnings
    assert out[0] == x.sum()
    assert not launch(loaded, "two_stage", 1, 128, [ones(128)], order=order).warnings
    count = np.zeros(1, np.int32)
    assert not launch(loaded, "locked", 2, 64, [np.zeros(1, np.int32), count], order=order).warnings
    assert count[0] == 128
    assert not launch(loaded, "last_block", 20, 64, [x, ones(20), out], order=order).warnings
    assert out[0] == x[:20].sum()


def test_early_return_before_a_barrier_is_tolerated() -> None:
    source = r"""extern "C" __global__ void early(const float* x, float* y, int n) {
      __shared__ float s[128];
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      s[threadIdx.x] = x[i];
      __syncthreads();
      y[i] = s[threadIdx.x ^ 1];
    }"""
    x, y = np.arange(300, dtype=np.float32), ones(300)
    launch(program(source), "early", 3, 128, [x, y, 300])
    assert np.array_equal(y, x.reshape(-1, 2)[:, ::-1].ravel())


def test_unwritten_shared_memory_is_poison() -> None:
    source = r"""extern "C" __global__ void unset(float* y) {
      __shared__ float s[128];
      if (threadIdx.x == 0) s[0] = 1;
      __syncthreads();
      y[threadIdx.x] = s[threadIdx.x];
    }"""
    y = ones(128)
    launch(program(source), "unset", 1, 128, [y])
    assert y[0] == 1 and np.isnan(y[1:]).all()


def test_a_fault_leaves_the_program_usable() -> None:
    loaded, y = program(SOURCE), ones(32) * 5
    with pytest.raises(MachineFault):
        launch(loaded, "store_one", 1, 32, [0])
    launch(loaded, "store_one", 1, 32, [y])
    assert y.tolist() == [1.0] * 32
    assert isinstance(loaded, Program)


@pytest.mark.parametrize("mark", ["\\v", "\\f", "\\x1c", "\\xc2\\x85", "\\xe2\\x80\\xa8"])
def test_text_of_the_kernel_that_python_takes_for_ends_of_lines(mark: str) -> None:
    source = f"""
    extern "C" __global__ void k() {{ __assertfail("one {mark} line", "mine.cu", 37, "k", 1); }}"""
    with pytest.raises(MachineFault) as caught:
        launch(program(source), "k", 1, 32, [])
    assert caught.value.fault.kind == "assert" and "line" in caught.value.fault.message
