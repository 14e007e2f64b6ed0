"""C++ features of device code besides arithmetic: printf, calls that cannot be inlined, and in-kernel malloc."""

from __future__ import annotations

import numpy as np
import pytest
from machine_launch import ORDERS, launch, program
from ptx_cases import HEAD

from kernelwright.machine import MachineFault, Program, UnsupportedPTX, nvrtc, set_heap_limit
from kernelwright.machine.nvrtc import compile_ptx

PRINTING = r"""
extern "C" __global__ void print(const char* name, int* count) {
  int n = printf("%s|%5d|%-4u|%08.3f|%lld|%llx|%c|%%|%+d|%e|%g\n", name, -7, 3u, 3.14159, -5000000000ll,
                 0xdeadbeefcafeull, 'z', 12, 1.5e10, 0.0001);
  if (threadIdx.x == 0) *count = n;
}
extern "C" __global__ void widths() {
  printf("[%*d][%-*d][%.*f][%.3s][%hd][%hhu][%o][%#x][%5c]", 6, 42, 6, 42, 2, 2.71828, "abcdef", 70000, 300, 8, 255,
         'q');
  printf(" %ld %lu %zu %p", -1l, 1ul << 40, sizeof(int), (void*)0x1234);
}
extern "C" __global__ void each() { if (threadIdx.x & 1) printf("%d.%d ", blockIdx.x, threadIdx.x); }
extern "C" __global__ void wrong(const char* p) { printf("%s", p); }
extern "C" __global__ void greedy() { printf("%d %d %d\n", 1); }
extern "C" __global__ void noisy(int n) { for (int i = 0; i < n; i++) printf("0123456789"); }
extern "C" __global__ void odd() { printf("100%"); printf("%y %-q"); printf("\n"); }
"""


def text_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode() + b"\0", np.uint8).copy()


def test_printf_formats_as_c_does() -> None:
    loaded = program(PRINTING)
    count = np.zeros(1, np.int32)
    report = launch(loaded, "print", 1, 1, [text_bytes("abc"), count])
    assert report.printed == "abc|   -7|3   |0003.142|-5000000000|deadbeefcafe|z|%|+12|1.500000e+10|0.0001\n"
    assert count[0] == 10
    report = launch(loaded, "widths", 1, 1, [])
    assert report.printed == ("[    42][42    ][2.72][abc][4464][44][10][0xff][    q] -1 1099511627776 4 0x1234")
    assert launch(loaded, "odd", 1, 1, []).printed == "100%%y %-q\n"


def test_printf_of_many_threads_and_without_end() -> None:
    loaded = program(PRINTING)
    report = launch(loaded, "each", 2, 4, [])
    assert report.printed == "0.1 0.3 1.1 1.3 "
    report = launch(loaded, "noisy", 1, 1, [1000], print_limit=95)
    assert report.printed == "0123456789" * 9 + "\n[9910 more bytes of printf were dropped]\n"
    assert launch(loaded, "noisy", 1, 1, [0]).printed == ""


def test_printf_with_wrong_arguments_is_a_fault() -> None:
    loaded = program(PRINTING)
    with pytest.raises(MachineFault, match="%s with an address"):
        launch(loaded, "wrong", 1, 1, [12345])
    try:  # the thread's own memory follows the arguments, or its end
        launch(loaded, "greedy", 1, 1, [])
    except MachineFault as fault:
        assert "more arguments" in str(fault)


ASSERTING = r"""
#include <cassert>
extern "C" __global__ void check(const int* x) {
  printf("before\n");
  assert(x[threadIdx.x] != 5);
}
"""


def test_assert_names_file_line_and_expression() -> None:
    x = np.arange(32, dtype=np.int32)
    with pytest.raises(MachineFault) as caught:
        launch(program(ASSERTING), "check", 1, 32, [x])
    fault = caught.value.fault
    assert fault.kind == "assert" and fault.thread == (5, 0, 0)
    assert "x[threadIdx.x] != 5" in fault.message and ":5, " in fault.message and fault.line == 5
    assert caught.value.printed.startswith("before\n")


