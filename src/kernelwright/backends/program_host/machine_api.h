// The machine's C interface, as machine/csrc/capi.cpp, machine/csrc/memory/texture.h and machine/library.py declare it.
// The offsets of a launch's fields come from library.py, not from here, so that the structure may grow.
#pragma once
#include <cstdint>

extern "C" {
struct KwShadow {
  uint8_t* written;  // a byte a byte: 0 where nothing has written, else 1
  uint64_t bytes;
  uint64_t whole;  // the first `whole` bytes are known as written
};
struct KwAllocation {
  uint64_t address, bytes;
  uint64_t flags;  // 1: may be written
  KwShadow* shadow;  // of written bytes; null: all of them are
};
struct KwTexture {
  uint64_t handle, base, pitch, slice;
  uint32_t kind, shape, width, height, depth, layers;
  uint32_t channel_kind, channel_bits[4], address_mode[3];
  uint32_t linear_filter, normalized_float, normalized_coords, surface;
  float border[4];
  KwShadow* shadow;  // of an array: its written bytes; null: all of them are
};
struct KwDevice {
  const KwTexture* textures;
  uint64_t texture_count;
  uint64_t print_limit;  // bytes of printf that are kept
};
}
