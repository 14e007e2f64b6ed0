// pybind11's objects: tuples, lists and dictionaries that a function returns or takes.
//
// They hold values only. Nothing can be called or looked up by name through them, so C++ code cannot run Python code.
#pragma once

#include "convert.h"

namespace pybind11 {

// None, what Python passed, or a C++ value on its way to Python.
class object {
 public:
  object() : value_{kw::NONE} {}
  object(none) : object() {}
  explicit object(const kw::Value& value) : value_(value) {}
  template <class T, std::enable_if_t<!std::is_same_v<T, object> && !std::is_same_v<T, kw::Value>, int> = 0>
  object(const T& value) : give_([value](kw::Result& r) { give(r, value); }) {}
  bool is_none() const { return !give_ && (value_.tag == kw::NONE || value_.tag == kw::ABSENT); }
  explicit operator bool() const { return !is_none(); }
  template <class T>
  T cast() const {
    if (give_) kw::fail_unsupported("pybind11::object::cast of a value that C++ made");
    return kw::From<T>::get(value_, 0);
  }
  void hand_over(kw::Result& r) const {
    if (give_) give_(r);
    else kw::give_value(r, value_);
  }

 private:
  kw::Value value_;
  std::function<void(kw::Result&)> give_;
};

class sequence {
 public:
  sequence() = default;
  explicit sequence(size_t count) : items_(count) {}
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  object& operator[](size_t k) { return items_.at(k); }
  const object& operator[](size_t k) const { return items_.at(k); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 protected:
  std::vector<object> items_;
};
class tuple : public sequence {
 public:
  using sequence::sequence;
};
class list : public sequence {
 public:
  using sequence::sequence;
  template <class T>
  void append(const T& value) { items_.push_back(object(value)); }
};
class dict {
 public:
  object& operator[](const std::string& key) {
    for (auto& [name, value] : items_)
      if (name == key) return value;
    return items_.emplace_back(key, object()).second;
  }
  const object& operator[](const std::string& key) const {
    for (const auto& [name, value] : items_)
      if (name == key) return value;
    throw std::out_of_range("KeyError: '" + key + "'");
  }
  bool contains(const std::string& key) const {
    for (const auto& item : items_)
      if (item.first == key) return true;
    return false;
  }
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<std::pair<std::string, object>> items_;
};
inline size_t len(const sequence& s) { return s.size(); }
template <class T>
object cast(const T& value) { return object(value); }
template <class T>
T cast(const object& value) { return value.cast<T>(); }
template <class... T>
tuple make_tuple(const T&... values) {
  tuple out(sizeof...(T));
  size_t k = 0;
  ((out[k++] = object(values)), ...);
  return out;
}

}  // namespace pybind11

namespace kw {
inline void give(Result& r, const pybind11::object& v) { v.hand_over(r); }
inline void give(Result& r, const pybind11::tuple& v) {
  for (const auto& item : v) item.hand_over(give_item(r));
  give_list(r, true);
}
inline void give(Result& r, const pybind11::list& v) {
  for (const auto& item : v) item.hand_over(give_item(r));
  give_list(r, false);
}
inline void give(Result& r, const pybind11::dict& v) { give_map(r, v); }
template <>
struct From<pybind11::object> {
  static pybind11::object get(const Value& v, int) { return pybind11::object(v); }
};
template <class S>
S sequence_from(const Value& v, int k) {
  std::vector<Value> room;
  int64_t count = 0;
  const Value* items = list_from(v, k, &count, room);
  S out(static_cast<size_t>(count));
  for (int64_t n = 0; n < count; ++n) out[n] = pybind11::object(items[n]);
  return out;
}
template <>
struct From<pybind11::tuple> {
  static pybind11::tuple get(const Value& v, int k) {
    if (v.tag != TUPLE) bad_argument(k, "a tuple");
    return sequence_from<pybind11::tuple>(v, k);
  }
};
template <>
struct From<pybind11::dict> {
  static pybind11::dict get(const Value& v, int k) {
    pybind11::dict out;
    for (auto& [key, value] : pairs_from<std::string, pybind11::object>(v, k)) out[key] = value;
    return out;
  }
};
template <>
struct From<pybind11::list> {
  static pybind11::list get(const Value& v, int k) {
    if (v.tag != LIST) bad_argument(k, "a list");
    return sequence_from<pybind11::list>(v, k);
  }
};
}  // namespace kw
