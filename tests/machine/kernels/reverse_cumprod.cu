#include <functional>
#include <string>

extern "C" __global__ void reverse_cumprod(const double* x, double* y, int rows, int cols, bool exclusive) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  double p = 1.0;
  for (int c = cols - 1; c >= 0; --c) {
    double v = x[(long)row * cols + c];
    y[(long)row * cols + c] = exclusive ? p : p * v;
    p *= v;
  }
}
