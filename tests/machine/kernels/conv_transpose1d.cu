// Gather form: each output looks for the inputs that reach it.
extern "C" __global__ void conv_transpose1d(const float* x, const float* w, float* y, int B, int Cin, int Cout, int L,
                                            int Lout, int K, int stride, int pad) {
  int o = blockIdx.x * blockDim.x + threadIdx.x, co = blockIdx.y, b = blockIdx.z;
  if (o >= Lout) return;
  float acc = 0;
  for (int k = 0; k < K; k++) {
    int t = o + pad - k;
    if (t < 0 || t % stride != 0) continue;
    int i = t / stride;
    if (i >= L) continue;
    for (int ci = 0; ci < Cin; ci++) acc += x[(b * Cin + ci) * L + i] * w[(ci * Cout + co) * K + k];
  }
  y[(b * Cout + co) * Lout + o] = acc;
}
