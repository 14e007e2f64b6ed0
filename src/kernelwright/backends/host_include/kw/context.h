// at::Context, generators and the checks of arguments: what host code asks about its surroundings.
#pragma once

// kernelwright_philox.h, shared with device code, is included before this header.
#include "cublas.h"

namespace at {
// The settings of torch that C++ reads; setting them changes nothing here.
class Context {
 public:
  bool hasCUDA() const { return true; }
  bool hasMKL() const { return false; }
  bool hasCuDNN() const { return true; }
  bool userEnabledCuDNN() const { return true; }
  bool benchmarkCuDNN() const { return false; }
  bool deterministicCuDNN() const { return false; }
  bool deterministicAlgorithms() const { return false; }
  bool deterministicAlgorithmsWarnOnly() const { return false; }
  bool deterministicFillUninitializedMemory() const { return false; }
  bool allowTF32CuBLAS() const { return globalContextAllowTF32(); }
  bool allowTF32CuDNN() const { return true; }
  bool allowFP16ReductionCuBLAS() const { return true; }
  bool allowBF16ReductionCuBLAS() const { return true; }
  void setAllowTF32CuBLAS(bool) {}
  void setAllowTF32CuDNN(bool) {}
  void setBenchmarkCuDNN(bool) {}
  void alertNotDeterministic(const char*) const {}
  cudaDeviceProp* getCurrentDeviceProperties() const { return at::cuda::getCurrentDeviceProperties(); }
};
inline Context& globalContext() {
  static Context context;
  return context;
}
inline bool hasCUDA() { return true; }
namespace detail {}

// A generator of CUDA: kernels take its seed and offset by value.
struct CUDAGeneratorImpl {
  std::mutex mutex_;
  uint64_t seed_ = 67280421310721;
  uint64_t offset_ = 0;
  PhiloxCudaState philox_cuda_state(uint64_t increment) {
    const uint64_t offset = offset_;
    offset_ += (increment + 3) / 4 * 4;
    return PhiloxCudaState(seed_, offset);
  }
  std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t increment) {
    const PhiloxCudaState state = philox_cuda_state(increment);
    return {state.seed_.val, state.offset_.val};
  }
  uint64_t current_seed() const { return seed_; }
  void set_current_seed(uint64_t seed) { seed_ = seed, offset_ = 0; }
  uint64_t philox_offset_per_thread() const { return offset_; }
  void set_philox_offset_per_thread(uint64_t offset) { offset_ = offset; }
};
namespace cuda::detail {
inline CUDAGeneratorImpl& kw_generator() {
  static CUDAGeneratorImpl generator;
  return generator;
}
inline const Generator& getDefaultCUDAGenerator(DeviceIndex = -1) {
  static Generator generator;
  return generator;
}
}  // namespace cuda::detail
template <class T>
T* get_generator_or_default(const std::optional<Generator>&, const Generator&) { return &cuda::detail::kw_generator(); }
template <class T>
T* check_generator(const std::optional<Generator>&) { return &cuda::detail::kw_generator(); }

