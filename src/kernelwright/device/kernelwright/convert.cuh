// 16-bit floating-point elements in memory: values are float32, and memory is read and written in its own type.
//
//     extern "C" __global__ void relu(const kw::Half* x, kw::Half* y, int n) {
//         int i = blockIdx.x * blockDim.x + threadIdx.x;
//         if (i < n) y[i] = fmaxf(x[i], 0.0f);
//     }
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw {

// An element of a float16 tensor. It is read as float32; a float32 value is stored rounded to nearest even.
struct Half {
    __half bits;
    __device__ operator float() const { return __half2float(bits); }
    __device__ Half& operator=(float value) {
        bits = __float2half_rn(value);
        return *this;
    }
};

// The same for bfloat16.
struct BFloat16 {
    __nv_bfloat16 bits;
    __device__ operator float() const { return __bfloat162float(bits); }
    __device__ BFloat16& operator=(float value) {
        bits = __float2bfloat16_rn(value);
        return *this;
    }
};

// The same for the types of CUDA: returns an element as float32.
__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Stores a float32 value in the memory's own type.
__device__ __forceinline__ void put(float& place, float value) { place = value; }
__device__ __forceinline__ void put(__half& place, float value) { place = __float2half_rn(value); }
__device__ __forceinline__ void put(__nv_bfloat16& place, float value) { place = __float2bfloat16_rn(value); }

}  // namespace kw
