extern "C" __global__ void cosine(const float* a, const float* b, float* out, int D) {
  float dot = 0, na = 0, nb = 0;
  for (int d = threadIdx.x; d < D; d += blockDim.x) {
    float u = a[blockIdx.x * D + d], v = b[blockIdx.x * D + d];
    dot = fmaf(u, v, dot); na = fmaf(u, u, na); nb = fmaf(v, v, nb);
  }
  __shared__ float3 s[64];
  s[threadIdx.x] = make_float3(dot, na, nb);
  __syncthreads();
  if (threadIdx.x == 0) {
    float3 t = make_float3(0, 0, 0);
    for (int i = 0; i < blockDim.x; i++) { t.x += s[i].x; t.y += s[i].y; t.z += s[i].z; }
    out[blockIdx.x] = t.x / fmaxf(sqrtf(t.y) * sqrtf(t.z), 1e-8f);
  }
}