// A tensor with its name and place among the arguments, for messages.
struct TensorArg {
  const Tensor& tensor;
  const char* name;
  int pos;
  TensorArg(const Tensor& t, const char* n, int p) : tensor(t), name(n), pos(p) {}
  const Tensor* operator->() const { return &tensor; }
  const Tensor& operator*() const { return tensor; }
};
using CheckedFrom = const char*;
inline void checkDim(CheckedFrom c, const TensorArg& t, int64_t dim) {
  TORCH_CHECK(t->dim() == dim, "Expected ", dim, "-dimensional tensor, but got ", t->dim(), "-dimensional tensor for ",
              t.name, " (while checking arguments for ", c, ")");
}
inline void checkContiguous(CheckedFrom c, const TensorArg& t) {
  TORCH_CHECK(t->is_contiguous(), "Expected contiguous tensor, but got non-contiguous tensor for ", t.name,
              " (while checking arguments for ", c, ")");
}
inline void checkAllContiguous(CheckedFrom c, ArrayRef<TensorArg> all) {
  for (const auto& t : all) checkContiguous(c, t);
}
inline void checkScalarType(CheckedFrom c, const TensorArg& t, ScalarType type) {
  TORCH_CHECK(t->scalar_type() == type, "Expected tensor for ", t.name, " to have scalar type ", type, ", but got ",
              t->scalar_type(), " (while checking arguments for ", c, ")");
}
inline void checkScalarTypes(CheckedFrom c, const TensorArg& t, ArrayRef<ScalarType> types) {
  bool found = false;
  for (auto type : types) found = found || t->scalar_type() == type;
  TORCH_CHECK(found, "unexpected scalar type ", t->scalar_type(), " of ", t.name, " (while checking arguments for ", c, ")");
}
inline void checkSameType(CheckedFrom c, const TensorArg& a, const TensorArg& b) {
  TORCH_CHECK(a->scalar_type() == b->scalar_type(), "Expected tensor for ", a.name, " to have the same type as tensor for ",
              b.name, "; but type ", a->scalar_type(), " does not equal ", b->scalar_type(), " (while checking arguments for ",
              c, ")");
}
inline void checkAllSameType(CheckedFrom c, ArrayRef<TensorArg> all) {
  for (size_t k = 1; k < all.size(); ++k) checkSameType(c, all[0], all[k]);
}
inline void checkSameSize(CheckedFrom c, const TensorArg& a, const TensorArg& b) {
  TORCH_CHECK(a->sizes() == b->sizes(), "Expected tensor for ", a.name, " to have same size as tensor for ", b.name,
              "; but ", a->sizes(), " does not equal ", b->sizes(), " (while checking arguments for ", c, ")");
}
inline void checkAllSameSize(CheckedFrom c, ArrayRef<TensorArg> all) {
  for (size_t k = 1; k < all.size(); ++k) checkSameSize(c, all[0], all[k]);
}
inline void checkNumel(CheckedFrom c, const TensorArg& t, int64_t count) {
  TORCH_CHECK(t->numel() == count, "Expected tensor for ", t.name, " to have ", count, " elements; but it actually has ",
              t->numel(), " elements (while checking arguments for ", c, ")");
}
inline void checkSize(CheckedFrom c, const TensorArg& t, IntArrayRef sizes) {
  TORCH_CHECK(t->sizes() == sizes, "Expected tensor of size ", sizes, ", but got tensor of size ", t->sizes(), " for ",
              t.name, " (while checking arguments for ", c, ")");
}
inline void checkSize(CheckedFrom c, const TensorArg& t, int64_t dim, int64_t size) {
  TORCH_CHECK(t->size(dim) == size, "Expected tensor to have size ", size, " at dimension ", dim, ", but got size ",
              t->size(dim), " for ", t.name, " (while checking arguments for ", c, ")");
}
inline void checkDefined(CheckedFrom c, const TensorArg& t) {
  TORCH_CHECK(t->defined(), "Expected tensor for ", t.name, " to be non-null (while checking arguments for ", c, ")");
}
inline void checkAllDefined(CheckedFrom c, ArrayRef<TensorArg> all) {
  for (const auto& t : all) checkDefined(c, t);
}
inline void checkSameGPU(CheckedFrom c, const TensorArg& a, const TensorArg& b) {
  TORCH_CHECK(a->is_cuda() && b->is_cuda(), "Expected tensors for ", a.name, " and ", b.name,
              " to be on one GPU (while checking arguments for ", c, ")");
}
inline void checkAllSameGPU(CheckedFrom c, ArrayRef<TensorArg> all) {
  for (const auto& t : all)
    TORCH_CHECK(t->is_cuda(), "Expected tensor for ", t.name, " to be on the GPU (while checking arguments for ", c, ")");
}
}  // namespace at
namespace torch {
using at::globalContext;
}

// Calls of operators by name go through torch's dispatcher, which host code does not reach from here.
namespace c10 {
template <class F>
struct TypedOperatorHandle;
template <class R, class... A>
struct TypedOperatorHandle<R(A...)> {
  R call(A...) const { kw::fail_unsupported("c10::Dispatcher: a call of an operator from C++"); }
};
struct OperatorHandle {
  template <class F>
  TypedOperatorHandle<F> typed() const { return {}; }
};
class Dispatcher {
 public:
  static Dispatcher& singleton() {
    static Dispatcher one;
    return one;
  }
  OperatorHandle findSchemaOrThrow(const char*, const char*) { return {}; }
};
}  // namespace c10
#define C10_LOG_API_USAGE_ONCE(...)
#define C10_LOG_EVENT_SAMPLED(...)
