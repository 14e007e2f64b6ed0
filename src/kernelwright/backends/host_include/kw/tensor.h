// at::Tensor as a counted handle on a torch tensor that lives in the runner, with its metadata cached here.
#pragma once

#include "checks.h"
// kernelwright_accessor.h, shared with device code, is included before this header.

namespace at {
class Tensor;
struct TensorIndex;
}  // namespace at

namespace kw {

struct TensorImpl;

// Tags that exist only on this side, before the call.
constexpr int32_t RAW_TENSORS = 100, RAW_INDEXES = 101, RAW_BOOLS = 102, GENERATOR = 103;

// Any argument of a forwarded operator. Trivially destructible: it points at what the caller passed.
struct Arg {
  Value value;
  Arg() = default;
  template <class T, std::enable_if_t<std::is_arithmetic_v<T> || (std::is_enum_v<T> && std::is_convertible_v<T, int>), int> = 0>
  Arg(T v) {
    if constexpr (std::is_same_v<T, bool>) value = Value{BOOL, 0, v};
    else if constexpr (std::is_floating_point_v<T>) value = Value{DOUBLE, 0, 0, static_cast<double>(v)};
    else value = Value{INT, 0, static_cast<int64_t>(v)};
  }
  Arg(const at::Tensor& tensor);
  Arg(const c10::Scalar& scalar) : value(scalar.value()) {}
  Arg(c10::Half v) : value{DOUBLE, 0, 0, float(v)} {}
  Arg(c10::BFloat16 v) : value{DOUBLE, 0, 0, float(v)} {}
  Arg(c10::ScalarType type) : value{DTYPE, 0, static_cast<int64_t>(type)} {}
  Arg(c10::TypeMeta type) : Arg(type.type) {}
  Arg(const c10::Device& device) : value{DEVICE, device.index(), device.is_cuda()} {}
  Arg(c10::DeviceType device) : Arg(c10::Device(device)) {}
  Arg(const c10::TensorOptions& o);
  Arg(c10::Layout layout) : value{LAYOUT, 0, static_cast<int64_t>(layout)} {}
  Arg(c10::MemoryFormat format) : value{MEMORY_FORMAT, 0, static_cast<int64_t>(format)} {}
  Arg(std::nullopt_t) : value{NONE} {}
  Arg(const char* text) : value{STR, 0, static_cast<int64_t>(std::strlen(text)), 0, text} {}
  Arg(const std::string& text) : value{STR, 0, static_cast<int64_t>(text.size()), 0, text.data()} {}
  Arg(std::string_view text) : value{STR, 0, static_cast<int64_t>(text.size()), 0, text.data()} {}
  Arg(const std::initializer_list<int64_t>& v) : value{INTS, 0, static_cast<int64_t>(v.size()), 0, v.begin()} {}
  Arg(const std::vector<int64_t>& v) : value{INTS, 0, static_cast<int64_t>(v.size()), 0, v.data()} {}
  Arg(c10::IntArrayRef v) : value{INTS, 0, static_cast<int64_t>(v.size()), 0, v.data()} {}
  template <size_t N>
  Arg(const std::array<int64_t, N>& v) : value{INTS, 0, static_cast<int64_t>(N), 0, v.data()} {}
  template <size_t N>
  Arg(const std::array<bool, N>& v) : value{RAW_BOOLS, 0, static_cast<int64_t>(N), 0, v.data()} {}
  Arg(c10::OptionalIntArrayRef v) : value{NONE} {
    if (v.has_value()) *this = Arg(*v);
  }
  Arg(const c10::Generator&) : value{GENERATOR} {}
  Arg(c10::ArrayRef<double> v) : value{DOUBLES, 0, static_cast<int64_t>(v.size()), 0, v.data()} {}
  Arg(const std::vector<double>& v) : value{DOUBLES, 0, static_cast<int64_t>(v.size()), 0, v.data()} {}
  Arg(const std::initializer_list<at::Tensor>& v);
  Arg(const std::vector<at::Tensor>& v);
  Arg(c10::ArrayRef<at::Tensor> v);
  Arg(const std::initializer_list<at::TensorIndex>& v);
  Arg(const std::vector<at::TensorIndex>& v);
  template <class T>
  Arg(const std::optional<T>& v) : value{NONE} {
    if (v) *this = Arg(*v);
  }
};

#define KW_PARAMS8 kw::Arg a = kw::Arg(), kw::Arg b = kw::Arg(), kw::Arg c = kw::Arg(), kw::Arg d = kw::Arg(), \
                   kw::Arg e = kw::Arg(), kw::Arg f = kw::Arg(), kw::Arg g = kw::Arg(), kw::Arg h = kw::Arg()
#define KW_ARGS8 a, b, c, d, e, f, g, h

}  // namespace kw

