// Loads and stores of float32, float16 and bfloat16 elements as float32 values.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw {

// Returns a stored element as float32.
__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(double x) { return (float)x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Converts a float32 value to the element type of the memory that it is stored in, rounded to nearest even.
__device__ __forceinline__ void put(float& place, float value) { place = value; }
__device__ __forceinline__ void put(double& place, float value) { place = value; }
__device__ __forceinline__ void put(__half& place, float value) { place = __float2half_rn(value); }
__device__ __forceinline__ void put(__nv_bfloat16& place, float value) { place = __float2bfloat16_rn(value); }

}  // namespace kw
