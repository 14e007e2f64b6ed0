// D2Q9 streaming and collision with constant tables and conservation of mass as the check.
#include <cmath>
#include <cstdio>
#include <vector>
typedef double real;
#define Q 9
constexpr int NX = 24, NY = 16;
__constant__ int cx[Q], cy[Q];
__constant__ real w[Q];
static const int h_cx[Q] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, h_cy[Q] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
static const real h_w[Q] = {4. / 9, 1. / 9, 1. / 9, 1. / 9, 1. / 9, 1. / 36, 1. / 36, 1. / 36, 1. / 36};

__device__ __host__ inline int idx(int x, int y, int q) { return (q * NY + y) * NX + x; }

template <typename T>
__global__ void step(const T *in, T *out, T omega) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= NX) return;
  T f[Q], rho = 0, ux = 0, uy = 0;
#pragma unroll
  for (int q = 0; q < Q; q++) {
    f[q] = in[idx((x - cx[q] + NX) % NX, (y - cy[q] + NY) % NY, q)];
    rho += f[q];
    ux += f[q] * cx[q];
    uy += f[q] * cy[q];
  }
  ux /= rho;
  uy /= rho;
  for (int q = 0; q < Q; q++) {
    T cu = 3 * (cx[q] * ux + cy[q] * uy);
    out[idx(x, y, q)] = f[q] - omega * (f[q] - w[q] * rho * (1 + cu + 0.5 * cu * cu - 1.5 * (ux * ux + uy * uy)));
  }
}

int main() {
  std::vector<real> f(NX * NY * Q), g;
  real mass = 0, px = 0, after = 0, pafter = 0;
  for (int y = 0; y < NY; y++)
    for (int x = 0; x < NX; x++)
      for (int q = 0; q < Q; q++) {
        real v = h_w[q] * (1 + 0.1 * sin(2 * M_PI * x / NX)) * (1 + 3 * h_cx[q] * 0.05 * cos(2 * M_PI * y / NY));
        f[idx(x, y, q)] = v;
        mass += v;
        px += v * h_cx[q];
      }
  cudaMemcpyToSymbol(cx, h_cx, sizeof h_cx);
  cudaMemcpyToSymbol(cy, h_cy, sizeof h_cy);
  cudaMemcpyToSymbol(w, h_w, sizeof h_w);
  real *a, *b;
  cudaMalloc(&a, f.size() * sizeof(real));
  cudaMalloc(&b, f.size() * sizeof(real));
  cudaMemcpy(a, f.data(), f.size() * sizeof(real), cudaMemcpyHostToDevice);
  for (int t = 0; t < 10; t++) {
    step<real><<<dim3(1, NY), 32>>>(a, b, 1.2);
    std::swap(a, b);
  }
  g.resize(f.size());
  cudaMemcpy(g.data(), a, g.size() * sizeof(real), cudaMemcpyDeviceToHost);
  double moved = 0;
  for (int q = 0; q < Q; q++)
    for (int i = 0; i < NX * NY; i++) {
      after += g[q * NX * NY + i];
      pafter += g[q * NX * NY + i] * h_cx[q];
      moved += fabs(g[q * NX * NY + i] - f[q * NX * NY + i]);
    }
  bool good = fabs(after - mass) < 1e-9 * mass && fabs(pafter - px) < 1e-9 && moved > 0.1;
  puts(good ? "PASS" : "FAIL");
  return !good;
}
