"""Events of torch's profiler: the owners of kernels, their shares, and the gaps between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from kernelwright.profile import trace

RELU = "relu_kernel(float const*, float*, int)"
ATEN = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)


def _kernel(name: str, start: float, length: float, stream: int = 7) -> dict[str, Any]:
    arguments = {
        **{"device": 0, "stream": stream, "correlation": 1, "registers per thread": 24, "shared memory": 1024},
        **{"grid": [64, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 81},
    }
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": length, "args": arguments}


def _copy(start: float, length: float) -> dict[str, Any]:
    name = "Memcpy DtoD (Device -> Device)"
    return {"ph": "X", "cat": "gpu_memcpy", "name": name, "ts": start, "dur": length, "args": {"bytes": 4096}}


@pytest.mark.parametrize(
    "name, simple",
    [
        (RELU, "relu_kernel"),
        ("void softmax<float, (int)256>(const T1 *, T1 *, int)", "softmax"),
        ("void mine::inner::row_sum<std::pair<int, int> >(float*)", "row_sum"),
        ("(anonymous namespace)::scan(float*)", "scan"),
        ("plain_c_name", "plain_c_name"),
        ("", ""),
    ],
)
def test_simple_names(name: str, simple: str) -> None:
    assert trace.simple_name(name) == simple


@pytest.mark.parametrize(
    "name, whose",
    [
        (RELU, "candidate"),
        (ATEN, "torch"),
        ("void at::native::relu_kernel<float>(float*)", "torch"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", "cublas"),
        ("ampere_sgemm_128x64_tn", "cublas"),
        ("void gemv2T_kernel_val<int, int, float, float, float>(...)", "cublas"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", "cublas"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(T1::Params)", "cutlass"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float>(...)", "cudnn"),
        ("triton_poi_fused_add_relu_0", "triton"),
        ("void cub::CUB_200700_900_NS::DeviceReduceKernel<...>(...)", "cub"),
        ("some_unknown_kernel(int)", "other"),
    ],
)
def test_origins(name: str, whose: str) -> None:
    assert trace.origin(name, {"relu_kernel"}) == whose


def test_two_calls_are_averaged() -> None:
    call = [_kernel(RELU, 0, 30), _kernel(ATEN, 40, 10), _copy(50, 20)]
    second = [{**event, "ts": event["ts"] + 1000} for event in call]
    kernels, facts = trace.parse([*second, *call], calls=2, own={"relu_kernel"})
    assert [(k.origin, k.launches, k.time_us) for k in kernels] == [("candidate", 1, 30.0), ("torch", 1, 10.0)]
    assert kernels[0].share == pytest.approx(0.75) and facts.own_share == pytest.approx(0.75)
    assert kernels[0].block == (256, 1, 1) and kernels[0].metrics == {"registers": 24, "shared_bytes": 1024}
    assert facts.device_ms == pytest.approx(0.060) and facts.copy_ms == pytest.approx(0.020)
    assert facts.span_ms == pytest.approx(0.070) and facts.gap_ms == pytest.approx(0.010)
    assert facts.launches == 2


def test_streams_that_overlap_leave_no_gap() -> None:
    _, facts = trace.parse([_kernel("a", 0, 50), _kernel("b", 10, 20, 8), _kernel("c", 45, 15)], 1, {"a"})
    assert facts.gap_ms == 0 and facts.span_ms == pytest.approx(0.060) and facts.device_ms == pytest.approx(0.085)


def test_a_lazy_candidate_has_a_small_share() -> None:
    _, facts = trace.parse([_kernel("token", 0, 1), _kernel("ampere_sgemm_128x64_tn", 2, 999)], 1, {"token"})
    assert facts.own_share == pytest.approx(0.001)


def test_a_real_trace_of_the_processor_has_no_kernels(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        torch.mm(torch.randn(8, 8), torch.randn(8, 8))
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(e.get("name") == "aten::mm" for e in events)
    kernels, facts = trace.parse(events, 1, {"mm"})
    assert kernels == [] and facts.device_ms == 0 and facts.own_share is None
