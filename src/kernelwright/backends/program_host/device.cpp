// The device: one of compute capability 9.0 with 132 multiprocessors and 80 GiB. Kernels' attributes, occupancy, launches
// by function address.
#include "properties.h"

#include <algorithm>

#include "internal.h"

namespace kw {
static unsigned device_flags = 0;

static int attribute(cudaDeviceAttr wanted) {
  switch (wanted) {
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 2147483647;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
    case cudaDevAttrTotalConstantMemory: return 65536;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxPitch: return 2147483647;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrTextureAlignment: return 512;
    case cudaDevAttrTexturePitchAlignment: return 32;
    case cudaDevAttrGpuOverlap: return 1;
    case cudaDevAttrMultiProcessorCount: return 132;
    case cudaDevAttrCanMapHostMemory: case cudaDevAttrConcurrentKernels: case cudaDevAttrEccEnabled: return 1;
    case cudaDevAttrUnifiedAddressing: case cudaDevAttrManagedMemory: case cudaDevAttrConcurrentManagedAccess: return 1;
    case cudaDevAttrCooperativeLaunch: case cudaDevAttrStreamPrioritiesSupported: return 1;
    case cudaDevAttrGlobalL1CacheSupported: case cudaDevAttrLocalL1CacheSupported: return 1;
    case cudaDevAttrMemoryPoolsSupported: case cudaDevAttrHostRegisterSupported: return 1;
    case cudaDevAttrComputePreemptionSupported: case cudaDevAttrCanUseHostPointerForRegisteredMem: return 1;
    case cudaDevAttrMemoryClockRate: return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth: return 5120;
    case cudaDevAttrL2CacheSize: return 52428800;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrAsyncEngineCount: return 3;
    case cudaDevAttrComputeCapabilityMajor: return 9;
    case cudaDevAttrComputeCapabilityMinor: return 0;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 233472;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return 232448;
    case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
    case cudaDevAttrMaxPersistingL2CacheSize: return 32768000;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio: return 2;
    case cudaDevAttrMaxTexture1DWidth: case cudaDevAttrMaxTexture2DWidth: return 131072;
    case cudaDevAttrMaxTexture2DHeight: return 65536;
    case cudaDevAttrMaxTexture3DWidth: case cudaDevAttrMaxTexture3DHeight: case cudaDevAttrMaxTexture3DDepth: return 16384;
    case cudaDevAttrKernelExecTimeout: case cudaDevAttrIntegrated: case cudaDevAttrComputeMode: return 0;
    case cudaDevAttrPciBusId: case cudaDevAttrPciDeviceId: case cudaDevAttrPciDomainId: return 0;
    case cudaDevAttrTccDriver: case cudaDevAttrIsMultiGpuBoard: case cudaDevAttrMultiGpuBoardGroupID: return 0;
    case cudaDevAttrHostNativeAtomicSupported: case cudaDevAttrPageableMemoryAccess: return 0;
    case cudaDevAttrDirectManagedMemAccessFromHost: case cudaDevAttrPageableMemoryAccessUsesHostPageTables: return 0;
    default: unsupported("cudaDeviceGetAttribute(" + std::to_string((int)wanted) + ")");
  }
}
}  // namespace kw

using namespace kw;

