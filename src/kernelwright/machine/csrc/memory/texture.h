// Texture and surface objects, registered by the host for a launch and read by instructions. The descriptors are plain
// C, so that ctypes and host code can fill them; `handle` is the cudaTextureObject_t or cudaSurfaceObject_t that a
// kernel receives.
#pragma once
#include <cstdint>

extern "C" {
struct KwShadow;
enum KwTextureKind : uint32_t {
  KW_TEXTURE_LINEAR = 0,  // cudaResourceTypeLinear: width elements from base, fetched with integers
  KW_TEXTURE_PITCH = 1,   // cudaResourceTypePitch2D: rows of `pitch` bytes
  KW_TEXTURE_ARRAY = 2,   // cudaResourceTypeArray: our arrays are plain row-major memory, too
};
enum KwTextureShape : uint32_t {
  KW_SHAPE_1D = 0,
  KW_SHAPE_2D = 1,
  KW_SHAPE_3D = 2,
  KW_SHAPE_1D_LAYERED = 3,
  KW_SHAPE_2D_LAYERED = 4,
  KW_SHAPE_CUBE = 5,  // layers = 6
  KW_SHAPE_CUBE_LAYERED = 6,
};
// As cudaTextureAddressMode.
enum KwAddressMode : uint32_t { KW_WRAP = 0, KW_CLAMP = 1, KW_MIRROR = 2, KW_BORDER = 3 };
// As cudaChannelFormatKind.
enum KwChannelKind : uint32_t { KW_SIGNED = 0, KW_UNSIGNED = 1, KW_FLOAT = 2 };

struct KwTexture {
  uint64_t handle;
  uint64_t base;     // host address of the first texel
  uint64_t pitch;    // bytes from row to row; 0: rows are packed
  uint64_t slice;    // bytes from depth slice or layer to the next; 0: packed
  uint32_t kind;     // KwTextureKind
  uint32_t shape;    // KwTextureShape
  uint32_t width;    // texels
  uint32_t height;   // 1 for one dimension
  uint32_t depth;    // 1 unless three-dimensional
  uint32_t layers;   // 1 unless layered or a cube (6 for each cube)
  uint32_t channel_kind;     // KwChannelKind
  uint32_t channel_bits[4];  // 8, 16 or 32; 0 for a channel that is not there
  uint32_t address_mode[3];  // KwAddressMode of x, y, z
  uint32_t linear_filter;    // 0 nearest texel, 1 linear
  uint32_t normalized_float; // read mode: 1 turns integers into [0, 1] or [-1, 1]
  uint32_t normalized_coords;
  uint32_t surface;          // 1: surface instructions may write to it
  float border[4];
  KwShadow* shadow;  // of an array: its written bytes; null: all of them are
};

// What a launch finds on the device besides memory.
struct KwDevice {
  const KwTexture* textures;
  uint64_t texture_count;
  uint64_t print_limit;  // bytes of printf that are kept
};
}
