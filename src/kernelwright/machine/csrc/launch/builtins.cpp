// Functions of the device runtime: vprintf, __assertfail, malloc and free. Launches are in device_launch.cpp.
#include <algorithm>

#include "decode/calls.h"
#include "launch/format.h"
#include "memory/heap.h"
#include "memory/shadow.h"
#include "checks/watch.h"

namespace kw {
namespace {
constexpr u64 MAX_TEXT = 4096;  // of one %s, and of a format

u64 argument(const Warp& w, const Inst* in, int lane, size_t i, size_t bytes) {
  u64 v = 0;
  std::memcpy(&v, caller_frame(w, in, lane) + w.launch->kernel->tables[(size_t)in->imm][i], bytes);
  return v;
}

void set_result(Warp& w, const Inst* in, int lane, size_t i, u64 v, size_t bytes) {
  u8* at = caller_frame(w, in, lane) + w.launch->kernel->tables[(size_t)in->imm][i];
  std::memcpy(at, &v, bytes);
  if (w.launch->watch) w.launch->watch->filled(reinterpret_cast<const char*>(at), bytes);
}

// How many bytes from a generic address on are one allocation's, and where they are.
const u8* memory_at(Warp& w, int lane, u64 address, u64& room) {
  Launch& l = *w.launch;
  u64 at = address & ((1ull << 60) - 1);
  auto window = [&](const u8* begin, u64 size) -> const u8* {
    room = at < size ? size - at : 0;
    return room ? begin + at : nullptr;
  };
  switch (address >> 60) {
    case 0: {
      Region* r = find_region(l, address);
      room = r ? r->begin + r->bytes - address : 0;
      return reinterpret_cast<const u8*>(room ? address : 0);
    }
    case 1:
      return window(l.shared, l.shared_bytes);
    case 2:
      return window(local_of(w, lane), l.kernel->local_bytes);
    case 3:
      return window(l.params.data(), l.params.size());
    default:
      room = 0;
      return nullptr;
  }
}

bool text_at(Warp& w, int lane, u64 address, string& out) {
  u64 room = 0;
  const u8* s = memory_at(w, lane, address, room);
  if (!s) return false;
  const char* text = reinterpret_cast<const char*>(s);
  out.assign(text, strnlen(text, std::min(room, MAX_TEXT)));
  return true;
}

string quoted_text(Warp& w, int lane, u64 address) {
  string s;
  return text_at(w, lane, address, s) ? s : "?";
}

const Inst* op_assertfail(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  int lane = __builtin_ctz(m);
  auto text = [&](size_t i) { return quoted_text(w, lane, argument(w, in, lane, i, 8)); };
  string message = "assertion failed: " + text(0) + " (" + text(1) + ":" + std::to_string(argument(w, in, lane, 2, 4)) +
                   ", " + text(3) + ")";
  raise(in, thread_of(w, lane), "assert", message);
}

// The argument block of one printf call.
class PrintArguments : public FormatArguments {
 public:
  PrintArguments(Warp& w, int lane, u64 address) : w_(w), lane_(lane), at_(address) {}
  bool word(u32 bytes, u64& out) override {
    at_ = (at_ + bytes - 1) / bytes * bytes;
    out = 0;
    bool good = read_generic(w_, lane_, at_, &out, bytes);
    at_ += bytes;
    return good;
  }
  bool text(u64 address, string& out) override { return text_at(w_, lane_, address, out); }

 private:
  Warp& w_;
  int lane_;
  u64 at_;
};

void print(Launch& l, const string& text) {
  if (l.unprinted || l.printed.size() + text.size() > l.print_limit)
    l.unprinted += text.size();
  else
    l.printed += text;
}

const Inst* op_vprintf(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    string format;
    if (!text_at(w, lane, argument(w, in, lane, 0, 8), format))
      raise(in, thread_of(w, lane), "out-of-bounds-read", "printf with a format that is no string in device memory");
    PrintArguments arguments(w, lane, argument(w, in, lane, 1, 8));
    Formatted f = format_text(format, arguments);
    if (!f.problem.empty()) raise(in, thread_of(w, lane), "out-of-bounds-read", "printf: " + f.problem);
    print(*w.launch, f.text);
    set_result(w, in, lane, 2, f.arguments, 4);
  }
  return in + 1;
}

const Inst* op_malloc(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    u64 bytes = argument(w, in, lane, 0, 8), at = DeviceHeap::instance().allocate(bytes);
    set_result(w, in, lane, 1, at, 8);
    Region* heap = at ? find_region(*w.launch, at) : nullptr;
    u32 granule = w.launch->kernel->global_granule;
    if (heap && heap->marks)  // accesses to a block that was here before are no races
      std::fill_n(heap->marks.get() + (at - heap->begin) / granule, (bytes + granule - 1) / granule, 0);
  }
  return in + 1;
}

const Inst* op_free(Warp& w, const Inst* in) {
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    u64 address = argument(w, in, lane, 0, 8);
    if (!address) continue;
    DeviceHeap& heap = DeviceHeap::instance();
    DeviceHeap::Freed result = heap.release(address);
    if (result == DeviceHeap::Freed::Ok) continue;
    bool inside = address >= heap.begin() && address < heap.begin() + heap.bytes();
    string where = inside ? heap.describe(address) : "an address outside the device heap";
    if (result == DeviceHeap::Freed::Twice)
      raise(in, thread_of(w, lane), "double-free", "free of memory that was already freed: " + where);
    raise(in, thread_of(w, lane), "invalid-free", "free of a pointer that malloc did not give: " + where);
  }
  return in + 1;
}
}  // namespace

bool read_generic(Warp& w, int lane, u64 address, void* out, u64 bytes) {
  u64 room = 0;
  const u8* from = memory_at(w, lane, address, room);
  if (!from || room < bytes) return false;
  std::memcpy(out, from, bytes);
  return true;
}

bool write_generic(Warp& w, int lane, u64 address, const void* from, u64 bytes) {
  u64 room = 0;
  u8* to = const_cast<u8*>(memory_at(w, lane, address, room));
  if (!to || room < bytes || address >> 60 == PARAM_WINDOW >> 60) return false;
  std::memcpy(to, from, bytes);
  if (address >> 60 == 0) {
    note_written(*w.launch, address, bytes);
    if (Region* r = find_region(*w.launch, address)) r->written += bytes;
  }
  if (w.launch->watch) w.launch->watch->filled(reinterpret_cast<const char*>(to), bytes);
  return true;
}

Fn builtin_named(string_view name, size_t arguments) {
  if (name == "vprintf" && arguments == 3) return op_vprintf;
  if (name == "__assertfail" && arguments >= 4) return op_assertfail;
  if (name == "malloc" && arguments == 2) return op_malloc;
  if (name == "free" && arguments == 1) return op_free;
  return device_launch_named(name, arguments);
}
}  // namespace kw
