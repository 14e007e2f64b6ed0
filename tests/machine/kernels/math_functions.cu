#include <math.h>
#define EVERY(F) \
    F(0, sinf(x)) F(1, cosf(x)) F(2, tanf(x)) F(3, expf(x)) F(4, logf(fabsf(x) + 0.5f)) F(5, powf(fabsf(x), 1.7f)) \
    F(6, sqrtf(fabsf(x))) F(7, erff(x)) F(8, lgammaf(fabsf(x) + 1.0f)) F(9, fmodf(x, 0.7f)) F(10, atan2f(x, 2.0f)) \
    F(11, cbrtf(x)) F(12, floorf(x)) F(13, ceilf(x)) F(14, truncf(x)) F(15, rintf(x)) F(16, exp2f(x)) \
    F(17, log2f(fabsf(x) + 0.1f)) F(18, hypotf(x, 3.0f)) F(19, sinhf(x)) F(20, asinhf(x)) F(21, copysignf(2.0f, x)) \
    F(22, fdimf(x, 0.5f)) F(23, sigmoid(x)) F(24, roundf(x)) F(25, erfcf(x)) F(26, log1pf(fabsf(x))) F(27, acosf(x / 9.f))

__device__ float sigmoid(float v) { return 1.f / (1.f + expf(-v)); }

extern "C" __global__ void all_float(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
#define STORE(row, value) out[row * n + i] = value;
    EVERY(STORE)
}

extern "C" __global__ void all_double(const double* in, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i];
    out[i] = sin(x) * cos(x);
    out[n + i] = exp(x) + log(fabs(x) + 0.5);
    out[2 * n + i] = pow(fabs(x), 1.7);
    out[3 * n + i] = erf(x) + lgamma(fabs(x) + 1.0);
    out[4 * n + i] = fmod(x, 0.7) + tanh(x);
    out[5 * n + i] = sqrt(fabs(x)) / (1.0 + x * x) + fma(x, x, 1.0);
}
