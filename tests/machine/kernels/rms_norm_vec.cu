extern "C" __global__ void rms_norm(const float4* __restrict__ x, const float4* __restrict__ w, float4* __restrict__ y,
                                    int vecs, float eps) {
  const float4* row = x + (size_t)blockIdx.x * vecs;
  float ss = 0;
  for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
    float4 v = __ldg(row + i);
    ss += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  ss = ss + __shfl_xor_sync(~0u, ss, 16);
  ss = ss + __shfl_xor_sync(~0u, ss, 8);
  ss = ss + __shfl_xor_sync(~0u, ss, 4);
  ss = ss + __shfl_xor_sync(~0u, ss, 2);
  ss = ss + __shfl_xor_sync(~0u, ss, 1);
  float scale = 1.0f / sqrtf(ss / (vecs * 4) + eps);
  for (int i = threadIdx.x; i < vecs; i += blockDim.x) {
    float4 v = row[i], g = w[i];
    y[(size_t)blockIdx.x * vecs + i] = make_float4(v.x * scale * g.x, v.y * scale * g.y, v.z * scale * g.z, v.w * scale * g.w);
  }
}
