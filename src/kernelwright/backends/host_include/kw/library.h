// TORCH_LIBRARY and related macros: operators that an extension registers with torch's dispatcher. The blocks run when
// the library is loaded and list the operators; the runner registers them with torch in Python.
#pragma once

#include "pybind.h"

namespace torch {
class Library;
}

namespace kw {
template <class T>
struct NotInSchema : std::false_type {};
// How a C++ type is written in an operator's schema.
template <class T, class = void>
struct InSchema {
  static_assert(NotInSchema<T>::value, "You tried to register a kernel with an unsupported input or output type");
};
#define KW_IN_SCHEMA(type, name) \
  template <>                    \
  struct InSchema<type> {        \
    static std::string text() { return name; } \
  };
KW_IN_SCHEMA(at::Tensor, "Tensor") KW_IN_SCHEMA(int64_t, "int") KW_IN_SCHEMA(double, "float") KW_IN_SCHEMA(bool, "bool")
KW_IN_SCHEMA(std::string, "str") KW_IN_SCHEMA(c10::Scalar, "Scalar") KW_IN_SCHEMA(c10::ScalarType, "ScalarType")
KW_IN_SCHEMA(c10::Device, "Device") KW_IN_SCHEMA(c10::Generator, "Generator")
#undef KW_IN_SCHEMA
template <class T>
struct InSchema<std::optional<T>> {
  static std::string text() { return InSchema<T>::text() + "?"; }
};
template <class T>
struct InSchema<std::vector<T>> {
  static std::string text() { return InSchema<T>::text() + "[]"; }
};
template <class T>
struct InSchema<c10::ArrayRef<T>> {
  static std::string text() { return InSchema<T>::text() + "[]"; }
};
template <class R>
struct Returned {
  static std::string text() { return InSchema<R>::text(); }
};
template <>
struct Returned<void> {
  static std::string text() { return "()"; }
};
template <class... T>
struct Returned<std::tuple<T...>> {
  static std::string text() {
    std::string out;
    ((out += (out.empty() ? "" : ", ") + InSchema<T>::text()), ...);
    return "(" + out + ")";
  }
};
// "(Tensor _0, int _1) -> Tensor", as torch infers it.
template <class R, class... A>
std::string inferred() {
  std::string out;
  int k = 0;
  ((out += (k ? ", " : "") + InSchema<std::decay_t<A>>::text() + " _" + std::to_string(k), ++k), ...);
  return "(" + out + ") -> " + Returned<std::decay_t<R>>::text();
}
template <class R, class... A>
std::string inferred_of(R (*)(A...)) { return inferred<R, A...>(); }
template <class F, class R, class... A>
std::string inferred_of_member(R (F::*)(A...) const) { return inferred<R, A...>(); }
template <class F, std::enable_if_t<std::is_class_v<F>, int> = 0>
std::string inferred_of(const F&) { return inferred_of_member(&F::operator()); }

// One `def` or `impl`. The schema of an `impl` is its name; `function` is the name that was bound, empty without one.
void register_operator(const std::string& space, const std::string& schema, const char* key, const std::string& function,
                       bool defines);
std::string operator_key(const std::string& space, const std::string& schema, const char* key);

struct LibraryBlock {
  LibraryBlock(void (*fill)(torch::Library&), const char* space, const char* key);
};
}  // namespace kw

namespace c10 {
enum class DispatchKey {
  CPU, CUDA, Meta, Autograd, AutogradCPU, AutogradCUDA, CompositeImplicitAutograd, CompositeExplicitAutograd, CatchAll
};
const char* toString(DispatchKey key);
}  // namespace c10
namespace at { using c10::DispatchKey; }

namespace torch {
using c10::DispatchKey;
// What `torch::dispatch` makes: a function for one key.
template <class F>
struct Dispatched {
  c10::DispatchKey key;
  F function;
};
template <class F>
Dispatched<std::decay_t<F>> dispatch(c10::DispatchKey key, F&& f) { return {key, std::forward<F>(f)}; }
template <class F>
Dispatched<std::decay_t<F>> dispatch(c10::DeviceType device, F&& f) {
  return {device == c10::kCUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU, std::forward<F>(f)};
}

struct CustomClassHolder {};  // of which `Library::class_` is missing, and named so

class Library {
 public:
  Library(const char* space, const char* key) : space_(space), key_(key) {}
  Library& def(const std::string& schema) {
    kw::register_operator(space_, schema, "", "", true);
    return *this;
  }
  template <class F>
  Library& def(const std::string& schema, F&& f) {
    bool whole = schema.find('(') != std::string::npos;
    std::string text = whole ? schema : schema + kw::inferred_of(f);
    kw::register_operator(space_, text, "", "", true);
    return bound(text, "CompositeImplicitAutograd", f);
  }
  template <class F>
  Library& def(const std::string& schema, Dispatched<F> f) {
    bool whole = schema.find('(') != std::string::npos;
    std::string text = whole ? schema : schema + kw::inferred_of(f.function);
    kw::register_operator(space_, text, "", "", true);
    return bound(text, c10::toString(f.key), f.function);
  }
  template <class F>
  Library& impl(const std::string& name, F&& f) { return bound(name, key_, f); }
  template <class F>
  Library& impl(const std::string& name, Dispatched<F> f) { return bound(name, c10::toString(f.key), f.function); }
  template <class K, class F>
  Library& impl(const std::string& name, K key, F&& f) { return impl(name, dispatch(key, std::forward<F>(f))); }

 private:
  template <class F>
  Library& bound(const std::string& schema, const char* key, F& f) {
    std::string name = kw::operator_key(space_, schema, key);
    kw::bind(name.c_str(), "", nullptr, 0, f);
    kw::register_operator(space_, schema, key, name, false);
    return *this;
  }
  std::string space_;
  const char* key_;
};
}  // namespace torch

#define KW_LIBRARY_(space, key, id, variable)                                            \
  static void kw_library_##space##_##id(::torch::Library&);                              \
  static const ::kw::LibraryBlock kw_block_##space##_##id(&kw_library_##space##_##id, #space, key); \
  void kw_library_##space##_##id(::torch::Library& variable)
#define KW_LIBRARY(space, key, id, variable) KW_LIBRARY_(space, key, id, variable)
#define TORCH_LIBRARY(space, variable) KW_LIBRARY(space, "", def, variable)
#define TORCH_LIBRARY_FRAGMENT(space, variable) KW_LIBRARY(space, "", __COUNTER__, variable)
#define KW_LIBRARY_IMPL_(space, k, id, variable) KW_LIBRARY(space, #k, id, variable)
#define TORCH_LIBRARY_IMPL(space, k, variable) KW_LIBRARY_IMPL_(space, k, __COUNTER__, variable)
#define TORCH_FN(function) (&function)
#define TORCH_SELECTIVE_NAME(name) name
#define TORCH_SELECTIVE_SCHEMA(schema) schema
