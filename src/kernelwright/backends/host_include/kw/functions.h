// at:: and torch:: as free functions: forwarded operators, factories, and the names of namespace torch.
#pragma once

#include "tensor.h"

namespace at {
#include "aten_functions.inc"
inline Tensor index(const Tensor& x, kw::Arg at) { return kw::tensor_op("index", x, at); }

#define KW_FACTORY(name)                                                                           \
  inline Tensor name(IntArrayRef sizes, const TensorOptions& options = {}, kw::Arg more = kw::Arg()) { \
    return kw::tensor_op("new:" #name, sizes, options);                                            \
  }                                                                                                \
  inline Tensor name(IntArrayRef sizes, std::optional<ScalarType> dtype, std::optional<Layout>,    \
                     std::optional<Device> device, std::optional<bool>) {                          \
    return kw::tensor_op("new:" #name, sizes, TensorOptions().dtype(dtype).device(device));        \
  }
KW_FACTORY(empty) KW_FACTORY(zeros) KW_FACTORY(ones) KW_FACTORY(rand) KW_FACTORY(randn)
#undef KW_FACTORY
#define KW_FACTORY_LIKE(name)                                                                            \
  inline Tensor name(const Tensor& self, const TensorOptions& options = {}, kw::Arg format = kw::Arg()) { \
    return kw::tensor_op("like:" #name, self, options, format);                                          \
  }
KW_FACTORY_LIKE(empty_like) KW_FACTORY_LIKE(zeros_like) KW_FACTORY_LIKE(ones_like) KW_FACTORY_LIKE(rand_like)
KW_FACTORY_LIKE(randn_like)
#undef KW_FACTORY_LIKE
inline Tensor full(IntArrayRef sizes, const Scalar& value, const TensorOptions& options = {}) {
  return kw::tensor_op("new:full", sizes, value, options);
}
inline Tensor full_like(const Tensor& self, const Scalar& value, const TensorOptions& options = {}) {
  return kw::tensor_op("like:full_like", self, value, options);
}
inline Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {}) {
  return kw::tensor_op("new:empty_strided", sizes, strides, options);
}
inline Tensor arange(const Scalar& end, const TensorOptions& options = {}) {
  return kw::tensor_op("new:arange", end, options);
}
inline Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options = {}) {
  return kw::tensor_op("new:arange", start, end, options);
}
inline Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options = {}) {
  return kw::tensor_op("new:arange", start, end, step, options);
}
inline Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, const TensorOptions& options = {}) {
  return kw::tensor_op("new:linspace", start, end, steps, options);
}
inline Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base = 10,
                       const TensorOptions& options = {}) {
  return kw::tensor_op("new:logspace", start, end, steps, base, options);
}
inline Tensor eye(int64_t n, const TensorOptions& options = {}) { return kw::tensor_op("new:eye", n, options); }
inline Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {}) {
  return kw::tensor_op("new:eye", n, m, options);
}
inline Tensor randperm(int64_t n, const TensorOptions& options = {}) { return kw::tensor_op("new:randperm", n, options); }
inline Tensor randint(int64_t high, IntArrayRef sizes, const TensorOptions& options = {}) {
  return kw::tensor_op("new:randint", 0, high, sizes, options);
}
inline Tensor randint(int64_t low, int64_t high, IntArrayRef sizes, const TensorOptions& options = {}) {
  return kw::tensor_op("new:randint", low, high, sizes, options);
}
inline Tensor scalar_tensor(const Scalar& value, const TensorOptions& options = {}) {
  return kw::tensor_op("new:scalar_tensor", value, options);
}
inline Tensor tril_indices(int64_t r, int64_t c, int64_t offset = 0, const TensorOptions& options = {}) {
  return kw::tensor_op("new:tril_indices", r, c, offset, options);
}
inline Tensor triu_indices(int64_t r, int64_t c, int64_t offset = 0, const TensorOptions& options = {}) {
  return kw::tensor_op("new:triu_indices", r, c, offset, options);
}

// `torch::tensor({1.0, 2.0})`: the literal's type decides the dtype.
template <class T>
Tensor tensor(ArrayRef<T> values, const TensorOptions& options = {}) {
  static_assert(std::is_arithmetic_v<T>);
  std::vector<double> wide(values.begin(), values.end());
  std::vector<int64_t> whole(values.begin(), values.end());
  if constexpr (std::is_floating_point_v<T>) return kw::tensor_op("new:tensor", wide, options);
  else if constexpr (std::is_same_v<T, bool>) return kw::tensor_op("new:tensor_bool", whole, options);
  else return kw::tensor_op("new:tensor", whole, options);
}
template <class T>
Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(values), options);
}
template <class T>
Tensor tensor(std::initializer_list<T> values, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(values), options);
}
template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
Tensor tensor(T value, const TensorOptions& options = {}) {
  return kw::tensor_op("new:tensor", Scalar(value), options);
}
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {});
template <class D>
Tensor from_blob(void* data, IntArrayRef sizes, D deleter, const TensorOptions& options) {
  return from_blob(data, sizes, options);
}
bool globalContextAllowTF32();
void manual_seed(uint64_t seed);
ScalarType promote_types(ScalarType a, ScalarType b);
ScalarType result_type(const Tensor& a, const Tensor& b);

