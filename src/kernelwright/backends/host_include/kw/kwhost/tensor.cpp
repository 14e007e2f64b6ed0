// Tensor handles: the parts of at:: that are not one-line forwards.
#include "impl.h"

namespace kw {

static std::string last_error;
Callbacks callbacks;

const std::string& error_text() { return last_error; }
void throw_callback_error() { throw PythonError(last_error); }
void fail(const std::string& message) { throw c10::Error(message); }
void fail_device(const std::string& message) { throw c10::AcceleratorError(message); }
void fail_unsupported(const char* name) {
  Value text{STR, 0, static_cast<int64_t>(std::strlen(name)), 0, name};
  int n = 0;
  call("kw:unsupported", &text, 1, &n);  // raises in the runner, which notes the name
  fail(std::string(name) + " is not supported here");
}

// Tensors and indexes inside arguments become handles just before the call.
struct Lowered {
  std::vector<Value> values;
  std::vector<std::unique_ptr<int64_t[]>> handles;
  std::vector<std::unique_ptr<Value[]>> lists;
};

static Value lower_index(const at::TensorIndex& index) {
  Value v = index.value;
  if (v.tag == SLICE) v.p = index.slice.parts;
  if (v.tag == TENSOR) v = Arg(index.tensor).value;
  return v;
}

static void lower(const Value& v, Lowered& out) {
  Value copy = v;
  if (v.tag == RAW_TENSORS) {
    auto room = std::make_unique<int64_t[]>(v.i + 1);
    auto tensors = static_cast<const at::Tensor*>(v.p);
    for (int64_t k = 0; k < v.i; ++k) room[k] = tensors[k].defined() ? tensors[k].impl()->handle : 0;
    copy.tag = TENSORS;
    copy.p = room.get();
    out.handles.push_back(std::move(room));
  } else if (v.tag == RAW_BOOLS) {
    auto room = std::make_unique<Value[]>(v.i + 1);
    for (int64_t k = 0; k < v.i; ++k) room[k] = Value{BOOL, 0, static_cast<const bool*>(v.p)[k]};
    copy.tag = LIST;
    copy.p = room.get();
    out.lists.push_back(std::move(room));
  } else if (v.tag == GENERATOR) {
    fail_unsupported("at::Generator");
  } else if (v.tag == RAW_INDEXES) {
    auto room = std::make_unique<Value[]>(v.i + 1);
    auto indexes = static_cast<const at::TensorIndex*>(v.p);
    for (int64_t k = 0; k < v.i; ++k) room[k] = lower_index(indexes[k]);
    copy.tag = LIST;
    copy.p = room.get();
    out.lists.push_back(std::move(room));
  }
  out.values.push_back(copy);
}

const Value* call(const char* name, const Value* args, int count, int* result_count) {
  Lowered lowered;
  lowered.values.reserve(count);
  for (int k = 0; k < count; ++k) lower(args[k], lowered);
  const Value* results = nullptr;
  InRunner here;
  if (capturing() && !std::strstr(name, ":empty")) fail_unsupported("a torch operator while a CUDA graph is captured");
  if (callbacks.op(name, lowered.values.data(), count, &results, result_count)) throw_callback_error();
  return results;
}

static void read_meta(TensorImpl& impl, const Meta& m) {
  impl.handle = m.handle;
  impl.data = m.data;
  impl.dtype = static_cast<c10::ScalarType>(m.dtype);
  impl.flags = m.flags;
  impl.element_size = m.element_size;
  impl.numel = m.numel;
  impl.storage_offset = m.storage_offset;
  impl.sizes.assign(m.sizes, m.sizes + m.dim);
  impl.strides.assign(m.strides, m.strides + m.dim);
}

at::Tensor to_tensor(const Value& v) {
  if (v.tag == NONE || v.tag == ABSENT) return at::Tensor();
  if (v.tag != TENSOR) fail("a tensor was expected from the runner");
  auto impl = new TensorImpl;
  read_meta(*impl, *static_cast<const Meta*>(v.p));
  return at::Tensor(impl);
}

static const Value* call_args(const char* name, std::initializer_list<Arg> args, int* count) {
  Value values[24];
  int used = 0, n = 0;
  for (const Arg& arg : args) {
    values[n++] = arg.value;
    if (arg.value.tag != ABSENT) used = n;
  }
  return call(name, values, used, count);
}

// The same tensor again, perhaps with new sizes: the caller's object is updated, the second handle given back.
static void update(at::Tensor& target, const Value& result) {
  TensorImpl* impl = target.impl();
  if (!impl) {
    target = to_tensor(result);
    return;
  }
  int64_t kept = impl->handle;
  const Meta& meta = *static_cast<const Meta*>(result.p);
  int64_t spare = meta.handle;
  read_meta(*impl, meta);
  impl->handle = kept;
  callbacks.release(spare);
}
at::Tensor& updates(const char* name, at::Tensor& target, std::initializer_list<Arg> args) {
  int n = 0;
  update(target, call_args(name, args, &n)[0]);
  return target;
}
void updates_all(const char* name, std::initializer_list<at::Tensor*> targets, std::initializer_list<Arg> args) {
  Value values[24];
  int count = 0, n = 0, k = 0;
  for (at::Tensor* target : targets) values[count++] = Arg(*target).value;
  for (const Arg& arg : args) values[count++] = arg.value;
  const Value* r = call(name, values, count, &n);
  for (at::Tensor* target : targets) update(*target, r[k++]);
}

static bool in_place(const char* name) {
  size_t n = std::strcspn(name, ".");
  return n > 1 && name[n - 1] == '_';
}

#define KW_CALL int n = 0; const Value* r = call_args(name, {self, a, b, c, d, e, f, g, h}, &n)
at::Tensor tensor_op(const char* name, Arg self, Arg a, Arg b, Arg c, Arg d, Arg e, Arg f, Arg g, Arg h) {
  KW_CALL;
  if (in_place(name) && self.value.tag == TENSOR) {
    auto impl = static_cast<TensorImpl*>(const_cast<void*>(self.value.p));
    ++impl->references;
    at::Tensor same(impl);
    update(same, r[0]);
    return same;
  }
  return to_tensor(r[0]);
}
std::vector<at::Tensor> list_op(const char* name, Arg self, Arg a, Arg b, Arg c, Arg d, Arg e, Arg f, Arg g, Arg h) {
  KW_CALL;
  std::vector<at::Tensor> out;
  for (int k = 0; k < n; ++k) out.push_back(to_tensor(r[k]));
  return out;
}
bool bool_op(const char* name, Arg self, Arg a, Arg b, Arg c, Arg d, Arg e, Arg f, Arg g, Arg h) {
  KW_CALL;
  return r[0].i != 0;
}
#undef KW_CALL

at::Tensor returns_tensor(const char* name, std::initializer_list<Arg> args) {
  int n = 0;
  return to_tensor(call_args(name, args, &n)[0]);
}
std::vector<at::Tensor> returns_list(const char* name, std::initializer_list<Arg> args) {
  int n = 0;
  const Value* r = call_args(name, args, &n);
  std::vector<at::Tensor> out;
  for (int k = 0; k < n; ++k) out.push_back(to_tensor(r[k]));
  return out;
}
int64_t returns_integer(const char* name, std::initializer_list<Arg> args) {
  int n = 0;
  return call_args(name, args, &n)[0].i;
}
bool returns_bool(const char* name, std::initializer_list<Arg> args) { return returns_integer(name, args) != 0; }

Arg::Arg(const at::Tensor& tensor) : value{NONE} {
  if (tensor.defined()) value = Value{TENSOR, 0, tensor.impl()->handle, 0, tensor.impl()};
}
Arg::Arg(const c10::TensorOptions& o) {
  int bits = (o.device().is_cuda() ? 1 : 0) | (o.requires_grad_ ? 2 : 0) | (o.has_device() ? 4 : 0) | (o.pinned_ ? 8 : 0) |
             (o.format_ + 1) << 4;
  value = Value{OPTIONS, bits, o.has_dtype() ? static_cast<int64_t>(o.dtype_) : -1};
}
Arg::Arg(const std::initializer_list<at::Tensor>& v) : value{RAW_TENSORS, 0, int64_t(v.size()), 0, v.begin()} {}
Arg::Arg(const std::vector<at::Tensor>& v) : value{RAW_TENSORS, 0, int64_t(v.size()), 0, v.data()} {}
Arg::Arg(c10::ArrayRef<at::Tensor> v) : value{RAW_TENSORS, 0, int64_t(v.size()), 0, v.data()} {}
Arg::Arg(const std::initializer_list<at::TensorIndex>& v) : value{RAW_INDEXES, 0, int64_t(v.size()), 0, v.begin()} {}
Arg::Arg(const std::vector<at::TensorIndex>& v) : value{RAW_INDEXES, 0, int64_t(v.size()), 0, v.data()} {}

}  // namespace kw

