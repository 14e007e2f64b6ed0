// cudaMallocPitch, cudaMalloc3D and their copies; rows are reached through the pitch.
#include <cstdio>
#include <cstdlib>
#include <vector>
#define cudaCheck(err) __check((err), #err, __FILE__, __LINE__)
static inline void __check(cudaError_t code, const char *what, const char *file, int line, bool abort = true) {
  if (code != cudaSuccess) {
    fprintf(stderr, "GPUassert: %s %s %s %d\n", cudaGetErrorString(code), what, file, line);
    if (abort) exit(code);
  }
}

__global__ void blur_rows(float *out, size_t out_pitch, const float *in, size_t in_pitch, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  const float *row = (const float *)((const char *)in + y * in_pitch);
  float left = x ? row[x - 1] : 0.f, right = x + 1 < w ? row[x + 1] : 0.f;
  ((float *)((char *)out + y * out_pitch))[x] = left + row[x] + right;
}

__global__ void add_level(cudaPitchedPtr volume, cudaExtent extent, int width) {
  char *base = (char *)volume.ptr;
  size_t slice = volume.pitch * extent.height;
  for (int z = blockIdx.x; z < (int)extent.depth; z += gridDim.x)
    for (int y = threadIdx.y; y < (int)extent.height; y += blockDim.y) {
      int *row = (int *)(base + z * slice + y * volume.pitch);
      for (int x = threadIdx.x; x < width; x += blockDim.x) row[x] += 100 * z + 10 * y + x;
    }
}

int main() {
  const int w = 37, h = 11, d = 5;
  std::vector<float> in(w * h), out(w * h);
  for (int i = 0; i < w * h; i++) in[i] = i % 9;
  float *a, *b;
  size_t pa, pb;
  cudaCheck(cudaMallocPitch(&a, &pa, w * sizeof(float), h));
  cudaCheck(cudaMallocPitch(&b, &pb, w * sizeof(float), h));
  cudaCheck(cudaMemcpy2D(a, pa, in.data(), w * sizeof(float), w * sizeof(float), h, cudaMemcpyHostToDevice));
  dim3 block(16, 4), grid((w + 15) / 16, (h + 3) / 4);
  blur_rows<<<grid, block>>>(b, pb, a, pa, w, h);
  cudaCheck(cudaPeekAtLastError());
  cudaCheck(cudaMemcpy2D(out.data(), w * sizeof(float), b, pb, w * sizeof(float), h, cudaMemcpyDeviceToHost));
  bool good = true;
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++)
      good &= out[y * w + x] == (x ? in[y * w + x - 1] : 0) + in[y * w + x] + (x + 1 < w ? in[y * w + x + 1] : 0);
  cudaExtent extent = make_cudaExtent(w * sizeof(int), h, d);
  cudaPitchedPtr volume;
  cudaCheck(cudaMalloc3D(&volume, extent));
  cudaCheck(cudaMemset3D(volume, 0, extent));
  add_level<<<2, dim3(8, 4)>>>(volume, extent, w);
  std::vector<int> host(w * h * d);
  cudaMemcpy3DParms p = {0};
  p.srcPtr = volume;
  p.dstPtr = make_cudaPitchedPtr(host.data(), w * sizeof(int), w, h);
  p.extent = extent;
  p.kind = cudaMemcpyDeviceToHost;
  cudaCheck(cudaMemcpy3D(&p));
  for (int z = 0; z < d; z++)
    for (int y = 0; y < h; y++)
      for (int x = 0; x < w; x++) good &= host[(z * h + y) * w + x] == 100 * z + 10 * y + x;
  cudaCheck(cudaFree(a));
  cudaCheck(cudaFree(b));
  cudaCheck(cudaFree(volume.ptr));
  puts(good ? "PASS" : "FAIL");
  return !good;
}
