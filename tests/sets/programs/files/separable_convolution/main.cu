// files: convolution.cu gold.cpp
// Three units with one header: kernels and constants in a second .cu, the reference in a .cpp.
#include <helper_cuda.h>
#include <helper_functions.h>
#include "convolution_common.h"

int main(int argc, char **argv) {
  float *h_Kernel = (float *)malloc(KERNEL_LENGTH * sizeof(float)), *h_Input = (float *)malloc(W * H * sizeof(float));
  float *h_Buffer = (float *)malloc(W * H * sizeof(float)), *h_Gold = (float *)malloc(W * H * sizeof(float)), *h_Gpu = (float *)malloc(W * H * sizeof(float));
  float *d_Input, *d_Output, *d_Buffer;
  StopWatchInterface *hTimer = NULL;
  findCudaDevice(argc, (const char **)argv);
  sdkCreateTimer(&hTimer);
  srand(200);
  for (unsigned int i = 0; i < KERNEL_LENGTH; i++) h_Kernel[i] = (float)(rand() % 16);
  for (unsigned i = 0; i < W * H; i++) h_Input[i] = (float)(rand() % 16);
  checkCudaErrors(cudaMalloc((void **)&d_Input, W * H * sizeof(float)));
  checkCudaErrors(cudaMalloc((void **)&d_Output, W * H * sizeof(float)));
  checkCudaErrors(cudaMalloc((void **)&d_Buffer, W * H * sizeof(float)));
  setConvolutionKernel(h_Kernel);
  checkCudaErrors(cudaMemcpy(d_Input, h_Input, W * H * sizeof(float), cudaMemcpyHostToDevice));
  sdkResetTimer(&hTimer);
  sdkStartTimer(&hTimer);
  convolutionRowsGPU(d_Buffer, d_Input, W, H);
  convolutionColumnsGPU(d_Output, d_Buffer, W, H);
  checkCudaErrors(cudaDeviceSynchronize());
  sdkStopTimer(&hTimer);
  checkCudaErrors(cudaMemcpy(h_Gpu, d_Output, W * H * sizeof(float), cudaMemcpyDeviceToHost));
  convolutionRowCPU(h_Buffer, h_Input, h_Kernel, W, H, KERNEL_RADIUS);
  convolutionColumnCPU(h_Gold, h_Buffer, h_Kernel, W, H, KERNEL_RADIUS);
  double sum = 0, delta = 0;
  for (unsigned i = 0; i < W * H; i++) {
    delta += (h_Gold[i] - h_Gpu[i]) * (h_Gold[i] - h_Gpu[i]);
    sum += h_Gold[i] * h_Gold[i];
  }
  sdkDeleteTimer(&hTimer);
  puts(sqrt(delta / sum) < 1e-6 ? "PASS" : "FAIL");
  exit(sqrt(delta / sum) < 1e-6 ? EXIT_SUCCESS : EXIT_FAILURE);
}
