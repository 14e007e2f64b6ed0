// Calls that are not inlined: the functions concerned, argument passing, and the stack in local memory.
#pragma once
#include "launch/launch.h"

namespace kw {
class Decoder;

// The value of a pointer to function number i of the module; no memory has such an address.
constexpr u64 FUNCTION_WINDOW = 7ull << 60;
inline u64 function_address(u32 index) { return FUNCTION_WINDOW | (u64)(index + 1) << 4; }

struct CallGraph {
  struct Node {
    std::vector<u32> callees;
    bool indirect = false, alloca = false, recursive = false, taken = false;
  };
  std::vector<Node> nodes;  // by function
  bool out_of_line(u32 f) const { return nodes[f].recursive || nodes[f].taken; }
  // What may run below function f, f included: through pointers, every function whose address is taken.
  std::vector<u32> reachable(u32 f) const;
};
const CallGraph& call_graph(Program& p);

// Where the parameters and then the results of a function lie in its frame.
struct Signature {
  std::vector<u32> at, bytes;  // parameters, then results
  u32 param_bytes = 0, return_bytes = 0, end = 0;
};
Signature signature_of(const std::vector<Variable>& params, const std::vector<Variable>& returns);

inline u8* local_of(const Warp& w, int lane) {
  const Launch& l = *w.launch;
  return l.local + (u64)thread_of(w, lane) * l.kernel->local_bytes;
}

// builtins.cpp: functions that the device runtime has and PTX only declares. Offsets are in the caller's frame.
Fn builtin_named(string_view name, size_t arguments);
Fn device_launch_named(string_view name, size_t arguments);  // device_launch.cpp
// The caller's frame of a builtin call: in->x says that in->a holds its offset.
inline u8* caller_frame(const Warp& w, const Inst* in, int lane) {
  return local_of(w, lane) + (in->x ? slot<u64>(w, in->a)[lane] : 0);
}
// Copies from a generic address; false when it is not all inside one allocation.
bool read_generic(Warp& w, int lane, u64 address, void* out, u64 bytes);
bool write_generic(Warp& w, int lane, u64 address, const void* from, u64 bytes);
}  // namespace kw
