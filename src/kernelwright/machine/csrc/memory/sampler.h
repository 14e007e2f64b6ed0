// Samples a texture: coordinates to values.
#pragma once
#include "memory/texture.h"

#include "launch/launch.h"

namespace kw {
struct Texel {  // four channels: integers as they are, or floats
  u32 bits[4];
};

struct Geometry {
  int axes;  // coordinates that are filtered
  bool layered, cube;
};
Geometry geometry_of(u32 shape);

class Sampler {
 public:
  Sampler(Warp& w, const Inst* in, int lane, const KwTexture& t) : w_(w), in_(in), lane_(lane), t_(t) {}
  // Coordinates are floats, or whole numbers when `whole`.
  Texel sample(const float* at, const i32* whole, u32 layer);
  Texel gather(const float* at, u32 layer, int channel);
  bool as_float() const { return t_.channel_kind == KW_FLOAT || t_.normalized_float; }

 private:
  i64 size(int axis) const { return axis == 0 ? t_.width : axis == 1 ? t_.height : t_.depth; }
  u32 mode(int axis) const;
  i64 wrapped(int axis, i64 index, bool& outside) const;
  bool fractions() const { return t_.normalized_coords || geometry_of(t_.shape).cube; }
  double scaled(int axis, float x) const { return fractions() ? (double)x * (double)size(axis) : (double)x; }
  Texel load(const i64* index, u32 layer);
  Texel border() const;
  [[noreturn]] void fail(const string& what) const;

  Warp& w_;
  const Inst* in_;
  int lane_;
  const KwTexture& t_;
};

const KwTexture& texture_of(Warp& w, const Inst* in, int lane, u64 handle);
u32 texel_bytes(const KwTexture& t);
// The host address of a texel's first byte, `bytes` of which are used. x is in bytes.
u8* texture_memory(Warp& w, const Inst* in, int lane, const KwTexture& t, u64 x, u64 y, u64 slice, u32 bytes,
                   bool write);
}  // namespace kw
