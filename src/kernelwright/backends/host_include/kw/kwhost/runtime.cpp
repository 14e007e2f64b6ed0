// Scalar types, checks, launches and the CUDA runtime API.
#include "gpu.h"
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

__half::operator float() const { return c10::Half(bits, c10::Half::from_bits()); }
unsigned short __half::c10_bits(float v) { return c10::Half(v).x; }
__nv_bfloat16::operator float() const { return c10::BFloat16(bits, c10::BFloat16::from_bits()); }
unsigned short __nv_bfloat16::c10_bits(float v) { return c10::BFloat16(v).x; }

namespace kw {

static Config pending;
static cudaStream_t pending_stream = nullptr;
static bool configured = false;
static void** raw_args = nullptr;          // set by cudaLaunchKernel: the caller's own argument array
static std::string* identity = nullptr;    // set by identify(): the stub only tells its name
static std::map<std::string, int> shared_limit;
static cudaError_t last_error = cudaSuccess;

static Config attributes{};  // of the next launch

void set_attributes(bool cooperative, const unsigned* cluster) {
  attributes.cooperative = cooperative;
  std::copy(cluster, cluster + 3, attributes.cluster);
}

void configure(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  pending_stream = stream;
  pending = Config{{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared};
  std::copy(attributes.cluster, attributes.cluster + 3, pending.cluster);
  pending.cooperative = attributes.cooperative;
  attributes = Config{};
  configured = true;
}

static std::string launch_problem(const std::string& key, const Config& c) {
  uint64_t threads = uint64_t(c.block[0]) * c.block[1] * c.block[2];
  for (int k = 0; k < 3; ++k)
    if (c.grid[k] == 0 || c.block[k] == 0) return "invalid configuration argument: a grid or block dimension is 0";
  if (threads > 1024 || c.block[0] > 1024 || c.block[1] > 1024 || c.block[2] > 64)
    return "invalid configuration argument: " + std::to_string(threads) + " threads in a block";
  if (c.grid[1] > 65535 || c.grid[2] > 65535 || c.grid[0] > 2147483647u)
    return "invalid configuration argument: grid " + std::to_string(c.grid[0]) + " x " + std::to_string(c.grid[1]) +
           " x " + std::to_string(c.grid[2]);
  auto found = shared_limit.find(key);
  uint64_t limit = found == shared_limit.end() ? 49152 : std::max(49152, found->second);
  if (c.shared > limit)
    return "invalid argument: " + std::to_string(c.shared) + " bytes of dynamic shared memory, the limit is " +
           std::to_string(limit);
  return "";
}

void launch(const char* kernel, const void* const* args, const unsigned* sizes, int count) {
  launch(kernel, Expression(""), args, sizes, count);
}
void launch(const char* kernel, const Expression& instance, const void* const* args, const unsigned* sizes, int count) {
  std::string expression = instance.open ? instance.text + ">" : instance.text;
  std::string key = expression.empty() ? kernel : expression;
  if (identity) {
    *identity = key;
    return;
  }
  if (!configured) fail(std::string("kernel ") + kernel + " was called without a launch configuration");
  configured = false;
  std::string problem = launch_problem(key, pending);
  // Of a shape that no launch may have the machine says so itself, as a fault, which a sampled call is judged by.
  bool told = !gpu && problem.rfind("invalid configuration", 0) == 0;
  if (!problem.empty() && !told) fail_device("CUDA error: " + problem + " (kernel " + key + ")");
  if (gpu) {
    gpu_launch(kernel, expression, pending, pending_stream, raw_args ? raw_args : const_cast<void**>(args));
    return;
  }
  Opened reachable;
  if (callbacks.launch(kernel, expression.c_str(), &pending, raw_args ? (const void* const*)raw_args : args, sizes, count))
    throw_callback_error();
  if (told) fail_device("CUDA error: " + problem + " (kernel " + key + ")");
}

// A stub reads only the addresses of its parameters in this mode, so calling it without arguments is harmless.
std::string identify(const void* stub) {
  std::string name;
  identity = &name;
  reinterpret_cast<void (*)()>(const_cast<void*>(stub))();
  identity = nullptr;
  return name;
}

// The type in "... [with T = float]", as g++ spells a function's own name.
static std::string type_in(const char* pretty, const char* parameter = "T = ") {
  std::string text = pretty;
  size_t from = text.find(parameter) + 4;
  std::string name = text.substr(from, text.rfind(']') - from);
  for (size_t at; (at = name.find("{anonymous}::")) != std::string::npos;) name.erase(at, 13);
  return name;
}
Expression::Expression(const char* kernel) : text(kernel) {}
Expression::~Expression() = default;
Expression& Expression::add(const std::string& one) {
  text += open ? ", " : "<";
  open = true;
  text += one;
  return *this;
}
Expression& Expression::add(const char* one) { return add(std::string(one)); }
Expression& Expression::add_type(const char* pretty) { return add(type_in(pretty)); }
Expression& Expression::add_integer(long long value, bool is_unsigned) {
  return add(is_unsigned ? std::to_string(static_cast<unsigned long long>(value)) : std::to_string(value));
}
Expression& Expression::add_function(const char* pretty) { return add(type_in(pretty, "V = ")); }
Expression& Expression::add_enum(const char* pretty, long long value) {
  return add("(" + type_in(pretty) + ")" + std::to_string(value));
}
void cuda_failed(cudaError_t error, const char* file, int line) {
  fail_device(std::string("CUDA error: ") + cudaGetErrorString(error) + " (" + file + ":" + std::to_string(line) + ")");
}

}  // namespace kw

static cudaDeviceProp make_properties() {
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  std::strcpy(p.name, "Kernelwright functional machine (sm_90)");
  p.totalGlobalMem = size_t(80) << 30;
  p.sharedMemPerBlock = 49152;
  p.regsPerBlock = 65536;
  p.warpSize = 32;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.clockRate = 1980000;
  p.totalConstMem = 65536;
  p.major = 9;
  p.multiProcessorCount = 132;
  p.canMapHostMemory = p.concurrentKernels = p.ECCEnabled = p.unifiedAddressing = p.managedMemory = 1;
  p.cooperativeLaunch = 1;
  p.asyncEngineCount = 3;
  p.memoryClockRate = 2619000;
  p.memoryBusWidth = 5120;
  p.l2CacheSize = 52428800;
  p.persistingL2CacheMaxSize = 32768000;
  p.maxThreadsPerMultiProcessor = 2048;
  p.sharedMemPerMultiprocessor = 233472;
  p.regsPerMultiprocessor = 65536;
  p.sharedMemPerBlockOptin = 232448;
  p.maxBlocksPerMultiProcessor = 32;
  p.reservedSharedMemPerBlock = 1024;
  p.singleToDoublePrecisionPerfRatio = 2;
  p.textureAlignment = 512;
  return p;
}
static cudaDeviceProp device_properties = make_properties();

// What the driver says of the card, where there is one.
static void read_properties() {
  static bool done = false;
  if (!kw::gpu || done) return;
  done = true;
  cudaDeviceProp& p = device_properties;
  auto get = [](int attribute, int otherwise) {
    int value = 0;
    return kw::gpu->cuDeviceGetAttribute(&value, attribute, 0) == 0 ? value : otherwise;
  };
  kw::gpu->cuDeviceGetName(p.name, sizeof p.name, 0);
  kw::gpu->cuDeviceTotalMem_v2(&p.totalGlobalMem, 0);
  p.multiProcessorCount = get(16, p.multiProcessorCount);
  p.clockRate = get(13, p.clockRate);
  p.memoryClockRate = get(36, p.memoryClockRate);
  p.memoryBusWidth = get(37, p.memoryBusWidth);
  p.l2CacheSize = get(38, p.l2CacheSize);
  p.maxThreadsPerMultiProcessor = get(39, p.maxThreadsPerMultiProcessor);
  p.major = get(75, p.major);
  p.minor = get(76, p.minor);
  p.sharedMemPerMultiprocessor = size_t(get(81, int(p.sharedMemPerMultiprocessor)));
  p.regsPerMultiprocessor = get(82, p.regsPerMultiprocessor);
  p.sharedMemPerBlockOptin = size_t(get(97, int(p.sharedMemPerBlockOptin)));
  p.maxBlocksPerMultiProcessor = get(106, p.maxBlocksPerMultiProcessor);
}
cudaDeviceProp* at::cuda::getCurrentDeviceProperties() { read_properties(); return &device_properties; }
cudaDeviceProp* at::cuda::getDeviceProperties(int64_t) { read_properties(); return &device_properties; }


static cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) kw::last_error = error;
  return error;
}
static cudaError_t told(int status) { return note(static_cast<cudaError_t>(status)); }
void torch::cuda::synchronize(int64_t) {
  if (cudaDeviceSynchronize() != cudaSuccess) kw::cuda_failed(kw::last_error, "torch::cuda::synchronize", 0);
}
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return note(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
#undef cudaGetDeviceProperties
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return note(cudaErrorInvalidDevice);
  read_properties();
  *properties = device_properties;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return note(cudaErrorInvalidDevice);
  read_properties();
  const cudaDeviceProp& p = device_properties;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); break;
    case cudaDevAttrTotalConstantMemory: *value = int(p.totalConstMem); break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = p.clockRate; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *value = p.memoryClockRate; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = int(p.sharedMemPerMultiprocessor); break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = p.regsPerMultiprocessor; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    default: return note(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (kw::gpu) return told(kw::gpu->cuMemGetInfo_v2(free, total));
  *free = size_t(72) << 30;
  *total = device_properties.totalGlobalMem;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return kw::gpu ? told(kw::gpu->cuCtxSynchronize()) : cudaSuccess; }
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaGetLastError() { auto e = kw::last_error; kw::last_error = cudaSuccess; return e; }
cudaError_t cudaPeekAtLastError() { return kw::last_error; }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    default: break;
  }
  static std::string text;
  text = kw::gpu_error(int(error));
  return kw::gpu ? text.c_str() : "unknown error";
}
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaErrorUnknown"; }