CALLS = r"""
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ bool odd(int n);
__device__ __noinline__ bool even(int n) { return n == 0 ? true : odd(n - 1); }
__device__ __noinline__ bool odd(int n) { return n == 0 ? false : even(n - 1); }
__device__ int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}
extern "C" __global__ void recurse(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fib(x[i]) * 1000 + (odd(x[i]) ? 100 : 0) + ackermann(2, x[i] & 3);
}
__device__ __noinline__ int deep(int n) {
  volatile int pad[16];
  pad[n & 15] = n;
  return n ? deep(n - 1) + pad[n & 15] : 0;
}
extern "C" __global__ void overflow(int* y, int n) { *y = deep(n); }

struct Big { double a[5]; int b; };
__device__ __noinline__ Big grow(Big v, int n) {
  if (n == 0) return v;
  for (int i = 0; i < 5; i++) v.a[i] += i * n;
  v.b ^= n;
  return grow(v, n - 1);
}
extern "C" __global__ void structs(double* out, int n) {
  Big v;
  for (int i = 0; i < 5; i++) v.a[i] = threadIdx.x;
  v.b = threadIdx.x;
  v = grow(v, n + threadIdx.x % 3);
  for (int i = 0; i < 5; i++) out[threadIdx.x * 6 + i] = v.a[i];
  out[threadIdx.x * 6 + 5] = v.b;
}

__device__ void sort(int* x, int lo, int hi) {
  if (lo >= hi) return;
  int p = x[(lo + hi) / 2], i = lo, j = hi;
  while (i <= j) {
    while (x[i] < p) i++;
    while (x[j] > p) j--;
    if (i <= j) { int t = x[i]; x[i++] = x[j]; x[j--] = t; }
  }
  sort(x, lo, j);
  sort(x, i, hi);
}
extern "C" __global__ void quicksort(int* x, int n) { sort(x + threadIdx.x * n, 0, n - 1); }
__device__ __noinline__ int sum_up(int* mine, int depth) {   // addresses of an outer frame's variables
  int here = depth;
  *mine += depth;
  if (depth == 0) return *mine;
  int r = sum_up(depth & 1 ? &here : mine, depth - 1);
  return r * 3 + here;
}
extern "C" __global__ void frames(int* y) { int v = threadIdx.x; y[threadIdx.x] = sum_up(&v, threadIdx.x % 6) + v; }
"""


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def ackermann(m: int, n: int) -> int:
    return n + 1 if m == 0 else ackermann(m - 1, 1 if n == 0 else ackermann(m, n - 1))


@pytest.mark.parametrize("order", ORDERS)
def test_recursion(order: str) -> None:
    loaded = program(CALLS)
    x = np.random.default_rng(1).integers(0, 11, 70, dtype=np.int32)
    y = np.zeros(70, np.int32)
    assert not launch(loaded, "recurse", 2, 64, [x, y, 70], order=order).warnings
    assert y.tolist() == [fib(v) * 1000 + 100 * (v & 1) + ackermann(2, v & 3) for v in x.tolist()]

    values = np.random.default_rng(2).integers(-99, 99, (40, 31), dtype=np.int32)
    sorted_values = values.copy()
    launch(loaded, "quicksort", 1, 40, [sorted_values, 31], order=order)
    assert np.array_equal(sorted_values, np.sort(values))


def test_structs_by_value_and_pointers_into_outer_frames() -> None:
    loaded = program(CALLS)
    out = np.zeros((33, 6))
    launch(loaded, "structs", 1, 33, [out, 4])
    for t in range(33):
        n = 4 + t % 3
        flips = 0
        for k in range(1, n + 1):
            flips ^= k
        assert out[t].tolist() == [t + i * n * (n + 1) / 2 for i in range(5)] + [t ^ flips]

    def sum_up(cell: list[int], depth: int) -> int:
        here = [depth]
        cell[0] += depth
        if depth == 0:
            return cell[0]
        r = sum_up(here if depth & 1 else cell, depth - 1)
        return r * 3 + here[0]

    y = np.zeros(40, np.int32)
    launch(loaded, "frames", 1, 40, [y])
    for t in range(40):
        v = [t]
        assert y[t] == sum_up(v, t % 6) + v[0]


