// Mean over dim 1 of a [B, R, C] tensor; one thread for each output.
extern "C" __global__ void mean_dim1(const float* x, float* y, int B, int R, int C) {
  int out = blockIdx.x * blockDim.x + threadIdx.x;
  if (out >= B * C) return;
  int b = out / C, c = out % C;
  double total = 0.0;
  const float* p = x + b * R * C + c;
  for (int r = 0; r < R; ++r, p += C) total += *p;
  y[out] = (float)(total / R);
}
