// pybind11's module definition for the few argument types that extensions use, over kw::Value.
#pragma once

#include "cuda.h"

namespace kw {

// One call from Python: the values passed, positionally and by name.
struct Call {
  const Value* args;
  const char* const* names;  // null for a positional argument
  int count;
};
// A result on its way to Python; its pieces are owned by the library until the next call.
struct Result;

struct BadArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void bad_argument(int index, const char* wanted);

// One bound function as the module's code describes it. Plain data: the library copies what it keeps.
struct Parameter {
  const char* name;
  Value fallback;
  bool has_fallback;
};
typedef void (*Invoker)(void* function, const Value* args, Result& result);
void register_function(const char* name, const char* doc, const Parameter* parameters, int parameter_count, int arity,
                       Invoker invoker, void* function);
void register_attribute(const char* name, const Arg& value);
Value keep(const Value& value);

template <class T, class = void>
struct From;  // no specialisation: the type cannot be passed from Python here
template <>
struct From<at::Tensor> { static at::Tensor get(const Value& v, int k); };
template <>
struct From<bool> { static bool get(const Value& v, int k); };
template <>
struct From<double> { static double get(const Value& v, int k); };
template <>
struct From<float> { static float get(const Value& v, int k) { return static_cast<float>(From<double>::get(v, k)); } };
template <>
struct From<std::string> { static std::string get(const Value& v, int k); };
template <>
struct From<c10::ScalarType> { static c10::ScalarType get(const Value& v, int k); };
template <>
struct From<c10::Device> { static c10::Device get(const Value& v, int k); };
template <>
struct From<c10::Scalar> { static c10::Scalar get(const Value& v, int k); };
int64_t integer_from(const Value& v, int k, int64_t lowest, uint64_t highest);
template <class T>
struct From<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static T get(const Value& v, int k) {
    return static_cast<T>(integer_from(v, k, static_cast<int64_t>(std::numeric_limits<T>::lowest()),
                                       static_cast<uint64_t>(std::numeric_limits<T>::max())));
  }
};
template <class T>
struct From<std::optional<T>> {
  static std::optional<T> get(const Value& v, int k) {
    if (v.tag == NONE || v.tag == ABSENT) return std::nullopt;
    return From<T>::get(v, k);
  }
};
const Value* list_from(const Value& v, int k, int64_t* count, std::vector<Value>& room);
template <class T>
struct From<std::vector<T>> {
  static std::vector<T> get(const Value& v, int k) {
    std::vector<Value> room;
    int64_t count = 0;
    const Value* items = list_from(v, k, &count, room);
    std::vector<T> out;
    out.reserve(count);
    for (int64_t n = 0; n < count; ++n) out.push_back(From<T>::get(items[n], k));
    return out;
  }
};
template <class T, size_t N>
struct From<std::array<T, N>> {
  static std::array<T, N> get(const Value& v, int k) {
    auto list = From<std::vector<T>>::get(v, k);
    if (list.size() != N) bad_argument(k, "a list of the array's length");
    std::array<T, N> out;
    std::copy(list.begin(), list.end(), out.begin());
    return out;
  }
};
template <class A, class B>
struct From<std::pair<A, B>> {
  static std::pair<A, B> get(const Value& v, int k) {
    std::vector<Value> room;
    int64_t count = 0;
    const Value* items = list_from(v, k, &count, room);
    if (count != 2) bad_argument(k, "a pair");
    return {From<A>::get(items[0], k), From<B>::get(items[1], k)};
  }
};
template <class... T>
struct From<std::tuple<T...>> {
  template <size_t... I>
  static std::tuple<T...> pick(const Value* items, int k, std::index_sequence<I...>) {
    return {From<T>::get(items[I], k)...};
  }
  static std::tuple<T...> get(const Value& v, int k) {
    std::vector<Value> room;
    int64_t count = 0;
    const Value* items = list_from(v, k, &count, room);
    if (count != sizeof...(T)) bad_argument(k, "a tuple of that length");
    return pick(items, k, std::index_sequence_for<T...>());
  }
};
// Array references point into a vector that lives as long as the call.
template <class T>
struct Held {
  T value;
  explicit Held(const Value& v, int k) : value(From<T>::get(v, k)) {}
  T& get() { return value; }
};
template <class T>
struct Held<c10::ArrayRef<T>> {
  std::vector<T> owner;
  c10::ArrayRef<T> value;
  explicit Held(const Value& v, int k) : owner(From<std::vector<T>>::get(v, k)), value(owner) {}
  c10::ArrayRef<T>& get() { return value; }
};

void give(Result& r, const at::Tensor& v);
void give(Result& r, bool v);
void give(Result& r, double v);
void give(Result& r, const std::string& v);
void give(Result& r, const char* v);
void give(Result& r, const c10::Scalar& v);
void give(Result& r, c10::ScalarType v);
void give_none(Result& r);
void give_integer(Result& r, int64_t v);
Result& give_item(Result& r);
void give_list(Result& r, bool tuple);
template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
void give(Result& r, T v) { give_integer(r, static_cast<int64_t>(v)); }
inline void give(Result& r, float v) { give(r, static_cast<double>(v)); }
void give(Result& r, const std::vector<at::Tensor>& v);
template <class T>
void give(Result& r, const std::optional<T>& v);
template <class A, class B>
void give(Result& r, const std::pair<A, B>& v);
template <class... T>
void give(Result& r, const std::tuple<T...>& v);
void give_dict(Result& r);
template <class K, class T>
void give(Result& r, const std::map<K, T>& v);
template <class K, class T>
void give(Result& r, const std::unordered_map<K, T>& v);
template <class T>
void give(Result& r, const std::vector<T>& v) {
  for (const auto& item : v) give(give_item(r), static_cast<const T&>(item));
  give_list(r, false);
}
template <class T>
void give(Result& r, c10::ArrayRef<T> v) { give(r, v.vec()); }
template <class T, size_t N>
void give(Result& r, const std::array<T, N>& v) {
  for (const auto& item : v) give(give_item(r), item);
  give_list(r, false);
}
template <class T>
void give(Result& r, const std::optional<T>& v) {
  if (v) give(r, *v);
  else give_none(r);
}
template <class A, class B>
void give(Result& r, const std::pair<A, B>& v) {
  give(give_item(r), v.first);
  give(give_item(r), v.second);
  give_list(r, true);
}
// Keys and values in turn.
template <class M>
void give_map(Result& r, const M& v) {
  for (const auto& [key, value] : v) {
    give(give_item(r), key);
    give(give_item(r), value);
  }
  give_dict(r);
}
template <class K, class T>
void give(Result& r, const std::map<K, T>& v) { give_map(r, v); }
template <class K, class T>
void give(Result& r, const std::unordered_map<K, T>& v) { give_map(r, v); }
template <class T, size_t... I>
void give_tuple(Result& r, const T& v, std::index_sequence<I...>) {
  (give(give_item(r), std::get<I>(v)), ...);
  give_list(r, true);
}
template <class... T>
void give(Result& r, const std::tuple<T...>& v) { give_tuple(r, v, std::index_sequence_for<T...>()); }

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
struct none {};
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
