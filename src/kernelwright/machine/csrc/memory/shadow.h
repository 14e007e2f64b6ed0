// The shadow of device memory: for each byte of a region, a label of who has written it. The host owns the shadow, and
// it outlives launches. Reads of unwritten bytes are found by it, never by the bytes' value.
#pragma once
#include <cstdint>

#include "launch/launch.h"

extern "C" {
struct KwShadow {
  uint8_t* written;  // a byte a byte: 0 nobody since the shadow began, 1 a kernel, else the host's odd labels
  uint64_t bytes;
  uint64_t whole;  // the first `whole` bytes are known as a kernel's
};
}

namespace kw {
// Lanes m access `bytes` each at w.access: warns of a lane that reads what nothing has written, then notes what is
// written. Both for an atomic, which reads first.
void track_lanes(Warp& w, const Inst* in, u32 m, u32 bytes, bool reads, bool writes);
// The same for one range of global memory and one lane.
void track_range(Warp& w, const Inst* in, int lane, u64 address, u64 bytes, bool reads, bool writes);
// A texel of an array, at a byte of it.
void track_array(Warp& w, const Inst* in, int lane, KwShadow& s, u64 offset, u64 bytes, bool write);
void note_written(Launch& l, u64 address, u64 bytes, bool written = true);
// Whether all of these bytes are written: labels are odd.
bool all_written(const u8* shadow, u64 bytes);
void advance(KwShadow& s);  // moves `whole` as far as it goes
}  // namespace kw
