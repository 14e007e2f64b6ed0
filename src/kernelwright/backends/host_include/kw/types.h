// c10's small types: scalar types, half precision, devices, options, array references, scalars, checks.
#pragma once

#include "value.h"

namespace c10 {

using std::nullopt;
using std::nullopt_t;
template <class T>
using optional = std::optional<T>;
template <class T>
using intrusive_ptr = std::shared_ptr<T>;
using std::make_optional;
using string_view = std::string_view;

struct SourceLocation {
  const char* function;
  const char* file;
  uint32_t line;
};

class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  Error(SourceLocation, std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const std::string& msg() const { return message_; }

 private:
  std::string message_;
};
struct IndexError : Error { using Error::Error; };
struct ValueError : Error { using Error::Error; };
struct TypeError : Error { using Error::Error; };
struct NotImplementedError : Error { using Error::Error; };
struct AcceleratorError : Error { using Error::Error; };

struct alignas(2) Half {
  unsigned short x;
  struct from_bits_t {};
  static constexpr from_bits_t from_bits() { return {}; }
  Half() = default;
  constexpr Half(unsigned short bits, from_bits_t) : x(bits) {}
  Half(float value);
  operator float() const;
};
struct alignas(2) BFloat16 {
  unsigned short x;
  struct from_bits_t {};
  static constexpr from_bits_t from_bits() { return {}; }
  BFloat16() = default;
  constexpr BFloat16(unsigned short bits, from_bits_t) : x(bits) {}
  BFloat16(float value);
  operator float() const;
};
inline Half& operator+=(Half& a, Half b) { return a = Half(float(a) + float(b)); }
inline Half& operator-=(Half& a, Half b) { return a = Half(float(a) - float(b)); }
inline Half& operator*=(Half& a, Half b) { return a = Half(float(a) * float(b)); }
inline Half& operator/=(Half& a, Half b) { return a = Half(float(a) / float(b)); }
inline BFloat16& operator+=(BFloat16& a, BFloat16 b) { return a = BFloat16(float(a) + float(b)); }
inline BFloat16& operator-=(BFloat16& a, BFloat16 b) { return a = BFloat16(float(a) - float(b)); }
inline BFloat16& operator*=(BFloat16& a, BFloat16 b) { return a = BFloat16(float(a) * float(b)); }
inline BFloat16& operator/=(BFloat16& a, BFloat16 b) { return a = BFloat16(float(a) / float(b)); }
std::ostream& operator<<(std::ostream& out, Half value);
std::ostream& operator<<(std::ostream& out, BFloat16 value);
inline std::ostream& operator<<(std::ostream& out, Float8_e4m3fn value) { return out << float(value); }
inline std::ostream& operator<<(std::ostream& out, Float8_e5m2 value) { return out << float(value); }

enum class ScalarType : int8_t {
  Byte, Char, Short, Int, Long, Half, Float, Double, ComplexHalf, ComplexFloat, ComplexDouble, Bool, QInt8, QUInt8,
  QInt32, BFloat16, QUInt4x2, QUInt2x4, Bits1x8, Bits2x4, Bits4x2, Bits8, Bits16, Float8_e5m2, Float8_e4m3fn,
  Float8_e5m2fnuz, Float8_e4m3fnuz, UInt16, UInt32, UInt64, Undefined,
};
constexpr ScalarType kByte = ScalarType::Byte, kChar = ScalarType::Char, kShort = ScalarType::Short,
                     kInt = ScalarType::Int, kLong = ScalarType::Long, kHalf = ScalarType::Half,
                     kFloat = ScalarType::Float, kDouble = ScalarType::Double, kBool = ScalarType::Bool,
                     kBFloat16 = ScalarType::BFloat16, kComplexFloat = ScalarType::ComplexFloat,
                     kComplexDouble = ScalarType::ComplexDouble, kUInt16 = ScalarType::UInt16,
                     kUInt32 = ScalarType::UInt32, kUInt64 = ScalarType::UInt64,
                     kFloat8_e5m2 = ScalarType::Float8_e5m2, kFloat8_e4m3fn = ScalarType::Float8_e4m3fn;
const char* toString(ScalarType type);
std::ostream& operator<<(std::ostream& out, ScalarType type);
size_t elementSize(ScalarType type);
inline bool isFloatingType(ScalarType t) {
  return t == kHalf || t == kFloat || t == kDouble || t == kBFloat16 || t == kFloat8_e5m2 || t == kFloat8_e4m3fn;
}
inline bool isComplexType(ScalarType t) {
  return t == ScalarType::ComplexHalf || t == kComplexFloat || t == kComplexDouble;
}
inline bool isReducedFloatingType(ScalarType t) { return t == kHalf || t == kBFloat16; }
inline bool isIntegralType(ScalarType t, bool include_bool = false) {
  return (include_bool && t == kBool) || t == kByte || t == kChar || t == kShort || t == kInt || t == kLong ||
         t == kUInt16 || t == kUInt32 || t == kUInt64;
}

template <class T>
struct CppTypeToScalarType {};
namespace impl {
template <ScalarType S>
struct ScalarTypeToCPPType {};
template <ScalarType S>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<S>::type;
}  // namespace impl
#define KW_SCALAR_TYPES(_)                                                                                       \
  _(uint8_t, Byte) _(int8_t, Char) _(int16_t, Short) _(int, Int) _(int64_t, Long) _(c10::Half, Half)             \
  _(float, Float) _(double, Double) _(bool, Bool) _(c10::BFloat16, BFloat16) _(c10::complex<float>, ComplexFloat) \
  _(c10::complex<double>, ComplexDouble) _(uint16_t, UInt16) _(uint32_t, UInt32) _(uint64_t, UInt64) \
  _(c10::Float8_e4m3fn, Float8_e4m3fn) _(c10::Float8_e5m2, Float8_e5m2)
#define KW_MAP_TYPE(cpp, name)                                                          \
  template <>                                                                           \
  struct CppTypeToScalarType<cpp> {                                                     \
    static constexpr ScalarType value = ScalarType::name;                               \
    constexpr operator ScalarType() const { return value; }                             \
  };                                                                                    \
  namespace impl {                                                                      \
  template <>                                                                           \
  struct ScalarTypeToCPPType<ScalarType::name> {                                        \
    using type = cpp;                                                                   \
  };                                                                                    \
  }
KW_SCALAR_TYPES(KW_MAP_TYPE)
#undef KW_MAP_TYPE
template <>
struct CppTypeToScalarType<long long> : CppTypeToScalarType<int64_t> {};

// `tensor.dtype()`: compares with scalar types.
struct TypeMeta {
  ScalarType type = ScalarType::Undefined;
  TypeMeta() = default;
  TypeMeta(ScalarType t) : type(t) {}
  template <class T>
  static TypeMeta Make() { return TypeMeta(CppTypeToScalarType<T>::value); }
  template <class T>
  bool Match() const { return type == CppTypeToScalarType<T>::value; }
  ScalarType toScalarType() const { return type; }
  size_t itemsize() const { return elementSize(type); }
  std::string name() const;
  friend bool operator==(TypeMeta a, TypeMeta b) { return a.type == b.type; }
  friend bool operator==(TypeMeta a, ScalarType b) { return a.type == b; }
  friend bool operator==(ScalarType a, TypeMeta b) { return a == b.type; }
};
std::ostream& operator<<(std::ostream& out, TypeMeta meta);
inline ScalarType typeMetaToScalarType(TypeMeta meta) { return meta.type; }
inline TypeMeta scalarTypeToTypeMeta(ScalarType type) { return TypeMeta(type); }
inline const char* toString(TypeMeta meta) { return toString(meta.type); }
TypeMeta get_default_dtype();
ScalarType get_default_dtype_as_scalartype();

enum class DeviceType : int8_t { CPU = 0, CUDA = 1, Meta = 14 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
using DeviceIndex = int8_t;
struct Device {
  DeviceType type_;
  DeviceIndex index_;
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& text);
  Device(const char* text) : Device(std::string(text)) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  std::string str() const;
  bool operator==(const Device& o) const { return type_ == o.type_ && index_ == o.index_; }
  bool operator!=(const Device& o) const { return !(*this == o); }
};
std::ostream& operator<<(std::ostream& out, const Device& device);
std::ostream& operator<<(std::ostream& out, DeviceType type);

enum class Layout : int8_t { Strided = 0, Sparse = 1, SparseCsr = 2 };
constexpr Layout kStrided = Layout::Strided, kSparse = Layout::Sparse;
enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2, ChannelsLast3d = 3 };
std::ostream& operator<<(std::ostream& out, Layout layout);
std::ostream& operator<<(std::ostream& out, MemoryFormat format);

