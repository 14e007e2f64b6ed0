// Launches and the CUDA runtime API.
#include "gpu.h"
#include "impl.h"

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

void forget_launch() {
  configured = false;
  raw_args = nullptr;
  identity = nullptr;
}

// Host memory that a GPU could reach in place. No launch here can.
static std::mutex pinned_lock;
static std::map<uintptr_t, size_t> pinned;
static bool is_pinned(uintptr_t address) {
  auto after = pinned.upper_bound(address);
  return after != pinned.begin() && address < std::prev(after)->first + std::prev(after)->second;
}
static void refuse_pinned(const void* const* args, const unsigned* sizes, int count) {
  std::lock_guard<std::mutex> hold(pinned_lock);
  for (int k = 0; k < count && !pinned.empty(); ++k)
    for (size_t at = 0; at + sizeof(uintptr_t) <= sizes[k]; at += sizeof(uintptr_t)) {
      uintptr_t word;
      std::memcpy(&word, static_cast<const char*>(args[k]) + at, sizeof word);
      if (is_pinned(word)) fail_unsupported("a kernel's access to pinned host memory (zero-copy)");
    }
}

static void issue(const char* kernel, const std::string& expression, const Config& config, cudaStream_t stream,
                  const void* const* args, const unsigned* sizes, int count) {
  if (gpu) {
    gpu_launch(kernel, expression, config, stream, const_cast<void**>(args));
    return;
  }
  refuse_pinned(args, sizes, count);
  InRunner here;
  if (callbacks.launch(kernel, expression.c_str(), &config, args, sizes, count)) throw_callback_error();
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
  const void* const* given = raw_args ? const_cast<const void* const*>(raw_args) : args;
  if (capturing()) {
    std::vector<std::string> held;
    for (int k = 0; k < count; ++k) held.emplace_back(static_cast<const char*>(given[k]), sizes[k]);
    std::vector<unsigned> lengths(sizes, sizes + count);
    std::string name = kernel;
    auto again = [=, config = pending](cudaStream_t stream) {
      std::vector<const void*> places;
      for (const std::string& one : held) places.push_back(one.data());
      issue(name.c_str(), expression, config, stream, places.data(), lengths.data(), int(lengths.size()));
      return cudaSuccess;
    };
    if (captured(pending_stream, again)) return;
  }
  issue(kernel, expression, pending, pending_stream, given, sizes, count);
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
// The answer of a callback that returns a cudaError.
static cudaError_t answered(int status) {
  if (status < 0) kw::throw_callback_error();
  return told(status);
}
static cudaError_t synchronized() {
  kw::InRunner here;
  return answered(kw::callbacks.synchronize());
}
cudaError_t cudaDeviceSynchronize() { return kw::gpu ? told(kw::gpu->cuCtxSynchronize()) : synchronized(); }
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaGetLastError() { auto e = kw::last_error; kw::last_error = cudaSuccess; return e; }
cudaError_t cudaPeekAtLastError() { return kw::last_error; }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidPitchValue: return "invalid pitch argument";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
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
  kw::InRunner here;
  return note(kw::callbacks.allocate(bytes, address) ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFree(void* address) {
  if (!address) return cudaSuccess;
  kw::InRunner here;
  return note(kw::callbacks.deallocate(address) ? cudaErrorInvalidValue : cudaSuccess);
}
void* c10::cuda::CUDACachingAllocator::raw_alloc(size_t bytes) {
  void* address = nullptr;
  if (bytes && kw_malloc(&address, bytes) != cudaSuccess) kw::cuda_failed(cudaErrorMemoryAllocation, "raw_alloc", 0);
  return address;
}
void c10::cuda::CUDACachingAllocator::raw_delete(void* address) {
  if (cudaFree(address) != cudaSuccess) kw::fail("invalid device pointer");
}
extern "C" void kw_pin(uintptr_t address, size_t bytes) {
  std::lock_guard<std::mutex> hold(kw::pinned_lock);
  kw::pinned[address] = bytes;
}
static bool unpin(const void* address) {
  std::lock_guard<std::mutex> hold(kw::pinned_lock);
  return kw::pinned.erase(reinterpret_cast<uintptr_t>(address)) != 0;
}
cudaError_t kw_malloc_host(void** address, size_t bytes) {
  *address = std::malloc(std::max<size_t>(1, bytes));
  if (!*address) return note(cudaErrorMemoryAllocation);
  kw_pin(reinterpret_cast<uintptr_t>(*address), bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* address) {
  if (!address) return cudaSuccess;
  if (!unpin(address)) return note(cudaErrorInvalidValue);
  std::free(address);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  if (!address || !bytes) return note(cudaErrorInvalidValue);
  kw_pin(reinterpret_cast<uintptr_t>(address), bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* address) { return note(unpin(address) ? cudaSuccess : cudaErrorInvalidValue); }
// On a GPU only copies that say so are told of: asking the driver where memory lies would cost time.
static void tell(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes && kind == cudaMemcpyDeviceToHost) kw::callbacks.copy(to, from, bytes, kind);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes && (!to || !from)) return note(cudaErrorInvalidValue);
  if (kw::gpu) {
    tell(to, from, bytes, kind);
    return told(bytes ? kw::gpu->cuMemcpy(to, from, bytes) : 0);
  }
  if (!bytes) return cudaSuccess;
  kw::InRunner here;
  return answered(kw::callbacks.copy(to, from, bytes, kind));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  auto again = [=](cudaStream_t s) { return cudaMemcpyAsync(to, from, bytes, kind, s); };
  if (kw::capturing() && kw::captured(stream, again)) return cudaSuccess;
  if (!kw::gpu) return cudaMemcpy(to, from, bytes, kind);
  tell(to, from, bytes, kind);
  return told(bytes ? kw::gpu->cuMemcpyAsync(to, from, bytes, stream) : 0);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  if (width > to_pitch || width > from_pitch) return note(cudaErrorInvalidPitchValue);
  if (width == to_pitch && width == from_pitch) return cudaMemcpy(to, from, width * height, kind);
  for (size_t k = 0; k < height; ++k) {
    char* row = static_cast<char*>(to) + k * to_pitch;
    cudaError_t status = cudaMemcpyAsync(row, static_cast<const char*>(from) + k * from_pitch, width, kind, nullptr);
    if (status != cudaSuccess) return status;
  }
  return kw::gpu ? cudaDeviceSynchronize() : cudaSuccess;
}
cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  auto again = [=](cudaStream_t s) { return cudaMemsetAsync(address, value, bytes, s); };
  if (kw::capturing() && kw::captured(stream, again)) return cudaSuccess;
  if (bytes && !address) return note(cudaErrorInvalidValue);
  if (kw::gpu) return told(bytes ? kw::gpu->cuMemsetD8Async(address, static_cast<unsigned char>(value), bytes, stream) : 0);
  if (!bytes) return cudaSuccess;
  kw::InRunner here;
  return answered(kw::callbacks.fill(address, value & 255, bytes));
}
cudaError_t cudaMemset2DAsync(void* address, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  if (width > pitch) return note(cudaErrorInvalidPitchValue);
  if (width == pitch) return cudaMemsetAsync(address, value, width * height, stream);
  for (size_t k = 0; k < height; ++k) {
    cudaError_t status = cudaMemsetAsync(static_cast<char*>(address) + k * pitch, value, width, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
cudaError_t cudaMemset2D(void* address, size_t pitch, int value, size_t width, size_t height) {
  return cudaMemset2DAsync(address, pitch, value, width, height, nullptr);
}
cudaError_t kw_symbol(const char* name, void* host, size_t bytes, size_t offset, bool to_device) {
  kw::InRunner here;
  if (kw::callbacks.symbol(name, host, bytes, offset, to_device)) kw::throw_callback_error();
  return cudaSuccess;
}

cudaError_t kw_symbol_address(void** address, const char* name) {
  if (kw::gpu) kw::fail_unsupported("cudaGetSymbolAddress");
  // A negative offset asks for the place instead of the content.
  kw::InRunner here;
  if (kw::callbacks.symbol(name, address, sizeof(void*), ~uint64_t(0), false)) kw::throw_callback_error();
  return cudaSuccess;
}

// On the functional machine streams and events are null, and everything happens in the order of the calls.
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
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return kw::gpu ? told(kw::gpu->cuStreamSynchronize(s)) : synchronized(); }
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
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return kw::gpu ? told(kw::gpu->cuEventSynchronize(e)) : synchronized(); }
cudaError_t cudaEventQuery(cudaEvent_t e) { return kw::gpu ? cudaError_t(kw::gpu->cuEventQuery(e)) : cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = 1;
  return kw::gpu ? told(kw::gpu->cuEventElapsedTime(milliseconds, from, to)) : cudaSuccess;
}

// The CUfunction behind a stub's address.
static void* function_of(const void* stub) {
  std::string key = kw::identify(stub);
  bool instance = key.find('<') != std::string::npos;
  return kw::gpu_function(key.substr(0, key.find('<')).c_str(), instance ? key : std::string());
}
cudaError_t kw_set_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value > 232448) return note(cudaErrorInvalidValue);
    kw::shared_limit[kw::identify(kernel)] = value;
  }
  // The driver's numbers of these attributes are the same. Its occupancy depends on them, so they cannot wait for a launch.
  return kw::gpu ? told(kw::gpu->cuFuncSetAttribute(function_of(kernel), attribute, value)) : cudaSuccess;
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