extern "C" {
void kw_install(const kw::Callbacks* callbacks) { kw::callbacks = *callbacks; }
void kw_set_error(const char* text) { kw::last_error = text; }
}

namespace at {

using kw::tensor_op;

static const kw::TensorImpl& need(const kw::TensorImpl* impl, const char* what) {
  if (!impl) kw::fail(std::string(what) + ": the tensor is undefined");
  return *impl;
}

Tensor::Tensor(const Tensor& o) : impl_(o.impl_) {
  if (impl_) ++impl_->references;
}
Tensor& Tensor::operator=(const Tensor& o) && {
  copy_(o);
  return *this;
}
Tensor& Tensor::operator=(Tensor&& o) && {
  copy_(o);
  return *this;
}
Tensor& Tensor::operator=(const Tensor& o) & {
  Tensor copy(o);
  std::swap(impl_, copy.impl_);
  return *this;
}
Tensor& Tensor::operator=(const Scalar& value) && {
  tensor_op("fill_", *this, value);
  return *this;
}
Tensor::~Tensor() { reset(); }
void Tensor::reset() {
  if (impl_ && --impl_->references == 0) {
    kw::callbacks.release(impl_->handle);
    delete impl_;
  }
  impl_ = nullptr;
}

int64_t Tensor::dim() const { return impl_ ? int64_t(impl_->sizes.size()) : 0; }
int64_t Tensor::size(int64_t d) const {
  const auto& sizes = need(impl_, "size").sizes;
  return sizes[c10::maybe_wrap_dim(d, sizes.size())];
}
int64_t Tensor::stride(int64_t d) const {
  const auto& strides = need(impl_, "stride").strides;
  return strides[c10::maybe_wrap_dim(d, strides.size())];
}
IntArrayRef Tensor::sizes() const { return need(impl_, "sizes").sizes; }
IntArrayRef Tensor::strides() const { return need(impl_, "strides").strides; }
int64_t Tensor::numel() const { return impl_ ? impl_->numel : 0; }
int64_t Tensor::element_size() const { return need(impl_, "element_size").element_size; }
int64_t Tensor::storage_offset() const { return need(impl_, "storage_offset").storage_offset; }
ScalarType Tensor::scalar_type() const { return impl_ ? impl_->dtype : ScalarType::Undefined; }
bool Tensor::is_cuda() const { return impl_ && (impl_->flags & 1); }
Device Tensor::device() const {
  need(impl_, "device");
  return is_cuda() ? Device(kCUDA, 0) : Device(kCPU);
}
TensorOptions Tensor::options() const { return TensorOptions(scalar_type()).device(device()); }
bool Tensor::requires_grad() const { return impl_ && (impl_->flags & 2); }
Tensor& Tensor::requires_grad_(bool on) {
  *this = tensor_op("requires_grad", *this, on);
  return *this;
}
bool Tensor::is_contiguous(MemoryFormat format) const {
  int flags = need(impl_, "is_contiguous").flags;
  return format == MemoryFormat::Contiguous ? (flags & 4) : (flags & 8);
}
bool Tensor::is_non_overlapping_and_dense() const { return is_contiguous() || is_contiguous(MemoryFormat::ChannelsLast); }
MemoryFormat Tensor::suggest_memory_format() const {
  if (!is_contiguous() && is_contiguous(MemoryFormat::ChannelsLast))
    return dim() == 5 ? MemoryFormat::ChannelsLast3d : MemoryFormat::ChannelsLast;
  return MemoryFormat::Contiguous;
}
bool Tensor::is_alias_of(const Tensor& o) const { return kw::bool_op("is_alias_of", *this, o); }
void* Tensor::data_ptr() const { return impl_ ? impl_->data : nullptr; }
void* Tensor::checked_data_ptr(ScalarType wanted) const {
  if (scalar_type() != wanted)
    kw::fail(std::string("expected scalar type ") + c10::toString(wanted) + " but found " + c10::toString(scalar_type()));
  return impl_->data;
}
void Tensor::check_rank(size_t n) const {
  if (dim() != int64_t(n))
    kw::fail("TensorAccessor expected " + std::to_string(n) + " dims but tensor has " + std::to_string(dim()));
}
Scalar Tensor::item() const {
  kw::Value self = kw::Arg(*this).value;
  int n = 0;
  return Scalar(*kw::call("item", &self, 1, &n));
}
std::string Tensor::toString() const { return type().toString(); }
std::string DeprecatedTypeProperties::toString() const {
  return std::string(cuda_ ? "CUDA" : "CPU") + c10::toString(type_) + "Type";
}

Tensor Tensor::data() const { return tensor_op("detach", *this); }
Tensor Tensor::to(kw::Arg a, kw::Arg b, kw::Arg c, kw::Arg d) const { return tensor_op("to", *this, a, b, c, d); }
Tensor Tensor::contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::Contiguous && is_contiguous()) return *this;
  return tensor_op("contiguous", *this, format);
}
Tensor Tensor::cuda() const { return tensor_op("to", *this, Device(kCUDA, 0)); }
Tensor Tensor::cpu() const { return tensor_op("to", *this, Device(kCPU)); }
Tensor Tensor::index(const std::vector<TensorIndex>& at) const { return tensor_op("index", *this, at); }
Tensor Tensor::index(std::initializer_list<TensorIndex> at) const { return tensor_op("index", *this, at); }
Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> at, const Tensor& value) {
  tensor_op("index_put", *this, at, value);
  return *this;
}
Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> at, const Scalar& value) {
  tensor_op("index_put", *this, at, value);
  return *this;
}
Tensor Tensor::new_empty(kw::Arg s, kw::Arg o) const { return tensor_op("like:new_empty", *this, s, o); }
Tensor Tensor::new_zeros(kw::Arg s, kw::Arg o) const { return tensor_op("like:new_zeros", *this, s, o); }
Tensor Tensor::new_ones(kw::Arg s, kw::Arg o) const { return tensor_op("like:new_ones", *this, s, o); }
Tensor Tensor::new_full(kw::Arg s, kw::Arg v, kw::Arg o) const { return tensor_op("like:new_full", *this, s, v, o); }
Tensor Tensor::new_empty_strided(IntArrayRef sizes, IntArrayRef strides, kw::Arg o) const {
  return tensor_op("like:new_empty_strided", *this, sizes, strides, o);
}
long Tensor::use_count() const { return impl_ ? impl_->references : 0; }
bool Tensor::pinned() const { return impl_->flags & 16; }
Tensor Tensor::operator[](int64_t k) const { return tensor_op("select", *this, 0, k); }
Tensor Tensor::operator[](const Tensor& k) const { return index({TensorIndex(k)}); }

