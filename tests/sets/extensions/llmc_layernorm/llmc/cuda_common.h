/*
Common utilities for CUDA code.
*/
#ifndef CUDA_COMMON_H
#define CUDA_COMMON_H

#include <stdlib.h>
#include <stdio.h>
#include <math.h>
#include <string>
#include <type_traits>
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define WARP_SIZE 32U
extern cudaDeviceProp deviceProp;

#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ >= 900
#define MAX_1024_THREADS_BLOCKS 2
#else
#define MAX_1024_THREADS_BLOCKS 1
#endif

#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))

constexpr std::bool_constant<true> True;
constexpr std::bool_constant<false> False;

inline void cudaCheck_(cudaError_t error, const char *file, int line) {
  if (error != cudaSuccess) {
    printf("[CUDA ERROR] at file %s:%d:\n%s\n", file, line, cudaGetErrorString(error));
    exit(EXIT_FAILURE);
  }
};
#define cudaCheck(err) (cudaCheck_(err, __FILE__, __LINE__))

#if defined(ENABLE_FP32)
typedef float floatX;
#elif defined(ENABLE_FP16)
typedef half floatX;
#else
typedef __nv_bfloat16 floatX;
#endif

#if defined(ENABLE_BF16) && (__CUDACC_VER_MAJOR__ < 12)
__device__ floatX __ldcs(const floatX* address) {
    unsigned short bf = __ldcs(reinterpret_cast<const unsigned short*>(address));
    return __nv_bfloat16_raw{bf};
}
#endif
#endif
