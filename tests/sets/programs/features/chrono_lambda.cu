// Times by std::chrono with aliases, a host template that takes a lambda, std::function and unique_ptr with a deleter.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <vector>
#include <cuda_runtime.h>

using Clock = std::chrono::high_resolution_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;
using Check = std::function<bool(int, float)>;
struct Release { void operator()(float *p) const { cudaFree(p); } };
using DeviceArray = std::unique_ptr<float, Release>;

#define CHECK(call)                                                                         \
  do {                                                                                      \
    const cudaError_t error = call;                                                         \
    if (error != cudaSuccess) {                                                             \
      std::cerr << __FILE__ << ":" << __LINE__ << " " << cudaGetErrorName(error) << '\n';   \
      std::exit(1);                                                                         \
    }                                                                                       \
  } while (0)

template <typename F>
double timed(F &&work) {
  auto start = Clock::now();
  work();
  return Milliseconds(Clock::now() - start).count();
}

DeviceArray allocate(size_t n) {
  float *p = nullptr;
  CHECK(cudaMalloc(&p, n * sizeof(float)));
  return DeviceArray(p);
}

__global__ void saxpy(int n, float a, const float *__restrict__ x, float *__restrict__ y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = a * x[i] + y[i];
}

int main() {
  const int n = 3000;
  std::vector<float> x(n), y(n, 1.0f);
  std::iota(x.begin(), x.end(), 0.0f);
  auto dx = allocate(n), dy = allocate(n);
  CHECK(cudaMemcpy(dx.get(), x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(dy.get(), y.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  double ms = timed([&] {
    for (int repeat = 0; repeat < 3; ++repeat) saxpy<<<8, 128>>>(n, 2.0f, dx.get(), dy.get());
    CHECK(cudaDeviceSynchronize());
  });
  CHECK(cudaMemcpy(y.data(), dy.get(), n * sizeof(float), cudaMemcpyDeviceToHost));
  Check right = [](int i, float v) { return v == 1.0f + 6.0f * i; };
  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong += !right(i, y[i]);
  auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
  std::cout << "wrong " << wrong << std::endl;
  if (wrong || ms < 0 || us <= 0) return 1;
  std::cout << "PASS" << std::endl;
}