cudaError_t kw_malloc(void** address, size_t bytes) {
  kw::Opened reachable;
  return note(kw::callbacks.allocate(bytes, address) ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t kw_malloc_managed(void** address, size_t bytes) {
  kw::Plain readable_by_the_host;
  return kw_malloc(address, bytes);
}
cudaError_t cudaFree(void* address) {
  if (!address) return cudaSuccess;
  return note(kw::callbacks.deallocate(address) ? cudaErrorInvalidValue : cudaSuccess);
}
cudaError_t kw_malloc_host(void** address, size_t bytes) {
  *address = std::malloc(bytes);
  return note(*address ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* address) { std::free(address); return cudaSuccess; }
// On a GPU only copies that say so are told of: asking the driver where memory lies would cost time.
static void tell(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes && (!kw::gpu || kind == cudaMemcpyDeviceToHost)) kw::callbacks.fetched(to, from, bytes);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes && (!to || !from)) return note(cudaErrorInvalidValue);
  tell(to, from, bytes, kind);
  if (kw::gpu) return told(bytes ? kw::gpu->cuMemcpy(to, from, bytes) : 0);
  kw::Opened reachable;
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!kw::gpu) return cudaMemcpy(to, from, bytes, kind);
  tell(to, from, bytes, kind);
  return told(bytes ? kw::gpu->cuMemcpyAsync(to, from, bytes, stream) : 0);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  for (size_t k = 0; k < height; ++k) {
    char* row = static_cast<char*>(to) + k * to_pitch;
    cudaError_t status = cudaMemcpyAsync(row, static_cast<const char*>(from) + k * from_pitch, width, kind, nullptr);
    if (status != cudaSuccess) return status;
  }
  return cudaDeviceSynchronize();
}
cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  if (bytes && !address) return note(cudaErrorInvalidValue);
  if (kw::gpu) return told(bytes ? kw::gpu->cuMemsetD8Async(address, static_cast<unsigned char>(value), bytes, stream) : 0);
  if (bytes) kw::callbacks.fetched(address, nullptr, bytes);
  kw::Opened reachable;
  std::memset(address, value, bytes);
  return cudaSuccess;
}
cudaError_t kw_symbol(const char* name, void* host, size_t bytes, size_t offset, bool to_device) {
  kw::Opened reachable;
  if (kw::callbacks.symbol(name, host, bytes, offset, to_device)) kw::throw_callback_error();
  return cudaSuccess;
}

