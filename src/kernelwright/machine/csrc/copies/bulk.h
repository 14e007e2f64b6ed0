// cp.async.bulk: copies of byte ranges, issued by one thread.
#pragma once
#include "copies/async.h"
#include "copies/tensor_map.h"

namespace kw {
enum class Reduce : u8 { None, Add, Min, Max, Inc, Dec, And, Or, Xor };

void bulk_copy(Decoder& d, Mods& m, bool reduce);    // decodes cp.async.bulk and cp.reduce.async.bulk
void tensor_copy(Decoder& d, Mods& m, bool reduce);  // the rest of cp.async.bulk.tensor
void tensor_prefetch(Decoder& d, Mods& m);

Reduce take_reduction(Mods& m);
// target[i] = target[i] op source[i] over `bytes`; the type and operation were checked by can_reduce.
void reduce_bytes(Reduce op, Ty t, char* target, const char* source, u64 bytes);
bool can_reduce(Reduce op, Ty t);

// Emits what writes the address of an operand to a fresh slot of 8 bytes, and returns that slot.
u32 address_slot(Decoder& d, const Operand& o, Space space);

struct BulkTarget {
  ResidentBlock* resident;
  u64 offset;
};
// Raises a fault when `bytes` from a shared address are not there, or not aligned to `alignment`.
BulkTarget shared_target(Warp& w, const Inst* in, int lane, u64 address, u64 bytes, u32 alignment, bool write);
void check_global(Warp& w, const Inst* in, int lane, u64 address, u64 bytes, bool write);
// Calls f(target, barrier) for the own destination, or for each block of a multicast.
void each_destination(Warp& w, const Inst* in, int lane, BulkTarget to, BulkTarget barrier, i64 multicast,
                      const std::function<void(BulkTarget, char*)>& f);
void queue_store(Warp& w, const Inst* in, int lane, std::function<void()> deliver);
}  // namespace kw
