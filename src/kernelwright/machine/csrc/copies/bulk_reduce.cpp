// The operations of cp.reduce.async.bulk, on arrays in memory.
#include <algorithm>

#include "copies/bulk.h"
#include "arithmetic/half.h"

namespace kw {
namespace {
template <class T>
T combine(Reduce op, T a, T b) {
  switch (op) {
    case Reduce::Add:
      return (T)(a + b);
    case Reduce::Min:
      return std::min(a, b);
    case Reduce::Max:
      return std::max(a, b);
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == Reduce::And) return a & b;
    if (op == Reduce::Or) return a | b;
    if (op == Reduce::Xor) return a ^ b;
    if (op == Reduce::Inc) return a >= b ? 0 : a + 1;
    if (op == Reduce::Dec) return a == 0 || a > b ? b : a - 1;
  }
  return a;
}

template <class T>
void all(Reduce op, char* target, const char* source, u64 bytes) {
  for (u64 i = 0; i < bytes; i += sizeof(T)) {
    T a, b;
    std::memcpy(&a, target + i, sizeof a);
    std::memcpy(&b, source + i, sizeof b);
    a = combine(op, a, b);
    std::memcpy(target + i, &a, sizeof a);
  }
}

template <bool BF>
void all_halves(Reduce op, char* target, const char* source, u64 bytes) {
  auto wide = [](u16 h) { return BF ? bf16_to_float(h) : half_to_float(h); };
  for (u64 i = 0; i < bytes; i += 2) {
    u16 a, b;
    std::memcpy(&a, target + i, 2);
    std::memcpy(&b, source + i, 2);
    float r = combine(op, wide(a), wide(b));
    a = BF ? float_to_bf16(r) : float_to_half(r);
    std::memcpy(target + i, &a, 2);
  }
}
}  // namespace

Reduce take_reduction(Mods& m) {
  const char* names[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
  for (int i = 0; i < 8; i++)
    if (m.take(names[i])) return (Reduce)(i + 1);
  m.unsupported("reduce." + string(m.peek()));
}

bool can_reduce(Reduce op, Ty t) {
  bool logic = op == Reduce::And || op == Reduce::Or || op == Reduce::Xor;
  bool counts = op == Reduce::Inc || op == Reduce::Dec;
  if (logic) return t == Ty::B32 || t == Ty::B64;
  if (counts) return t == Ty::U32;
  if (t == Ty::F32 || t == Ty::F64) return op == Reduce::Add;
  return t == Ty::U32 || t == Ty::S32 || t == Ty::U64 || t == Ty::S64 || t == Ty::F16 || t == Ty::BF16;
}

void reduce_bytes(Reduce op, Ty t, char* target, const char* source, u64 bytes) {
  switch (t) {
    case Ty::U32:
    case Ty::B32:
      return all<u32>(op, target, source, bytes);
    case Ty::S32:
      return all<i32>(op, target, source, bytes);
    case Ty::U64:
    case Ty::B64:
      return all<u64>(op, target, source, bytes);
    case Ty::S64:
      return all<i64>(op, target, source, bytes);
    case Ty::F32:
      return all<float>(op, target, source, bytes);
    case Ty::F64:
      return all<double>(op, target, source, bytes);
    case Ty::F16:
      return all_halves<false>(op, target, source, bytes);
    case Ty::BF16:
      return all_halves<true>(op, target, source, bytes);
    default:
      throw std::runtime_error("reduction of a type that can_reduce refuses");
  }
}
}  // namespace kw
