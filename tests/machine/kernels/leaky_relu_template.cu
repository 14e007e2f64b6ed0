#include <c10/util/Half.h>

template <typename scalar_t>
__global__ void leaky_relu_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float slope, int64_t n) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) {
        const scalar_t v = x[i];
        y[i] = v > scalar_t(0) ? v : static_cast<scalar_t>(static_cast<float>(v) * slope);
    }
}
