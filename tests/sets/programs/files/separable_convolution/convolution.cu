#include <assert.h>
#include <cooperative_groups.h>
#include <helper_cuda.h>
namespace cg = cooperative_groups;
#include "convolution_common.h"
__constant__ float c_Kernel[KERNEL_LENGTH];

extern "C" void setConvolutionKernel(float *h_Kernel) { checkCudaErrors(cudaMemcpyToSymbol(c_Kernel, h_Kernel, KERNEL_LENGTH * sizeof(float))); }

template <bool rows>
__global__ void convolution(float *d_Dst, const float *d_Src, int w, int h) {
  cg::thread_block cta = cg::this_thread_block();
  __shared__ float tile[16 + 2 * KERNEL_RADIUS][16];
  const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  const int along = rows ? threadIdx.x : threadIdx.y, across = rows ? threadIdx.y : threadIdx.x;
  for (int k = along; k < 16 + 2 * KERNEL_RADIUS; k += 16) {
    int at = (rows ? blockIdx.x : blockIdx.y) * 16 + k - KERNEL_RADIUS;
    bool in = at >= 0 && at < (rows ? w : h);
    tile[k][across] = in ? (rows ? d_Src[y * w + at] : d_Src[at * w + x]) : 0;
  }
  cg::sync(cta);
  float sum = 0;
#pragma unroll
  for (int j = -KERNEL_RADIUS; j <= KERNEL_RADIUS; j++) sum += c_Kernel[KERNEL_RADIUS - j] * tile[along + KERNEL_RADIUS + j][across];
  d_Dst[y * w + x] = sum;
}
extern "C" void convolutionRowsGPU(float *d_Dst, float *d_Src, int imageW, int imageH) {
  assert(imageW % 16 == 0 && imageH % 16 == 0);
  convolution<true><<<dim3(imageW / 16, imageH / 16), dim3(16, 16)>>>(d_Dst, d_Src, imageW, imageH);
  getLastCudaError("rows");
}
extern "C" void convolutionColumnsGPU(float *d_Dst, float *d_Src, int imageW, int imageH) {
  convolution<false><<<dim3(imageW / 16, imageH / 16), dim3(16, 16)>>>(d_Dst, d_Src, imageW, imageH);
  getLastCudaError("columns");
}