inline int64_t numel(const Tensor& x) { return x.numel(); }
inline int64_t size(const Tensor& x, int64_t dim) { return x.size(dim); }
inline bool is_floating_point(const Tensor& x) { return isFloatingType(x.scalar_type()); }

template <class T>
struct acc_type_of { using type = T; };
template <>
struct acc_type_of<c10::Half> { using type = float; };
template <>
struct acc_type_of<c10::BFloat16> { using type = float; };
template <class T, bool cuda>
using acc_type = typename acc_type_of<T>::type;
template <class T>
using opmath_type = typename acc_type_of<T>::type;
using Half = c10::Half;
using BFloat16 = c10::BFloat16;
inline ScalarType toOpMathType(ScalarType type) { return type == kHalf || type == kBFloat16 ? kFloat : type; }
inline ScalarType toAccumulateType(ScalarType type, bool is_cuda) {
  if (type == kHalf || type == kBFloat16 || type == kFloat) return is_cuda || type != kFloat ? kFloat : kDouble;
  return isIntegralType(type, false) ? kLong : type;
}
inline ScalarType toAccumulateType(ScalarType type, DeviceType device) { return toAccumulateType(type, device == kCUDA); }

// Without OpenMP one call over the whole range; with it, a chunk for each thread.
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const F& f) {
  if (begin >= end) return;
#ifdef _OPENMP
  int64_t chunk = std::max<int64_t>(grain < 1 ? 1 : grain, (end - begin + 63) / 64);
#pragma omp parallel for
  for (int64_t k = begin; k < end; k += chunk) f(k, std::min(end, k + chunk));
#else
  f(begin, end);
#endif
}
inline int get_num_threads() { return 1; }
inline void set_num_threads(int) {}
inline bool in_parallel_region() { return false; }

struct NoGradGuard {
  bool before;
  NoGradGuard();
  ~NoGradGuard();
};
struct AutoDispatchBelowADInplaceOrView { NoGradGuard guard; };
struct AutoNonVariableTypeMode { NoGradGuard guard; AutoNonVariableTypeMode(bool = true) {} };
struct GradMode {
  static bool is_enabled();
  static void set_enabled(bool on);
};

}  // namespace at

namespace c10 {
using at::NoGradGuard;
}

namespace c10 {
// `for (auto k : c10::irange(n))`.
template <class T>
struct integer_range {
  struct iterator {
    T k;
    T operator*() const { return k; }
    iterator& operator++() { ++k; return *this; }
    bool operator!=(const iterator& o) const { return k != o.k; }
    bool operator==(const iterator& o) const { return k == o.k; }
  };
  T first, last;
  iterator begin() const { return {first}; }
  iterator end() const { return {last < first ? first : last}; }
};
template <class T>
integer_range<T> irange(T end) { return {T(), end}; }
template <class A, class B>
integer_range<B> irange(A begin, B end) { return {static_cast<B>(begin), end}; }
struct InferenceMode {
  at::NoGradGuard guard;
  InferenceMode(bool = true) {}
};
template <class T>
constexpr T pi = static_cast<T>(3.14159265358979323846L);
}  // namespace c10
namespace at {
struct AutoGradMode {
  bool before;
  explicit AutoGradMode(bool on) : before(GradMode::is_enabled()) { GradMode::set_enabled(on); }
  ~AutoGradMode() { GradMode::set_enabled(before); }
};
using AutoDispatchBelowAutograd = AutoDispatchBelowADInplaceOrView;
template <class T>
using opmath_type_t = opmath_type<T>;
template <class T, class = void>
struct OpMathType { using type = opmath_type<T>; };
inline void check_dim_size(const Tensor& x, int64_t dim, int64_t index, int64_t size) {
  TORCH_CHECK(x.dim() == dim && x.size(index) == size, "Expected a tensor of dimension ", dim, " and tensor.size[", index,
              "] == ", size, " but got: dimension ", x.dim());
}
}  // namespace at

