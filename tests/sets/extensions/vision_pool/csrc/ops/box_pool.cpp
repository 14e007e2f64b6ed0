#include "box_pool.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/types.h>

namespace vision {
namespace ops {

at::Tensor box_pool(
    const at::Tensor& input, // Input feature map.
    const at::Tensor& rois, // List of boxes to pool over.
    int64_t pooled_height, // The height of the pooled feature map.
    int64_t pooled_width) { // The width of the pooled feature
  C10_LOG_API_USAGE_ONCE("vision.csrc.ops.box_pool.box_pool");
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("vision_own::box_pool", "")
                       .typed<decltype(box_pool)>();
  return op.call(input, rois, pooled_height, pooled_width);
}

namespace detail {

at::Tensor _box_pool_out_of(const at::Tensor& input, int64_t rois, int64_t height, int64_t width) {
  return at::zeros({rois, input.size(1), height, width}, input.options());
}

} // namespace detail

TORCH_LIBRARY_FRAGMENT(vision_own, m) {
  m.def(TORCH_SELECTIVE_SCHEMA(
      "vision_own::box_pool(Tensor input, Tensor rois, int pooled_height, int pooled_width) -> Tensor"));
}

} // namespace ops
} // namespace vision
