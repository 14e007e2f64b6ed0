// CUDA arrays: plain row-major memory of the runtime's own.
#pragma once
#include "internal.h"

struct cudaArray {
  cudaChannelFormatDesc format;
  cudaExtent extent;  // in elements; 0 where it has no such dimension; layers are in the depth
  unsigned flags;
  kw::u64 element, pitch, slice;
  std::vector<unsigned char> bytes;
  KwShadow* shadow;
};

namespace kw {
cudaArray* array_of(cudaArray_const_t given);  // null: none that lives
}
