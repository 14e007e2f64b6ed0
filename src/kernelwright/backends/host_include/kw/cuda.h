// The part of the CUDA runtime API that host wrappers use. Device addresses are opaque here: all work on them is the
// runner's.
//
// Work is done in the order in which it was issued, so streams and events order nothing. Sizes and limits are those of one sm_90
// device with 132 multiprocessors.
#pragma once

#include "functions.h"
#include "vectors.h"

enum cudaError {
  cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9, cudaErrorInvalidPitchValue = 12, cudaErrorInvalidSymbol = 13, cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorNoDevice = 100, cudaErrorInvalidDevice = 101, cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600, cudaErrorIllegalAddress = 700, cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchFailure = 719, cudaErrorNotSupported = 801, cudaErrorUnknown = 999,
};
typedef cudaError cudaError_t;
typedef struct kw_stream* cudaStream_t;
typedef struct kw_event* cudaEvent_t;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte };
enum cudaSharedCarveout {
  cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100, cudaSharedmemCarveoutMaxL1 = 0,
};
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize };
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX = 2, cudaDevAttrMaxBlockDimY = 3,
  cudaDevAttrMaxBlockDimZ = 4, cudaDevAttrMaxGridDimX = 5, cudaDevAttrMaxGridDimY = 6, cudaDevAttrMaxGridDimZ = 7,
  cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrTotalConstantMemory = 9, cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12, cudaDevAttrClockRate = 13, cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37, cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39, cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76, cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82, cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97, cudaDevAttrMaxBlocksPerMultiprocessor = 106,
};
constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventBlockingSync = 1,
                   cudaEventDisableTiming = 2, cudaHostAllocDefault = 0;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode,
      concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, asyncEngineCount, unifiedAddressing, memoryClockRate,
      memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, singleToDoublePrecisionPerfRatio, cooperativeLaunch;
  size_t sharedMemPerBlockOptin;
  int maxBlocksPerMultiProcessor;
  size_t reservedSharedMemPerBlock;
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
};

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value);
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config);
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig config);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);

cudaError_t kw_malloc(void** address, size_t bytes);
template <class T>
cudaError_t cudaMalloc(T** address, size_t bytes) { return kw_malloc(reinterpret_cast<void**>(address), bytes); }
template <class T>
cudaError_t cudaMallocAsync(T** address, size_t bytes, cudaStream_t) {
  return kw_malloc(reinterpret_cast<void**>(address), bytes);
}
cudaError_t cudaFree(void* address);
inline cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return cudaFree(address); }
cudaError_t kw_malloc_host(void** address, size_t bytes);
template <class T>
cudaError_t cudaMallocHost(T** address, size_t bytes, unsigned = 0) {
  return kw_malloc_host(reinterpret_cast<void**>(address), bytes);
}
template <class T>
cudaError_t cudaHostAlloc(T** address, size_t bytes, unsigned = 0) {
  return kw_malloc_host(reinterpret_cast<void**>(address), bytes);
}
cudaError_t cudaFreeHost(void* address);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind = cudaMemcpyDefault,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind);
cudaError_t cudaMemset(void* address, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaMemset2D(void* address, size_t pitch, int value, size_t width, size_t height);
cudaError_t cudaMemset2DAsync(void* address, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream = nullptr);
cudaError_t kw_symbol(const char* name, void* host, size_t bytes, size_t offset, bool to_device);
#define cudaMemcpyToSymbol(symbol, ...) kw_to_symbol(#symbol, __VA_ARGS__)
#define cudaMemcpyToSymbolAsync(symbol, ...) kw_to_symbol(#symbol, __VA_ARGS__)
#define cudaMemcpyFromSymbol(host, symbol, ...) kw_from_symbol(host, #symbol, __VA_ARGS__)
inline cudaError_t kw_to_symbol(const char* name, const void* host, size_t bytes, size_t offset = 0,
                                cudaMemcpyKind = cudaMemcpyHostToDevice, cudaStream_t = nullptr) {
  return kw_symbol(name, const_cast<void*>(host), bytes, offset, true);
}
inline cudaError_t kw_from_symbol(void* host, const char* name, size_t bytes, size_t offset = 0,
                                  cudaMemcpyKind = cudaMemcpyDeviceToHost, cudaStream_t = nullptr) {
  return kw_symbol(name, host, bytes, offset, false);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);

// The rest of what wrappers call now and then.
template <class T>
cudaError_t cudaMallocPitch(T** address, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return kw_malloc(reinterpret_cast<void**>(address), *pitch * height);
}
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t kw_symbol_address(void** address, const char* name);
template <class T>
cudaError_t kw_symbol_place(T** address, const char* name) {
  return kw_symbol_address(reinterpret_cast<void**>(address), name);
}
#define cudaGetSymbolAddress(address, symbol) kw_symbol_place(address, #symbol)
#define cudaMemcpyFromSymbolAsync(host, symbol, ...) kw_from_symbol(host, #symbol, __VA_ARGS__)
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* address);
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
#define nvtxRangePush nvtxRangePushA
#define nvtxMark nvtxMarkA
inline int nvtxRangePushA(const char*) { return 0; }
inline int nvtxRangePop() { return 0; }
inline void nvtxMarkA(const char*) {}
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
inline cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
  *value = 1024;
  return cudaSuccess;
}

