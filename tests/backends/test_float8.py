"""torch's and CUDA's 8-bit floating-point numbers in host code and in kernels: every number, and roundings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.backends.build import build
from kernelwright.backends.extension import Extension
from kernelwright.builds import BuildRequest
from kernelwright.machine.runtime import Runtime

TYPES = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
SOURCE = r"""
#include <torch/extension.h>
#include <cuda_fp8.h>
template <typename T, typename F> __global__ void to_float(const T* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = static_cast<float>(static_cast<F>(x[i])); }
template <typename T> __global__ void to_eight(const float* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = static_cast<T>(x[i]); }
#define GO(kernel, ...) kernel<<<(x.numel() + 127) / 128, 128>>>(__VA_ARGS__)
torch::Tensor wide(torch::Tensor x) {
  auto y = torch::empty(x.sizes(), x.options().dtype(at::kFloat));
  AT_DISPATCH_SWITCH(x.scalar_type(), "wide",
    AT_DISPATCH_CASE(at::ScalarType::Float8_e4m3fn, [&] {
      GO((to_float<scalar_t, float>), x.data_ptr<scalar_t>(), y.data_ptr<float>(), x.numel()); })
    AT_DISPATCH_CASE(at::kFloat8_e5m2, [&] {
      GO((to_float<scalar_t, float>), x.const_data_ptr<scalar_t>(), y.data_ptr<float>(), x.numel()); }));
  return y;
}
torch::Tensor eight(torch::Tensor x, bool five) {
  auto y = torch::empty_like(x, x.options().dtype(five ? torch::kFloat8_e5m2 : torch::kFloat8_e4m3fn));
  if (five) to_eight<c10::Float8_e5m2><<<(x.numel() + 127) / 128, 128>>>(
      x.data_ptr<float>(), y.mutable_data_ptr<c10::Float8_e5m2>(), x.numel());
  else to_eight<at::Float8_e4m3fn><<<(x.numel() + 127) / 128, 128>>>(
      x.data_ptr<float>(), y.mutable_data_ptr<at::Float8_e4m3fn>(), x.numel());
  return y;
}
torch::Tensor saturated(torch::Tensor x, bool five) {
  auto y = torch::empty_like(x, x.options().dtype(five ? torch::kFloat8_e5m2 : torch::kFloat8_e4m3fn));
  if (five) to_eight<__nv_fp8_e5m2><<<(x.numel() + 127) / 128, 128>>>(
      x.data_ptr<float>(), reinterpret_cast<__nv_fp8_e5m2*>(y.data_ptr()), x.numel());
  else to_eight<__nv_fp8_e4m3><<<(x.numel() + 127) / 128, 128>>>(
      x.data_ptr<float>(), static_cast<__nv_fp8_e4m3*>(y.data_ptr()), x.numel());
  return y;
}
std::vector<double> of_host(double value) {
  return {double(float(c10::Float8_e4m3fn(float(value)))), double(float(at::Float8_e5m2(float(value)))),
          double(float(__nv_fp8_e4m3(float(value)))), double(float(__nv_fp8_e5m2(float(value))))};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("wide", &wide); m.def("eight", &eight); m.def("saturated", &saturated); m.def("of_host", &of_host); }
""".replace("GO((to_float<scalar_t, float>), ", "to_float<scalar_t, float><<<(x.numel() + 127) / 128, 128>>>(")


@pytest.fixture(scope="module")
def module(cache: Path) -> Any:
    runtime = Runtime(lambda request: build(request, cache))
    result = build(BuildRequest("extension", "eight", cuda_source=SOURCE), cache)
    assert result.status == "ok", result.log
    return Extension(result, runtime)


def numbers() -> torch.Tensor:
    """Returns every 8-bit number of both kinds, what lies between two, and what is beyond all."""
    every = torch.arange(256, dtype=torch.uint8)
    known = torch.cat([every.view(kind).float() for kind in TYPES.values()])
    known = known[known.isfinite()].sort().values
    between = (known[1:] + known[:-1]) / 2
    near = torch.cat([between * (1 - 2**-20), between * (1 + 2**-20)])
    far = torch.tensor([464.0, 465.0, 479.0, 480.0, 61440.0, 61441.0, 1e30, 2.0**-18, 2.0**-9, 1e-30, float("inf")])
    return torch.cat([known, between, near, far, -far, torch.tensor([float("nan")])])


@pytest.mark.parametrize("name", TYPES)
def test_every_number_widens_as_torchs(module: Any, name: str) -> None:
    x = torch.arange(256, dtype=torch.uint8).view(TYPES[name])
    torch.testing.assert_close(module.wide(x), x.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", TYPES)
def test_kernels_round_as_torch_does(module: Any, name: str) -> None:
    x = numbers()
    made = module.eight(x, name == "e5m2")
    torch.testing.assert_close(made.float(), x.to(TYPES[name]).float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", TYPES)
def test_cudas_own_numbers_saturate(module: Any, name: str) -> None:
    x = numbers()
    most = torch.finfo(TYPES[name]).max
    made = module.saturated(x, name == "e5m2")
    torch.testing.assert_close(
        made.float(), x.clamp(-most, most).to(TYPES[name]).float(), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("value", [0.3, -7.7, 447.0, 500.0, 1e6, 0.001])
def test_host_code_rounds_alike(module: Any, value: float) -> None:
    want = []
    for most in (None, 448.0, 57344.0):
        x = torch.tensor([value])
        for kind in TYPES.values() if most is None else [torch.float8_e4m3fn if most == 448.0 else torch.float8_e5m2]:
            want.append(float((x if most is None else x.clamp(-most, most)).to(kind).float()))
    torch.testing.assert_close(torch.tensor(module.of_host(value)), torch.tensor(want), equal_nan=True)