template <class T>
class ArrayRef {
 public:
  using value_type = T;
  using iterator = const T*;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* first, const T* last) : data_(first), size_(last - first) {}
  template <class A>
  ArrayRef(const std::vector<T, A>& v) : data_(v.data()), size_(v.size()) {}
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& v) : data_(v.data()), size_(N) {}
  template <size_t N>
  constexpr ArrayRef(const T (&v)[N]) : data_(v), size_(N) {}
  constexpr ArrayRef(const std::initializer_list<T>& v) : data_(v.begin()), size_(v.size()) {}
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t k) const { return data_[k]; }
  const T& at(size_t k) const {
    if (k >= size_) throw Error("ArrayRef: invalid index Index = " + std::to_string(k));
    return data_[k];
  }
  constexpr const T& front() const { return data_[0]; }
  constexpr const T& back() const { return data_[size_ - 1]; }
  ArrayRef slice(size_t first, size_t count) const { return ArrayRef(data_ + first, count); }
  ArrayRef slice(size_t first) const { return ArrayRef(data_ + first, size_ - first); }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  bool equals(ArrayRef o) const { return size_ == o.size_ && std::equal(begin(), end(), o.begin()); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) { return a.equals(b); }
template <class T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) { return !a.equals(b); }
template <class T>
bool operator==(ArrayRef<T> a, const std::vector<T>& b) { return a.equals(ArrayRef<T>(b)); }
template <class T>
bool operator!=(ArrayRef<T> a, const std::vector<T>& b) { return !a.equals(ArrayRef<T>(b)); }
template <class T>
bool operator==(const std::vector<T>& a, ArrayRef<T> b) { return ArrayRef<T>(a).equals(b); }
template <class T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> list) {
  out << "[";
  for (size_t k = 0; k < list.size(); ++k) out << (k ? ", " : "") << list[k];
  return out << "]";
}
using IntArrayRef = ArrayRef<int64_t>;
template <class T>
class OptionalArrayRef {
 public:
  constexpr OptionalArrayRef() = default;
  constexpr OptionalArrayRef(std::nullopt_t) {}
  constexpr OptionalArrayRef(const std::initializer_list<T>& v) : list_(ArrayRef<T>(v)) {}
  constexpr OptionalArrayRef(const std::optional<ArrayRef<T>>& v) : list_(v) {}
  constexpr OptionalArrayRef(const T& one) : list_(ArrayRef<T>(one)) {}
  template <class U, std::enable_if_t<!std::is_same_v<std::decay_t<U>, OptionalArrayRef> && !std::is_arithmetic_v<std::decay_t<U>> &&
                                          std::is_convertible_v<U, ArrayRef<T>>, int> = 0>
  constexpr OptionalArrayRef(U&& v) : list_(ArrayRef<T>(static_cast<U&&>(v))) {}
  constexpr bool has_value() const { return list_.has_value(); }
  constexpr explicit operator bool() const { return has_value(); }
  constexpr const ArrayRef<T>& value() const { return *list_; }
  constexpr const ArrayRef<T>& operator*() const { return *list_; }
  constexpr const ArrayRef<T>* operator->() const { return &*list_; }

