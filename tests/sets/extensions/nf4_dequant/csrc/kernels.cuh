#ifndef kernels
#define kernels

#include <float.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>

template <typename T, int TILE_SIZE, int THREADS, int NUM_PER_TH, int DATA_TYPE>
__global__ void kDequantizeBlockwise(unsigned char* A, float* absmax, T* out, const int blocksize, const int n);

#endif