extern "C" {
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  KW_LOCKED;
  if (device != 0) return note(cudaErrorInvalidDevice);
  return begin();
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
cudaError_t cudaSetValidDevices(int*, int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr wanted, int device) {
  KW_LOCKED;
  if (device != 0) return note(cudaErrorInvalidDevice);
  *value = attribute(wanted);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  KW_LOCKED;
  return synchronize();
}
cudaError_t cudaDeviceReset() {
  KW_LOCKED;
  cudaError_t error = synchronize();
  release_all();
  forget_errors();
  return error;
}
cudaError_t cudaSetDeviceFlags(unsigned flags) { device_flags = flags; return cudaSuccess; }
cudaError_t cudaGetDeviceFlags(unsigned* flags) { *flags = device_flags | cudaDeviceMapHost; return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  switch (limit) {
    case cudaLimitStackSize: *value = 1024; return cudaSuccess;
    case cudaLimitPrintfFifoSize: *value = 7 << 20; return cudaSuccess;
    case cudaLimitMallocHeapSize: *value = 8 << 20; return cudaSuccess;
    default: return note(cudaErrorInvalidValue);
  }
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) { *config = cudaFuncCachePreferNone; return cudaSuccess; }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* c) { *c = cudaSharedMemBankSizeFourByte; return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return note(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceDisablePeerAccess(int) { return note(cudaErrorPeerAccessNotEnabled); }
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int) {
  std::strncpy(text, "0000:00:00.0", (size_t)bytes);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute wanted, int value) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  Kernel* k = kernel_of(function);
  if (!k) return note(cudaErrorInvalidDeviceFunction);
  if (wanted != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || (u64)value + k->static_shared > 232448) return note(cudaErrorInvalidValue);
  k->dynamic_limit = value + (int)k->static_shared;
  return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncSetSharedMemConfig(const void*, cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void* function) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  Kernel* k = kernel_of(function);
  if (!k) return note(cudaErrorInvalidDeviceFunction);
  std::memset(found, 0, sizeof *found);
  found->sharedSizeBytes = k->static_shared;
  found->localSizeBytes = k->local_bytes;
  found->maxThreadsPerBlock = k->max_threads ? (int)k->max_threads : 1024;
  found->numRegs = 32;  // nobody allocates registers here
  found->ptxVersion = found->binaryVersion = 90;
  found->maxDynamicSharedSizeBytes = std::max(k->dynamic_limit, 49152) - (int)k->static_shared;
  found->preferredShmemCarveout = -1;
  return cudaSuccess;
}
cudaError_t cudaFuncGetName(const char** name, const void* function) {
  KW_LOCKED;
  Kernel* k = kernel_of(function);
  if (!k) return note(cudaErrorInvalidDeviceFunction);
  *name = k->name.c_str();
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t shared, unsigned) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  Kernel* k = kernel_of(function);
  if (!k) return note(cudaErrorInvalidDeviceFunction);
  if (threads <= 0) return note(cudaErrorInvalidValue);
  *blocks = threads > 1024 ? 0 : blocks_per_multiprocessor(*k, threads, shared);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int blocks, int) {
  KW_LOCKED;
  Kernel* k = kernel_of(function);
  if (!k || blocks <= 0) return note(cudaErrorInvalidValue);
  *bytes = std::min<size_t>(232448, 233472 / (size_t)blocks - 1024) - k->static_shared;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  Kernel* k = kernel_of(function);
  return k ? launch_kernel(*k, Config{grid, block, shared, stream}, arguments) : note(cudaErrorInvalidDeviceFunction);
}
static cudaError_t fits_at_once(const Kernel& k, const Config& c) {
  u64 threads = u64(c.block.x) * c.block.y * c.block.z, blocks = u64(c.grid.x) * c.grid.y * c.grid.z;
  u64 most = 132 * (u64)(threads && threads <= 1024 ? blocks_per_multiprocessor(k, (int)threads, c.shared) : 1);
  return blocks > most ? cudaErrorCooperativeLaunchTooLarge : cudaSuccess;
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                                        cudaStream_t stream) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  Kernel* k = kernel_of(function);
  if (!k) return note(cudaErrorInvalidDeviceFunction);
  Config c{grid, block, shared, stream, true};
  error = fits_at_once(*k, c);
  return error == cudaSuccess ? launch_kernel(*k, c, arguments) : note(error);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  Kernel* k = kernel_of(function);
  if (!k) return note(cudaErrorInvalidDeviceFunction);
  Config c{config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream};
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const cudaLaunchAttribute& a = config->attrs[i];
    if (a.id == cudaLaunchAttributeCooperative) c.cooperative = a.val.cooperative;
    else if (a.id == cudaLaunchAttributeClusterDimension)
      c.cluster = dim3(a.val.clusterDim.x, a.val.clusterDim.y, a.val.clusterDim.z);
  }
  if (c.cooperative) error = fits_at_once(*k, c);
  return error == cudaSuccess ? launch_kernel(*k, c, arguments) : note(error);
}
}

static cudaError_t properties_of(cudaDeviceProp* found, int device) {
  if (device != 0) return note(cudaErrorInvalidDevice);
  cudaDeviceProp& p = *found;
  std::memset(static_cast<void*>(&p), 0, sizeof p);
  std::strcpy(p.name, "Kernelwright functional machine (sm_90)");
  p.totalGlobalMem = size_t(80) << 30;
  p.sharedMemPerBlock = 49152;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.major = 9;
  p.textureAlignment = 512;
  p.texturePitchAlignment = 32;
  p.multiProcessorCount = 132;
  p.canMapHostMemory = p.concurrentKernels = p.ECCEnabled = p.unifiedAddressing = p.managedMemory = 1;
  p.cooperativeLaunch = p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.concurrentManagedAccess = p.memoryPoolsSupported = p.hostRegisterSupported = p.computePreemptionSupported = 1;
  p.asyncEngineCount = 3;
  p.memoryBusWidth = 5120;
  p.l2CacheSize = 52428800;
  p.persistingL2CacheMaxSize = 32768000;
  p.maxThreadsPerMultiProcessor = 2048;
  p.sharedMemPerMultiprocessor = 233472;
  p.sharedMemPerBlockOptin = 232448;
  p.reservedSharedMemPerBlock = 1024;
  p.maxBlocksPerMultiProcessor = 32;
  p.maxTexture1D = p.maxTexture2D[0] = 131072;
  p.maxTexture2D[1] = 65536;
  p.maxTexture3D[0] = p.maxTexture3D[1] = p.maxTexture3D[2] = 16384;
  p.clockRate = 1980000;
  p.memoryClockRate = 2619000;
  p.deviceOverlap = 1;
  p.singleToDoublePrecisionPerfRatio = 2;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  KW_LOCKED;
  return properties_of(properties, device);
}
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) {
  *device = 0;
  return cudaSuccess;
}
