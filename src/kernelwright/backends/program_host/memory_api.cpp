// The runtime API's memory calls.
#include "internal.h"

#include <cstdlib>

using namespace kw;

static cudaError_t make(void** address, u64 bytes, Kind kind) {
  if (!address) return note(cudaErrorInvalidValue);
  if (bytes == 0) {
    *address = nullptr;
    return cudaSuccess;
  }
  void* made = allocate(bytes, kind);
  if (!made) return note(cudaErrorMemoryAllocation);
  *address = made;
  return cudaSuccess;
}
static cudaError_t copy(void* to, u64 to_pitch, const void* from, u64 from_pitch, u64 width, u64 height,
                        cudaMemcpyKind kind) {
  cudaError_t error = synchronize();
  return error == cudaSuccess ? note(copy_rows(to, to_pitch, from, from_pitch, width, height, kind)) : error;
}
static cudaError_t copy_later(cudaStream_t stream, void* to, u64 to_pitch, const void* from, u64 from_pitch, u64 width,
                              u64 height, cudaMemcpyKind kind) {
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  return note(issue(stream, [=] { return copy_rows(to, to_pitch, from, from_pitch, width, height, kind); }));
}
static cudaError_t fill_later(cudaStream_t stream, void* to, u64 pitch, int value, u64 width, u64 height) {
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  unsigned char byte = static_cast<unsigned char>(value);
  return note(issue(stream, [=] { return fill_rows(to, pitch, &byte, 1, width, height); }));
}