 private:
  std::optional<ArrayRef<T>> list_;
};
using OptionalIntArrayRef = OptionalArrayRef<int64_t>;
// A random generator of its own is not passed on: candidates use the default one.
struct Generator {};
using SymInt = int64_t;
using SymIntArrayRef = IntArrayRef;
template <class T, unsigned N = 8>
using SmallVector = std::vector<T>;

// A number of any kind.
class Scalar {
 public:
  Scalar() : value_(kw::Value{kw::INT}) {}
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Scalar(T v) {
    if constexpr (std::is_same_v<T, bool>) value_ = kw::Value{kw::BOOL, 0, v};
    else if constexpr (std::is_integral_v<T>) value_ = kw::Value{kw::INT, 0, static_cast<int64_t>(v)};
    else value_ = kw::Value{kw::DOUBLE, 0, 0, static_cast<double>(v)};
  }
  Scalar(Half v) : Scalar(float(v)) {}
  Scalar(BFloat16 v) : Scalar(float(v)) {}
  Scalar(Float8_e4m3fn v) : Scalar(float(v)) {}
  Scalar(Float8_e5m2 v) : Scalar(float(v)) {}
  explicit Scalar(const kw::Value& v) : value_(v) {}
  double toDouble() const { return value_.tag == kw::DOUBLE ? value_.d : static_cast<double>(value_.i); }
  int64_t toLong() const { return value_.tag == kw::DOUBLE ? static_cast<int64_t>(value_.d) : value_.i; }
  float toFloat() const { return static_cast<float>(toDouble()); }
  int toInt() const { return static_cast<int>(toLong()); }
  bool toBool() const { return value_.tag == kw::DOUBLE ? value_.d != 0 : value_.i != 0; }
  Half toHalf() const { return Half(toFloat()); }
  template <class T>
  T to() const {
    if constexpr (std::is_same_v<T, bool>) return toBool();
    else if constexpr (std::is_integral_v<T>) return static_cast<T>(toLong());
    else return static_cast<T>(toDouble());
  }
  bool isFloatingPoint() const { return value_.tag == kw::DOUBLE; }
  bool isIntegral(bool include_bool = false) const {
    return value_.tag == kw::INT || (include_bool && value_.tag == kw::BOOL);
  }
  bool isBoolean() const { return value_.tag == kw::BOOL; }
  ScalarType type() const { return value_.tag == kw::DOUBLE ? kDouble : value_.tag == kw::BOOL ? kBool : kLong; }
  Scalar operator-() const { return isFloatingPoint() ? Scalar(-toDouble()) : Scalar(-toLong()); }
  const kw::Value& value() const { return value_; }

