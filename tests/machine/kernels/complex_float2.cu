__device__ float2 operator*(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
__device__ float2 operator+(const float2& a, const float2& b) { return {a.x + b.x, a.y + b.y}; }

// Discrete Fourier transform of rows, straight from its definition.
extern "C" __global__ void dft(const float2* x, float2* y, int n) {
    int k = threadIdx.x;
    if (k >= n) return;
    float2 acc = make_float2(0.f, 0.f);
    for (int t = 0; t < n; ++t) {
        float s, c;
        sincospif(-2.0f * ((long long)k * t % n) / n, &s, &c);
        acc = acc + x[blockIdx.x * n + t] * make_float2(c, s);
    }
    y[blockIdx.x * n + k] = acc;
}