def test_endless_recursion_overflows_the_stack() -> None:
    y = np.zeros(1, np.int32)
    launch(program(CALLS), "overflow", 1, 1, [y, 20])
    assert y[0] == 210
    with pytest.raises(MachineFault) as caught:
        launch(program(CALLS), "overflow", 1, 1, [y, 1_000_000])
    assert caught.value.fault.kind == "stack-overflow" and "deep" in caught.value.fault.message


POINTERS = r"""
typedef float (*Op)(float, float);
__device__ float plus(float a, float b) { return a + b; }
__device__ float times(float a, float b) { return a * b; }
__device__ float power(float a, float b) { float r = 1; for (int i = 0; i < (int)b; i++) r *= a; return r; }
__device__ Op table[3] = {plus, times, power};
__constant__ Op fixed_table[2] = {times, plus};
extern "C" __global__ void apply(const int* which, const float* a, float* b) {
  int i = threadIdx.x;
  b[i] = table[which[i]](a[i], 3.0f) + fixed_table[which[i] & 1](a[i], 2.0f);
}
struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
  float k;
};
struct Square : Shape {
  float s;
  __device__ Square(float v) : s(v) { k = 1; }
  __device__ float area() const override { return s * s; }
};
struct Circle : Shape {
  float r;
  __device__ Circle(float v) : r(v) { k = 2; }
  __device__ float area() const override { return 3 * r * r; }
};
struct Sum : Shape {
  const Shape *p, *q;
  __device__ Sum(const Shape* x, const Shape* y) : p(x), q(y) { k = 3; }
  __device__ float area() const override { return p->area() + q->area(); }
};
extern "C" __global__ void shapes(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Square s(i);
  Circle c(i + 1);
  Sum both(&s, &c), more(&both, &c);
  const Shape* all[4] = {&s, &c, &both, &more};
  y[i] = all[(i * 7) % 4]->area();
}
extern "C" __global__ void null(float* y, Op f) { y[threadIdx.x] = f(1, 2); }
__device__ Op chosen = power;
extern "C" __global__ void take(unsigned long long* y) { y[0] = (unsigned long long)chosen; }
"""


def test_function_pointers_and_virtual_functions() -> None:
    loaded = program(POINTERS)
    rng = np.random.default_rng(3)
    which, a, b = rng.integers(0, 3, 50, dtype=np.int32), rng.random(50, np.float32), np.zeros(50, np.float32)
    launch(loaded, "apply", 1, 50, [which, a, b])
    first = np.choose(which, [a + np.float32(3), a * np.float32(3), a * a * a])
    second = np.choose(which & 1, [a * np.float32(2), a + np.float32(2)])
    np.testing.assert_allclose(b, first + second, rtol=1e-6)

    y = np.zeros(100, np.float32)
    launch(loaded, "shapes", 2, 64, [y, 100])
    i = np.arange(100, dtype=np.float64)
    square, circle = i * i, 3 * (i + 1) ** 2
    expected = np.choose((np.arange(100) * 7) % 4, [square, circle, square + circle, square + 2 * circle])
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_a_function_pointer_goes_through_the_host_and_a_bad_one_is_found() -> None:
    loaded = program(POINTERS)
    address = np.zeros(2, np.uint64)
    launch(loaded, "take", 1, 1, [address])
    y = np.zeros(32, np.float32)
    launch(loaded, "null", 1, 32, [y, int(address[0])])
    assert np.all(y == 1)
    for bad in (0, 4096, int(address[0]) + 1, int(address[0]) + (1 << 30)):
        with pytest.raises(MachineFault, match="no function's address"):
            launch(loaded, "null", 1, 32, [y, bad])


HEAP = r"""
struct Node { int value; Node* next; };
extern "C" __global__ void lists(int* y, int n) {
  Node* head = nullptr;
  for (int i = 0; i < n; i++) { Node* p = new Node{i * (int)threadIdx.x, head}; head = p; }
  int s = 0;
  while (head) { s += head->value; Node* p = head->next; delete head; head = p; }
  y[threadIdx.x] = s;
}
extern "C" __global__ void keep(int** p, int n) {
  int* mine = p[threadIdx.x] = (int*)malloc(n * sizeof(int));
  for (int i = 0; mine && i < n; i++) mine[i] = i;
}
extern "C" __global__ void read(int** p, int* y, int at) { y[threadIdx.x] = p[threadIdx.x][at]; }
extern "C" __global__ void drop(int** p) { free(p[threadIdx.x]); }
extern "C" __global__ void none(unsigned long long n, int* y) { *y = malloc(n) == nullptr; free(nullptr); }
"""