 private:
  kw::Value value_;
};

// Plain data, so that it costs compiled code nothing to pass around.
struct TensorOptions {
  ScalarType dtype_ = ScalarType::Undefined;
  int8_t device_ = -1;  // -1 not given, else a DeviceType
  DeviceIndex index_ = -1;
  bool requires_grad_ = false;
  bool pinned_ = false;
  int8_t format_ = -1;  // -1 not given, else a MemoryFormat
  TensorOptions() = default;
  TensorOptions(ScalarType type) : dtype_(type) {}
  TensorOptions(TypeMeta type) : dtype_(type.type) {}
  TensorOptions(const Device& device) : device_(static_cast<int8_t>(device.type_)), index_(device.index_) {}
  TensorOptions(DeviceType type) : device_(static_cast<int8_t>(type)) {}
  TensorOptions(Layout) {}
  TensorOptions(MemoryFormat format) : format_(static_cast<int8_t>(format)) {}
  TensorOptions dtype(ScalarType type) const { auto o = *this; o.dtype_ = type; return o; }
  TensorOptions dtype(TypeMeta type) const { return dtype(type.type); }
  TensorOptions dtype(std::optional<ScalarType> type) const { return type ? dtype(*type) : *this; }
  template <class T>
  TensorOptions& dtype() { dtype_ = CppTypeToScalarType<T>::value; return *this; }
  TensorOptions device(const Device& d) const {
    auto o = *this; o.device_ = static_cast<int8_t>(d.type_); o.index_ = d.index_; return o;
  }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const {
    auto o = *this; o.device_ = static_cast<int8_t>(type); o.index_ = index; return o;
  }
  TensorOptions device(std::optional<Device> d) const { return d ? device(*d) : *this; }
  TensorOptions device_index(DeviceIndex index) const { return device(kCUDA, index); }
  TensorOptions requires_grad(bool on) const { auto o = *this; o.requires_grad_ = on; return o; }
  TensorOptions pinned_memory(bool on) const { auto o = *this; o.pinned_ = on; return o; }
  TensorOptions layout(Layout) const { return *this; }
  TensorOptions memory_format(MemoryFormat format) const { auto o = *this; o.format_ = static_cast<int8_t>(format); return o; }
  TypeMeta dtype() const { return dtype_ == ScalarType::Undefined ? get_default_dtype() : TypeMeta(dtype_); }
  Device device() const { return device_ < 0 ? Device(kCPU) : Device(static_cast<DeviceType>(device_), index_); }
  bool requires_grad() const { return requires_grad_; }
  bool has_dtype() const { return dtype_ != ScalarType::Undefined; }
  bool has_device() const { return device_ >= 0; }
  Layout layout() const { return kStrided; }
};
std::ostream& operator<<(std::ostream& out, const TensorOptions& options);
template <class T>
TensorOptions dtype() { return TensorOptions(CppTypeToScalarType<T>::value); }
inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
inline TensorOptions device(Device d) { return TensorOptions(d); }
inline TensorOptions layout(Layout l) { return TensorOptions(l); }
inline TensorOptions requires_grad(bool on = true) { return TensorOptions().requires_grad(on); }

