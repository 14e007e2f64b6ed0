// Error checks and the choice of a device as the samples' helper_cuda.h offers them. Ours, from the header's interface.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper_string.h"

#ifndef MAX
#define MAX(a, b) (a > b ? a : b)
#endif
#ifndef MIN
#define MIN(a, b) (a < b ? a : b)
#endif
#ifndef DEVICE_RESET
#define DEVICE_RESET cudaDeviceReset();
#endif

inline const char* _cudaGetErrorEnum(cudaError_t error) { return cudaGetErrorName(error); }

template <typename T>
void check(T result, char const* const function, const char* const file, int const line) {
  if (!result) return;
  fprintf(stderr, "CUDA error at %s:%d code=%d(%s) \"%s\" \n", file, line, static_cast<unsigned int>(result),
          _cudaGetErrorEnum(result), function);
  exit(EXIT_FAILURE);
}
#define checkCudaErrors(value) check((value), #value, __FILE__, __LINE__)

inline void __getLastCudaError(const char* message, const char* file, const int line, bool ends = true) {
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s(%i) : getLastCudaError() CUDA error : %s : (%d) %s.\n", file, line, message,
          static_cast<int>(error), cudaGetErrorString(error));
  if (ends) exit(EXIT_FAILURE);
}
#define getLastCudaError(message) __getLastCudaError(message, __FILE__, __LINE__)
#define printLastCudaError(message) __getLastCudaError(message, __FILE__, __LINE__, false)

inline int ftoi(float value) { return value >= 0 ? static_cast<int>(value + 0.5) : static_cast<int>(value - 0.5); }

// Cores of a multiprocessor by compute capability.
inline int _ConvertSMVer2Cores(int major, int minor) {
  switch (major * 10 + minor) {
    case 30: case 32: case 35: case 37: return 192;
    case 60: case 70: case 72: case 75: case 80: return 64;
    default: return 128;
  }
}
inline const char* _ConvertSMVer2ArchName(int major, int minor) {
  switch (major) {
    case 3: return "Kepler";
    case 5: return "Maxwell";
    case 6: return "Pascal";
    case 7: return minor < 5 ? "Volta" : "Turing";
    case 8: return minor < 9 ? "Ampere" : "Ada";
    case 9: return "Hopper";
    default: return "Blackwell";
  }
}

inline int gpuDeviceInit(int device) {
  int count = 0;
  checkCudaErrors(cudaGetDeviceCount(&count));
  if (count == 0) {
    fprintf(stderr, "gpuDeviceInit() CUDA error: no devices supporting CUDA.\n");
    exit(EXIT_FAILURE);
  }
  if (device < 0) device = 0;
  if (device >= count) return -device;
  checkCudaErrors(cudaSetDevice(device));
  return device;
}
inline int gpuGetMaxGflopsDeviceId() {
  int count = 0;
  checkCudaErrors(cudaGetDeviceCount(&count));
  if (count == 0) {
    fprintf(stderr, "gpuGetMaxGflopsDeviceId() CUDA error: no devices supporting CUDA.\n");
    exit(EXIT_FAILURE);
  }
  return 0;
}
inline int findCudaDevice(int argc, const char** argv) {
  if (checkCmdLineFlag(argc, argv, "device")) {
    int device = gpuDeviceInit(getCmdLineArgumentInt(argc, argv, "device="));
    if (device >= 0) return device;
    printf("exiting...\n");
    exit(EXIT_FAILURE);
  }
  int device = gpuGetMaxGflopsDeviceId(), major = 0, minor = 0;
  checkCudaErrors(cudaSetDevice(device));
  checkCudaErrors(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  checkCudaErrors(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  printf("GPU Device %d: \"%s\" with compute capability %d.%d\n\n", device, _ConvertSMVer2ArchName(major, minor), major,
         minor);
  return device;
}
inline int findIntegratedGPU() { return -1; }
inline bool checkCudaCapabilities(int major_wanted, int minor_wanted) {
  int device = 0, major = 0, minor = 0;
  checkCudaErrors(cudaGetDevice(&device));
  checkCudaErrors(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  checkCudaErrors(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major > major_wanted || (major == major_wanted && minor >= minor_wanted);
}