#define KW_IN_PLACE(op, name)                     \
  Tensor& Tensor::operator op(const Tensor& o) {  \
    tensor_op(name, *this, o);                    \
    return *this;                                 \
  }                                               \
  Tensor& Tensor::operator op(const Scalar& o) {  \
    tensor_op(name, *this, o);                    \
    return *this;                                 \
  }
KW_IN_PLACE(+=, "add_") KW_IN_PLACE(-=, "sub_") KW_IN_PLACE(*=, "mul_") KW_IN_PLACE(/=, "div_")
#define KW_BITS(op, name)                                                                              \
  Tensor& Tensor::operator op##=(const Tensor& o) {                                                    \
    tensor_op(name "_", *this, o);                                                                     \
    return *this;                                                                                      \
  }                                                                                                    \
  Tensor operator op(const Tensor& a, const Scalar& b) { return tensor_op(name, a, b); }
KW_BITS(&, "bitwise_and") KW_BITS(|, "bitwise_or") KW_BITS(^, "bitwise_xor")
#undef KW_BITS
Tensor operator%(const Scalar& a, const Tensor& b) { return tensor_op("remainder", a, b); }
Tensor Tensor::operator-() const { return tensor_op("neg", *this); }
Tensor Tensor::operator~() const { return tensor_op("bitwise_not", *this); }
#define KW_BINARY(op, name)                                                                         \
  Tensor operator op(const Tensor& a, const Tensor& b) { return tensor_op(name, a, b); }            \
  Tensor operator op(const Tensor& a, const Scalar& b) { return tensor_op(name, a, b); }