cudaError_t kw_set_attribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t kw_get_attributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t kw_occupancy(int* blocks, const void* kernel, int threads, size_t shared);
cudaError_t kw_launch(const void* kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream);
template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return kw_set_attribute((const void*)kernel, attribute, value);
}
template <class T>
cudaError_t cudaFuncSetCacheConfig(T*, cudaFuncCache) { return cudaSuccess; }
template <class T>
cudaError_t cudaFuncSetSharedMemConfig(T*, cudaSharedMemConfig) { return cudaSuccess; }
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
  return kw_get_attributes(attributes, (const void*)kernel);
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T kernel, int threads, size_t shared) {
  return kw_occupancy(blocks, (const void*)kernel, threads, shared);
}
template <class T>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, T, size_t = 0, int limit = 0) {
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  *grid = 132 * (2048 / *block);
  return cudaSuccess;
}
template <class T>
cudaError_t cudaLaunchKernel(T* kernel, dim3 grid, dim3 block, void** args, size_t shared = 0,
                             cudaStream_t stream = nullptr) {
  return kw_launch((const void*)kernel, grid, block, args, shared, stream);
}

template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, T kernel, int threads, size_t shared,
                                                                   unsigned) {
  return kw_occupancy(blocks, (const void*)kernel, threads, shared);
}

namespace kw {
void configure(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr);
[[noreturn]] void cuda_failed(cudaError_t error, const char* file, int line);
}  // namespace kw

// torch's current stream on a GPU, as it was when the running function was called; null on the functional machine.
cudaStream_t kw_current_stream();

namespace c10::cuda {
class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream = nullptr) : stream_(stream) {}
  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }
  Device device() const { return Device(kCUDA, 0); }
  DeviceIndex device_index() const { return 0; }
  void synchronize() const { cudaStreamSynchronize(stream_); }
  bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }
  int64_t id() const { return reinterpret_cast<int64_t>(stream_); }
  bool operator==(const CUDAStream& o) const { return stream_ == o.stream_; }

 private:
  cudaStream_t stream_;
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return kw_current_stream(); }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return {}; }
// Tensor operators run on torch's current stream, whatever guard there is, so a side stream would need more than this:
// work stays in one stream, in the order in which it was issued.
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) { return kw_current_stream(); }
inline CUDAStream getStreamFromPool(int, DeviceIndex = -1) { return kw_current_stream(); }
inline void setCurrentCUDAStream(CUDAStream) {}
inline DeviceIndex current_device() { return 0; }
inline DeviceIndex device_count() { return 1; }
inline void set_device(DeviceIndex) {}
inline void device_synchronize() { cudaDeviceSynchronize(); }
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex) { return stream; }
namespace CUDACachingAllocator {
inline void emptyCache() {}
void* raw_alloc(size_t bytes);
inline void* raw_alloc_with_stream(size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
void raw_delete(void* address);
}
struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex) {}
  explicit CUDAGuard(Device) {}
  void set_device(Device) {}
  void set_index(DeviceIndex) {}
};
struct OptionalCUDAGuard {
  OptionalCUDAGuard() {}
  explicit OptionalCUDAGuard(std::optional<Device>) {}
  explicit OptionalCUDAGuard(std::optional<DeviceIndex>) {}
  void set_device(Device) {}
  void set_index(DeviceIndex) {}
};
struct CUDAStreamGuard {
  explicit CUDAStreamGuard(CUDAStream) {}
};
}  // namespace c10::cuda

