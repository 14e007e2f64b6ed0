// tex, tld4, txq, suld, sust and suq on objects (64-bit handles).
#include <algorithm>

#include "decode/decode.h"
#include "memory/sampler.h"

namespace kw {
namespace {
struct Form {  // of an instruction's coordinates
  const char* name;
  u32 shape;
  u32 coordinates;  // in the vector, the layer included
};
const Form forms[] = {{"1d", KW_SHAPE_1D, 1},          {"2d", KW_SHAPE_2D, 2},          {"3d", KW_SHAPE_3D, 3},
                      {"a1d", KW_SHAPE_1D_LAYERED, 2}, {"a2d", KW_SHAPE_2D_LAYERED, 3}, {"cube", KW_SHAPE_CUBE, 3},
                      {"acube", KW_SHAPE_CUBE_LAYERED, 4}};
const char* const shape_names[] = {"1D", "2D", "3D", "1D layered", "2D layered", "cube", "layered cube"};

void check_shape(Warp& w, const Inst* in, int lane, const KwTexture& t) {
  if (t.shape != in->x)
    raise(in, thread_of(w, lane), "invalid-texture",
          string("a ") + shape_names[t.shape % 7] + " object is used as a " + shape_names[in->x] + " one");
}

// The face of a cube and where on it a direction points.
u32 face_of(const float* d, float* at) {
  float x = d[0], y = d[1], z = d[2], ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z), s, t, m;
  u32 face;
  if (ax >= ay && ax >= az)
    face = x >= 0 ? 0 : 1, m = ax, s = x >= 0 ? -z : z, t = -y;
  else if (ay >= az)
    face = y >= 0 ? 2 : 3, m = ay, s = x, t = y >= 0 ? z : -z;
  else
    face = z >= 0 ? 4 : 5, m = az, s = z >= 0 ? x : -x, t = -y;
  at[0] = m > 0 ? (s / m + 1) / 2 : 0.5f;
  at[1] = m > 0 ? (t / m + 1) / 2 : 0.5f;
  return face;
}

// in->a handle; ext: four destinations, then the coordinates; in->x shape; in->y bit 0 whole coordinates, bit 1 float
// result, bits 2 and up: gather, 1 + channel
const Inst* op_tex(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    const KwTexture& t = texture_of(w, in, lane, slot<u64>(w, in->a)[lane]);
    check_shape(w, in, lane, t);
    Geometry g = geometry_of(in->x);
    const u32* ext = w.ext + in->ext + 4;
    u32 layer = g.layered ? std::min(slot<u32>(w, ext[0])[lane], t.layers / (g.cube ? 6 : 1) - 1) : 0;
    u32 bits[3], count = g.cube ? 3 : (u32)g.axes;
    for (u32 i = 0; i < count; i++) bits[i] = slot<u32>(w, ext[i + g.layered])[lane];
    float at[3];
    i32 whole[3];
    std::memcpy(at, bits, sizeof at);
    std::memcpy(whole, bits, sizeof whole);
    if (g.cube) {
      float d[3] = {at[0], at[1], at[2]};
      layer = layer * 6 + face_of(d, at);
    }
    Sampler sampler(w, in, lane, t);
    if (sampler.as_float() != ((in->y & 2) != 0))
      raise(in, thread_of(w, lane), "invalid-texture",
            sampler.as_float() ? "a texture that is read as float is fetched as integers"
                               : "a texture of integers, read as they are, is fetched as float");
    Texel v = in->y >> 2 ? sampler.gather(at, layer, (in->y >> 2) - 1)
                         : sampler.sample(at, in->y & 1 ? whole : nullptr, layer);
    for (u32 c = 0; c < 4; c++) slot<u32>(w, w.ext[in->ext + c])[lane] = v.bits[c];
  }
  return in + 1;
}