namespace at {
using namespace c10;
using TensorList = c10::ArrayRef<Tensor>;
using Tensors2 = std::tuple<Tensor, Tensor>;
using Tensors3 = std::tuple<Tensor, Tensor, Tensor>;
namespace Reduction {
enum Reduction { None, Mean, Sum, END };
}

}  // namespace at

namespace c10 {
// What may or may not own its value in torch; here it always does: tensors are counted.
template <class T>
class MaybeOwned {
 public:
  static MaybeOwned borrowed(const T& value) { return MaybeOwned(value); }
  static MaybeOwned owned(T&& value) { return MaybeOwned(std::move(value)); }
  template <class... Args>
  static MaybeOwned owned(std::in_place_t, Args&&... args) { return MaybeOwned(T(std::forward<Args>(args)...)); }
  const T& operator*() const& { return value_; }
  T operator*() && { return std::move(value_); }
  const T* operator->() const { return &value_; }
  bool unsafeIsBorrowed() const { return false; }

 private:
  explicit MaybeOwned(T value) : value_(std::move(value)) {}
  T value_;
};
}  // namespace c10

namespace at {
// `tensor.type()`: kept for older code.
struct DeprecatedTypeProperties {
  ScalarType type_;
  bool cuda_;
  ScalarType scalarType() const { return type_; }
  bool is_cuda() const { return cuda_; }
  std::string toString() const;
  TensorOptions options() const { return TensorOptions(type_).device(cuda_ ? kCUDA : kCPU); }
  operator TensorOptions() const { return options(); }
  operator ScalarType() const { return type_; }
  bool operator==(const DeprecatedTypeProperties& o) const { return type_ == o.type_ && cuda_ == o.cuda_; }
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(kw::TensorImpl* impl) : impl_(impl) {}
  Tensor(const Tensor& o);
  Tensor(Tensor&& o) noexcept : impl_(o.impl_) { o.impl_ = nullptr; }
  Tensor& operator=(const Tensor& o) &;
  Tensor& operator=(Tensor&& o) & noexcept { std::swap(impl_, o.impl_); return *this; }
  // `x[0] = y` writes into x.
  Tensor& operator=(const Tensor& o) &&;
  Tensor& operator=(Tensor&& o) &&;
  Tensor& operator=(const Scalar& value) &&;
  ~Tensor();

  bool defined() const { return impl_ != nullptr; }
  void reset();
  int64_t dim() const;
  int64_t ndimension() const { return dim(); }
  int64_t size(int64_t d) const;
  int64_t sym_size(int64_t d) const { return size(d); }
  int64_t stride(int64_t d) const;
  IntArrayRef sizes() const;
  IntArrayRef sym_sizes() const { return sizes(); }
  IntArrayRef strides() const;
  int64_t numel() const;
  int64_t element_size() const;
  int64_t itemsize() const { return element_size(); }
  size_t nbytes() const { return static_cast<size_t>(numel() * element_size()); }
  int64_t storage_offset() const;
  ScalarType scalar_type() const;
  TypeMeta dtype() const { return TypeMeta(scalar_type()); }
  DeprecatedTypeProperties type() const { return {scalar_type(), is_cuda()}; }
  TensorOptions options() const;
  Device device() const;
  int64_t get_device() const { return is_cuda() ? 0 : -1; }
  Layout layout() const { return kStrided; }
  bool is_cuda() const;
  bool is_cpu() const { return !is_cuda(); }
  bool is_sparse() const { return false; }
  bool is_quantized() const { return false; }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  bool is_non_overlapping_and_dense() const;
  MemoryFormat suggest_memory_format() const;
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }
  bool is_alias_of(const Tensor& o) const;
  bool requires_grad() const;
  Tensor& requires_grad_(bool on = true);
  Tensor& set_requires_grad(bool on) { return requires_grad_(on); }
  bool has_storage() const { return defined(); }
  void* data_ptr() const;
  void* mutable_data_ptr() const { return data_ptr(); }
  const void* const_data_ptr() const { return data_ptr(); }
  void* checked_data_ptr(ScalarType wanted) const;
  template <class T>
  T* data_ptr() const {
    using Plain = std::remove_const_t<T>;
    return static_cast<T*>(checked_data_ptr(CppTypeToScalarType<Plain>::value));
  }
  template <class T>
  T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T>
  const std::remove_const_t<T>* const_data_ptr() const { return data_ptr<std::remove_const_t<T>>(); }
  template <class T>
  T* data() const { return data_ptr<T>(); }
  Tensor data() const;
  Tensor tensor_data() const { return data(); }
  Tensor variable_data() const { return data(); }
  Scalar item() const;
  template <class T>
  T item() const { return item().to<T>(); }
  std::string toString() const;

