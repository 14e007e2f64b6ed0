// Bilateral and median filters on uchar4 pixels, with helper_math's operators and a PPM of the samples' helpers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>
#include <helper_math.h>
#include <helper_image.h>
#include <helper_timer.h>
typedef unsigned char uchar;
__constant__ float cGaussian[9];
__device__ float4 rgbaToFloat(uchar4 p) { return make_float4(p.x, p.y, p.z, p.w) / 255.0f; }
__device__ uchar4 floatToRgba(float4 c) {
  c = clamp(c, 0.0f, 1.0f) * 255.0f + make_float4(0.5f);
  return make_uchar4((uchar)c.x, (uchar)c.y, (uchar)c.z, (uchar)c.w);
}
__global__ void bilateral(const uchar4 *in, uchar4 *out, int w, int h, float e_d, int r) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  float sum = 0;
  float4 t = make_float4(0.0f), centre = rgbaToFloat(in[y * w + x]);
  for (int i = -r; i <= r; i++)
    for (int j = -r; j <= r; j++) {
      float4 p = rgbaToFloat(in[clamp(y + i, 0, h - 1) * w + clamp(x + j, 0, w - 1)]);
      float3 diff = make_float3(p - centre);
      float factor = cGaussian[i + r] * cGaussian[j + r] * __expf(-dot(diff, diff) / (2 * e_d * e_d));
      t += factor * p;
      sum += factor;
    }
  out[y * w + x] = floatToRgba(t / sum);
}
__global__ void median(const uchar4 *in, uchar *out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  uchar v[9];
  for (int k = 0; k < 9; k++) v[k] = in[min(max(y + k / 3 - 1, 0), h - 1) * w + min(max(x + k % 3 - 1, 0), w - 1)].x;
  for (int i = 0; i < 5; i++)
    for (int j = i + 1; j < 9; j++)
      if (v[j] < v[i]) { uchar s = v[i]; v[i] = v[j]; v[j] = s; }
  out[y * w + x] = v[4];
}
int main() {
  const int w = 30, h = 20, r = 2;
  std::vector<uchar4> in(w * h), out(w * h);
  std::vector<uchar> rgba(4 * w * h), med(w * h);
  for (int i = 0; i < w * h; i++) in[i] = make_uchar4((i * 37) % 256, (i % w) * 8, (i / w) * 12, 255);
  float g[9];
  for (int i = 0; i <= 2 * r; i++) g[i] = expf(-(i - r) * (i - r) / 2.0f);
  cudaMemcpyToSymbol(cGaussian, g, sizeof(float) * (2 * r + 1));
  StopWatchInterface *timer = nullptr;
  sdkCreateTimer(&timer);
  sdkStartTimer(&timer);
  uchar4 *a, *b;
  uchar *c;
  cudaMalloc(&a, in.size() * 4); cudaMalloc(&b, in.size() * 4); cudaMalloc(&c, in.size());
  cudaMemcpy(a, in.data(), in.size() * 4, cudaMemcpyHostToDevice);
  dim3 block(8, 8), grid((w + 7) / 8, (h + 7) / 8);
  bilateral<<<grid, block>>>(a, b, w, h, 0.2f, r);
  median<<<grid, block>>>(a, c, w, h);
  cudaMemcpy(out.data(), b, out.size() * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(med.data(), c, med.size(), cudaMemcpyDeviceToHost);
  sdkStopTimer(&timer);
  int wrong = sdkGetTimerValue(&timer) < 0;
  sdkDeleteTimer(&timer);
  auto at = [&](int x, int y) { return in[std::min(std::max(y, 0), h - 1) * w + std::min(std::max(x, 0), w - 1)]; };
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) {
      uchar v[9];
      float s = 0, t = 0;
      uchar4 m = at(x, y);
      for (int k = 0; k < 9; k++) v[k] = at(x + k % 3 - 1, y + k / 3 - 1).x;
      std::sort(v, v + 9);
      for (int i = -r; i <= r; i++)
        for (int j = -r; j <= r; j++) {
          uchar4 p = at(x + j, y + i);
          float d = (pow(p.x - m.x, 2) + pow(p.y - m.y, 2) + pow(p.z - m.z, 2)) / 65025.0f, f = g[i + r] * g[j + r] * expf(-d / 0.08f);
          s += f;
          t += f * p.x;
        }
      wrong += v[4] != med[y * w + x] || fabsf(t / s - out[y * w + x].x) > 1.0f;
    }
  uchar *again = nullptr;
  unsigned int rw = 0, rh = 0;
  wrong += !sdkSavePPM4ub("out.ppm", (uchar *)out.data(), w, h) || !sdkLoadPPM4ub("out.ppm", &again, &rw, &rh) || (int)rw != w || (int)rh != h;
  for (int i = 0; i < w * h && !wrong; i++) wrong += again[4 * i + 1] != out[i].y;
  free(again);
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
