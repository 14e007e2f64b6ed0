// Device, managed, pinned and registered memory. All of it is memory of this process. Device memory is protected from
// host code, so that a host function that dereferences a device pointer faults, as with a GPU.
#include "internal.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>

namespace kw {
static std::map<u64, Allocation> table;
static u64 version = 1;
static unsigned count = 0;
static u64 device_bytes = 0;
constexpr u64 TOTAL = u64(80) << 30, SMALL = 1 << 20, CHUNK = 8 << 20, GAP = 512, PAGE = 2 << 20;

struct Mapping {
  u64 begin, bytes;
  bool device;  // closed to the host
};
static std::map<u64, Mapping> mappings;  // by address
static std::map<u64, std::deque<u64>> unused[2];  // small blocks by size: of device memory, of the rest
static u64 chunk_at[2], chunk_end[2];
static int opened = 0;

const std::map<u64, Allocation>& allocations() { return table; }
u64 allocations_version() { return version; }

static bool guarded() {
  static bool on = std::getenv("KERNELWRIGHT_HOST_ACCESS") == nullptr;
  return on;
}
static void protect(const Mapping& m, bool open) {
  mprotect(reinterpret_cast<void*>(m.begin), m.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}
void hold_open(bool open) {
  if (open ? opened++ : --opened) return;
  if (!guarded()) return;
  for (auto& [at, m] : mappings)
    if (m.device) protect(m, open);
}
Open::Open() { hold_open(true); }
Open::~Open() { hold_open(false); }

static void on_segv(int number, siginfo_t* info, void*) {
  const void* at = info->si_addr;
  if (opened) record("broken\tthe machine crashed at address " + std::to_string((u64)at));
  else if (in_device_memory(at)) {
    const Allocation* a = find(at);
    misuse("host-access", "host code touches device memory" +
                              (a ? ": " + a->name + " at byte " + std::to_string((u64)at - a->address) : string()));
  }
  signal(number, SIG_DFL);
  raise(number);
}
static void watch_faults() {
  static bool done = false;
  if (done) return;
  done = true;
  stack_t stack{};
  stack.ss_size = 1 << 16;
  stack.ss_sp = std::malloc(stack.ss_size);
  sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_segv;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

static u64 map_pages(u64 bytes, bool device) {
  u64 room = (bytes + GAP + 4095) / 4096 * 4096, extra = room >= PAGE ? PAGE : 0;
  void* at = mmap(nullptr, room + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return 0;
  u64 begin = reinterpret_cast<u64>(at);
  if (extra) {  // huge pages: fewer faults, and cheaper to close
    u64 aligned = (begin + PAGE - 1) / PAGE * PAGE;
    if (aligned > begin) munmap(at, aligned - begin);
    u64 tail = begin + room + extra - (aligned + room);
    if (tail) munmap(reinterpret_cast<void*>(aligned + room), tail);
    begin = aligned;
    madvise(reinterpret_cast<void*>(begin), room, MADV_HUGEPAGE);
  }
  Mapping m{begin, room, device};
  mappings[begin] = m;
  if (device && guarded() && !opened) protect(m, false);
  return begin;
}

static u64 small_block(u64 bytes, bool device) {
  auto& waiting = unused[device][bytes];
  if (waiting.size() > 32) {  // not at once: a pointer that is used after it was freed shall not find a new owner
    u64 at = waiting.front();
    waiting.pop_front();
    return at;
  }
  if (chunk_at[device] + bytes + GAP > chunk_end[device]) {
    chunk_at[device] = map_pages(CHUNK, device);
    if (!chunk_at[device]) return 0;
    chunk_end[device] = chunk_at[device] + CHUNK;
  }
  u64 at = chunk_at[device];
  chunk_at[device] += bytes + GAP;
  return at;
}

static u64 rounded(u64 bytes) { return (std::max<u64>(bytes, 1) + 511) / 512 * 512; }

static const char* maker(Kind kind) {
  switch (kind) {
    case Kind::Device: return "device allocation ";
    case Kind::Managed: return "managed allocation ";
    case Kind::Pinned: return "pinned allocation ";
    case Kind::Registered: return "registered memory ";
    default: return "variable ";
  }
}

static void enter(u64 address, u64 bytes, Kind kind, string name = "") {
  Allocation a{address, bytes, kind, 0, std::move(name)};
  if (kind == Kind::Device || kind == Kind::Managed) {
    Open open;
    poison(reinterpret_cast<void*>(address), bytes);
    // Where host code may write, nobody else knows what it has written.
    if (kind == Kind::Device && guarded()) a.shadow = make_shadow(reinterpret_cast<void*>(address), bytes);
  }
  if (a.name.empty()) a.number = ++count, a.name = maker(kind) + std::to_string(a.number) + " (" + std::to_string(bytes) + " bytes)";
  table[address] = a;
  version++;
}

void* allocate(u64 bytes, Kind kind) {
  watch_faults();
  bool device = kind == Kind::Device;
  if (bytes > TOTAL || device_bytes + bytes > TOTAL) return nullptr;
  u64 at = rounded(bytes) < SMALL ? small_block(rounded(bytes), device) : map_pages(bytes, device);
  if (!at) return nullptr;
  enter(at, bytes, kind);
  if (kind != Kind::Pinned) device_bytes += bytes;
  return reinterpret_cast<void*>(at);
}

bool release(void* address, Kind kind, bool any_kind) {
  auto found = table.find(reinterpret_cast<u64>(address));
  if (found == table.end()) return false;
  Allocation a = found->second;
  bool fits = any_kind ? a.kind == Kind::Device || a.kind == Kind::Managed : a.kind == kind;
  if (!fits) return false;
  table.erase(found);
  drop_shadow(reinterpret_cast<void*>(a.address));
  version++;
  if (a.kind == Kind::Registered) return true;
  if (a.kind != Kind::Pinned) device_bytes -= a.bytes;
  auto mapped = mappings.find(a.address);
  if (rounded(a.bytes) < SMALL) unused[a.kind == Kind::Device][rounded(a.bytes)].push_back(a.address);
  else if (mapped != mappings.end()) {
    munmap(reinterpret_cast<void*>(a.address), mapped->second.bytes);
    mappings.erase(mapped);
  }
  return true;
}

void release_all() {
  std::vector<Allocation> all;
  for (auto& [at, a] : table)
    if (a.kind == Kind::Device || a.kind == Kind::Managed || a.kind == Kind::Pinned) all.push_back(a);
  for (const Allocation& a : all) release(reinterpret_cast<void*>(a.address), a.kind);
}

void register_host(void* address, u64 bytes) { enter(reinterpret_cast<u64>(address), bytes, Kind::Registered); }

void add_variable(u64 address, u64 bytes, const string& name) {
  enter(address, bytes, Kind::Variable, "variable " + name + " (" + std::to_string(bytes) + " bytes)");
}

const Allocation* find(const void* address) {
  u64 at = reinterpret_cast<u64>(address);
  auto next = table.upper_bound(at);
  if (next == table.begin()) return nullptr;
  const Allocation& a = std::prev(next)->second;
  return at < a.address + std::max<u64>(a.bytes, 1) ? &a : nullptr;
}

bool in_device_memory(const void* address) {
  u64 at = reinterpret_cast<u64>(address);
  auto next = mappings.upper_bound(at);
  if (next == mappings.begin()) return false;
  const Mapping& m = std::prev(next)->second;
  return m.device && at < m.begin + m.bytes;
}

// One end of a copy: whether it may be there, and in words why not.
static cudaError_t check_end(const char* which, const void* address, u64 extent, bool wants_device, bool wants_host) {
  const Allocation* a = find(address);
  bool device = a && (a->kind == Kind::Device || a->kind == Kind::Variable);
  bool either = a && (a->kind == Kind::Managed || a->kind == Kind::Pinned || a->kind == Kind::Registered);
  string where = string("the ") + which + " of a copy ";
  if (a && reinterpret_cast<u64>(address) + extent > a->address + a->bytes && (device || either)) {
    misuse("copy-out-of-bounds", where + "needs " + std::to_string(extent) + " bytes, but " + a->name + " has " +
                                     std::to_string(a->address + a->bytes - reinterpret_cast<u64>(address)) + " there");
    return cudaErrorInvalidValue;
  }
  if (either) return cudaSuccess;
  if (wants_device && !device) {
    misuse("copy-direction", where + "should be device memory, and is not");
    return cudaErrorInvalidValue;
  }
  if (wants_host && (device || in_device_memory(address))) {
    misuse("copy-direction", where + "should be host memory, and is device memory");
    return cudaErrorInvalidValue;
  }
  if (!device && in_device_memory(address)) {
    misuse("copy-out-of-bounds", where + "is device memory that is not allocated");
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t copy_rows(void* to, u64 to_pitch, const void* from, u64 from_pitch, u64 width, u64 height,
                      cudaMemcpyKind kind) {
  if (width == 0 || height == 0) return cudaSuccess;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (!to || !from) return cudaErrorInvalidValue;
  if (height > 1 && (width > to_pitch || width > from_pitch)) return cudaErrorInvalidPitchValue;
  bool any = kind == cudaMemcpyDefault;
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  cudaError_t error = check_end("destination", to, (height - 1) * to_pitch + width, !any && to_device, !any && !to_device);
  if (error == cudaSuccess)
    error = check_end("source", from, (height - 1) * from_pitch + width, !any && from_device, !any && !from_device);
  if (error != cudaSuccess) return error;
  Open open;
  for (u64 row = 0; row < height; row++) {
    char* out = static_cast<char*>(to) + row * to_pitch;
    const char* in = static_cast<const char*>(from) + row * from_pitch;
    std::memmove(out, in, width);
    note_copied(out, in, width);
  }
  return cudaSuccess;
}

cudaError_t fill_rows(void* to, u64 pitch, const void* value, unsigned value_bytes, u64 width, u64 height) {
  if (width == 0 || height == 0) return cudaSuccess;
  if (!to) return cudaErrorInvalidValue;
  cudaError_t error = check_end("destination", to, (height - 1) * pitch + width, true, false);
  if (error != cudaSuccess) return error;
  Open open;
  for (u64 row = 0; row < height; row++) {
    char* at = static_cast<char*>(to) + row * pitch;
    if (value_bytes == 1) std::memset(at, *static_cast<const unsigned char*>(value), width);
    else
      for (u64 k = 0; k + value_bytes <= width; k += value_bytes) std::memcpy(at + k, value, value_bytes);
    note_written(at, width);
  }
  return cudaSuccess;
}
}  // namespace kw