namespace c10 {
struct DeviceGuard {
  explicit DeviceGuard(Device) {}
};
struct OptionalDeviceGuard {
  OptionalDeviceGuard() {}
  explicit OptionalDeviceGuard(std::optional<Device>) {}
};
}  // namespace c10

namespace at {
using c10::DeviceGuard;
using c10::OptionalDeviceGuard;
std::optional<Device> device_of(const Tensor& tensor);
namespace cuda {
using namespace c10::cuda;
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::OptionalCUDAGuard;
class CUDAEvent {
 public:
  explicit CUDAEvent(unsigned flags = cudaEventDisableTiming) : flags_(flags) {}
  CUDAEvent(const CUDAEvent&) = delete;
  CUDAEvent& operator=(const CUDAEvent&) = delete;
  CUDAEvent(CUDAEvent&& o) noexcept { take(o); }
  CUDAEvent& operator=(CUDAEvent&& o) noexcept {
    take(o);
    return *this;
  }
  ~CUDAEvent() {
    if (made_) cudaEventDestroy(event_);
  }
  operator cudaEvent_t() const { return event_; }
  cudaEvent_t event() const { return event_; }
  bool isCreated() const { return made_; }
  bool query() const { return !made_ || cudaEventQuery(event_) == cudaSuccess; }
  void record() { record(getCurrentCUDAStream()); }
  void record(const CUDAStream& stream) {
    if (!made_) cudaEventCreateWithFlags(&event_, flags_);
    made_ = true;
    cudaEventRecord(event_, stream);
  }
  void recordOnce(const CUDAStream& stream) {
    if (!made_) record(stream);
  }
  void block(const CUDAStream& stream) {
    if (made_) cudaStreamWaitEvent(stream, event_);
  }
  void synchronize() const {
    if (made_) cudaEventSynchronize(event_);
  }
  float elapsed_time(const CUDAEvent& to) const {
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, event_, to.event_);
    return milliseconds;
  }

 private:
  void take(CUDAEvent& o) {
    std::swap(flags_, o.flags_);
    std::swap(made_, o.made_);
    std::swap(event_, o.event_);
  }
  unsigned flags_ = cudaEventDisableTiming;
  bool made_ = false;
  cudaEvent_t event_ = nullptr;
};
cudaDeviceProp* getCurrentDeviceProperties();
cudaDeviceProp* getDeviceProperties(int64_t device);
inline bool is_available() { return true; }
inline int warp_size() { return 32; }
template <class A, class B>
constexpr auto ATenCeilDiv(A a, B b) { return (a + b - 1) / b; }
}  // namespace cuda
}  // namespace at
namespace torch::cuda {
using c10::cuda::device_count;
}

#define C10_CUDA_CHECK(expression)                                                     \
  do {                                                                                 \
    const cudaError_t kw_error_code = (expression);                                    \
    if (kw_error_code != cudaSuccess) ::kw::cuda_failed(kw_error_code, __FILE__, __LINE__); \
  } while (false)
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_CHECK_WARN(expression) ((void)(expression))
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_IGNORE_ERROR(expression) ((void)(expression), (void)cudaGetLastError())
#define C10_CUDA_CLEAR_ERROR() ((void)cudaGetLastError())
#define C10_CUDA_ERROR_HANDLED(expression) (expression)

#include "launch_ex.h"

namespace at {
namespace cuda {
namespace detail {
constexpr int CUDA_NUM_THREADS = 1024;
inline int GET_BLOCKS(int64_t n, int64_t threads = CUDA_NUM_THREADS) {
  TORCH_INTERNAL_ASSERT(n > 0, "CUDA kernel launch blocks must be positive, but got N=", n);
  return static_cast<int>((n - 1) / threads + 1);
}
}  // namespace detail
}  // namespace cuda
}  // namespace at
