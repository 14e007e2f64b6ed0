"""Loading PTX: errors name unknown and malformed parts, and no text crashes or hangs the process."""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_launch import dims

from kernelwright.machine import Allocation, LaunchOptions, MachineFault, Program, PTXError, UnsupportedPTX
from kernelwright.machine.nvrtc import compile_ptx

FRAME = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{{
.reg .pred %p<4>;
.reg .b16 %rs<4>;
.reg .b32 %r<8>;
.reg .f32 %f<8>;
.reg .b64 %rd<8>;
.reg .f64 %fd<4>;
{body}
ret;
}}
"""

BASE = r"""
#include <cuda_fp16.h>
struct S { float a; int b[3]; };
__device__ int counter;
__constant__ float table[4] = {1, 2, 3, 4};
__noinline__ __device__ float helper(float x, int n, float* p) { p[n & 3] += x; return x * p[0]; }
extern "C" __global__ void everything(const float4* x, float* y, half* h, S s, int n) {
  __shared__ float sh[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = x[i];
  sh[threadIdx.x & 63] = v.x;
  __syncthreads();
  float loc[4] = {v.x, v.y, v.z, v.w};
  for (int o = 16; o; o >>= 1) v.y += __shfl_xor_sync(0xffffffff, v.y, o);
  switch (i & 7) { case 0: v.x = 1; break; case 1: v.x *= 2; break; case 2: v.x -= 3; break; case 3: v.x = s.b[i % 3];
                   break; case 4: v.x = 7; break; case 5: v.x = v.y * v.z; break; }
  h[i] = __float2half(expf(v.x) + sinf(v.y));
  atomicAdd(&counter, 1);
  y[i] = helper(v.x, i, loc) + table[i & 3] + sh[(threadIdx.x + 1) & 63] + (float)((long long)i / (n | 1)) + s.a;
}
"""


def load(body: str) -> Program:
    return Program.load(FRAME.format(body=body))


@cache
def base() -> str:
    result = compile_ptx(BASE)
    assert result.ok, result.log
    return result.ptx


@pytest.mark.parametrize(
    ("body", "feature"),
    [
        ("frobnicate.s32 %r1, %r2;", "frobnicate"),
        (
            "wgmma.mma_async.sync.aligned.m64n8k24.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;",
            "wgmma.m64n8k24 of these types",
        ),
        ("tcgen05.fence::before_thread_sync;", "tcgen05.fence::before_thread_sync"),
        ("tex.2dms.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1,%r2,%r3,%r3}];", "tex.2dms"),
        ("mbarrier.wobble.shared.b64 [%r1], %r2;", "mbarrier.wobble"),
        ("add.wobbly.s32 %r1, %r2, %r3;", "add.wobbly"),
        ("add.rn.wobbly.f32 %f1, %f2, %f3;", "add.wobbly"),
        ("iadd.s32 %r1, %r2, %r3;", "iadd"),
        ("ld.global.sideways.f32 %f1, [%rd1];", "ld.sideways"),
        ("cvt.rn.satfinite.e2m1x2.f32 %rs1, %f1, %f2;", "e2m1x2"),
        ("cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2;", "cvt.rs"),
        ("cp.async.bulk.shared.global [%r1], [%rd1], 16, [%r2];", "cp.async.bulk.shared"),
        ("add.f32x2 %rd1, %rd2, %rd3;", "add.f32x2"),
        ("shfl.up.b32 %r1, %r2, 1, 0;", "shfl"),
        ("atom.global.nand.b32 %r1, [%rd1], %r2;", "atom.nand"),
        ("mov.u32 %r1, %pm0;", "%pm0"),
        ("mma.sync.aligned.m64n64k64.row.col.f32.f16.f16.f32 {%f1},{%r1},{%r2},{%f2};", "mma.m64n64k64 of these types"),
    ],
)
def test_what_is_unknown_is_named(body: str, feature: str) -> None:
    with pytest.raises(UnsupportedPTX) as caught:
        load(body)
    assert any(feature in found for found in caught.value.features), caught.value.features


def test_every_unknown_feature_is_listed_once() -> None:
    with pytest.raises(UnsupportedPTX) as caught:
        load("frob.s32 %r1, %r2;\nfrob.s32 %r2, %r3;\nadd.odd.s32 %r1, %r2, %r3;")
    assert caught.value.features == ("frob", "add.odd")


@pytest.mark.parametrize(
    "body",
    [
        "add.s32 %r1, %r2;",
        "add.s32 %r1, %r2, %rd3;",
        "add.s32 %r1, %r2, %r99;",
        "add.s32 %r1, %r2, nowhere;",
        "add.f32 %f1, %f2, 3;",
        "mov.u64 %r1, %rd1;",
        "setp.lt.s32 %r1, %r2, %r3;",
        "@%r1 bra END; END:",
        "bra NOWHERE;",
        "A: A: ret;",
        "ld.global.f32 %f1, [%r1];",
        "ld.param.u64 %rd1, [k_param_0+4];",
        "st.global.v2.f32 [%rd1], {%f1};",
        "lop3.b32 %r1, %r2, %r3, %r4, %r5;",
        "call missing;",
        "add.s32 %r1 %r2 %r3",
        "ld.global.f32 %f1, [%rd1",
        "mov.u32 %r1, 99999999999999999999999;",
    ],
)
def test_malformed_instructions(body: str) -> None:
    with pytest.raises(PTXError):
        load(body)


@pytest.mark.parametrize("text", ["", "hello", "\0\0", "{" * 1000, ".version 9.0\n.entry k(", "é" * 100, ".version"])
def test_texts_that_are_no_ptx(text: str) -> None:
    with pytest.raises(PTXError):
        Program.load(text)


def test_endless_recursion_is_found_and_runaway_inlining_refused_fast() -> None:
    head = ".version 9.0\n.target sm_90\n.address_size 64\n"
    recursive = Program.load(head + ".func f() { call f; ret; }\n.entry k() { call f; ret; }")
    with pytest.raises(MachineFault, match="stack overflow"):
        recursive.launch("k", (1, 1, 1), (32, 1, 1), [])
    chain = head + ".func f0() { ret; }\n"
    chain += "".join(f".func f{i}() {{ call f{i - 1}; call f{i - 1}; ret; }}\n" for i in range(1, 50))
    started = time.monotonic()
    with pytest.raises(UnsupportedPTX, match="inlining"):
        Program.load(chain + ".entry k() { call f49; ret; }")
    assert time.monotonic() - started < 10


def test_labels_and_registers_of_nested_scopes() -> None:
    text = FRAME.format(
        body="""ld.param.u64 %rd1, [k_param_0];
        mov.u32 %r1, 1;
        { .reg .u32 %r1; mov.u32 %r1, 5; bra SKIP; mov.u32 %r1, 6; SKIP: st.global.u32 [%rd1], %r1; }
        { .reg .u32 %r1; mov.u32 %r1, 7; bra SKIP; mov.u32 %r1, 8; SKIP: st.global.u32 [%rd1+4], %r1; }
        st.global.u32 [%rd1+8], %r1;"""
    )
    out = np.zeros(3, np.int32)
    allocation = Allocation(out.ctypes.data, out.nbytes, "out")
    pointer = out.ctypes.data.to_bytes(8, "little")
    Program.load(text).launch("k", (1, 1, 1), (1, 1, 1), [pointer], 0, [allocation])
    assert out.tolist() == [5, 7, 1]


FRAGMENTS = ["{", "}", ";", "[", "]", "%r1", "%rd1", "%f1", "%p1", "@%p1 ", "-1", ".v4", ".f64", ".b16", "bra", "ret;"]
FRAGMENTS += [":", ",", "|", "!", "_", "0f7F800000", "99999999999", ".reg .b32 %q<9>;", "bar.sync 1, 7;", "/*", '"']


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Returns NVRTC's PTX with a few characters, lines or words changed."""
    text = base()
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(text)))
        kind = draw(st.integers(0, 4))
        length = draw(st.integers(0, 40))
        if kind == 0:
            text = text[:at] + text[at + length :]
        elif kind == 1:
            text = text[:at] + draw(st.sampled_from(FRAGMENTS)) + text[at:]
        elif kind == 2:
            text = text[:at] + draw(st.text(max_size=5)) + text[at + 1 :]
        elif kind == 3:
            other = draw(st.integers(0, len(text)))
            text = text[:at] + text[other : other + length] + text[at:]
        else:
            line_end = text.find("\n", at)
            text = text[:at] + text[line_end:] if line_end >= 0 else text
    return text


@settings(max_examples=400, deadline=5000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(mutated())
def test_mutated_ptx_never_crashes_or_hangs(text: str) -> None:
    try:
        program = Program.load(text)
    except UnsupportedPTX as error:
        assert error.features and all(error.features)
        return
    except PTXError as error:
        assert str(error)
        return
    memory = np.ones(1024, np.float32)
    allocation = Allocation(memory.ctypes.data, memory.nbytes, "memory")
    for name, info in program.kernels.items():
        pointer = memory.ctypes.data.to_bytes(8, "little")
        args = [pointer if size == 8 else (64).to_bytes(size, "little") for size, _ in info.params]
        try:
            program.launch(name, dims(2), dims(40), args, 0, [allocation], LaunchOptions(budget=100_000))
        except MachineFault as fault:
            assert fault.fault.kind


@settings(max_examples=200, deadline=2000)
@given(st.text(max_size=300))
def test_any_text_is_an_error_or_a_program(text: str) -> None:
    for candidate in (text, ".version 9.0\n" + text, FRAME.format(body=text)):
        try:
            Program.load(candidate)
        except (PTXError, UnsupportedPTX):
            pass
