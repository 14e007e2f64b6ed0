// A surface object writes an array that a texture object then reads; a 3D texture and a linear one beside it.
#include <cstdio>
#include <cstring>
#include <vector>

__global__ void fill(cudaSurfaceObject_t s, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) surf2Dwrite((float)(x + 10 * y), s, x * (int)sizeof(float), y, cudaBoundaryModeTrap);
}
__global__ void gather(cudaTextureObject_t t, cudaTextureObject_t line, cudaTextureObject_t box, float *out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h)
    out[y * w + x] = tex2D<float>(t, x, h - 1 - y) + tex1Dfetch<int>(line, x) + tex3D<float>(box, x % 4 + 0.5f, y % 4 + 0.5f, 1.5f);
}

int main() {
  const int w = 20, h = 12;
  cudaChannelFormatDesc fmt = cudaCreateChannelDesc<float>();
  cudaArray_t array, volume;
  cudaMallocArray(&array, &fmt, w, h, cudaArraySurfaceLoadStore);
  cudaResourceDesc res;
  memset(&res, 0, sizeof(res));
  res.resType = cudaResourceTypeArray;
  res.res.array.array = array;
  cudaSurfaceObject_t surf = 0;
  cudaCreateSurfaceObject(&surf, &res);
  cudaTextureDesc td;
  memset(&td, 0, sizeof(td));
  td.addressMode[0] = td.addressMode[1] = td.addressMode[2] = cudaAddressModeClamp;
  td.filterMode = cudaFilterModePoint;
  td.readMode = cudaReadModeElementType;
  cudaTextureObject_t tex = 0, line = 0, box = 0;
  cudaCreateTextureObject(&tex, &res, &td, NULL);
  std::vector<int> numbers(w);
  for (int i = 0; i < w; i++) numbers[i] = 1000 * i;
  int *d_numbers;
  cudaMalloc(&d_numbers, w * sizeof(int));
  cudaMemcpy(d_numbers, numbers.data(), w * sizeof(int), cudaMemcpyHostToDevice);
  cudaResourceDesc linear;
  memset(&linear, 0, sizeof(linear));
  linear.resType = cudaResourceTypeLinear;
  linear.res.linear.devPtr = d_numbers;
  linear.res.linear.desc = cudaCreateChannelDesc<int>();
  linear.res.linear.sizeInBytes = w * sizeof(int);
  cudaCreateTextureObject(&line, &linear, &td, NULL);
  std::vector<float> cube(64);
  for (int i = 0; i < 64; i++) cube[i] = 0.25f * i;
  cudaExtent extent = make_cudaExtent(4, 4, 4);
  cudaMalloc3DArray(&volume, &fmt, extent);
  cudaMemcpy3DParms p = {};
  p.srcPtr = make_cudaPitchedPtr(cube.data(), 4 * sizeof(float), 4, 4);
  p.dstArray = volume;
  p.extent = extent;
  p.kind = cudaMemcpyHostToDevice;
  cudaMemcpy3D(&p);
  res.res.array.array = volume;
  cudaCreateTextureObject(&box, &res, &td, NULL);
  float *d, out[w * h];
  cudaMalloc(&d, sizeof out);
  dim3 block(8, 8), grid((w + 7) / 8, (h + 7) / 8);
  fill<<<grid, block>>>(surf, w, h);
  gather<<<grid, block>>>(tex, line, box, d, w, h);
  cudaError_t e = cudaMemcpy(out, d, sizeof out, cudaMemcpyDeviceToHost);
  bool good = e == cudaSuccess;
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++)
      good &= out[y * w + x] == x + 10 * (h - 1 - y) + 1000 * x + 0.25f * (16 + 4 * (y % 4) + x % 4);
  cudaDestroySurfaceObject(surf);
  cudaDestroyTextureObject(tex);
  cudaFreeArray(array);
  cudaFreeArray(volume);
  puts(good ? "PASS" : "FAIL");
  return !good;
}
