extern "C" __global__ void masked_fill(const float* x, const bool* mask, const unsigned char* keep, float value, float* y,
                                       long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = mask[i] ? value : x[i];
  y[i] = keep[i] > 127 ? v : 0.0f;
}