  template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits>
  GenericPackedTensorAccessor<T, N, Traits, int32_t> packed_accessor32() const {
    return packed_accessor<T, N, Traits, int32_t>();
  }
  template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits>
  GenericPackedTensorAccessor<T, N, Traits, int64_t> packed_accessor64() const {
    return packed_accessor<T, N, Traits, int64_t>();
  }
  template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits, class I = int64_t>
  GenericPackedTensorAccessor<T, N, Traits, I> generic_packed_accessor() const {
    return packed_accessor<T, N, Traits, I>();
  }
  template <class T, size_t N, template <class U> class Traits = DefaultPtrTraits, class I = int64_t>
  GenericPackedTensorAccessor<T, N, Traits, I> packed_accessor() const {
    check_rank(N);
    return GenericPackedTensorAccessor<T, N, Traits, I>(data_ptr<T>(), sizes().data(), strides().data());
  }
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const {
    check_rank(N);
    return TensorAccessor<T, N>(data_ptr<T>(), sizes().data(), strides().data());
  }

  Tensor to(kw::Arg a, kw::Arg b = kw::Arg(), kw::Arg c = kw::Arg(), kw::Arg d = kw::Arg()) const;
  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  c10::MaybeOwned<Tensor> expect_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    return c10::MaybeOwned<Tensor>::owned(contiguous(format));
  }
  Tensor& set_data(const Tensor& o) { return *this = o; }
  Tensor new_empty_strided(IntArrayRef sizes, IntArrayRef strides, kw::Arg options = kw::Arg()) const;
  bool is_complex() const { return isComplexType(scalar_type()); }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_signed() const { return scalar_type() != kByte && scalar_type() != kBool; }
  bool is_same_size(const Tensor& o) const { return sizes().equals(o.sizes()); }
  bool is_leaf() const { return true; }
  bool is_meta() const { return false; }
  bool is_mkldnn() const { return false; }
  bool is_pinned() const { return impl_ && pinned(); }
  bool is_conj() const { return false; }
  bool is_neg() const { return false; }
  bool is_inference() const { return false; }
  bool is_hip() const { return false; }
  bool is_xpu() const { return false; }
  bool sizes_equal(IntArrayRef o) const { return sizes().equals(o); }
  long use_count() const;
  Tensor& retain_grad() { return *this; }
  Tensor cuda() const;
  Tensor cpu() const;
  Tensor toType(ScalarType type) const { return to(type); }
  Tensor index(const std::vector<TensorIndex>& at) const;
  Tensor index(std::initializer_list<TensorIndex> at) const;
  Tensor& index_put_(std::initializer_list<TensorIndex> at, const Tensor& value);
  Tensor& index_put_(std::initializer_list<TensorIndex> at, const Scalar& value);
  Tensor new_empty(kw::Arg sizes, kw::Arg options = kw::Arg()) const;
  Tensor new_zeros(kw::Arg sizes, kw::Arg options = kw::Arg()) const;
  Tensor new_ones(kw::Arg sizes, kw::Arg options = kw::Arg()) const;
  Tensor new_full(kw::Arg sizes, kw::Arg value, kw::Arg options = kw::Arg()) const;
  Tensor operator[](int64_t k) const;
  Tensor operator[](const Tensor& k) const;

  Tensor& operator+=(const Tensor& o);
  Tensor& operator-=(const Tensor& o);
  Tensor& operator*=(const Tensor& o);
  Tensor& operator/=(const Tensor& o);
  Tensor& operator+=(const Scalar& o);
  Tensor& operator-=(const Scalar& o);
  Tensor& operator*=(const Scalar& o);
  Tensor& operator/=(const Scalar& o);
  Tensor& operator&=(const Tensor& o);
  Tensor& operator|=(const Tensor& o);
  Tensor& operator^=(const Tensor& o);
  Tensor operator-() const;
  Tensor operator~() const;