def test_device_heap_outlives_launches_and_is_checked() -> None:
    set_heap_limit(8 << 20)
    loaded = program(HEAP)
    y = np.zeros(64, np.int32)
    report = launch(loaded, "lists", 1, 64, [y, 20])
    assert y.tolist() == [190 * t for t in range(64)]
    assert report.counters["heap_blocks"] == 0

    pointers = np.zeros(4, np.uint64)
    report = launch(loaded, "keep", 1, 4, [pointers, 10])
    assert (report.counters["heap_blocks"], report.counters["heap_bytes"]) == (4, 160)
    launch(loaded, "read", 1, 4, [pointers, y, 9])
    assert y[:4].tolist() == [9] * 4
    for at in (10, 13, -1):
        with pytest.raises(MachineFault) as caught:
            launch(loaded, "read", 1, 4, [pointers, y, at])
        assert caught.value.fault.kind == "out-of-bounds-read"
    assert launch(loaded, "drop", 1, 4, [pointers]).counters["heap_blocks"] == 0
    with pytest.raises(MachineFault, match="use after free"):
        launch(loaded, "read", 1, 4, [pointers, y, 0])
    with pytest.raises(MachineFault) as caught:
        launch(loaded, "drop", 1, 4, [pointers])
    assert caught.value.fault.kind == "double-free"
    with pytest.raises(MachineFault) as caught:
        launch(loaded, "drop", 1, 1, [y])
    assert caught.value.fault.kind == "invalid-free"


def test_device_heap_is_bounded_and_used_again() -> None:
    loaded = program(HEAP)
    set_heap_limit(1 << 14)
    try:
        y = np.zeros(64, np.int32)
        launch(loaded, "none", 1, 1, [1 << 20, y])
        assert y[0] == 1
        for _ in range(20):  # 20 times a quarter of the heap
            pointers = np.zeros(4, np.uint64)
            launch(loaded, "keep", 1, 4, [pointers, 250])
            assert np.all(pointers != 0)
            launch(loaded, "drop", 1, 4, [pointers])
    finally:
        set_heap_limit(8 << 20)


def test_unknown_functions_are_named() -> None:
    source = 'extern "C" __device__ int mystery(int);\nextern "C" __global__ void k(int* y) { *y = mystery(1); }'
    result = compile_ptx(source, flags=("-rdc=true",))
    assert result.ok, result.log
    with pytest.raises(UnsupportedPTX, match=r"call\.mystery"):
        Program.load(result.ptx)


STACK = (
    HEAD
    + """
.visible .entry reserve(.param .u64 p0, .param .u32 p1) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [p0]; ld.param.u32 %r1, [p1]; mov.u32 %r2, %tid.x;
  add.u32 %r3, %r1, %r2; mul.wide.u32 %rd2, %r3, 4;
  stacksave.u64 %rd5; alloca.u64 %rd3, %rd2, 16;
  mov.u32 %r4, 0; mov.u64 %rd4, %rd3;
FILL:
  st.local.u32 [%rd4], %r4; add.u64 %rd4, %rd4, 4; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r3; @%p1 bra FILL;
  ld.local.u32 %r5, [%rd4+-4]; stackrestore.u64 %rd5;
  mad.wide.u32 %rd6, %r2, 4, %rd1; st.global.u32 [%rd6], %r5; ret; }
.visible .entry choose(.param .u64 p0) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>;
  ld.param.u64 %rd1, [p0]; mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, 3;
  LIST: .branchtargets A, B, C;
  brx.idx %r2, LIST;
A: mov.u32 %r3, 10; bra DONE;
B: mov.u32 %r3, 20; bra DONE;
C: mov.u32 %r3, 30;
DONE:
  mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], %r3; ret; }
.visible .entry clocks(.param .u64 p0) {
  .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [p0]; mov.u64 %rd2, %clock64; mov.u64 %rd3, %globaltimer; nanosleep.u32 100;
  mov.u64 %rd4, %clock64; mov.u64 %rd5, %globaltimer;
  st.global.v2.u64 [%rd1], {%rd2, %rd4}; st.global.v2.u64 [%rd1+16], {%rd3, %rd5}; ret; }
"""
)