KW_BINARY(+, "add") KW_BINARY(-, "sub") KW_BINARY(*, "mul") KW_BINARY(/, "div") KW_BINARY(%, "remainder")
KW_BINARY(==, "eq") KW_BINARY(!=, "ne") KW_BINARY(<, "lt") KW_BINARY(<=, "le") KW_BINARY(>, "gt") KW_BINARY(>=, "ge")
Tensor operator+(const Scalar& a, const Tensor& b) { return tensor_op("add", b, a); }
Tensor operator*(const Scalar& a, const Tensor& b) { return tensor_op("mul", b, a); }
Tensor operator-(const Scalar& a, const Tensor& b) { return tensor_op("rsub", b, a); }
Tensor operator/(const Scalar& a, const Tensor& b) { return tensor_op("mul", tensor_op("reciprocal", b), a); }
Tensor operator==(const Scalar& a, const Tensor& b) { return b == a; }
Tensor operator!=(const Scalar& a, const Tensor& b) { return b != a; }
Tensor operator<(const Scalar& a, const Tensor& b) { return b > a; }
Tensor operator<=(const Scalar& a, const Tensor& b) { return b >= a; }
Tensor operator>(const Scalar& a, const Tensor& b) { return b < a; }
Tensor operator>=(const Scalar& a, const Tensor& b) { return b <= a; }
Tensor operator&(const Tensor& a, const Tensor& b) { return tensor_op("bitwise_and", a, b); }
Tensor operator|(const Tensor& a, const Tensor& b) { return tensor_op("bitwise_or", a, b); }
Tensor operator^(const Tensor& a, const Tensor& b) { return tensor_op("bitwise_xor", a, b); }
std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << "[ " << tensor.toString() << tensor.sizes() << " ]";
}

