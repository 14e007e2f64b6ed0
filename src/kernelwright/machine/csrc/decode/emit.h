// Helpers of most handlers: read the sources, write the destination, emit one instruction.
#pragma once
#include "decode/decode.h"

namespace kw {
// d = f(a [, b [, c]]), all of type t except for the destination when it differs.
inline Inst& emit_plain(Decoder& d, Fn fn, Class cls, u32 sources, Ty t, Ty dest = Ty::None) {
  if (!fn) throw PtxError("no such operation for this type");
  d.need(sources + 1);
  u32 s[3] = {0, 0, 0};
  for (u32 i = 0; i < sources; i++) s[i] = d.src(d.op(i + 1), t);
  u32 out = d.dst(d.op(0), dest == Ty::None ? t : dest);
  Inst& in = d.emit(fn, cls);
  in.d = out;
  in.a = s[0];
  in.b = s[1];
  in.c = s[2];
  return in;
}
}  // namespace kw
