#pragma once

#include <ATen/ATen.h>
#include "../macros.h"

namespace vision {
namespace ops {

VISION_API at::Tensor box_pool(
    const at::Tensor& input,
    const at::Tensor& rois,
    int64_t pooled_height,
    int64_t pooled_width);

namespace detail {

at::Tensor _box_pool_out_of(const at::Tensor& input, int64_t rois, int64_t height, int64_t width);

} // namespace detail

} // namespace ops
} // namespace vision
