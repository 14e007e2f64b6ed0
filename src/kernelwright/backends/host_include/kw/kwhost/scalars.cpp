// Scalar types, devices and options as text, and what a failed check throws.
#include "impl.h"

namespace c10 {

Half::Half(float value) {
  _Float16 h = static_cast<_Float16>(value);
  std::memcpy(&x, &h, 2);
}
Half::operator float() const {
  _Float16 h;
  std::memcpy(&h, &x, 2);
  return static_cast<float>(h);
}
BFloat16::BFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (value != value) x = 0x7FC0;
  else x = static_cast<unsigned short>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
BFloat16::operator float() const {
  uint32_t bits = uint32_t(x) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
std::ostream& operator<<(std::ostream& out, Half v) { return out << float(v); }
std::ostream& operator<<(std::ostream& out, BFloat16 v) { return out << float(v); }

const char* toString(ScalarType type) {
  static const char* names[] = {"Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "ComplexHalf",
                                "ComplexFloat", "ComplexDouble", "Bool", "QInt8", "QUInt8", "QInt32", "BFloat16",
                                "QUInt4x2", "QUInt2x4", "Bits1x8", "Bits2x4", "Bits4x2", "Bits8", "Bits16",
                                "Float8_e5m2", "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz", "UInt16",
                                "UInt32", "UInt64", "Undefined"};
  return names[static_cast<int>(type)];
}
std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << toString(type); }
size_t elementSize(ScalarType type) {
  static const unsigned char sizes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1,
                                        2, 4, 8, 0};
  return sizes[static_cast<int>(type)];
}
std::string TypeMeta::name() const {
  switch (type) {
    case kFloat: return "float";
    case kDouble: return "double";
    case kLong: return "long";
    case kInt: return "int";
    case kBool: return "bool";
    case kHalf: return "c10::Half";
    case kBFloat16: return "c10::BFloat16";
    default: return toString(type);
  }
}
std::ostream& operator<<(std::ostream& out, TypeMeta meta) { return out << meta.name(); }
ScalarType get_default_dtype_as_scalartype() { return kFloat; }
TypeMeta get_default_dtype() { return TypeMeta(kFloat); }
Device::Device(const std::string& text) : type_(kCPU), index_(-1) {
  auto colon = text.find(':');
  std::string kind = text.substr(0, colon);
  if (kind == "cuda") type_ = kCUDA;
  else if (kind != "cpu") kw::fail("Expected one of cpu, cuda device type at start of device string: " + text);
  if (colon != std::string::npos) index_ = static_cast<DeviceIndex>(std::atoi(text.c_str() + colon + 1));
}
std::string Device::str() const {
  std::string text = type_ == kCUDA ? "cuda" : type_ == kCPU ? "cpu" : "meta";
  return index_ >= 0 ? text + ":" + std::to_string(index_) : text;
}
std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }
std::ostream& operator<<(std::ostream& out, DeviceType type) { return out << Device(type).str(); }
std::ostream& operator<<(std::ostream& out, Layout layout) {
  return out << (layout == kStrided ? "Strided" : layout == kSparse ? "Sparse" : "SparseCsr");
}
std::ostream& operator<<(std::ostream& out, MemoryFormat format) {
  static const char* names[] = {"Contiguous", "Preserve", "ChannelsLast", "ChannelsLast3d"};
  return out << names[static_cast<int>(format)];
}
std::ostream& operator<<(std::ostream& out, const TensorOptions& o) {
  auto given = [](bool on) { return on ? "" : " (default)"; };
  out << "TensorOptions(dtype=" << o.dtype() << given(o.has_dtype()) << ", device=" << o.device() << given(o.has_device());
  out << ", layout=" << o.layout() << " (default), requires_grad=" << (o.requires_grad_ ? "true" : "false (default)");
  out << ", pinned_memory=" << (o.pinned_ ? "true" : "false (default)") << ", memory_format=";
  if (o.format_ < 0) return out << "(nullopt))";
  return out << static_cast<MemoryFormat>(o.format_) << ")";
}

Text::Text() = default;
Text::~Text() = default;
std::string Text::take() { return std::move(text); }
Text& Text::operator<<(const char* v) { text += v ? v : "(null)"; return *this; }
Text& Text::operator<<(const std::string& v) { text += v; return *this; }
Text& Text::operator<<(bool v) { text += v ? "1" : "0"; return *this; }
Text& Text::operator<<(long v) { text += std::to_string(v); return *this; }
Text& Text::operator<<(unsigned long v) { text += std::to_string(v); return *this; }
template <class T>
static std::string printed(const T& v) {
  std::ostringstream out;
  out << v;
  return out.str();
}
Text& Text::operator<<(double v) { text += printed(v); return *this; }
Text& Text::operator<<(ScalarType v) { text += toString(v); return *this; }
Text& Text::operator<<(const Device& v) { text += v.str(); return *this; }
Text& Text::operator<<(ArrayRef<int64_t> v) { text += printed(v); return *this; }

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  if (!message.empty()) throw Error(message);
  throw Error(std::string("Expected ") + condition + " to be true, but got false. (" + file + ":" + std::to_string(line) + ")");
}
int64_t maybe_wrap_dim(int64_t dim, int64_t rank) {
  int64_t bound = rank == 0 ? 1 : rank;
  if (dim < -bound || dim >= bound)
    throw Error("Dimension out of range (expected to be in range of [" + std::to_string(-bound) + ", " +
                std::to_string(bound - 1) + "], but got " + std::to_string(dim) + ")");
  return dim < 0 ? dim + bound : dim;
}

}  // namespace c10

namespace {
template <class T>
T saturated(float v, unsigned char largest) {
  T most(largest, T::from_bits());
  return v > float(most) ? most : v < -float(most) ? T(largest | 0x80, T::from_bits()) : T(v);
}
}  // namespace
__nv_fp8_e4m3::__nv_fp8_e4m3(float v) : __x(saturated<c10::Float8_e4m3fn>(v, 0x7e).x) {}
__nv_fp8_e4m3::operator float() const { return c10::Float8_e4m3fn(__x, c10::Float8_e4m3fn::from_bits()); }
__nv_fp8_e5m2::__nv_fp8_e5m2(float v) : __x(saturated<c10::Float8_e5m2>(v, 0x7b).x) {}
__nv_fp8_e5m2::operator float() const { return c10::Float8_e5m2(__x, c10::Float8_e5m2::from_bits()); }
__half::operator float() const { return c10::Half(bits, c10::Half::from_bits()); }
unsigned short __half::c10_bits(float v) { return c10::Half(v).x; }
__nv_bfloat16::operator float() const { return c10::BFloat16(bits, c10::BFloat16::from_bits()); }
unsigned short __nv_bfloat16::c10_bits(float v) { return c10::BFloat16(v).x; }
