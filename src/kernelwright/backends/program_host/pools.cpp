// Memory pools and attributes of streams. A pool only has attributes: its memory is allocated and freed as all other is.
#include <list>

#include "internal.h"

namespace {
struct Pool {
  std::map<int, uint64_t> values;
};
std::list<Pool> pools(1);  // the first is the device's own
Pool* current = &pools.front();

Pool* pool_of(cudaMemPool_t handle) {
  for (Pool& pool : pools)
    if (reinterpret_cast<cudaMemPool_t>(&pool) == handle) return &pool;
  return nullptr;
}
bool is_flag(cudaMemPoolAttr wanted) {
  return wanted == cudaMemPoolReuseFollowEventDependencies || wanted == cudaMemPoolReuseAllowOpportunistic ||
         wanted == cudaMemPoolReuseAllowInternalDependencies;
}
std::map<cudaStream_t, std::map<int, cudaLaunchAttributeValue>> stream_values;
}  // namespace

using namespace kw;

extern "C" {
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  KW_LOCKED;
  if (device != 0) return note(cudaErrorInvalidDevice);
  *pool = reinterpret_cast<cudaMemPool_t>(&pools.front());
  return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  KW_LOCKED;
  if (device != 0) return note(cudaErrorInvalidDevice);
  *pool = reinterpret_cast<cudaMemPool_t>(current);
  return cudaSuccess;
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  KW_LOCKED;
  Pool* found = pool_of(pool);
  if (device != 0 || !found) return note(device != 0 ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
  current = found;
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  KW_LOCKED;
  if (!pool || !properties) return note(cudaErrorInvalidValue);
  pools.emplace_back();
  *pool = reinterpret_cast<cudaMemPool_t>(&pools.back());
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  KW_LOCKED;
  Pool* found = pool_of(pool);
  if (!found || found == &pools.front()) return note(cudaErrorInvalidValue);
  if (current == found) current = &pools.front();
  pools.remove_if([&](const Pool& one) { return &one == found; });
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr wanted, void* value) {
  KW_LOCKED;
  Pool* found = pool_of(pool);
  if (!found || !value) return note(cudaErrorInvalidValue);
  found->values[wanted] = is_flag(wanted) ? (uint64_t)*static_cast<int*>(value) : *static_cast<uint64_t*>(value);
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr wanted, void* value) {
  KW_LOCKED;
  Pool* found = pool_of(pool);
  if (!found || !value) return note(cudaErrorInvalidValue);
  auto set = found->values.find(wanted);
  uint64_t held = set != found->values.end() ? set->second : is_flag(wanted);
  if (is_flag(wanted)) *static_cast<int*>(value) = (int)held;
  else *static_cast<uint64_t*>(value) = held;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  KW_LOCKED;
  return pool_of(pool) ? cudaSuccess : note(cudaErrorInvalidValue);
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc*, size_t) {
  KW_LOCKED;
  return pool_of(pool) ? cudaSuccess : note(cudaErrorInvalidValue);
}

// Hints for caches and priorities: they are kept, and change nothing.
cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID wanted, const cudaStreamAttrValue* value) {
  KW_LOCKED;
  if (!value || !valid_stream(stream)) return note(cudaErrorInvalidValue);
  stream_values[stream][wanted] = *value;
  return cudaSuccess;
}
cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID wanted, cudaStreamAttrValue* value) {
  KW_LOCKED;
  if (!value || !valid_stream(stream)) return note(cudaErrorInvalidValue);
  *value = stream_values[stream][wanted];
  return cudaSuccess;
}
cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
  KW_LOCKED;
  if (!valid_stream(to) || !valid_stream(from)) return note(cudaErrorInvalidResourceHandle);
  stream_values[to] = stream_values[from];
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  KW_LOCKED;
  if (!valid_stream(stream)) return note(cudaErrorInvalidResourceHandle);
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int, int) {
  *value = 0;
  return note(cudaErrorInvalidDevice);
}
}
