// Prints properties of devices with the samples' table of cores.
#include <cuda_runtime.h>
#include <helper_cuda.h>
#include <iostream>
#include <memory>
#include <string>

int *pArgc = NULL;
char **pArgv = NULL;

int main(int argc, char **argv) {
  pArgc = &argc;
  pArgv = argv;
  int deviceCount = 0;
  cudaError_t error_id = cudaGetDeviceCount(&deviceCount);
  if (error_id != cudaSuccess) {
    printf("cudaGetDeviceCount returned %d\n-> %s\n", static_cast<int>(error_id), cudaGetErrorString(error_id));
    exit(EXIT_FAILURE);
  }
  int dev, driverVersion = 0, runtimeVersion = 0;
  for (dev = 0; dev < deviceCount; ++dev) {
    cudaSetDevice(dev);
    cudaDeviceProp deviceProp;
    cudaGetDeviceProperties(&deviceProp, dev);
    printf("\nDevice %d: \"%s\"\n", dev, deviceProp.name);
    cudaDriverGetVersion(&driverVersion);
    cudaRuntimeGetVersion(&runtimeVersion);
    printf("  CUDA Driver Version / Runtime Version          %d.%d / %d.%d\n", driverVersion / 1000,
           (driverVersion % 100) / 10, runtimeVersion / 1000, (runtimeVersion % 100) / 10);
    char msg[256];
    snprintf(msg, sizeof(msg), "  Total amount of global memory: %.0f MBytes (%llu bytes)\n",
             static_cast<float>(deviceProp.totalGlobalMem / 1048576.0f), (unsigned long long)deviceProp.totalGlobalMem);
    printf("%s", msg);
    printf("  (%03d) Multiprocessors, (%03d) CUDA Cores/MP:    %d CUDA Cores\n", deviceProp.multiProcessorCount,
           _ConvertSMVer2Cores(deviceProp.major, deviceProp.minor),
           _ConvertSMVer2Cores(deviceProp.major, deviceProp.minor) * deviceProp.multiProcessorCount);
    int clockRate = 0;
    checkCudaErrors(cudaDeviceGetAttribute(&clockRate, cudaDevAttrClockRate, dev));
    printf("  GPU Max Clock rate: %.0f MHz\n", clockRate * 1e-3f);
    printf("  Maximum Texture Dimension Size (x,y,z)         1D=(%d), 2D=(%d, %d), 3D=(%d, %d, %d)\n",
           deviceProp.maxTexture1D, deviceProp.maxTexture2D[0], deviceProp.maxTexture2D[1], deviceProp.maxTexture3D[0],
           deviceProp.maxTexture3D[1], deviceProp.maxTexture3D[2]);
    printf("  Warp size: %d, threads: %d per SM, %d per block\n", deviceProp.warpSize,
           deviceProp.maxThreadsPerMultiProcessor, deviceProp.maxThreadsPerBlock);
    const char *sComputeMode[] = {"Default", "Exclusive", "Prohibited", "Exclusive Process", "Unknown", NULL};
    int computeMode = 0;
    checkCudaErrors(cudaDeviceGetAttribute(&computeMode, cudaDevAttrComputeMode, dev));
    printf("  Compute Mode: %s\n", sComputeMode[computeMode]);
  }
  std::string sProfileString = "deviceQuery, CUDA Driver = CUDART";
  char cTemp[16];
  sProfileString += ", CUDA Driver Version = ";
  snprintf(cTemp, sizeof(cTemp), "%d.%d", driverVersion / 1000, (driverVersion % 100) / 10);
  sProfileString += cTemp;
  std::cout << sProfileString << "\n";
  std::unique_ptr<int> best(new int(gpuGetMaxGflopsDeviceId()));
  if (*best != 0 || deviceCount != 1) return 1;
  printf("PASS\n");
  exit(EXIT_SUCCESS);
}