// Where a surface access goes, or null when it is outside and `mode` (0 trap, 1 clamp, 2 zero) does not forbid that.
u8* surface_at(Warp& w, const Inst* in, int lane, u32 bytes, bool write) {
  const KwTexture& t = texture_of(w, in, lane, slot<u64>(w, in->a)[lane]);
  check_shape(w, in, lane, t);
  if (!t.surface) raise(in, thread_of(w, lane), "invalid-texture", "a texture object is used as a surface object");
  Geometry g = geometry_of(in->x);
  const u32* ext = w.ext + in->ext + 4;
  i64 at[3] = {0, 0, 0}, layer = g.layered ? (i32)slot<u32>(w, ext[0])[lane] : 0;
  for (int a = 0; a < g.axes; a++) at[a] = (i32)slot<u32>(w, ext[a + g.layered])[lane];
  i64 most[3] = {(i64)t.width * texel_bytes(t) - bytes, (i64)t.height - 1, (i64)t.depth - 1};
  if (at[0] % bytes)
    raise(in, thread_of(w, lane), "misaligned-access",
          "surface access of " + std::to_string(bytes) + " bytes at byte " + std::to_string(at[0]) + " of a row");
  bool outside = layer < 0 || layer >= (i64)t.layers;
  for (int a = 0; a < g.axes; a++) outside |= at[a] < 0 || at[a] > most[a];
  u32 mode = in->y & 3;
  if (outside && mode == 2) return nullptr;
  if (outside && mode == 0)
    raise(in, thread_of(w, lane), write ? "out-of-bounds-write" : "out-of-bounds-read",
          "surface access outside the surface: byte " + std::to_string(at[0]) + ", row " + std::to_string(at[1]) +
              ", slice " + std::to_string(at[2] + layer) + " of " + std::to_string((i64)t.width * texel_bytes(t)) +
              " x " + std::to_string(t.height) + " x " + std::to_string(std::max(t.depth, t.layers)));
  for (int a = 0; a < g.axes; a++) at[a] = std::max<i64>(0, std::min(at[a], most[a]));
  layer = std::max<i64>(0, std::min<i64>(layer, (i64)t.layers - 1));
  return texture_memory(w, in, lane, t, (u64)at[0], (u64)at[1], (u64)(at[2] + layer), bytes, write);
}

// in->n: bytes of one element; in->y: mode, then elements << 2; ext: up to four registers of in->imm bytes
const Inst* op_surface(Warp& w, const Inst* in) {
  u32 elements = in->y >> 2, size = in->n, reg = (u32)in->imm & 15;
  bool write = in->imm >> 4;
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    u8* p = surface_at(w, in, lane, elements * size, write);
    for (u32 k = 0; k < elements; k++) {
      char* r = w.regs + w.ext[in->ext + k] + (u64)lane * reg;
      if (write && p) std::memcpy(p + k * size, r, size);
      if (write) continue;
      std::memset(r, 0, reg);
      if (p) std::memcpy(r, p + k * size, size);
    }
  }
  return in + 1;
}

const Inst* op_query(Warp& w, const Inst* in) {  // in->x: 0 width, 1 height, 2 depth, 3 layers, 4 normalized
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    const KwTexture& t = texture_of(w, in, lane, slot<u64>(w, in->a)[lane]);
    const u32 values[] = {t.width, t.height, t.depth, t.layers, t.normalized_coords};
    slot<u32>(w, in->d)[lane] = values[in->x];
  }
  return in + 1;
}

const Form& take_form(Mods& m) {
  for (const Form& f : forms)
    if (m.take(f.name)) return f;
  m.unsupported(m.peek());
}

u32 handle_of(Decoder& d, const Operand& o) {
  bool brackets = o.kind == Operand::Mem || o.kind == Operand::Indexed;
  if (!brackets || o.value) throw PtxError("a texture or surface in brackets is expected");
  Operand name;
  name.kind = Operand::Name;
  name.name = o.name;
  if (d.width(name) != 8) throw Unsupported("texture references (.texref, .surfref)");
  return d.src(name, Ty::U64);
}

void take_coordinates(Decoder& d, const Operand& o, const Form& f, bool whole, std::vector<u32>& out) {
  if (o.count != 1) throw Unsupported("a sampler beside a texture");
  const Operand v = d.element(o, 0);
  u32 given = v.kind == Operand::Vec ? v.count : 1;
  if (given < f.coordinates) throw PtxError("too few coordinates");
  for (u32 i = 0; i < f.coordinates; i++) {
    bool layer = i == 0 && f.name[0] == 'a';
    out.push_back(d.src(v.kind == Operand::Vec ? d.element(v, i) : v, whole ? Ty::S32 : layer ? Ty::U32 : Ty::F32));
  }
}

std::vector<u32> take_destinations(Decoder& d, const Operand& o, Ty t) {
  if (o.kind != Operand::Vec || o.count != 4) throw Unsupported("a texture fetch of another size than v4");
  std::vector<u32> out;
  for (u32 i = 0; i < 4; i++) out.push_back(d.dst(d.element(o, i), t));
  return out;
}

