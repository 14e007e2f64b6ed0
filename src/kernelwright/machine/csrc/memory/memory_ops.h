// Helpers that loads and stores share with moves and copies.
#pragma once
#include "decode/decode.h"
#include "launch/launch.h"

namespace kw {
struct Wide {  // a 128-bit value
  u64 lo, hi;
};

void count_access(Warp& w, u32 m, u32 bytes, bool write);
Space take_space(Mods& m);                          // Generic when none is named
void note_granule(Decoder& d, Space s, int bytes);  // an access of this size exists: race marks must be as fine
Fn mov_fn(int bytes);                               // the move of registers of this size
void add_move_handlers(Handlers& h);
void async_store(Decoder& d, Mods& m);  // bulk_store.cpp: st.async
}  // namespace kw