namespace c10 {
// A list that copies share.
template <class T>
class List {
 public:
  using value_type = T;
  List() : items_(std::make_shared<std::vector<T>>()) {}
  List(std::initializer_list<T> items) : items_(std::make_shared<std::vector<T>>(items)) {}
  explicit List(ArrayRef<T> items) : items_(std::make_shared<std::vector<T>>(items.vec())) {}
  explicit List(std::vector<T> items) : items_(std::make_shared<std::vector<T>>(std::move(items))) {}
  T get(size_t k) const { return items_->at(k); }
  void set(size_t k, T value) const { items_->at(k) = std::move(value); }
  T operator[](size_t k) const { return items_->at(k); }
  auto& operator[](size_t k) { return items_->at(k); }
  void push_back(T value) const { items_->push_back(std::move(value)); }
  template <class... A>
  void emplace_back(A&&... args) const { items_->emplace_back(std::forward<A>(args)...); }
  void reserve(size_t count) const { items_->reserve(count); }
  void clear() const { items_->clear(); }
  size_t size() const { return items_->size(); }
  bool empty() const { return items_->empty(); }
  auto begin() const { return items_->begin(); }
  auto end() const { return items_->end(); }
  List copy() const { return List(*items_); }
  std::vector<T> vec() const { return *items_; }

 private:
  std::shared_ptr<std::vector<T>> items_;
};
}  // namespace c10

namespace torch {
using namespace at;
using c10::InferenceMode;
using c10::irange;
using c10::optional;
using c10::ScalarType;
using c10::Scalar;
using c10::ArrayRef;
using at::AutoGradMode;
using c10::List;
using at::NoGradGuard;
using at::Tensor;
using c10::Device;
using c10::Half;
using c10::IntArrayRef;
using c10::TensorOptions;
using Dtype = c10::ScalarType;
using DeviceType = c10::DeviceType;
using c10::nullopt;
constexpr auto kU8 = c10::kByte, kUInt8 = c10::kByte, kI8 = c10::kChar, kInt8 = c10::kChar, kI16 = c10::kShort,
               kInt16 = c10::kShort, kI32 = c10::kInt, kInt32 = c10::kInt, kI64 = c10::kLong, kInt64 = c10::kLong,
               kF16 = c10::kHalf, kFloat16 = c10::kHalf, kF32 = c10::kFloat, kFloat32 = c10::kFloat,
               kF64 = c10::kDouble, kFloat64 = c10::kDouble;
namespace indexing = at::indexing;
namespace autograd {
using Variable = at::Tensor;
using variable_list = std::vector<at::Tensor>;
using tensor_list = std::vector<at::Tensor>;
}  // namespace autograd
namespace cuda {
inline bool is_available() { return true; }
void synchronize(int64_t device = -1);
}  // namespace cuda
namespace nn {
namespace functional {
inline at::Tensor relu(const at::Tensor& x) { return x.relu(); }
inline at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b = {}) { return at::linear(x, w, b); }
#define KW_UNARY(name) inline at::Tensor name(const at::Tensor& x) { return at::name(x); }
KW_UNARY(sigmoid) KW_UNARY(tanh) KW_UNARY(silu) KW_UNARY(mish) KW_UNARY(gelu) KW_UNARY(selu) KW_UNARY(relu6)
KW_UNARY(log_sigmoid) KW_UNARY(hardswish) KW_UNARY(hardsigmoid) KW_UNARY(softplus) KW_UNARY(elu) KW_UNARY(leaky_relu)
KW_UNARY(hardtanh) KW_UNARY(celu) KW_UNARY(hardshrink) KW_UNARY(softshrink)
#undef KW_UNARY
inline at::Tensor softsign(const at::Tensor& x) { return x / (x.abs() + 1); }
inline at::Tensor tanhshrink(const at::Tensor& x) { return x - x.tanh(); }
// Options of one number: `SoftmaxFuncOptions(1)`, `LeakyReLUFuncOptions().negative_slope(0.1)`.
struct SoftmaxFuncOptions {
  int64_t dim;
  SoftmaxFuncOptions(int64_t d) : dim(d) {}
};
using SoftminFuncOptions = SoftmaxFuncOptions;
using LogSoftmaxFuncOptions = SoftmaxFuncOptions;
inline at::Tensor softmax(const at::Tensor& x, const SoftmaxFuncOptions& o) { return at::softmax(x, o.dim); }
inline at::Tensor log_softmax(const at::Tensor& x, const LogSoftmaxFuncOptions& o) { return at::log_softmax(x, o.dim); }
struct LeakyReLUFuncOptions {
  double slope = 0.01;
  LeakyReLUFuncOptions& negative_slope(double v) { slope = v; return *this; }
};
inline at::Tensor leaky_relu(const at::Tensor& x, const LeakyReLUFuncOptions& o) { return at::leaky_relu(x, o.slope); }
struct GELUFuncOptions {
  std::string kind = "none";
  GELUFuncOptions& approximate(std::string v) { kind = std::move(v); return *this; }
};
inline at::Tensor gelu(const at::Tensor& x, const GELUFuncOptions& o) { return at::gelu(x, o.kind); }
}  // namespace functional
}  // namespace nn
}  // namespace torch