#include "aten_methods.inc"

  kw::TensorImpl* impl() const { return impl_; }

 private:
  void check_rank(size_t n) const;
  bool pinned() const;
  kw::TensorImpl* impl_ = nullptr;
};

namespace indexing {
enum class EllipsisIndexType { Ellipsis };
constexpr EllipsisIndexType Ellipsis = EllipsisIndexType::Ellipsis;
constexpr std::nullopt_t None = std::nullopt;
struct Slice {
  int64_t parts[3] = {0, 0, 1};
  int absent = 7;
  Slice(std::optional<int64_t> start = std::nullopt, std::optional<int64_t> stop = std::nullopt,
        std::optional<int64_t> step = std::nullopt);
};
}  // namespace indexing

struct TensorIndex {
  kw::Value value;
  indexing::Slice slice;
  Tensor tensor;
  TensorIndex(std::nullopt_t) : value{kw::NONE} {}
  TensorIndex(indexing::EllipsisIndexType) : value{kw::ELLIPSIS} {}
  TensorIndex(const char*) : value{kw::ELLIPSIS} {}
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  TensorIndex(T k) : value{std::is_same_v<T, bool> ? kw::BOOL : kw::INT, 0, static_cast<int64_t>(k)} {}
  TensorIndex(indexing::Slice s) : value{kw::SLICE, s.absent}, slice(s) {}
  TensorIndex(Tensor t) : value{kw::TENSOR}, tensor(std::move(t)) {}
};
namespace indexing {
using at::TensorIndex;
}

inline c10::MaybeOwned<Tensor> borrow_from_optional_tensor(const std::optional<Tensor>& given) {
  return c10::MaybeOwned<Tensor>::owned(given.value_or(Tensor()));
}

Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator%(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, const Scalar& b);
Tensor operator-(const Tensor& a, const Scalar& b);
Tensor operator*(const Tensor& a, const Scalar& b);
Tensor operator/(const Tensor& a, const Scalar& b);
Tensor operator%(const Tensor& a, const Scalar& b);
Tensor operator+(const Scalar& a, const Tensor& b);
Tensor operator-(const Scalar& a, const Tensor& b);
Tensor operator*(const Scalar& a, const Tensor& b);
Tensor operator/(const Scalar& a, const Tensor& b);
#define KW_COMPARE(op)                                  \
  Tensor operator op(const Tensor& a, const Tensor& b); \
  Tensor operator op(const Tensor& a, const Scalar& b); \
  Tensor operator op(const Scalar& a, const Tensor& b);
KW_COMPARE(==) KW_COMPARE(!=) KW_COMPARE(<) KW_COMPARE(<=) KW_COMPARE(>) KW_COMPARE(>=)
#undef KW_COMPARE
Tensor operator%(const Scalar& a, const Tensor& b);
Tensor operator&(const Tensor& a, const Scalar& b);
Tensor operator|(const Tensor& a, const Scalar& b);
Tensor operator^(const Tensor& a, const Scalar& b);
Tensor operator&(const Tensor& a, const Tensor& b);
Tensor operator|(const Tensor& a, const Tensor& b);
Tensor operator^(const Tensor& a, const Tensor& b);
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace at

namespace kw {
at::Tensor tensor_op(const char* name, Arg self, KW_PARAMS8);
std::vector<at::Tensor> list_op(const char* name, Arg self, KW_PARAMS8);
bool bool_op(const char* name, Arg self, KW_PARAMS8);
at::Tensor to_tensor(const Value& value);
}  // namespace kw
