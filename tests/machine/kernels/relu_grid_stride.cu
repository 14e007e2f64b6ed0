#include <torch/extension.h>
#include <cuda_runtime.h>

// Grid-stride loop: any grid covers any size.
extern "C" __global__ void relu_kernel(const float* __restrict__ input, float* __restrict__ output, const int size) {
    for (int idx = blockIdx.x * blockDim.x + threadIdx.x; idx < size; idx += blockDim.x * gridDim.x) {
        output[idx] = fmaxf(input[idx], 0.0f);
    }
}
