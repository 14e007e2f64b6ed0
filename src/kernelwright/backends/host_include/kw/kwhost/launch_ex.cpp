// Attributes of launches, and tensor maps: in the functional machine's encoding, or the driver's on a GPU.
#include <dlfcn.h>

#include "../../../../machine/csrc/copies/tensor_map.h"
#include "../cuda.h"
#include "gpu.h"

cudaError_t kw_launch_ex(const void* kernel, const cudaLaunchConfig_t& config, void** args) {
  unsigned cluster[3] = {0, 0, 0};
  bool cooperative = false;
  for (unsigned k = 0; k < config.numAttrs; ++k) {
    const cudaLaunchAttribute& one = config.attrs[k];
    if (one.id == cudaLaunchAttributeCooperative) cooperative = one.val.cooperative != 0;
    if (one.id == cudaLaunchAttributeClusterDimension)
      cluster[0] = one.val.clusterDim.x, cluster[1] = one.val.clusterDim.y, cluster[2] = one.val.clusterDim.z;
  }
  kw::set_attributes(cooperative, cluster);
  return kw_launch(kernel, config.gridDim, config.blockDim, args, config.dynamicSmemBytes, config.stream);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  if (kw::gpu) {
    auto real = reinterpret_cast<PFN_cuTensorMapEncodeTiled>(dlsym(RTLD_DEFAULT, "cuTensorMapEncodeTiled"));
    if (!real || real == cuTensorMapEncodeTiled) {
      void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
      real = driver ? reinterpret_cast<PFN_cuTensorMapEncodeTiled>(dlsym(driver, "cuTensorMapEncodeTiled")) : nullptr;
    }
    if (!real) return CUDA_ERROR_NOT_SUPPORTED;
    return real(map, type, rank, address, dims, strides, box, element_strides, interleave, swizzle, promotion, fill);
  }
  int status = kw::encode_tiled(map, type, rank, address, dims, strides, box, element_strides, interleave, swizzle,
                                promotion, fill);
  if (status == kw::TENSOR_MAP_UNSUPPORTED)
    kw::fail_unsupported("cuTensorMapEncodeTiled with this data type, interleave or swizzle");
  return static_cast<CUresult>(status);
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  if (std::string(name) != "cuTensorMapEncodeTiled")
    kw::fail_unsupported(("cudaGetDriverEntryPoint of " + std::string(name)).c_str());
  *function = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

namespace kw {
namespace {
struct DriverAttribute {  // CUlaunchAttribute
  int id;
  char pad[4];
  union {
    char bytes[64];
    int cooperative;
    unsigned cluster[3];
  };
};
struct DriverConfig {  // CUlaunchConfig
  unsigned grid[3], block[3], shared;
  void* stream;
  DriverAttribute* attributes;
  unsigned count;
};
}  // namespace

int gpu_launch_ex(void* function, const Config& config, void* stream, void** args) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* found = driver ? dlsym(driver, "cuLaunchKernelEx") : nullptr;
  auto launch = reinterpret_cast<int (*)(const DriverConfig*, void*, void**, void**)>(found);
  if (!launch) return cudaErrorNotSupported;
  DriverAttribute attributes[2] = {};
  DriverConfig c{};
  std::copy(config.grid, config.grid + 3, c.grid);
  std::copy(config.block, config.block + 3, c.block);
  c.shared = static_cast<unsigned>(config.shared);
  c.stream = stream;
  c.attributes = attributes;
  if (config.cooperative) {
    attributes[c.count].id = cudaLaunchAttributeCooperative;
    attributes[c.count++].cooperative = 1;
  }
  if (config.cluster[0]) {
    attributes[c.count].id = cudaLaunchAttributeClusterDimension;
    std::copy(config.cluster, config.cluster + 3, attributes[c.count++].cluster);
  }
  return launch(&c, function, args, nullptr);
}
}  // namespace kw
