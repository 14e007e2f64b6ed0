// Compiled with --use_fast_math: approximate instructions, flushed subnormals.
extern "C" __global__ void fast(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = expf(-v * v) * rsqrtf(1.0f + v * v) + sinf(v) / (2.0f + cosf(v)) + logf(1.0f + fabsf(v)) + tanhf(v) + powf(fabsf(v) + 1.0f, 0.3f);
}
