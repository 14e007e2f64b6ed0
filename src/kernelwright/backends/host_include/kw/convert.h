// Converts Python values to C++ arguments and C++ results to Python values, by kw::Value.
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
// A default value that C++ made: what `fill` gives lives as long as the process.
Value kept(const std::function<void(Result&)>& fill);

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
struct From<std::string_view> {  // the text lives as long as the call
  static std::string_view get(const Value& v, int k);
};
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
template <>
struct From<c10::Generator> {
  static c10::Generator get(const Value&, int) { fail_unsupported("torch.Generator as an argument"); }
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
template <class T>
struct From<c10::List<T>> {
  static c10::List<T> get(const Value& v, int k) { return c10::List<T>(From<std::vector<T>>::get(v, k)); }
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
template <class K, class T>
std::vector<std::pair<K, T>> pairs_from(const Value& v, int k) {
  if (v.tag != DICT) bad_argument(k, "a dict");
  const Value* items = static_cast<const Value*>(v.p);
  std::vector<std::pair<K, T>> out;
  for (int64_t n = 0; n < v.i; n += 2) out.emplace_back(From<K>::get(items[n], k), From<T>::get(items[n + 1], k));
  return out;
}
template <class K, class T>
struct From<std::map<K, T>> {
  static std::map<K, T> get(const Value& v, int k) {
    auto pairs = pairs_from<K, T>(v, k);
    return std::map<K, T>(pairs.begin(), pairs.end());
  }
};
template <class K, class T>
struct From<std::unordered_map<K, T>> {
  static std::unordered_map<K, T> get(const Value& v, int k) {
    auto pairs = pairs_from<K, T>(v, k);
    return std::unordered_map<K, T>(pairs.begin(), pairs.end());
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
template <>
struct Held<const char*> {
  std::string owner;
  const char* value;
  explicit Held(const Value& v, int k) : owner(From<std::string>::get(v, k)), value(owner.c_str()) {}
  const char*& get() { return value; }
};

void give(Result& r, const at::Tensor& v);
void give(Result& r, bool v);
void give(Result& r, double v);
void give(Result& r, const std::string& v);
void give(Result& r, const char* v);
void give(Result& r, const c10::Scalar& v);
void give(Result& r, c10::ScalarType v);
void give_value(Result& r, const Value& v);
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
template <class T>
void give(Result& r, const c10::List<T>& v) { give(r, v.vec()); }
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

}  // namespace kw

namespace pybind11 {
struct none {};
}  // namespace pybind11
