#include "memory/sampler.h"

#include <algorithm>

#include "arithmetic/half.h"
#include "memory/shadow.h"

namespace kw {
namespace {
constexpr double FRACTION = 256;  // filter weights have eight bits behind the point

string hex(u64 v) {
  char t[24];
  std::snprintf(t, sizeof t, "0x%llx", (unsigned long long)v);
  return t;
}

float normalized(u32 raw, u32 bits, bool is_signed) {
  double most = (double)((1ull << (bits - (is_signed ? 1 : 0))) - 1);
  double v = is_signed ? (double)((i32)(raw << (32 - bits)) >> (32 - bits)) : (double)raw;
  return (float)std::max(v / most, -1.0);
}
}  // namespace

Geometry geometry_of(u32 shape) {
  switch (shape) {
    case KW_SHAPE_1D:
      return {1, false, false};
    case KW_SHAPE_2D:
      return {2, false, false};
    case KW_SHAPE_3D:
      return {3, false, false};
    case KW_SHAPE_1D_LAYERED:
      return {1, true, false};
    case KW_SHAPE_2D_LAYERED:
      return {2, true, false};
    case KW_SHAPE_CUBE:
      return {2, false, true};
    default:
      return {2, true, true};
  }
}

const KwTexture& texture_of(Warp& w, const Inst* in, int lane, u64 handle) {
  const KwDevice* d = w.launch->device;
  for (u64 i = 0; d && i < d->texture_count; i++)
    if (d->textures[i].handle == handle) return d->textures[i];
  raise(in, thread_of(w, lane), "invalid-texture", "no texture or surface object has the value " + hex(handle));
}

u32 texel_bytes(const KwTexture& t) {
  u32 bits = 0;
  for (u32 b : t.channel_bits) bits += b;
  return bits / 8;
}

u8* texture_memory(Warp& w, const Inst* in, int lane, const KwTexture& t, u64 x, u64 y, u64 slice, u32 bytes,
                   bool write) {
  u64 pitch = t.pitch ? t.pitch : (u64)t.width * texel_bytes(t);
  u64 step = t.slice ? t.slice : pitch * std::max(t.height, 1u);
  u64 at = t.base + x + y * pitch + slice * step;
  if (t.kind == KW_TEXTURE_ARRAY) {
    if (t.shadow) track_array(w, in, lane, *t.shadow, at - t.base, bytes, write);
    return reinterpret_cast<u8*>(at);
  }
  Region* r = find_region(*w.launch, at);
  if (!r || at + bytes > r->begin + r->bytes)
    raise(in, thread_of(w, lane), write ? "out-of-bounds-write" : "out-of-bounds-read",
          "the texture object names memory that is not allocated: " + std::to_string(bytes) + " bytes at " + hex(at) +
              ", " + describe_address(*w.launch, at));
  (write ? r->written : r->read) += bytes;
  track_range(w, in, lane, at, bytes, !write, write);
  return reinterpret_cast<u8*>(at);
}

void Sampler::fail(const string& what) const { raise(in_, thread_of(w_, lane_), "invalid-texture", what); }

u32 Sampler::mode(int axis) const {
  u32 m = geometry_of(t_.shape).cube ? (u32)KW_CLAMP : t_.address_mode[axis];
  return t_.normalized_coords || m == KW_BORDER ? m : (u32)KW_CLAMP;  // wrap and mirror need normalized coordinates
}

i64 Sampler::wrapped(int axis, i64 index, bool& outside) const {
  i64 n = size(axis);
  if (index >= 0 && index < n) return index;
  switch (mode(axis)) {
    case KW_WRAP:
      return (index % n + n) % n;
    case KW_MIRROR: {
      i64 m = (index % (2 * n) + 2 * n) % (2 * n);
      return m < n ? m : 2 * n - 1 - m;
    }
    case KW_BORDER:
      outside = true;
      return 0;
    default:
      return index < 0 ? 0 : n - 1;
  }
}

Texel Sampler::border() const {
  Texel v{};
  for (int c = 0; c < 4; c++) v.bits[c] = as_float() ? bit_cast<u32>(t_.border[c]) : (u32)(i64)t_.border[c];
  return v;
}

Texel Sampler::load(const i64* index, u32 layer) {
  bool outside = false;
  i64 at[3] = {0, 0, 0};
  Geometry g = geometry_of(t_.shape);
  for (int a = 0; a < g.axes; a++) at[a] = wrapped(a, index[a], outside);
  if (outside) return border();
  u32 bytes = texel_bytes(t_);
  const u8* p = texture_memory(w_, in_, lane_, t_, (u64)at[0] * bytes, (u64)at[1], (u64)at[2] + layer, bytes, false);
  Texel v{{0, 0, 0, as_float() ? bit_cast<u32>(1.0f) : 1u}};
  for (int c = 0; c < 4 && t_.channel_bits[c]; c++) {
    u32 bits = t_.channel_bits[c], raw = 0;
    std::memcpy(&raw, p, bits / 8);
    p += bits / 8;
    bool is_signed = t_.channel_kind == KW_SIGNED;
    if (t_.channel_kind == KW_FLOAT)
      v.bits[c] = bits == 16 ? bit_cast<u32>(half_to_float((u16)raw)) : raw;
    else if (t_.normalized_float)
      v.bits[c] = bit_cast<u32>(normalized(raw, bits, is_signed));
    else
      v.bits[c] = is_signed ? (u32)((i32)(raw << (32 - bits)) >> (32 - bits)) : raw;
  }
  return v;
}

static i64 floor_index(double x) {  // NaN and what is far outside become an index that is outside, too
  constexpr double far = 1e9;
  return x != x ? 0 : (i64)std::floor(x < -far ? -far : x > far ? far : x);
}

Texel Sampler::sample(const float* at, const i32* whole, u32 layer) {
  Geometry g = geometry_of(t_.shape);
  i64 index[3] = {0, 0, 0};
  if (whole) {
    for (int a = 0; a < g.axes; a++) index[a] = whole[a];
    if (t_.kind == KW_TEXTURE_LINEAR && (index[0] < 0 || index[0] >= (i64)t_.width)) return Texel{};
    return load(index, layer);
  }
  if (!t_.linear_filter) {
    for (int a = 0; a < g.axes; a++) index[a] = floor_index(scaled(a, at[a]));
    return load(index, layer);
  }
  if (!as_float()) fail("linear filtering of integers that are not read as normalized floats");
  double weight[3];
  for (int a = 0; a < g.axes; a++) {
    double x = scaled(a, at[a]) - 0.5;
    index[a] = floor_index(x);
    double part = x - std::floor(x);
    weight[a] = std::floor(part * FRACTION + 0.5) / FRACTION;
  }
  double sum[4] = {0, 0, 0, 0};
  for (int corner = 0; corner < 1 << g.axes; corner++) {
    i64 place[3] = {0, 0, 0};
    double share = 1;
    for (int a = 0; a < g.axes; a++) {
      bool upper = corner >> a & 1;
      place[a] = index[a] + upper;
      share *= upper ? weight[a] : 1 - weight[a];
    }
    if (share == 0) continue;
    Texel v = load(place, layer);
    for (int c = 0; c < 4; c++) sum[c] += share * (double)bit_cast<float>(v.bits[c]);
  }
  Texel r;
  for (int c = 0; c < 4; c++) r.bits[c] = bit_cast<u32>((float)sum[c]);
  return r;
}

Texel Sampler::gather(const float* at, u32 layer, int channel) {
  i64 i = floor_index(scaled(0, at[0]) - 0.5), j = floor_index(scaled(1, at[1]) - 0.5);
  const i64 place[4][3] = {{i, j + 1, 0}, {i + 1, j + 1, 0}, {i + 1, j, 0}, {i, j, 0}};
  Texel r;
  for (int k = 0; k < 4; k++) r.bits[k] = load(place[k], layer).bits[channel];
  return r;
}
}  // namespace kw
