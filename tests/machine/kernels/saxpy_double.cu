extern "C" __global__ void saxpy(int n, double alpha, const double* x, double* y, bool negate) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = negate ? y[i] - alpha * x[i] : y[i] + alpha * x[i];
}
