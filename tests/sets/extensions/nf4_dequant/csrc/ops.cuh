#ifndef ops_H
#define ops_H

#include <assert.h>
#include <stdio.h>
#include <cuda_runtime_api.h>
#include <functional>
#include <iostream>

#define CUDA_CHECK_RETURN(value)                                                                                       \
    {                                                                                                                  \
        cudaError_t _m_cudaStat = value;                                                                               \
        if (_m_cudaStat != cudaSuccess) {                                                                              \
            fprintf(stderr, "Error %s at line %d in file %s\n", cudaGetErrorString(_m_cudaStat), __LINE__, __FILE__);  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    }

#define THREADS_PER_BLOCKS (512)

typedef enum DataType_t {
    General8bit = 0,
    FP4 = 1,
    NF4 = 2,
} DataType_t;

template <typename T, int DATA_TYPE>
void dequantizeBlockwise(unsigned char* A, float* absmax, T* out, int block_size, const int n, cudaStream_t stream);
#endif
