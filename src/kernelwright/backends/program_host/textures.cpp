// Texture and surface objects: describes them to the machine, which samples them.
#include <algorithm>

#include "arrays.h"

namespace kw {
struct Object {
  KwTexture texture;
  cudaResourceDesc resource;
  cudaTextureDesc description;
};
static std::map<u64, Object> objects;
static u64 next_handle = 0x7e00000001;

std::vector<KwTexture> texture_table() {
  std::vector<KwTexture> out;
  for (auto& [handle, o] : objects) out.push_back(o.texture);
  return out;
}

static cudaError_t describe_array(const cudaArray& a, KwTexture& t) {
  t.kind = 2;
  t.base = reinterpret_cast<u64>(a.bytes.data());
  t.shadow = a.shadow;
  t.pitch = a.pitch;
  t.slice = a.slice;
  t.width = (uint32_t)a.extent.width;
  t.height = (uint32_t)std::max<size_t>(a.extent.height, 1);
  bool layered = a.flags & cudaArrayLayered, cube = a.flags & cudaArrayCubemap;
  uint32_t deep = (uint32_t)std::max<size_t>(a.extent.depth, 1);
  t.depth = layered || cube ? 1 : deep;
  t.layers = layered || cube ? deep : 1;
  if (cube) t.shape = layered ? 6 : 5;
  else if (layered) t.shape = a.extent.height ? 4 : 3;
  else t.shape = a.extent.depth ? 2 : a.extent.height ? 1 : 0;
  return cudaSuccess;
}

// Linear and pitched memory must be allocated as far as the object reaches.
static cudaError_t check_memory(const void* at, u64 bytes) {
  const Allocation* a = find(at);
  if (!a) return cudaErrorInvalidDevicePointer;
  bool fits = reinterpret_cast<u64>(at) + bytes <= a->address + a->bytes;
  if (!fits) misuse("copy-out-of-bounds", "a texture of " + std::to_string(bytes) + " bytes on " + a->name);
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t describe(const cudaResourceDesc& r, KwTexture& t, cudaChannelFormatDesc& format) {
  t.height = t.depth = t.layers = 1;
  if (r.resType == cudaResourceTypeArray) {
    const cudaArray* a = array_of(r.res.array.array);
    if (!a) return cudaErrorInvalidResourceHandle;
    format = a->format;
    return describe_array(*a, t);
  }
  if (r.resType == cudaResourceTypeLinear) {
    const auto& l = r.res.linear;
    format = l.desc;
    u64 element = u64(format.x + format.y + format.z + format.w) / 8;
    if (!element) return cudaErrorInvalidChannelDescriptor;
    t.kind = t.shape = 0;
    t.base = reinterpret_cast<u64>(l.devPtr);
    t.width = (uint32_t)(l.sizeInBytes / element);
    return check_memory(l.devPtr, l.sizeInBytes);
  }
  if (r.resType == cudaResourceTypePitch2D) {
    const auto& p = r.res.pitch2D;
    format = p.desc;
    t.kind = t.shape = 1;
    t.base = reinterpret_cast<u64>(p.devPtr);
    t.pitch = p.pitchInBytes;
    t.width = (uint32_t)p.width;
    t.height = (uint32_t)p.height;
    u64 row = u64(format.x + format.y + format.z + format.w) / 8 * p.width;
    return check_memory(p.devPtr, p.height ? (p.height - 1) * p.pitchInBytes + row : 0);
  }
  unsupported("texture objects on mipmapped arrays");
}

static cudaError_t set_format(const cudaChannelFormatDesc& f, KwTexture& t) {
  if (f.f == cudaChannelFormatKindSigned) t.channel_kind = 0;
  else if (f.f == cudaChannelFormatKindUnsigned) t.channel_kind = 1;
  else if (f.f == cudaChannelFormatKindFloat) t.channel_kind = 2;
  else unsupported("texture channels of kind " + std::to_string((int)f.f));
  const int bits[4] = {f.x, f.y, f.z, f.w};
  for (int i = 0; i < 4; i++) t.channel_bits[i] = (uint32_t)bits[i];
  return cudaSuccess;
}

static void set_sampling(const cudaTextureDesc& d, KwTexture& t) {
  for (int i = 0; i < 3; i++) t.address_mode[i] = (uint32_t)d.addressMode[i];
  if (d.maxAnisotropy > 1 || d.sRGB) unsupported("texture objects with anisotropy or sRGB");
  t.linear_filter = d.filterMode == cudaFilterModeLinear;
  t.normalized_float = d.readMode == cudaReadModeNormalizedFloat;
  t.normalized_coords = d.normalizedCoords != 0;
  std::copy(d.borderColor, d.borderColor + 4, t.border);
}

static u64 keep(KwTexture t, const cudaResourceDesc& r, const cudaTextureDesc& d) {
  t.handle = next_handle++;
  objects[t.handle] = {t, r, d};
  return t.handle;
}
}  // namespace kw

using namespace kw;

extern "C" {
cudaError_t cudaCreateTextureObject(cudaTextureObject_t* made, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* description, const cudaResourceViewDesc* view) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  if (!made || !resource || !description) return note(cudaErrorInvalidValue);
  if (view) unsupported("texture objects with a resource view");
  KwTexture t{};
  cudaChannelFormatDesc format{};
  error = describe(*resource, t, format);
  if (error == cudaSuccess) error = set_format(format, t);
  if (error != cudaSuccess) return note(error);
  set_sampling(*description, t);
  bool whole_float = t.channel_kind != 2 && !t.normalized_float && t.linear_filter;
  if (whole_float) return note(cudaErrorInvalidValue);  // integers that stay integers cannot be filtered
  *made = keep(t, *resource, *description);
  return cudaSuccess;
}
cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
  KW_LOCKED;
  return objects.erase(object) || !object ? cudaSuccess : note(cudaErrorInvalidValue);
}
cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource, cudaTextureObject_t object) {
  KW_LOCKED;
  if (!objects.count(object)) return note(cudaErrorInvalidValue);
  *resource = objects[object].resource;
  return cudaSuccess;
}
cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* description, cudaTextureObject_t object) {
  KW_LOCKED;
  if (!objects.count(object)) return note(cudaErrorInvalidValue);
  *description = objects[object].description;
  return cudaSuccess;
}
cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* made, const cudaResourceDesc* resource) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  if (!made || !resource || resource->resType != cudaResourceTypeArray) return note(cudaErrorInvalidValue);
  KwTexture t{};
  cudaChannelFormatDesc format{};
  error = describe(*resource, t, format);
  if (error == cudaSuccess) error = set_format(format, t);
  if (error != cudaSuccess) return note(error);
  t.surface = 1;
  *made = keep(t, *resource, cudaTextureDesc{});
  return cudaSuccess;
}
cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) {
  KW_LOCKED;
  return objects.erase(object) || !object ? cudaSuccess : note(cudaErrorInvalidValue);
}
}
