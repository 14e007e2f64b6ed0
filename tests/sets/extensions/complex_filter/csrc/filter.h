#pragma once
#include <torch/extension.h>
#include <optional>

namespace filter {
struct Options {
    bool normalised = false;
    std::optional<double> gain;
};

void launch(const at::Tensor& re, const at::Tensor& im, const at::Tensor& w_re, const at::Tensor& w_im,
            at::Tensor& out_re, at::Tensor& out_im, at::Tensor& energy, const Options& options);
}  // namespace filter
