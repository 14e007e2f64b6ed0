#pragma once

#include <optional>
#include <torch/library.h>

void rms_norm(torch::Tensor& out, torch::Tensor& input, torch::Tensor& weight, double epsilon);

void silu_and_mul(torch::Tensor& out, torch::Tensor& input);
