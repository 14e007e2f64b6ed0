// Host code that dereferences a device address; see guard.cpp.
#pragma once

#include <cstdint>
#include <functional>

namespace kw {

// While one is alive this thread runs Python, out of which no signal handler may jump.
struct InRunner {
  InRunner();
  ~InRunner();
};
uintptr_t guarded(const std::function<void()>& invoke);

}  // namespace kw
