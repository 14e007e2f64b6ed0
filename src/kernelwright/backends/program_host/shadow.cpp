// The shadow of device memory and of arrays: which bytes the program has written.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "internal.h"

namespace kw {
static std::map<u64, KwShadow*> shadows;  // by the address of the memory

static bool wanted() {
  static bool on = std::getenv("KERNELWRIGHT_POISON") != nullptr;
  return on;
}

void poison(void* memory, u64 bytes) {
  if (wanted()) std::memset(memory, 0xff, bytes);
}

KwShadow* make_shadow(const void* memory, u64 bytes) {
  if (!wanted() || !bytes) return nullptr;
  // Pages that nothing has written cost nothing.
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* shadow = new KwShadow{static_cast<uint8_t*>(at), bytes, 0};
  shadows[reinterpret_cast<u64>(memory)] = shadow;
  return shadow;
}

void drop_shadow(const void* memory) {
  auto found = shadows.find(reinterpret_cast<u64>(memory));
  if (found == shadows.end()) return;
  munmap(found->second->written, found->second->bytes);
  delete found->second;
  shadows.erase(found);
}

// The shadow's byte for an address; null where everything counts as written.
static uint8_t* mark_of(const void* address, KwShadow** whose) {
  u64 at = reinterpret_cast<u64>(address);
  auto next = shadows.upper_bound(at);
  if (next == shadows.begin()) return nullptr;
  auto [begin, shadow] = *std::prev(next);
  if (at - begin >= shadow->bytes) return nullptr;
  *whose = shadow;
  return shadow->written + (at - begin);
}

void note_written(const void* address, u64 bytes) {
  KwShadow* whose = nullptr;
  if (uint8_t* mark = mark_of(address, &whose)) std::memset(mark, 1, bytes);
}

void note_copied(const void* to, const void* from, u64 bytes) {
  KwShadow *target = nullptr, *source = nullptr;
  uint8_t *out = mark_of(to, &target), *in = mark_of(from, &source);
  if (!out) return;
  if (!in) return void(std::memset(out, 1, bytes));
  std::memmove(out, in, bytes);
  target->whole = std::min<u64>(target->whole, u64(out - target->written));
}
}  // namespace kw