def test_alloca_branch_tables_and_clocks() -> None:
    loaded = Program.load(STACK)
    y = np.zeros(32, np.uint32)
    launch(loaded, "reserve", 1, 32, [y, 5])
    assert y.tolist() == [4 + t for t in range(32)]
    with pytest.raises(MachineFault) as caught:
        launch(loaded, "reserve", 1, 32, [y, 1 << 20])
    assert caught.value.fault.kind == "stack-overflow"
    launch(loaded, "choose", 1, 32, [y])
    assert y.tolist() == [10 + 10 * (t % 3) for t in range(32)]
    times = np.zeros(4, np.uint64)
    launch(loaded, "clocks", 1, 1, [times])
    assert times[0] < times[1] and times[2] < times[3]


APPROXIMATE = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i], *o = y + i * 8;
  o[0] = __expf(v); o[1] = __logf(fabsf(v)); o[2] = __sinf(v); o[3] = __cosf(v); o[4] = tanhf(v);
  o[5] = rsqrtf(fabsf(v)); o[6] = __fdividef(1.0f, v); o[7] = sqrtf(fabsf(v)) + 1.0f / v;
}
extern "C" __global__ void edges(const float* a, const float* b, float* y) {
  y[threadIdx.x] = __fdividef(a[threadIdx.x], b[threadIdx.x]);
}
"""


def test_fast_math_is_close_and_defined_at_the_edges() -> None:
    loaded = program(APPROXIMATE, ("--use_fast_math", "-arch=sm_90"))
    x = np.random.default_rng(9).uniform(-3, 3, 500).astype(np.float32)
    y = np.zeros((500, 8), np.float32)
    launch(loaded, "k", 8, 64, [x, y, 500])
    v = x.astype(np.float64)
    size = np.abs(v)
    exact = [np.exp(v), np.log(size), np.sin(v), np.cos(v), np.tanh(v), size**-0.5, 1 / v, size**0.5 + 1 / v]
    np.testing.assert_allclose(y, np.stack(exact, 1), rtol=2e-6, atol=1e-6)
    inf, huge = np.float32(np.inf), np.float32(2.0**127)
    a = np.array([1e38, -1e38, inf, 1, 1e-40, 1, huge], np.float32)
    b = np.array([huge, huge, huge, inf, 1, 1e-40, -huge], np.float32)
    out = np.zeros(7, np.float32)
    launch(loaded, "edges", 1, 7, [a, b, out])
    assert [str(value) for value in out.tolist()] == ["0.0", "-0.0", "nan", "0.0", "0.0", "inf", "-0.0"]
    assert out[2:3].view(np.uint32)[0] == 0x7FFFFFFF


CHILDREN = """
__global__ void child(int* x) { x[threadIdx.x] = 1; }
__global__ void parent(int* x) {
  child<<<1, 32>>>(x);
  BODY
}
"""


def test_a_launch_from_a_kernel_is_no_silent_nothing() -> None:
    """The machine runs one grid per launch; child grids do not run, and a message must say so."""
    built = compile_ptx(CHILDREN.replace("BODY", ""), flags=(nvrtc.RELOCATABLE,))
    assert built.ok, built.log
    with pytest.raises(UnsupportedPTX, match="launched from kernel"):
        launch(Program.load(built.ptx), "_Z6parentPi", 1, 1, [np.zeros(32, np.int32)])


def test_what_the_device_runtime_lacks_is_named_with_its_line() -> None:
    text = CHILDREN.replace("BODY", "cudaDeviceGetAttribute(x, cudaDevAttrWarpSize, 0);")
    built = compile_ptx(text, flags=(nvrtc.RELOCATABLE,))
    with pytest.raises(UnsupportedPTX, match=r"cudaDeviceGetAttribute in a kernel \(line 5\)"):
        Program.load(built.ptx)
