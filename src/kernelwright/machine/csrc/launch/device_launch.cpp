// The device runtime of dynamic parallelism: parameter buffers, launches, and the calls that only keep order.
#include "launch/device_launch.h"

#include <algorithm>

#include "copies/async.h"
#include "decode/calls.h"
#include "memory/heap.h"
#include "checks/watch.h"

namespace kw {
namespace {
constexpr u64 TAIL_STREAM = 3, GRAPH_STREAMS = 1ull << 56;
constexpr u64 FIRST_HANDLE = 0x10000;
constexpr u32 INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONFIGURATION = 9, INVALID_FUNCTION = 98;
constexpr size_t MOST_CHILDREN = 1u << 20;  // of one grid: a launch that goes wrong shall not fill the memory

void take(Warp& w, const Inst* in, int lane, size_t i, void* to, size_t bytes) {
  std::memcpy(to, caller_frame(w, in, lane) + w.launch->kernel->tables[(size_t)in->imm][i], bytes);
}

u64 word(Warp& w, const Inst* in, int lane, size_t i, size_t bytes = 8) {
  u64 v = 0;
  take(w, in, lane, i, &v, bytes);
  return v;
}

void answer(Warp& w, const Inst* in, int lane, size_t i, u64 v, size_t bytes) {
  u8* at = caller_frame(w, in, lane) + w.launch->kernel->tables[(size_t)in->imm][i];
  std::memcpy(at, &v, bytes);
  if (w.launch->watch) w.launch->watch->filled(reinterpret_cast<const char*>(at), bytes);
}

u64 thread_in_grid(const Warp& w, int lane) {
  const Launch& l = *w.launch;
  u64 block = ((u64)l.at_block[2] * l.grid[1] + l.at_block[1]) * l.grid[0] + l.at_block[0];
  return block * l.block[0] * l.block[1] * l.block[2] + (u64)thread_of(w, lane);
}

void fail(Warp& w, int lane, u32 error) { w.launch->children.errors[thread_in_grid(w, lane)] = error; }

int kernel_at(const Program& p, u64 address) {
  for (u32 f = 0; f < p.module.functions.size(); f++) {
    if (function_address(f) != address) continue;
    for (size_t k = 0; k < p.kernels.size(); k++)
      if (p.kernels[k].name == p.module.functions[f].name) return (int)k;
  }
  return -1;
}

// What is wrong with a launch's shape; empty when it may run.
string shape_problem(const Program& p, const ChildGrid& c) {
  const Kernel& k = p.kernels[c.kernel];
  const u64 most_block[] = {1024, 1024, 64}, most_grid[] = {0x7fffffff, 65535, 65535};
  u64 threads = (u64)c.block[0] * c.block[1] * c.block[2];
  for (int i = 0; i < 3; i++)
    if (!c.grid[i] || c.grid[i] > most_grid[i] || !c.block[i] || c.block[i] > most_block[i])
      return "a grid of " + std::to_string(c.grid[0]) + " x " + std::to_string(c.grid[1]) + " x " +
             std::to_string(c.grid[2]) + " blocks of " + std::to_string(c.block[0]) + " x " +
             std::to_string(c.block[1]) + " x " + std::to_string(c.block[2]) + " threads";
  if (threads > 1024 || (k.max_threads && threads > k.max_threads)) return std::to_string(threads) + " threads in a block";
  u64 shared = k.dynamic_offset - k.shared_gaps + c.shared_bytes;
  if (shared > 48 * 1024) return std::to_string(shared) + " bytes of shared memory, the limit is 49152";
  return "";
}

const Inst* op_parameter_buffer(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    ChildGrid c;
    int kernel = kernel_at(*w.launch->program, word(w, in, lane, 0));
    take(w, in, lane, 1, c.grid, 12);
    take(w, in, lane, 2, c.block, 12);
    c.shared_bytes = word(w, in, lane, 3, 4);
    u64 at = 0;
    if (kernel < 0) {
      fail(w, lane, INVALID_FUNCTION);
    } else {
      c.kernel = (u32)kernel;
      at = DeviceHeap::instance().allocate(std::max<u64>(w.launch->program->kernels[c.kernel].param_bytes, 1));
      if (!at) {
        fail(w, lane, OUT_OF_MEMORY);
        warn(w, in, thread_of(w, lane), "no memory is left for the arguments of a launch, which is lost", "lost-launch");
      }
    }
    if (at) w.launch->children.prepared[at] = c;
    answer(w, in, lane, 4, at, 8);
  }
  return in + 1;
}

// Shared and local memory are gone when a child runs: the addresses mean the child's own there.
void check_arguments(Warp& w, const Inst* in, int lane, const ChildGrid& c) {
  for (const ParamInfo& q : w.launch->program->kernels[c.kernel].params) {
    if (q.size != 8) continue;
    u64 v = 0;
    std::memcpy(&v, c.params.data() + q.offset, 8);
    u64 inside = v & (LOCAL_WINDOW / 2 - 1);
    bool shared = v >> 60 == SHARED_WINDOW >> 60 && inside < w.launch->shared_bytes;
    bool local = v >> 60 == LOCAL_WINDOW >> 60 && inside < w.launch->kernel->local_bytes;
    if (shared || local)
      raise(in, thread_of(w, lane), "child-pointer",
            string("a pointer to ") + (shared ? "shared" : "local") +
                " memory is an argument of a kernel that a kernel launches: the child cannot reach it");
  }
}

u32 launched(Warp& w, const Inst* in, int lane) {
  Launch& l = *w.launch;
  auto found = l.children.prepared.find(word(w, in, lane, 0));
  if (found == l.children.prepared.end()) return INVALID_VALUE;
  ChildGrid c = found->second;
  l.children.prepared.erase(found);
  u64 buffer = word(w, in, lane, 0);
  const u8* from = reinterpret_cast<const u8*>(buffer);
  c.params.assign(from, from + l.program->kernels[c.kernel].param_bytes);
  DeviceHeap::instance().release(buffer);
  c.stream = word(w, in, lane, 1);
  if (c.stream >= GRAPH_STREAMS) raise(in, thread_of(w, lane), "trap", "a launch into a graph's stream, outside of a graph");
  c.loc = l.kernel->meta[(size_t)(in - l.kernel->code.data())].loc;
  string problem = shape_problem(*l.program, c);
  if (!problem.empty()) {
    warn(w, in, thread_of(w, lane), "kernel " + l.program->kernels[c.kernel].name + ", launched from a kernel: " + problem,
         "invalid-launch");
    return INVALID_CONFIGURATION;
  }
  check_arguments(w, in, lane, c);
  if (l.children.made.size() >= MOST_CHILDREN)
    raise(in, thread_of(w, lane), "trap", "more than " + std::to_string(MOST_CHILDREN) + " launches by one grid");
  l.children.made.push_back(std::move(c));
  return 0;
}

const Inst* op_launch_device(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    u32 error = launched(w, in, lane);
    if (error) fail(w, lane, error);
    answer(w, in, lane, 2, error, 4);
  }
  return in + 1;
}

