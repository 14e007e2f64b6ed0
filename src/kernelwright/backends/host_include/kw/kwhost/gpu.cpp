// Launches on a real GPU, straight from compiled host code: no Python between a candidate's <<<>>> and the driver.
#include "gpu.h"

#include <dlfcn.h>

#include <map>

namespace kw {

const Driver* gpu = nullptr;
static Driver driver;

namespace {
struct Loaded {
  void* function;
  long launches;
};
std::map<int, std::map<std::string, Loaded>> modules;
int current = 0;
}  // namespace

std::string gpu_error(int status) {
  const char* text = nullptr;
  if (gpu && gpu->cuGetErrorString(status, &text) == 0 && text) return text;
  return "error " + std::to_string(status);
}

static Loaded& loaded(const char* kernel, const std::string& expression) {
  const std::string& key = expression.empty() ? std::string(kernel) : expression;
  auto& known = modules[current];
  auto found = known.find(key);
  if (found == known.end()) {
    // The runner finds the function, compiling an instance where it must, and answers through kw_gpu_add.
    if (callbacks.launch(kernel, expression.c_str(), nullptr, nullptr, nullptr, 0)) throw_callback_error();
    found = known.find(key);
    if (found == known.end()) fail("kernel " + key + " could not be loaded");
  }
  return found->second;
}

void* gpu_function(const char* kernel, const std::string& expression) { return loaded(kernel, expression).function; }

void gpu_launch(const char* kernel, const std::string& expression, const Config& c, void* stream, void** args) {
  Loaded& one = loaded(kernel, expression);
  if (c.shared > 49152) gpu->cuFuncSetAttribute(one.function, 8, static_cast<int>(c.shared));
  bool plain = !c.cooperative && !c.cluster[0];
  int status = !plain ? gpu_launch_ex(one.function, c, stream, args)
      : gpu->cuLaunchKernel(one.function, c.grid[0], c.grid[1], c.grid[2], c.block[0], c.block[1], c.block[2],
                                   static_cast<unsigned>(c.shared), stream, args, nullptr);
  if (status) fail_device("CUDA error: " + gpu_error(status) + " (kernel " + (expression.empty() ? kernel : expression) + ")");
  ++one.launches;
}

}  // namespace kw

extern "C" {

// 0, or the number of the first function that the driver lacks, counted from 1; -1 without a driver.
int kw_gpu_enable() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return -1;
  static const char* const names[] = {
      "cuLaunchKernel", "cuFuncSetAttribute", "cuFuncGetAttribute", "cuOccupancyMaxActiveBlocksPerMultiprocessor",
      "cuMemcpy", "cuMemcpyAsync", "cuMemsetD8Async", "cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize",
      "cuStreamQuery", "cuStreamWaitEvent", "cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventSynchronize",
      "cuEventQuery", "cuEventElapsedTime", "cuCtxSynchronize", "cuMemGetInfo_v2", "cuGetErrorString",
      "cuDeviceGetAttribute", "cuDeviceGetName", "cuDeviceTotalMem_v2"};
  static_assert(sizeof(names) / sizeof(names[0]) == sizeof(kw::Driver) / sizeof(void*));
  void** table = reinterpret_cast<void**>(&kw::driver);
  for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); ++k)
    if (!(table[k] = dlsym(library, names[k]))) return int(k) + 1;
  kw::gpu = &kw::driver;
  return 0;
}

void kw_gpu_module(int number) { kw::current = number; }

void kw_gpu_add(const char* key, void* function) { kw::modules[kw::current][key] = {function, 0}; }

// Launches of a kernel since the last question, over all modules; -1 after the last kernel.
long kw_gpu_launches(int index, const char** key) {
  for (auto& [number, kernels] : kw::modules)
    for (auto& [name, one] : kernels)
      if (index-- == 0) {
        *key = name.c_str();
        long count = one.launches;
        one.launches = 0;
        return count;
      }
  return -1;
}
}