extern "C" {
cudaError_t cudaMalloc(void** address, size_t bytes) {
  KW_LOCKED;
  cudaError_t error = begin();
  return error == cudaSuccess ? make(address, bytes, Kind::Device) : error;
}
cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t) { return cudaMalloc(address, bytes); }
cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return cudaMalloc(address, bytes);
}
cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) {
  KW_LOCKED;
  cudaError_t error = begin();
  return error == cudaSuccess ? make(address, bytes, Kind::Managed) : error;
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  KW_LOCKED;
  cudaError_t error = begin();
  return error == cudaSuccess ? make(address, bytes, Kind::Pinned) : error;
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) { return cudaMallocHost(address, bytes); }
cudaError_t cudaFree(void* address) {
  KW_LOCKED;
  cudaError_t error = synchronize();
  if (error != cudaSuccess) return error;
  if (!address || release(address, Kind::Device, true)) return cudaSuccess;
  misuse("bad-free", "cudaFree of an address that no allocation has, or that was freed before");
  return note(cudaErrorInvalidValue);
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return cudaFree(address); }
cudaError_t cudaFreeHost(void* address) {
  KW_LOCKED;
  cudaError_t error = synchronize();
  if (error != cudaSuccess) return error;
  if (!address || release(address, Kind::Pinned)) return cudaSuccess;
  misuse("bad-free", "cudaFreeHost of an address that was not allocated as pinned");
  return note(cudaErrorInvalidValue);
}
cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  if (!address || !bytes) return note(cudaErrorInvalidValue);
  u64 first = reinterpret_cast<u64>(address);
  for (auto& [at, a] : allocations())
    if (first < at + a.bytes && at < first + bytes) return note(cudaErrorHostMemoryAlreadyRegistered);
  register_host(address, bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* address) {
  KW_LOCKED;
  return release(address, Kind::Registered) ? cudaSuccess : note(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  KW_LOCKED;
  const Allocation* a = find(host);
  if (!device || !a || a->kind == Kind::Device) return note(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  KW_LOCKED;
  if (!flags || !find(host)) return note(cudaErrorInvalidValue);
  *flags = cudaHostAllocMapped;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  KW_LOCKED;
  return copy(to, bytes, from, bytes, bytes, 1, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  KW_LOCKED;
  return copy_later(stream, to, bytes, from, bytes, bytes, 1, kind);
}
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  KW_LOCKED;
  return copy(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  KW_LOCKED;
  return copy_later(stream, to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  KW_LOCKED;
  return fill_later(nullptr, to, bytes, value, bytes, 1);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  KW_LOCKED;
  return fill_later(stream, to, bytes, value, bytes, 1);
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  KW_LOCKED;
  return fill_later(nullptr, to, pitch, value, width, height);
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  KW_LOCKED;
  return fill_later(stream, to, pitch, value, width, height);
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t stream) {
  KW_LOCKED;
  for (size_t z = 0; z < extent.depth; z++) {
    void* slice = static_cast<char*>(to.ptr) + z * to.pitch * to.ysize;
    cudaError_t error = fill_later(stream, slice, to.pitch, value, extent.width, extent.height);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  return cudaMemset3DAsync(to, value, extent, nullptr);
}
cudaError_t cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height) {
  if (!pitch) return note(cudaErrorInvalidValue);
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(address, *pitch * height);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* made, cudaExtent extent) {
  if (!made) return note(cudaErrorInvalidValue);
  made->pitch = (extent.width + 511) / 512 * 512;
  made->xsize = extent.width;
  made->ysize = extent.height;
  return cudaMalloc(&made->ptr, made->pitch * extent.height * extent.depth);
}

static cudaError_t at_symbol(const void* symbol, size_t offset, size_t bytes, char** at) {
  void* address = nullptr;
  u64 size = 0;
  cudaError_t error = begin();
  if (error == cudaSuccess) error = symbol_address(symbol, &address, &size);
  if (error == cudaSuccess && (offset > size || bytes > size - offset)) {
    misuse("copy-out-of-bounds", "a copy of " + std::to_string(bytes) + " bytes at byte " + std::to_string(offset) +
                                     " of a variable of " + std::to_string(size) + " bytes");
    error = cudaErrorInvalidValue;
  }
  *at = static_cast<char*>(address) + offset;
  return error;
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  KW_LOCKED;
  char* at;
  cudaError_t error = at_symbol(symbol, offset, bytes, &at);
  if (error != cudaSuccess) return note(error);
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
    return note(cudaErrorInvalidMemcpyDirection);
  return copy_later(stream, at, bytes, from, bytes, bytes, 1, kind);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  KW_LOCKED;
  char* at;
  cudaError_t error = at_symbol(symbol, offset, bytes, &at);
  if (error != cudaSuccess) return note(error);
  if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
    return note(cudaErrorInvalidMemcpyDirection);
  return copy_later(stream, to, bytes, at, bytes, bytes, 1, kind);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  KW_LOCKED;
  cudaError_t error = synchronize();
  return error == cudaSuccess ? cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, nullptr) : error;
}
cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  KW_LOCKED;
  char* at = nullptr;
  cudaError_t error = at_symbol(symbol, 0, 0, &at);
  *address = at;
  return note(error);
}
cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  KW_LOCKED;
  void* address;
  u64 size = 0;
  cudaError_t error = begin();
  if (error == cudaSuccess) error = symbol_address(symbol, &address, &size);
  *bytes = size;
  return note(error);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* address) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  std::memset(found, 0, sizeof *found);
  const Allocation* a = find(address);
  found->hostPointer = const_cast<void*>(address);
  if (!a) {
    found->type = cudaMemoryTypeUnregistered;
    found->device = -2;
    return cudaSuccess;
  }
  found->devicePointer = const_cast<void*>(address);
  bool device = a->kind == Kind::Device || a->kind == Kind::Variable;
  found->type = device ? cudaMemoryTypeDevice : a->kind == Kind::Managed ? cudaMemoryTypeManaged : cudaMemoryTypeHost;
  if (device) found->hostPointer = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) {
  KW_LOCKED;
  return begin();
}
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  KW_LOCKED;
  return begin();
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  *total = size_t(80) << 30;
  *free_bytes = *total - (size_t(512) << 20);
  for (auto& [at, a] : allocations())
    if (a.kind == Kind::Device || a.kind == Kind::Managed) *free_bytes -= a.bytes;
  return cudaSuccess;
}
}
