// at:: and torch:: as free functions: forwarded operators, factories, and the names of namespace torch.
#pragma once

#include "tensor.h"

namespace at {
#define KW_METHOD(type, name, convert) \
  inline type Tensor::name(KW_PARAMS8_PLAIN) const { return kw::convert(#name, *this, KW_ARGS8); }
#define KW_FUNCTION(type, name, convert) \
  inline type name(kw::Arg self, KW_PARAMS8) { return kw::convert(#name, self, KW_ARGS8); }
#define KW_PARAMS8_PLAIN kw::Arg a, kw::Arg b, kw::Arg c, kw::Arg d, kw::Arg e, kw::Arg f, kw::Arg g, kw::Arg h
#undef KW_FUNCTION_TENSOR
#undef KW_FUNCTION_PAIR
#undef KW_FUNCTION_TRIPLE
#undef KW_FUNCTION_LIST
#undef KW_FUNCTION_BOOL
#define KW_METHOD_TENSOR(name) KW_METHOD(Tensor, name, tensor_op)
#define KW_METHOD_PAIR(name) KW_METHOD(Tensors2, name, pair_op)
#define KW_METHOD_TRIPLE(name) KW_METHOD(Tensors3, name, triple_op)
#define KW_METHOD_LIST(name) KW_METHOD(std::vector<Tensor>, name, list_op)
#define KW_METHOD_BOOL(name) KW_METHOD(bool, name, bool_op)
#define KW_FUNCTION_TENSOR(name) KW_FUNCTION(Tensor, name, tensor_op)
#define KW_FUNCTION_PAIR(name) KW_FUNCTION(Tensors2, name, pair_op)
#define KW_FUNCTION_TRIPLE(name) KW_FUNCTION(Tensors3, name, triple_op)
#define KW_FUNCTION_LIST(name) KW_FUNCTION(std::vector<Tensor>, name, list_op)
#define KW_FUNCTION_BOOL(name) KW_FUNCTION(bool, name, bool_op)
#include "aten_ops.inc"

// Operators whose overloads return different things, and factories.
inline Tensor max(const Tensor& x) { return x.max(); }
inline Tensor max(const Tensor& x, const Tensor& y) { return x.max(y); }
inline Tensors2 max(const Tensor& x, int64_t dim, bool keepdim = false) { return x.max(dim, keepdim); }
inline Tensor min(const Tensor& x) { return x.min(); }
inline Tensor min(const Tensor& x, const Tensor& y) { return x.min(y); }
inline Tensors2 min(const Tensor& x, int64_t dim, bool keepdim = false) { return x.min(dim, keepdim); }
inline Tensor median(const Tensor& x) { return x.median(); }
inline Tensors2 median(const Tensor& x, int64_t dim, bool keepdim = false) { return x.median(dim, keepdim); }
inline Tensors2 mode(const Tensor& x, int64_t dim = -1, bool keepdim = false) { return x.mode(dim, keepdim); }
inline Tensors2 sort(const Tensor& x, int64_t dim = -1, bool descending = false) { return x.sort(dim, descending); }
inline Tensors2 topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true) {
  return x.topk(k, dim, largest, sorted);
}
inline Tensors2 kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false) {
  return x.kthvalue(k, dim, keepdim);
}
inline Tensors2 cummax(const Tensor& x, int64_t dim) { return x.cummax(dim); }
inline Tensors2 cummin(const Tensor& x, int64_t dim) { return x.cummin(dim); }
inline Tensors2 var_mean(KW_PARAMS8) { return kw::pair_op("var_mean", KW_ARGS8); }
inline Tensors2 std_mean(KW_PARAMS8) { return kw::pair_op("std_mean", KW_ARGS8); }
inline Tensor where(const Tensor& condition, kw::Arg x, kw::Arg y) { return kw::tensor_op("where", condition, x, y); }
inline std::vector<Tensor> where(const Tensor& condition) { return kw::list_op("where", condition); }
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
KW_FACTORY_LIKE(empty_like) KW_FACTORY_LIKE(zeros_like) KW_FACTORY_LIKE(ones_like)
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
template <class T>
struct MaybeOwned;
}

namespace torch {
using namespace at;
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
}  // namespace functional
}  // namespace nn
}  // namespace torch
