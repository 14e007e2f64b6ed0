#include <c10/util/BFloat16.h>
#include <ATen/AccumulateType.h>

template <typename scalar_t, typename accscalar_t = at::acc_type<scalar_t, true>>
__global__ void l2_normalize(const scalar_t* x, scalar_t* y, int cols) {
    accscalar_t sum = 0;
    for (int c = threadIdx.x; c < cols; c += 32) {
        accscalar_t v = static_cast<accscalar_t>(x[blockIdx.x * cols + c]);
        sum += v * v;
    }
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    accscalar_t inv = accscalar_t(1) / sqrt(sum);
    for (int c = threadIdx.x; c < cols; c += 32)
        y[blockIdx.x * cols + c] = static_cast<scalar_t>(static_cast<accscalar_t>(x[blockIdx.x * cols + c]) * inv);
}
