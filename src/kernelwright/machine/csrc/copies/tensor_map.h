// The 128 bytes of a CUtensorMap as this machine encodes them. NVIDIA does not publish the hardware's layout, and
// programs treat it as opaque; ours is the struct below. The host's replacement of cuTensorMapEncodeTiled includes this
// file, so it includes nothing.
#pragma once
#include <cstdint>
#include <cstring>

namespace kw {
struct TensorMap {
  static constexpr uint32_t MAGIC = 0x6b774d31;
  uint32_t magic = 0;
  uint8_t type = 0;  // CUtensorMapDataType
  uint8_t rank = 0, swizzle = 0, fill_nan = 0;
  uint8_t im2col = 0, element_bytes = 0, channels_log = 0, reserved = 0;
  uint8_t element_stride[5] = {};
  int8_t reserved2[7] = {};
  uint64_t address = 0;
  uint32_t last[5] = {};  // extent - 1
  uint32_t reserved3 = 0;
  uint64_t stride[4] = {};  // bytes, of dimensions 1 to 4
  uint16_t box[5] = {};     // extent; im2col: box[0] channels, box[1] pixels
  int8_t lower[3] = {}, upper[3] = {};
  uint64_t reserved4[3] = {};
};
static_assert(sizeof(TensorMap) == 128, "a CUtensorMap has 128 bytes");

constexpr int TENSOR_MAP_OK = 0, TENSOR_MAP_INVALID = 1, TENSOR_MAP_UNSUPPORTED = 801;  // CUresult

// Bytes of an element by CUtensorMapDataType; 0: a type that the machine does not know (tf32, packed 4 and 6 bits).
inline int tensor_element_bytes(int type) {
  constexpr int bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4};
  return type >= 0 && type <= 10 ? bytes[type] : 0;
}

// What both modes check alike, by the rules of the driver's documentation.
inline int begin_tensor_map(TensorMap& m, int type, uint32_t rank, const void* address, const uint64_t* dims,
                            const uint64_t* strides, const uint32_t* element_strides, int interleave, int swizzle,
                            int promotion, int fill) {
  bool known = interleave >= 0 && interleave <= 2 && promotion >= 0 && promotion <= 3 && fill >= 0 && fill <= 1;
  if (!known) return TENSOR_MAP_INVALID;
  m.element_bytes = (uint8_t)tensor_element_bytes(type);
  if (!m.element_bytes || interleave || swizzle > 3) return TENSOR_MAP_UNSUPPORTED;
  if (rank < 1 || rank > 5 || swizzle < 0 || !address || (uint64_t)address % 16) return TENSOR_MAP_INVALID;
  if (fill && (type < 6 || type > 10)) return TENSOR_MAP_INVALID;
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] == 0 || dims[i] > (1ull << 32)) return TENSOR_MAP_INVALID;
    if (i && (strides[i - 1] % 16 || strides[i - 1] >= (1ull << 40))) return TENSOR_MAP_INVALID;
    if (element_strides[i] == 0 || element_strides[i] > 8) return TENSOR_MAP_INVALID;
    m.last[i] = (uint32_t)(dims[i] - 1);
    m.element_stride[i] = (uint8_t)element_strides[i];
    if (i) m.stride[i - 1] = strides[i - 1];
  }
  m.type = (uint8_t)type, m.rank = (uint8_t)rank, m.swizzle = (uint8_t)swizzle, m.fill_nan = (uint8_t)fill;
  m.address = (uint64_t)address;
  return TENSOR_MAP_OK;
}

inline bool fits_swizzle(const TensorMap& m, uint64_t inner_bytes) {
  return inner_bytes % 16 == 0 && (!m.swizzle || inner_bytes <= (16ull << m.swizzle));
}

// cuTensorMapEncodeTiled: returns a CUresult, and writes 128 bytes when it is 0.
inline int encode_tiled(void* out, int type, uint32_t rank, const void* address, const uint64_t* dims,
                        const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides, int interleave,
                        int swizzle, int promotion, int fill) {
  TensorMap m;
  if ((uint64_t)out % 64) return TENSOR_MAP_INVALID;
  int status =
      begin_tensor_map(m, type, rank, address, dims, strides, element_strides, interleave, swizzle, promotion, fill);
  if (status) return status;
  for (uint32_t i = 0; i < rank; i++) {
    if (box[i] == 0 || box[i] > 256) return TENSOR_MAP_INVALID;
    m.box[i] = (uint16_t)box[i];
  }
  if (!fits_swizzle(m, (uint64_t)box[0] * m.element_bytes)) return TENSOR_MAP_INVALID;
  m.magic = TensorMap::MAGIC;
  std::memcpy(out, &m, sizeof m);
  return TENSOR_MAP_OK;
}
}  // namespace kw