indexing::Slice::Slice(std::optional<int64_t> start, std::optional<int64_t> stop, std::optional<int64_t> step) {
  absent = (start ? 0 : 1) | (stop ? 0 : 2) | (step ? 0 : 4);
  parts[0] = start.value_or(0);
  parts[1] = stop.value_or(0);
  parts[2] = step.value_or(1);
}

Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options) {
  return tensor_op("new:from_blob", reinterpret_cast<int64_t>(data), sizes, std::nullopt, options);
}
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
  return tensor_op("new:from_blob", reinterpret_cast<int64_t>(data), sizes, strides, options);
}
void manual_seed(uint64_t seed) { kw::bool_op("manual_seed", int64_t(seed)); }
bool globalContextAllowTF32() { return false; }
ScalarType promote_types(ScalarType a, ScalarType b) {
  kw::Value args[2] = {kw::Arg(a).value, kw::Arg(b).value};
  int n = 0;
  return static_cast<ScalarType>(kw::call("promote_types", args, 2, &n)->i);
}
ScalarType result_type(const Tensor& a, const Tensor& b) { return promote_types(a.scalar_type(), b.scalar_type()); }
bool GradMode::is_enabled() { return kw::bool_op("grad_enabled", kw::Arg()); }
void GradMode::set_enabled(bool on) { kw::bool_op("set_grad_enabled", on); }
NoGradGuard::NoGradGuard() : before(GradMode::is_enabled()) { GradMode::set_enabled(false); }
NoGradGuard::~NoGradGuard() { GradMode::set_enabled(before); }
std::optional<Device> device_of(const Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  return tensor.device();
}
void detail::no_dispatch(const char* name, ScalarType type) {
  kw::fail(std::string("\"") + name + "\" not implemented for '" + toString(type) + "'");
}

}  // namespace at
