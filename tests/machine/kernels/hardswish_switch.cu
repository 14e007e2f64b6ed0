// One kernel for several activations, picked at run time.
enum Activation { IDENTITY = 0, RELU6 = 1, HARDSWISH = 2, SOFTPLUS = 3, ELU = 4, SIGN = 5, MISH = 6 };

__device__ inline float activate(float x, int kind) {
    switch (kind) {
        case RELU6: return fminf(fmaxf(x, 0.f), 6.f);
        case HARDSWISH: return x * fminf(fmaxf(x + 3.f, 0.f), 6.f) / 6.f;
        case SOFTPLUS: return x > 20.f ? x : log1pf(expf(x));
        case ELU: return x > 0.f ? x : expm1f(x);
        case SIGN: return (x > 0.f) - (x < 0.f);
        case MISH: return x * tanhf(log1pf(expf(x)));
        default: return x;
    }
}

extern "C" __global__ void activate_all(const float* x, float* y, int n, int kinds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int kind = blockIdx.y;
    if (i < n && kind < kinds) y[kind * n + i] = activate(x[i], kind);
}
