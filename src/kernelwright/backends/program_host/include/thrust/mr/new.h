// Takes the place of Thrust's header of this name: what its vectors on the host system allocate is device memory of the
// program's runtime. Host vectors allocate elsewhere.
#pragma once
#include <cuda_runtime_api.h>
#include <thrust/detail/config.h>
#include <thrust/mr/memory_resource.h>

#include <new>

THRUST_NAMESPACE_BEGIN
namespace mr {
class new_delete_resource_base : public memory_resource<> {
 public:
  void* do_allocate(std::size_t bytes, std::size_t = THRUST_MR_DEFAULT_ALIGNMENT) override {
    void* made = nullptr;
    if (::cudaMalloc(&made, bytes ? bytes : 1) != cudaSuccess) throw std::bad_alloc();
    return made;
  }
  void do_deallocate(void* pointer, std::size_t, std::size_t = THRUST_MR_DEFAULT_ALIGNMENT) override {
    ::cudaFree(pointer);
  }
};
class new_delete_resource final : public new_delete_resource_base {};
}  // namespace mr
THRUST_NAMESPACE_END
