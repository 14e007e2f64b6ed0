// The interface between compiled host code and the Python runner: tagged values and ten callbacks.
//
// Every tensor computation is forwarded by name to torch in the runner; nothing here computes on tensor contents.
// Values are plain data: lists point into memory of the caller, which outlives the call.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace kw {

enum Tag : int32_t {
  ABSENT = 0,   // argument not given: the default of the schema
  NONE = 1,     // None, an empty optional, an undefined tensor
  TENSOR = 2,   // i = handle; from Python also p = const Meta*
  INT = 3,      // i
  DOUBLE = 4,   // d
  BOOL = 5,     // i
  STR = 6,      // p = characters, i = length
  INTS = 7,     // p = const int64_t*, i = count
  DOUBLES = 8,  // p = const double*, i = count
  TENSORS = 9,  // p = const int64_t* of handles, i = count
  DTYPE = 10,   // i = c10::ScalarType
  DEVICE = 11,  // i = 0 for cpu, 1 for cuda; aux = index
  OPTIONS = 12, // i = dtype or -1; aux = bits: 1 cuda, 2 requires_grad, 4 device given, 8 pinned; memory format + 1 from bit 4
  LAYOUT = 13,  // i
  MEMORY_FORMAT = 14,  // i
  LIST = 15,    // p = const Value*, i = count
  TUPLE = 16,   // p = const Value*, i = count
  SLICE = 17,   // p = const int64_t[3] start, stop, step; aux = bit k set where item k is absent
  ELLIPSIS = 18,
  DICT = 19,    // p = const Value*, i = count of alternating keys and values
};

struct Value {
  int32_t tag = ABSENT;
  int32_t aux = 0;
  int64_t i = 0;
  double d = 0;
  const void* p = nullptr;
};

// What the runner tells about a tensor; copied at once, the pointers are good only during the call.
struct Meta {
  int64_t handle;
  void* data;
  int32_t dtype;
  int32_t dim;
  int32_t flags;  // 1 cuda, 2 requires_grad, 4 contiguous, 8 channels-last contiguous, 16 pinned
  int32_t element_size;
  int64_t numel;
  int64_t storage_offset;
  const int64_t* sizes;
  const int64_t* strides;
};

struct Config {
  unsigned grid[3];
  unsigned block[3];
  uint64_t shared;
  unsigned cluster[3] = {0, 0, 0};  // zeros: the kernel's own
  unsigned cooperative = 0;
};

// Filled in by the runner. Each returns 0, or 1 after it has called kw_set_error.
struct Callbacks {
  int (*op)(const char* name, const Value* args, int count, const Value** results, int* result_count);
  void (*retain)(int64_t handle);
  void (*release)(int64_t handle);
  int (*launch)(const char* kernel, const char* expression, const Config* config, const void* const* args,
                const unsigned* sizes, int count);
  int (*symbol)(const char* name, void* host, uint64_t count, uint64_t offset, int to_device);
  int (*allocate)(uint64_t bytes, void** address);
  int (*deallocate)(void* address);
  // These return a cudaError, or -1 after kw_set_error. On a GPU `copy` is only told of copies to the host.
  int (*copy)(void* to, const void* from, uint64_t bytes, int kind);
  int (*fill)(void* address, int value, uint64_t bytes);
  int (*synchronize)();
};

// An error that began in Python: the runner still holds the exception itself and raises it again.
struct PythonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void throw_callback_error();
[[noreturn]] void fail(const std::string& message);
// An error of the CUDA runtime or driver: the runner tells it from other exceptions by its type.
[[noreturn]] void fail_device(const std::string& message);
// What real torch or CUDA has and the stand-in has not: the verdict is `unsupported`, with this name.
[[noreturn]] void fail_unsupported(const char* name);
const Value* call(const char* name, const Value* args, int count, int* result_count);

// A name expression for NVRTC, built from the template arguments of the stub that runs: `softmax<float, 256>`.
struct Expression {
  std::string text;
  bool open = false;
  explicit Expression(const char* kernel);
  ~Expression();
  Expression& add(const char* one);
  Expression& add(const std::string& one);
  Expression& add_type(const char* pretty);
  Expression& add_integer(long long value, bool is_unsigned);
  Expression& add_enum(const char* pretty, long long value);
  Expression& add_function(const char* pretty);
  template <class T>
  Expression& type() { return add_type(__PRETTY_FUNCTION__); }
  template <template <class...> class T>
  Expression& of_types() { return add_type(__PRETTY_FUNCTION__); }
  template <class T>
  Expression& enumerator(T v) { return add_enum(__PRETTY_FUNCTION__, static_cast<long long>(v)); }
  // A template argument that is a value: a number, an enumerator, or a function by its name.
  template <auto V>
  Expression& constant() {
    using T = decltype(V);
    if constexpr (std::is_same_v<T, bool>) return add(V ? "true" : "false");
    else if constexpr (std::is_integral_v<T>) return add_integer(static_cast<long long>(V), std::is_unsigned_v<T>);
    else if constexpr (std::is_enum_v<T>) return enumerator(V);
    else return add_function(__PRETTY_FUNCTION__);
  }
};

// For the launch that is configured next.
void set_attributes(bool cooperative, const unsigned* cluster);
void launch(const char* kernel, const void* const* args, const unsigned* sizes, int count);
void launch(const char* kernel, const Expression& expression, const void* const* args, const unsigned* sizes, int count);
// The kernel's key, found by calling its stub in a mode where it only tells its name.
std::string identify(const void* stub);

}  // namespace kw