cudaError_t kw_symbol_address(void** address, const char* name) {
  if (kw::gpu) kw::fail_unsupported("cudaGetSymbolAddress");
  // A negative offset asks for the place instead of the content.
  kw::Opened reachable;
  if (kw::callbacks.symbol(name, address, sizeof(void*), ~uint64_t(0), false)) kw::throw_callback_error();
  return cudaSuccess;
}

// On the functional machine streams and events are null, and everything has happened when a call returns.
static cudaStream_t current_stream = nullptr;
cudaStream_t kw_current_stream() { return current_stream; }
extern "C" void kw_gpu_stream(cudaStream_t stream) { current_stream = stream; }
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = nullptr;
  return kw::gpu ? told(kw::gpu->cuStreamCreate(reinterpret_cast<void**>(stream), flags)) : cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) { return kw::gpu && s ? told(kw::gpu->cuStreamDestroy_v2(s)) : cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return kw::gpu ? told(kw::gpu->cuStreamSynchronize(s)) : cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t s) { return kw::gpu ? cudaError_t(kw::gpu->cuStreamQuery(s)) : cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags) {
  return kw::gpu ? told(kw::gpu->cuStreamWaitEvent(s, event, flags)) : cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = nullptr;
  return kw::gpu ? told(kw::gpu->cuEventCreate(reinterpret_cast<void**>(event), flags)) : cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { return kw::gpu && e ? told(kw::gpu->cuEventDestroy_v2(e)) : cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return kw::gpu ? told(kw::gpu->cuEventRecord(e, s)) : cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return kw::gpu ? told(kw::gpu->cuEventSynchronize(e)) : cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t e) { return kw::gpu ? cudaError_t(kw::gpu->cuEventQuery(e)) : cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = 1;
  return kw::gpu ? told(kw::gpu->cuEventElapsedTime(milliseconds, from, to)) : cudaSuccess;
}

cudaError_t kw_set_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > 232448) return note(cudaErrorInvalidValue);
  kw::shared_limit[kw::identify(kernel)] = value;
  return cudaSuccess;
}
// The CUfunction behind a stub's address.
static void* function_of(const void* stub) {
  std::string key = kw::identify(stub);
  bool instance = key.find('<') != std::string::npos;
  return kw::gpu_function(key.substr(0, key.find('<')).c_str(), instance ? key : std::string());
}
cudaError_t kw_get_attributes(cudaFuncAttributes* attributes, const void* kernel) {
  std::memset(attributes, 0, sizeof *attributes);
  if (kw::gpu) {
    void* function = function_of(kernel);
    int value = 0;
    auto get = [&](int attribute) { kw::gpu->cuFuncGetAttribute(&value, attribute, function); return value; };
    attributes->maxThreadsPerBlock = get(0);
    attributes->sharedSizeBytes = size_t(get(1));
    attributes->numRegs = get(4);
    attributes->ptxVersion = get(5);
    attributes->binaryVersion = get(6);
    attributes->maxDynamicSharedSizeBytes = get(8);
    return cudaSuccess;
  }
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}
cudaError_t kw_occupancy(int* blocks, const void* kernel, int threads, size_t shared) {
  if (threads <= 0) return note(cudaErrorInvalidValue);
  if (kw::gpu)
    return told(kw::gpu->cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function_of(kernel), threads, shared));
  int by_threads = 2048 / threads;
  int by_shared = shared ? int(233472 / (shared + 1024)) : 32;
  *blocks = std::min({32, by_threads, by_shared});
  return cudaSuccess;
}
cudaError_t kw_launch(const void* kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  kw::configure(grid, block, shared, stream);
  kw::raw_args = args;
  try {
    reinterpret_cast<void (*)()>(const_cast<void*>(kernel))();
  } catch (...) {
    kw::raw_args = nullptr;
    throw;
  }
  kw::raw_args = nullptr;
  return cudaSuccess;
}