void h_tex(Decoder& d, Mods& m) {
  bool gather = m.op == "tld4", level = m.take("level"), grad = m.take("grad");
  int channel = -1;
  const char* channels[] = {"r", "g", "b", "a"};
  for (int c = 0; gather && c < 4; c++)
    if (m.take(channels[c])) channel = c;
  const Form& f = take_form(m);
  if (!m.take("v4")) m.unsupported(m.peek());
  Ty result = m.type(), place = m.type();
  m.finish();
  if (gather && (f.shape != KW_SHAPE_2D || channel < 0)) m.unsupported(f.name);
  if (size_of(result) != 4 || result == Ty::F16X2 || (place != Ty::S32 && place != Ty::F32))
    throw Unsupported(string(m.op) + " of this type");
  d.need(level ? 3 : grad ? 4 : 2);
  bool whole = place == Ty::S32;
  if (whole && f.name[f.name[0] == 'a'] == 'c') throw PtxError("a cube with integer coordinates");
  u32 handle = handle_of(d, d.op(1));
  std::vector<u32> slots;
  take_coordinates(d, d.op(1), f, whole, slots);
  std::vector<u32> all = take_destinations(d, d.op(0), result);
  all.insert(all.end(), slots.begin(), slots.end());
  Inst& in = d.emit(op_tex, Class::Memory);
  in.a = handle;
  in.ext = d.ext(all);
  in.x = (u8)f.shape;
  in.y = (u8)((whole ? 1 : 0) | (result == Ty::F32 ? 2 : 0) | (channel + 1) << 2);
}

void h_surface(Decoder& d, Mods& m) {
  bool write = m.op == "sust";
  if (!m.take("b")) m.unsupported(m.peek());
  const Form& f = take_form(m);
  if (f.shape == KW_SHAPE_CUBE || f.shape == KW_SHAPE_CUBE_LAYERED) m.unsupported(f.name);
  for (const char* s : {"ca", "cg", "cs", "cv", "wb", "wt"}) m.take(s);
  u32 elements = m.take("v2") ? 2 : m.take("v4") ? 4 : 1;
  Ty t = m.type();
  u32 mode = m.take("clamp") ? 1 : m.take("zero") ? 2 : 0;
  if (!mode) m.take("trap");
  m.finish();
  d.need(2);
  if (!is_bits(t) || t == Ty::B128) throw PtxError(string(m.op) + " of this type");
  const Operand &where = d.op(write ? 0 : 1), &data = d.op(write ? 1 : 0);
  u32 handle = handle_of(d, where);
  std::vector<u32> places, slots;
  take_coordinates(d, where, f, true, places);
  if ((data.kind == Operand::Vec ? data.count : 1) != elements) throw PtxError("vector of the wrong length");
  for (u32 i = 0; i < elements; i++) {
    const Operand& o = data.kind == Operand::Vec ? d.element(data, i) : data;
    slots.push_back(write ? d.src(o, t) : d.dst(o, t));
  }
  slots.resize(4, 0);
  slots.insert(slots.end(), places.begin(), places.end());
  Inst& in = d.emit(op_surface, Class::Memory);
  in.a = handle;
  in.ext = d.ext(slots);
  in.x = (u8)f.shape;
  in.y = (u8)(mode | elements << 2);
  in.n = (u16)size_of(t);
  in.imm = std::max(size_of(t), 2) | (write ? 16 : 0);
}

void h_query(Decoder& d, Mods& m) {
  const char* names[] = {"width", "height", "depth", "array_size", "normalized_coords"};
  int which = -1;
  for (int i = 0; i < 5; i++)
    if (m.take(names[i])) which = i;
  if (which < 0 || !m.take("b32")) m.unsupported(m.peek());
  m.finish();
  d.need(2);
  u32 handle = handle_of(d, d.op(1)), r = d.dst(d.op(0), Ty::B32);
  Inst& in = d.emit(op_query, Class::Memory);
  in.a = handle, in.d = r, in.x = (u8)which;
}
}  // namespace

void add_texture_handlers(Handlers& h) {
  h["tex"] = h["tld4"] = h_tex;
  h["suld"] = h["sust"] = h_surface;
  h["txq"] = h["suq"] = h_query;
}
}  // namespace kw