// Concatenation of anything printable, as the check macros do.
struct Text {
  std::string text;
  Text();
  ~Text();
  std::string take();
  Text& operator<<(const char* v);
  Text& operator<<(const std::string& v);
  Text& operator<<(bool v);
  Text& operator<<(int v) { return *this << static_cast<long>(v); }
  Text& operator<<(unsigned v) { return *this << static_cast<long>(v); }
  Text& operator<<(long v);
  Text& operator<<(long long v) { return *this << static_cast<long>(v); }
  Text& operator<<(unsigned long v);
  Text& operator<<(double v);
  Text& operator<<(float v) { return *this << static_cast<double>(v); }
  Text& operator<<(ScalarType v);
  Text& operator<<(TypeMeta v) { return *this << v.name(); }
  Text& operator<<(const Device& v);
  Text& operator<<(ArrayRef<int64_t> v);
  template <class T>
  Text& operator<<(const T& v) {
    std::ostringstream out;
    out << v;
    return *this << out.str();
  }
};
template <class... A>
std::string str(const A&... parts) {
  Text out;
  (void)(out << ... << parts);
  return out.take();
}
inline std::string str() { return {}; }

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
int64_t maybe_wrap_dim(int64_t dim, int64_t rank);
inline int64_t multiply_integers(IntArrayRef list) {
  return std::accumulate(list.begin(), list.end(), int64_t(1), std::multiplies<int64_t>());
}
template <class A, class B>
constexpr auto ceil_div(A a, B b) { return (a + b - 1) / b; }

}  // namespace c10

namespace caffe2 {
using c10::TypeMeta;
}

#define C10_LIKELY(x) (x)
#define C10_UNLIKELY(x) (x)
#define C10_HOST_DEVICE
#define C10_DEVICE
#define C10_HOST
#define C10_ALWAYS_INLINE inline
#define C10_NOINLINE
#define C10_UNUSED [[maybe_unused]]
#define C10_RESTRICT __restrict__
#define C10_EXPORT
#define C10_API
#define C10_LAUNCH_BOUNDS_1(a) __launch_bounds__(a)
#define C10_LAUNCH_BOUNDS_2(a, b) __launch_bounds__(a, b)
#define AT_API
#define C10_WARP_SIZE 32
#define C10_CONCATENATE(a, b) C10_CONCATENATE_(a, b)
#define C10_CONCATENATE_(a, b) a##b
#define C10_STRINGIZE(x) C10_STRINGIZE_(x)
#define C10_STRINGIZE_(x) #x
#define RECORD_FUNCTION(...) ((void)0)
#define RECORD_FUNCTION_WITH_SCOPE(...) ((void)0)
#define RECORD_USER_SCOPE(...) ((void)0)
#define TORCH_API
#define TORCH_CUDA_CPP_API
#define TORCH_CUDA_CU_API
#define C10_CUDA_API
namespace std {
template <>
class numeric_limits<c10::Half> {
 public:
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, has_infinity = true;
  static constexpr c10::Half from(unsigned short bits) { return c10::Half(bits, c10::Half::from_bits()); }
  static constexpr c10::Half min() { return from(0x0400); }
  static constexpr c10::Half lowest() { return from(0xFBFF); }
  static constexpr c10::Half max() { return from(0x7BFF); }
  static constexpr c10::Half epsilon() { return from(0x1400); }
  static constexpr c10::Half infinity() { return from(0x7C00); }
  static constexpr c10::Half quiet_NaN() { return from(0x7E00); }
};
template <>
class numeric_limits<c10::BFloat16> {
 public:
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, has_infinity = true;
  static constexpr c10::BFloat16 from(unsigned short bits) { return c10::BFloat16(bits, c10::BFloat16::from_bits()); }
  static constexpr c10::BFloat16 min() { return from(0x0080); }
  static constexpr c10::BFloat16 lowest() { return from(0xFF7F); }
  static constexpr c10::BFloat16 max() { return from(0x7F7F); }
  static constexpr c10::BFloat16 epsilon() { return from(0x3C00); }
  static constexpr c10::BFloat16 infinity() { return from(0x7F80); }
  static constexpr c10::BFloat16 quiet_NaN() { return from(0x7FC0); }
};
}  // namespace std
