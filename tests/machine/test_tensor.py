"""Matrix instructions of the machine against numpy, whole results, with fragments laid out by the PTX ISA's rules."""

from __future__ import annotations

import cases_tensor
import cases_wmma  # noqa: F401
import numpy as np
import pytest
import tensor_layouts as layouts
from cases_tensor import CASES_TENSOR, TensorCase
from conformance import compare
from machine_launch import launch

from kernelwright.machine import MachineFault, Program, UnsupportedPTX
from kernelwright.machine.nvrtc import compile_ptx


def load(source: str, arch: str = cases_tensor.HOPPER) -> Program:
    result = compile_ptx(source, arch=arch)
    assert result.ok, result.log
    return Program.load(result.ptx)


@pytest.mark.parametrize("case", CASES_TENSOR, ids=lambda case: case.name)
def test_case(case: TensorCase) -> None:
    program = load(case.source, case.arch)
    for run in case.runs():
        arrays = {k: arg.copy() for k, arg in enumerate(run.args) if isinstance(arg, np.ndarray)}
        args = [arrays.get(k, arg) for k, arg in enumerate(run.args)]
        report = launch(program, run.kernel, run.grid, run.block, args, run.shared)
        assert not report.warnings, report.warnings[0]
        compare(case, run, arrays)  # type: ignore[arg-type]


def test_layouts_are_those_that_the_isa_writes_out() -> None:
    for lane in range(32):
        group, thread = lane >> 2, lane % 4
        for i in range(8):  # m16n8k16 of f16
            row = group if i < 2 or 4 <= i < 6 else group + 8
            column = thread * 2 + (i & 1) + (8 if i >= 4 else 0)
            assert layouts.place_a(16, 16)(lane, i) == (row, column)
        for i in range(16):  # m16n8k32 of s8
            row = group if i < 4 or 8 <= i < 12 else group + 8
            column = thread * 4 + (i & 3) + (16 if i >= 8 else 0)
            assert layouts.place_a(8, 16)(lane, i) == (row, column)
        for i in range(32):  # m16n8k64 of s4
            row = group if i < 8 or 16 <= i < 24 else group + 8
            column = thread * 8 + (i & 7) + (32 if i >= 16 else 0)
            assert layouts.place_a(4, 16)(lane, i) == (row, column)
        for i in range(8):  # m16n8k16 of f64
            row = group if i % 2 == 0 else group + 8
            column = i * 2 + thread if i % 2 == 0 else i * 2 - 2 + thread
            assert layouts.place_a(64, 16)(lane, i) == (row, column)
            assert layouts.place_b(8)(lane, i) == (thread * 4 + (i & 3) + (16 if i >= 4 else 0), group)


@pytest.mark.parametrize(
    "text",
    [
        "mma.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.col.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32",
        "mma.sp.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8",
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8",
        "wmma.load.a.sync.aligned.row.m16n16k16.f64",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f16",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8",
        "wgmma.mma_async.sync.aligned.m64n16k16.f16.bf16.bf16",
        "wgmma.mma_async.sp.sync.aligned.m64n16k16.f32.f16.f16",
    ],
)
def test_forms_that_do_not_exist_are_refused_by_name(text: str) -> None:
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n .reg .b32 %r<9>;\n"
    ptx = f"{head} {text} %r1;\n ret;\n}}"
    with pytest.raises(UnsupportedPTX) as refused:
        Program.load(ptx)
    assert refused.value.features[0].startswith(text.split(".")[0] + ".")


def test_metadata_that_names_one_element_twice_is_a_fault() -> None:
    case = next(c for c in CASES_TENSOR if c.name.startswith("mma.sp_m16n8k16.row.col.f32.f16"))
    run = case.runs()[0]
    args = [x.copy() for x in run.args]
    args[3][:] = 0
    with pytest.raises(MachineFault, match="names no two elements"):
        launch(load(case.source, case.arch), "k", 1, 32, args)


def test_satfinite_of_wmma_makes_floats_finite() -> None:
    case = next(c for c in CASES_TENSOR if c.name.startswith("wmma_m16n16k16_f16_f32_f32"))
    ptx = compile_ptx(case.source, arch=case.arch).ptx
    assert ".m16n16k16.f32.f32" in ptx
    program = Program.load(ptx.replace(".m16n16k16.f32.f32", ".m16n16k16.f32.f32.satfinite"))
    args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.runs()[0].args]
    args[2] = np.full_like(args[2], np.array(np.inf, np.float32).view(np.uint32))
    args[2][::2] = np.array(np.nan, np.float32).view(np.uint32)
    launch(program, "k", 1, 32, args)
    most = float(np.finfo(np.float32).max)
    assert set(np.unique(args[3])) == {0.0, most}
