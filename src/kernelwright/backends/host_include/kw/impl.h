// Shared by the three sources of the host library; candidates never see it.
#pragma once

#include "all.h"

namespace kw {

// Tags that exist only on this side, before the call.
constexpr int32_t RAW_TENSORS = 100;
constexpr int32_t RAW_INDEXES = 101;

struct TensorImpl {
  long references = 1;
  int64_t handle = 0;
  void* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  int flags = 0;
  int element_size = 0;
  int64_t numel = 0;
  int64_t storage_offset = 0;
  std::vector<int64_t> sizes, strides;
};

extern Callbacks callbacks;
const std::string& error_text();

}  // namespace kw
