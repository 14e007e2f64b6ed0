// A Stockham FFT with float2 helpers beside a direct transform in std::complex.
#include <cmath>
#include <complex>
#include <cstdio>
#include <vector>
#include <cuComplex.h>
typedef float2 Complex;

static __device__ __host__ inline Complex ComplexAdd(Complex a, Complex b) { Complex c; c.x = a.x + b.x; c.y = a.y + b.y; return c; }
static __device__ __host__ inline Complex ComplexSub(Complex a, Complex b) { return make_float2(a.x - b.x, a.y - b.y); }

__global__ void stage(const Complex *in, Complex *out, int n, int half) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 2) return;
  int k = i & (half - 1);
  float s, c;
  sincospif(-(float)k / half, &s, &c);
  Complex a = in[i], b = cuCmulf(in[i + n / 2], make_cuComplex(c, s));
  int at = ((i - k) << 1) + k;
  out[at] = ComplexAdd(a, b);
  out[at + half] = ComplexSub(a, b);
}

int main() {
  const int n = 256;
  std::vector<std::complex<float>> x(n), y(n);
  for (int i = 0; i < n; i++) x[i] = {std::sin(0.3f * i), std::cos(0.05f * i * i)};
  Complex *a, *b;
  cudaMalloc(&a, n * sizeof(Complex));
  cudaMalloc(&b, n * sizeof(Complex));
  cudaMemcpy(a, x.data(), n * sizeof(Complex), cudaMemcpyHostToDevice);
  for (int half = 1; half < n; half *= 2) {
    stage<<<n / 2 / 64, 64>>>(a, b, n, half);
    Complex *t = a; a = b; b = t;
  }
  cudaMemcpy(reinterpret_cast<float2 *>(y.data()), a, n * sizeof(Complex), cudaMemcpyDeviceToHost);
  double worst = 0;
  for (int k = 0; k < n; k++) {
    std::complex<double> s = 0;
    for (int i = 0; i < n; i++) s += std::complex<double>(x[i]) * std::polar(1.0, -2 * M_PI * k * i / n);
    worst = std::max(worst, std::abs(s - std::complex<double>(y[k])));
  }
  printf("%s\n", worst < 1e-3 ? "PASS" : "FAIL");
  return worst >= 1e-3;
}
