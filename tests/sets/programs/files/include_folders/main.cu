// flags: -Iinclude -DSCALE=3
// A folder of headers by -I, and a header that includes its neighbour.
#include <cstdio>
#include <cuda_runtime.h>
#include "math/vector3.hpp"
#include <checks.h>
#ifndef SCALE
#error "SCALE comes from the command line"
#endif

__global__ void scale(geo::Vector3<float> *v, int n) {
  int i = threadIdx.x;
  if (i < n) v[i] = v[i] * SCALE + geo::Vector3<float>{1, 0, 0};
}

int main() {
  geo::Vector3<float> h[20], *d;
  for (int i = 0; i < 20; i++) h[i] = {1.0f * i, 2.0f * i, 0.5f};
  CHECK(cudaMalloc(&d, sizeof h));
  CHECK(cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice));
  scale<<<1, 32>>>(d, 20);
  CHECK(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < 20; i++) wrong += !(h[i] == geo::Vector3<float>{3.0f * i + 1, 6.0f * i, 1.5f});
  std::cout << h[1] << std::endl << (wrong ? "FAIL" : "PASS") << std::endl;
  return wrong;
}