template <bool FORGET>
const Inst* op_last_error(Warp& w, const Inst* in) {
  auto& errors = w.launch->children.errors;
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    auto found = errors.find(thread_in_grid(w, lane));
    answer(w, in, lane, 0, found == errors.end() ? 0 : found->second, 4);
    if (FORGET && found != errors.end()) errors.erase(found);
  }
  return in + 1;
}

// Makes a stream or an event: a number. Children run one after another, so that neither has anything to do.
const Inst* op_make_handle(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    u64 handle = FIRST_HANDLE + w.launch->children.streams++ * 8;
    if (!write_generic(w, lane, word(w, in, lane, 0), &handle, 8))
      raise(in, thread_of(w, lane), "out-of-bounds-write", "the place for a stream or an event is no memory of the kernel");
    answer(w, in, lane, 2, 0, 4);
  }
  return in + 1;
}

struct ErrorText {
  u32 code;
  char name[40], text[40];
};
const ErrorText ERRORS[] = {{0, "cudaSuccess", "no error"},
                            {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
                            {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
                            {INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
                            {INVALID_FUNCTION, "cudaErrorInvalidDeviceFunction", "invalid device function"},
                            {~0u, "cudaErrorUnknown", "unknown error"}};

template <bool NAME>
const Inst* op_error_text(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    u32 code = (u32)word(w, in, lane, 0, 4);
    const ErrorText* e = ERRORS;
    while (e->code != code && e->code != ~0u) ++e;
    answer(w, in, lane, 1, reinterpret_cast<u64>(NAME ? e->name : e->text), 8);
  }
  return in + 1;
}

// Stores a number that a pointer asks for: which device this is (the only one, 0), or how many there are (1).
template <u32 VALUE>
const Inst* op_number(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    u32 value = VALUE;
    if (!write_generic(w, lane, word(w, in, lane, 0), &value, 4))
      raise(in, thread_of(w, lane), "out-of-bounds-write", "the place for a number is no memory of the kernel");
    answer(w, in, lane, 1, 0, 4);
  }
  return in + 1;
}

template <int ARGUMENTS>
const Inst* op_nothing(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) answer(w, in, __builtin_ctz(m), ARGUMENTS, 0, 4);
  return in + 1;
}
}  // namespace

Fn device_launch_named(string_view name, size_t arguments) {
  constexpr string_view prefix = "__cudaCDP2";
  if (name.substr(0, prefix.size()) != prefix) return nullptr;
  name.remove_prefix(prefix.size());
  if (name == "GetParameterBufferV2" && arguments == 5) return op_parameter_buffer;
  if (name == "LaunchDeviceV2" && arguments == 3) return op_launch_device;
  if (name == "GetLastError" && arguments == 1) return op_last_error<true>;
  if (name == "PeekAtLastError" && arguments == 1) return op_last_error<false>;
  if ((name == "StreamCreateWithFlags" || name == "EventCreateWithFlags") && arguments == 3) return op_make_handle;
  if ((name == "StreamDestroy" || name == "EventDestroy") && arguments == 2) return op_nothing<1>;
  if (name == "EventRecord" && arguments == 3) return op_nothing<2>;
  if (name == "GetErrorString" && arguments == 2) return op_error_text<false>;
  if (name == "GetErrorName" && arguments == 2) return op_error_text<true>;
  if (name == "GetDevice" && arguments == 2) return op_number<0>;
  if (name == "GetDeviceCount" && arguments == 2) return op_number<1>;
  if (name == "StreamWaitEvent" && arguments == 4) return op_nothing<3>;
  return nullptr;
}

std::pair<u64, u64> error_texts() { return {reinterpret_cast<u64>(ERRORS), sizeof ERRORS}; }

string child_lines(const Launch& l) {
  static const char* digits = "0123456789abcdef";
  string out;
  for (const ChildGrid& c : l.children.made) {
    out += "child\t" + l.program->kernels[c.kernel].name;
    for (u32 v : c.grid) out += "\t" + std::to_string(v);
    for (u32 v : c.block) out += "\t" + std::to_string(v);
    out += "\t" + std::to_string(c.shared_bytes) + "\t" + std::to_string(c.stream == TAIL_STREAM) + "\t" +
           std::to_string(source_line(*l.program, c.loc)) + "\t";
    for (u8 b : c.params) out += digits[b >> 4], out += digits[b & 15];
    out += "\n";
  }
  return out;
}
}  // namespace kw
