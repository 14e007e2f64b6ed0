extern "C" __global__ void logsumexp(const double* x, double* y, int rows, int cols) {
  int row = blockIdx.x * blockDim.y + threadIdx.y;  // a warp for each row
  if (row >= rows) return;
  double m = -1.0 / 0.0;
  for (int c = threadIdx.x; c < cols; c += 32) m = fmax(m, x[row * cols + c]);
  for (int mask = 16; mask > 0; mask >>= 1) m = fmax(m, __shfl_xor_sync(0xffffffffu, m, mask));
  double s = 0;
  for (int c = threadIdx.x; c < cols; c += 32) s += exp(x[row * cols + c] - m);
  for (int mask = 16; mask > 0; mask >>= 1) s += __shfl_xor_sync(0xffffffffu, s, mask);
  if (threadIdx.x == 0) y[row] = m + log(s);
}
