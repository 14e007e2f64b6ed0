// The real GPU behind the stand-in's CUDA calls, reached through the driver; switched on by kw_gpu_enable.
#pragma once

#include <string>

#include "impl.h"

namespace kw {

// The driver functions used, by their names in libcuda; int is CUresult, whose numbers are those of cudaError.
struct Driver {
  int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*cuFuncSetAttribute)(void*, int, int);
  int (*cuFuncGetAttribute)(int*, int, void*);
  int (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int*, void*, int, size_t);
  int (*cuMemcpy)(void*, const void*, size_t);
  int (*cuMemcpyAsync)(void*, const void*, size_t, void*);
  int (*cuMemsetD8Async)(void*, unsigned char, size_t, void*);
  int (*cuStreamCreate)(void**, unsigned);
  int (*cuStreamDestroy_v2)(void*);
  int (*cuStreamSynchronize)(void*);
  int (*cuStreamQuery)(void*);
  int (*cuStreamWaitEvent)(void*, void*, unsigned);
  int (*cuEventCreate)(void**, unsigned);
  int (*cuEventDestroy_v2)(void*);
  int (*cuEventRecord)(void*, void*);
  int (*cuEventSynchronize)(void*);
  int (*cuEventQuery)(void*);
  int (*cuEventElapsedTime)(float*, void*, void*);
  int (*cuCtxSynchronize)();
  int (*cuMemGetInfo_v2)(size_t*, size_t*);
  int (*cuGetErrorString)(int, const char**);
  int (*cuDeviceGetAttribute)(int*, int, int);
  int (*cuDeviceGetName)(char*, int, int);
  int (*cuDeviceTotalMem_v2)(size_t*, int);
};

// Null on the functional machine.
extern const Driver* gpu;

// The CUfunction of a kernel of the module that is running; asks the runner to load it when it is met first.
void* gpu_function(const char* kernel, const std::string& expression);
// Launches with the configuration's attributes; returns a CUresult.
int gpu_launch_ex(void* function, const Config& config, void* stream, void** args);
void gpu_launch(const char* kernel, const std::string& expression, const Config& config, void* stream, void** args);
std::string gpu_error(int status);

}  // namespace kw
