// pybind11's module definition for the few argument types that extensions use, over kw::Value.
#pragma once

#include "objects.h"

namespace kw {

template <class R, class... A, size_t... I>
void invoke_with(R (*f)(A...), const Value* args, Result& result, std::index_sequence<I...>) {
  if constexpr (std::is_void_v<R>) {
    f(static_cast<A&&>(Held<std::decay_t<A>>(args[I], int(I)).get())...);
    give_none(result);
  } else {
    give(result, f(static_cast<A&&>(Held<std::decay_t<A>>(args[I], int(I)).get())...));
  }
}
template <class F, class R, class C, class... A, size_t... I>
void invoke_object(F& f, R (C::*)(A...) const, const Value* args, Result& result, std::index_sequence<I...>) {
  if constexpr (std::is_void_v<R>) {
    f(static_cast<A&&>(Held<std::decay_t<A>>(args[I], int(I)).get())...);
    give_none(result);
  } else {
    give(result, f(static_cast<A&&>(Held<std::decay_t<A>>(args[I], int(I)).get())...));
  }
}
template <class R, class... A>
struct Thunk {
  static void run(void* f, const Value* args, Result& result) {
    invoke_with(reinterpret_cast<R (*)(A...)>(f), args, result, std::index_sequence_for<A...>());
  }
};
template <class F, class R, class C, class... A>
struct ObjectThunk {
  static void run(void* f, const Value* args, Result& result) {
    invoke_object(*static_cast<F*>(f), static_cast<R (C::*)(A...) const>(&F::operator()), args, result,
                  std::index_sequence_for<A...>());
  }
};
template <class R, class... A>
void bind(const char* name, const char* doc, const Parameter* parameters, int count, R (*f)(A...)) {
  register_function(name, doc, parameters, count, sizeof...(A), &Thunk<R, A...>::run, reinterpret_cast<void*>(f));
}
template <class F, class R, class C, class... A>
void bind_object(const char* name, const char* doc, const Parameter* parameters, int count, F&& f, R (C::*)(A...) const) {
  register_function(name, doc, parameters, count, sizeof...(A), &ObjectThunk<std::decay_t<F>, R, C, A...>::run,
                    new std::decay_t<F>(f));
}
template <class F, std::enable_if_t<std::is_class_v<std::decay_t<F>>, int> = 0>
void bind(const char* name, const char* doc, const Parameter* parameters, int count, F&& f) {
  bind_object(name, doc, parameters, count, f, &std::decay_t<F>::operator());
}

}  // namespace kw

namespace pybind11 {
struct gil_scoped_release {
  gil_scoped_release() {}
};
struct gil_scoped_acquire {
  gil_scoped_acquire() {}
};
template <class... T>
struct call_guard {};
enum class return_value_policy { automatic, automatic_reference, take_ownership, copy, move, reference, reference_internal };
struct doc {
  explicit doc(const char*) {}
};
// What is printed is not part of what a candidate computes.
template <class... T>
void print(const T&...) {}
template <class... A>
struct OverloadCast {
  template <class R>
  constexpr auto operator()(R (*function)(A...)) const { return function; }
};
template <class... A>
constexpr OverloadCast<A...> overload_cast{};
struct kw_only {};
struct pos_only {};

struct arg_v {
  kw::Parameter parameter;
  arg_v& noconvert(bool = true) { return *this; }
};
struct arg {
  const char* name;
  explicit constexpr arg(const char* n) : name(n) {}
  arg& noconvert(bool = true) { return *this; }
  arg& none(bool = true) { return *this; }
  arg_v operator=(const kw::Arg& value) const { return {{name, kw::keep(value.value), true}}; }
  template <class T, std::enable_if_t<!std::is_convertible_v<const T&, kw::Arg> && !std::is_same_v<T, pybind11::none>, int> = 0>
  arg_v operator=(const T& value) const {
    return {{name, kw::kept([&](kw::Result& r) { give(r, value); }), true}};
  }
  arg_v operator=(pybind11::none) const { return {{name, kw::Value{kw::NONE}, true}}; }
};
namespace literals {
constexpr arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals

class module_ {
  struct Extras {
    const char* doc = "";
    int count = 0;
    kw::Parameter parameters[48];
    void take(const char* text) { doc = text; }
    void take(const std::string& text) { doc = text.c_str(); }
    void take(const arg& a) { parameters[count++] = {a.name, {}, false}; }
    void take(const arg_v& a) { parameters[count++] = a.parameter; }
    template <class T>
    void take(const T&) {}
  };

 public:
  template <class F, class... Extra>
  module_& def(const char* name, F&& f, const Extra&... extra) {
    Extras extras;
    (extras.take(extra), ...);
    kw::bind(name, extras.doc, extras.parameters, extras.count, f);
    return *this;
  }
  struct Attribute {
    const char* name;
    template <class T>
    void operator=(const T& value) { kw::register_attribute(name, kw::Arg(value)); }
  };
  Attribute attr(const char* name) { return {name}; }
  const char*& doc() { return doc_; }

 private:
  const char* doc_ = "";
};
using module = module_;
}  // namespace pybind11
namespace py = pybind11;

namespace torch {
template <class F>
F wrap_pybind_function(F&& f) { return std::forward<F>(f); }
template <class F>
F wrap_pybind_function_no_gil(F&& f) { return std::forward<F>(f); }
}  // namespace torch

#define KW_STRING_(x) #x
#define KW_STRING(x) KW_STRING_(x)
#define KW_MODULE_(name, variable)                                                        \
  static void kw_module_##name(::pybind11::module_& variable);                            \
  extern "C" void PyInit_##name() {                                                       \
    ::pybind11::module_ module;                                                           \
    kw_module_##name(module);                                                             \
  }                                                                                       \
  void kw_module_##name(::pybind11::module_& variable)
#define KW_MODULE(name, variable) KW_MODULE_(name, variable)
#define PYBIND11_MODULE(name, variable, ...) KW_MODULE(name, variable)
#ifndef TORCH_EXTENSION_NAME
#define TORCH_EXTENSION_NAME kw_extension
#endif
