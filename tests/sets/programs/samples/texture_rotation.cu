// Rotates an image through a texture object over a CUDA array.
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <math.h>
#include <cuda_runtime.h>
#include <helper_functions.h>
#include <helper_cuda.h>
#define MAX_EPSILON_ERROR 5e-3f

__global__ void transformKernel(float *outputData, int width, int height, float theta, cudaTextureObject_t tex) {
  unsigned int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  float u = (float)x - (float)width / 2, v = (float)y - (float)height / 2;
  float tu = u * cosf(theta) - v * sinf(theta), tv = v * cosf(theta) + u * sinf(theta);
  tu /= (float)width;
  tv /= (float)height;
  outputData[y * width + x] = tex2D<float>(tex, tu + 0.5f, tv + 0.5f);
}

static float at(const float *p, int x, int y, int w, int h) {
  x = ((x % w) + w) % w;
  y = ((y % h) + h) % h;
  return p[y * w + x];
}

int main(int argc, char **argv) {
  const unsigned int width = 64, height = 64, size = width * height * sizeof(float);
  const float angle = 0.5f;
  float *hData = (float *)malloc(size), *hOutputData = (float *)malloc(size), *dData = NULL;
  for (unsigned i = 0; i < width * height; i++) hData[i] = sinf(0.37f * (i % width)) + cosf(0.21f * (i / width));
  checkCudaErrors(cudaMalloc((void **)&dData, size));
  cudaChannelFormatDesc channelDesc = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
  cudaArray *cuArray;
  checkCudaErrors(cudaMallocArray(&cuArray, &channelDesc, width, height));
  checkCudaErrors(cudaMemcpy2DToArray(cuArray, 0, 0, hData, width * sizeof(float), width * sizeof(float), height,
                                      cudaMemcpyHostToDevice));
  cudaTextureObject_t tex;
  cudaResourceDesc texRes;
  memset(&texRes, 0, sizeof(cudaResourceDesc));
  texRes.resType = cudaResourceTypeArray;
  texRes.res.array.array = cuArray;
  cudaTextureDesc texDescr;
  memset(&texDescr, 0, sizeof(cudaTextureDesc));
  texDescr.normalizedCoords = true;
  texDescr.filterMode = cudaFilterModeLinear;
  texDescr.addressMode[0] = cudaAddressModeWrap;
  texDescr.addressMode[1] = cudaAddressModeWrap;
  texDescr.readMode = cudaReadModeElementType;
  checkCudaErrors(cudaCreateTextureObject(&tex, &texRes, &texDescr, NULL));
  dim3 dimBlock(8, 8, 1), dimGrid(width / dimBlock.x, height / dimBlock.y, 1);
  transformKernel<<<dimGrid, dimBlock, 0>>>(dData, width, height, angle, tex);
  getLastCudaError("Kernel execution failed");
  checkCudaErrors(cudaMemcpy(hOutputData, dData, size, cudaMemcpyDeviceToHost));
  double worst = 0;
  for (int y = 0; y < (int)height; y++)
    for (int x = 0; x < (int)width; x++) {
      float u = (float)x - (float)width / 2, v = (float)y - (float)height / 2;
      float tu = (u * cosf(angle) - v * sinf(angle)) + 0.5f * width - 0.5f;
      float tv = (v * cosf(angle) + u * sinf(angle)) + 0.5f * height - 0.5f;
      float fx = floorf(tu), fy = floorf(tv), a = tu - fx, b = tv - fy;
      int i = (int)fx, j = (int)fy;
      float want = (1 - a) * (1 - b) * at(hData, i, j, width, height) + a * (1 - b) * at(hData, i + 1, j, width, height) +
                   (1 - a) * b * at(hData, i, j + 1, width, height) + a * b * at(hData, i + 1, j + 1, width, height);
      worst = fmax(worst, fabs(want - hOutputData[y * width + x]));
    }
  checkCudaErrors(cudaDestroyTextureObject(tex));
  checkCudaErrors(cudaFree(dData));
  checkCudaErrors(cudaFreeArray(cuArray));
  free(hData);
  free(hOutputData);
  printf("worst %s\n", worst < 2e-2 ? "small" : "large");
  if (worst >= 2e-2) return EXIT_FAILURE;
  puts("PASS");
  return EXIT_SUCCESS;
}
