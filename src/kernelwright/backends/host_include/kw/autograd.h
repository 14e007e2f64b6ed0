// torch::autograd::Function: its forward pass. Tasks are judged without gradients; a request for a gradient through such
// a function is reported as unsupported.
#pragma once

#include "functions.h"

namespace c10 {
// What `ctx->saved_data["x"]` holds.
class IValue {
 public:
  IValue() = default;
  IValue(int64_t v) : held_(v) {}
  IValue(int v) : held_(static_cast<int64_t>(v)) {}
  IValue(double v) : held_(v) {}
  IValue(bool v) : held_(v) {}
  IValue(const char* v) : held_(std::string(v)) {}
  IValue(std::string v) : held_(std::move(v)) {}
  IValue(at::Tensor v) : held_(std::move(v)) {}
  IValue(std::vector<int64_t> v) : held_(std::move(v)) {}
  IValue(IntArrayRef v) : held_(v.vec()) {}
  bool isNone() const { return std::holds_alternative<std::monostate>(held_); }
  bool isInt() const { return std::holds_alternative<int64_t>(held_); }
  bool isDouble() const { return std::holds_alternative<double>(held_); }
  bool isBool() const { return std::holds_alternative<bool>(held_); }
  bool isTensor() const { return std::holds_alternative<at::Tensor>(held_); }
  int64_t toInt() const { return get<int64_t>(); }
  double toDouble() const { return get<double>(); }
  bool toBool() const { return get<bool>(); }
  at::Tensor toTensor() const { return get<at::Tensor>(); }
  const std::string& toStringRef() const { return get<std::string>(); }
  std::vector<int64_t> toIntVector() const { return get<std::vector<int64_t>>(); }

 private:
  template <class T>
  const T& get() const {
    if (!std::holds_alternative<T>(held_)) throw c10::Error("IValue holds another type");
    return std::get<T>(held_);
  }
  std::variant<std::monostate, int64_t, double, bool, std::string, at::Tensor, std::vector<int64_t>> held_;
};
}  // namespace c10
namespace at { using c10::IValue; }

namespace kw {
inline bool differentiates(const at::Tensor& x) { return x.defined() && x.requires_grad(); }
inline bool differentiates(const std::optional<at::Tensor>& x) { return x && differentiates(*x); }
inline bool differentiates(const std::vector<at::Tensor>& list) {
  return std::any_of(list.begin(), list.end(), [](const at::Tensor& x) { return differentiates(x); });
}
template <class T>
bool differentiates(const T&) { return false; }
}  // namespace kw

namespace torch {
using c10::IValue;
namespace autograd {
class AutogradContext {
 public:
  std::unordered_map<std::string, c10::IValue> saved_data;
  void save_for_backward(variable_list v) { saved_ = std::move(v); }
  variable_list get_saved_variables() const { return saved_; }
  void mark_dirty(const variable_list&) {}
  void mark_non_differentiable(const variable_list&) {}
  void set_materialize_grads(bool) {}
  bool needs_input_grad(size_t) const { return false; }

 private:
  variable_list saved_;
};
template <class T>
struct Function {
  template <class... A>
  static auto apply(A&&... args) {
    if (at::GradMode::is_enabled() && (kw::differentiates(args) || ...))
      kw::fail_unsupported("torch::autograd::Function::backward");
    AutogradContext context;
    at::NoGradGuard guard;
    return T::forward(&context, std::forward<A>(args)...);
  }
};
}  // namespace autograd
}  // namespace torch
