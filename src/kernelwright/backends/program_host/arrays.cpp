// CUDA arrays, and copies from and to them. They are plain row-major memory of the runtime's own.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>

#include "arrays.h"

namespace kw {
static std::set<cudaArray*> arrays;

static cudaError_t make(cudaArray** made, const cudaChannelFormatDesc& format, cudaExtent extent, unsigned flags) {
  u64 bits = u64(format.x) + format.y + format.z + format.w;
  if (!made || bits == 0 || bits % 8 || extent.width == 0) return cudaErrorInvalidValue;
  if (flags & ~(cudaArrayLayered | cudaArraySurfaceLoadStore | cudaArrayCubemap))
    unsupported("arrays with flags " + std::to_string(flags));
  auto* a = new cudaArray{format, extent, flags, bits / 8, 0, 0, {}, nullptr};
  a->pitch = a->element * extent.width;
  a->slice = a->pitch * std::max<u64>(extent.height, 1);
  a->bytes.resize(a->slice * std::max<u64>(extent.depth, 1));
  poison(a->bytes.data(), a->bytes.size());
  a->shadow = make_shadow(a->bytes.data(), a->bytes.size());
  arrays.insert(a);
  *made = a;
  return cudaSuccess;
}
cudaArray* array_of(cudaArray_const_t given) {
  auto* a = const_cast<cudaArray*>(reinterpret_cast<const cudaArray*>(given));
  return arrays.count(a) ? a : nullptr;
}
// The bytes at (x bytes, y rows) of an array, when rows of `width` bytes fit there.
static unsigned char* window(cudaArray* a, u64 x, u64 y, u64 width, u64 height) {
  u64 rows = std::max<u64>(a->extent.height, 1);
  if (x + width > a->pitch || y + height > rows) return nullptr;
  return a->bytes.data() + y * a->pitch + x;
}
static cudaError_t move(cudaArray* a, u64 x, u64 y, void* linear, u64 pitch, u64 width, u64 height, bool to_array) {
  unsigned char* at = a ? window(a, x, y, width, height) : nullptr;
  if (!at) return cudaErrorInvalidValue;
  Open open;
  for (u64 row = 0; row < height; row++) {
    void *in = at + row * a->pitch, *out = static_cast<char*>(linear) + row * pitch;
    std::memmove(to_array ? in : out, to_array ? out : in, width);
    note_copied(to_array ? in : out, to_array ? out : in, width);
  }
  return cudaSuccess;
}
// A copy of `bytes` that goes on in the next row where one ends.
static cudaError_t move_flat(cudaArray* a, u64 x, u64 y, void* linear, u64 bytes, bool to_array) {
  if (!a || y * a->pitch + x + bytes > a->bytes.size()) return cudaErrorInvalidValue;
  Open open;
  void* in = a->bytes.data() + y * a->pitch + x;
  std::memmove(to_array ? in : linear, to_array ? linear : in, bytes);
  note_copied(to_array ? in : linear, to_array ? linear : in, bytes);
  return cudaSuccess;
}
struct End {  // one end of a three-dimensional copy: rows `pitch` apart, slices `slice` apart
  char* at;
  u64 pitch, slice, element;
};
static cudaError_t end_of(cudaArray_t array, const cudaPitchedPtr& p, const cudaPos& pos, End& end) {
  if (array) {
    cudaArray* a = array_of(array);
    if (!a) return cudaErrorInvalidResourceHandle;
    char* first = reinterpret_cast<char*>(a->bytes.data());
    end = {first + pos.x * a->element + pos.y * a->pitch + pos.z * a->slice, a->pitch, a->slice, a->element};
  } else {
    end = {static_cast<char*>(p.ptr) + pos.x + pos.y * p.pitch + pos.z * p.pitch * p.ysize, p.pitch,
           p.pitch * p.ysize, 1};
  }
  return cudaSuccess;
}
static bool inside(cudaArray_t array, const cudaPos& pos, const cudaExtent& e) {
  cudaArray* a = array ? array_of(array) : nullptr;
  if (!a) return !array;
  return pos.x + e.width <= a->extent.width && pos.y + e.height <= std::max<size_t>(a->extent.height, 1) &&
         pos.z + e.depth <= std::max<size_t>(a->extent.depth, 1);
}
static cudaError_t copy_box(const cudaMemcpy3DParms& p) {
  End to, from;
  cudaError_t error = end_of(p.dstArray, p.dstPtr, p.dstPos, to);
  if (error == cudaSuccess) error = end_of(p.srcArray, p.srcPtr, p.srcPos, from);
  if (error != cudaSuccess) return error;
  if (!inside(p.dstArray, p.dstPos, p.extent) || !inside(p.srcArray, p.srcPos, p.extent)) return cudaErrorInvalidValue;
  u64 width = p.extent.width * std::max(to.element, from.element);  // in elements where an array takes part
  for (u64 z = 0; z < p.extent.depth; z++) {
    char *out = to.at + z * to.slice, *in = from.at + z * from.slice;
    if (p.dstArray || p.srcArray) {
      Open open;
      for (u64 y = 0; y < p.extent.height; y++) {
        std::memmove(out + y * to.pitch, in + y * from.pitch, width);
        note_copied(out + y * to.pitch, in + y * from.pitch, width);
      }
    } else {
      error = copy_rows(out, to.pitch, in, from.pitch, width, p.extent.height, p.kind);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}
}  // namespace kw

using namespace kw;

extern "C" {
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}
cudaError_t cudaMallocArray(cudaArray_t* made, const cudaChannelFormatDesc* format, size_t width, size_t height,
                            unsigned flags) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  return note(make(made, *format, {width, height, 0}, flags));
}
cudaError_t cudaMalloc3DArray(cudaArray_t* made, const cudaChannelFormatDesc* format, cudaExtent extent,
                              unsigned flags) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  return note(make(made, *format, extent, flags));
}
cudaError_t cudaFreeArray(cudaArray_t array) {
  KW_LOCKED;
  if (!array) return cudaSuccess;
  cudaArray* a = array_of(array);
  if (!a) return note(cudaErrorInvalidValue);
  arrays.erase(a);
  drop_shadow(a->bytes.data());
  delete a;
  return cudaSuccess;
}
cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned* flags, cudaArray_t array) {
  KW_LOCKED;
  cudaArray* a = array_of(array);
  if (!a) return note(cudaErrorInvalidResourceHandle);
  if (format) *format = a->format;
  if (extent) *extent = a->extent;
  if (flags) *flags = a->flags;
  return cudaSuccess;
}
cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t array) {
  KW_LOCKED;
  cudaArray* a = array_of(array);
  if (!a) return note(cudaErrorInvalidResourceHandle);
  *format = a->format;
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
                                size_t height, cudaMemcpyKind) {
  KW_LOCKED;
  cudaError_t error = synchronize();
  return error == cudaSuccess ? note(move(array_of(to), x, y, const_cast<void*>(from), pitch, width, height, true))
                              : error;
}
cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
                                     size_t height, cudaMemcpyKind, cudaStream_t stream) {
  KW_LOCKED;
  cudaArray* a = array_of(to);
  return note(issue(stream, [=] { return move(a, x, y, const_cast<void*>(from), pitch, width, height, true); }));
}
cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                  size_t height, cudaMemcpyKind) {
  KW_LOCKED;
  cudaError_t error = synchronize();
  return error == cudaSuccess ? note(move(array_of(from), x, y, to, pitch, width, height, false)) : error;
}
cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes, cudaMemcpyKind) {
  KW_LOCKED;
  cudaError_t error = synchronize();
  return error == cudaSuccess ? note(move_flat(array_of(to), x, y, const_cast<void*>(from), bytes, true)) : error;
}
cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, size_t x, size_t y, size_t bytes, cudaMemcpyKind) {
  KW_LOCKED;
  cudaError_t error = synchronize();
  return error == cudaSuccess ? note(move_flat(array_of(from), x, y, to, bytes, false)) : error;
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* given, cudaStream_t stream) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  cudaMemcpy3DParms p = *given;
  return note(issue(stream, [p] { return copy_box(p); }));
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* given) {
  KW_LOCKED;
  cudaError_t error = synchronize();
  return error == cudaSuccess ? cudaMemcpy3DAsync(given, nullptr) : error;
}
}
