// arguments: --use_generic_memory
// Overlaps copies and kernels in streams, with pinned memory by two ways.
const char *sSDKsample = "simpleStreams";
#include <cuda_runtime.h>
#include <helper_cuda.h>
#include <helper_functions.h>
#include <stdio.h>
#ifndef WIN32
#include <sys/mman.h>
#endif
#define MEMORY_ALIGNMENT 4096
#define ALIGN_UP(x, size) (((size_t)x + (size - 1)) & (~(size - 1)))

__global__ void init_array(int *g_data, int *factor, int num_iterations) {
  int idx = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < num_iterations; i++) g_data[idx] += *factor;
}

bool correct_data(int *a, const int n, const int c) {
  for (int i = 0; i < n; i++)
    if (a[i] != c) {
      printf("%d: %d %d\n", i, a[i], c);
      return false;
    }
  return true;
}

inline void AllocateHostMemory(bool bPinGenericMemory, int **pp_a, int **ppAligned_a, int nbytes) {
  if (bPinGenericMemory) {
    *pp_a = (int *)mmap(NULL, (nbytes + MEMORY_ALIGNMENT), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    *ppAligned_a = (int *)ALIGN_UP(*pp_a, MEMORY_ALIGNMENT);
    checkCudaErrors(cudaHostRegister(*ppAligned_a, nbytes, cudaHostRegisterMapped));
  } else {
    checkCudaErrors(cudaMallocHost((void **)pp_a, nbytes));
    *ppAligned_a = *pp_a;
  }
}

int main(int argc, char **argv) {
  int nstreams = 4, nreps = 2, n = 16 * 512, nbytes = n * sizeof(int), niterations = 5;
  dim3 threads, blocks;
  float elapsed_time, time_memcpy;
  bool bPinGenericMemory = checkCmdLineFlag(argc, (const char **)argv, "use_generic_memory");
  int device_sync_method = cudaDeviceBlockingSync;
  checkCudaErrors(cudaSetDeviceFlags(device_sync_method | (bPinGenericMemory ? cudaDeviceMapHost : 0)));
  int c = 5;
  int *h_a = 0, *hAligned_a = 0;
  AllocateHostMemory(bPinGenericMemory, &h_a, &hAligned_a, nbytes);
  int *d_a = 0, *d_c = 0;
  checkCudaErrors(cudaMalloc((void **)&d_a, nbytes));
  checkCudaErrors(cudaMemset(d_a, 0x0, nbytes));
  checkCudaErrors(cudaMalloc((void **)&d_c, sizeof(int)));
  checkCudaErrors(cudaMemcpy(d_c, &c, sizeof(int), cudaMemcpyHostToDevice));
  cudaStream_t *streams = (cudaStream_t *)malloc(nstreams * sizeof(cudaStream_t));
  for (int i = 0; i < nstreams; i++) checkCudaErrors(cudaStreamCreate(&(streams[i])));
  cudaEvent_t start_event, stop_event;
  checkCudaErrors(cudaEventCreateWithFlags(&start_event, cudaEventBlockingSync));
  checkCudaErrors(cudaEventCreateWithFlags(&stop_event, cudaEventBlockingSync));
  checkCudaErrors(cudaEventRecord(start_event, 0));
  checkCudaErrors(cudaMemcpyAsync(hAligned_a, d_a, nbytes, cudaMemcpyDeviceToHost, streams[0]));
  checkCudaErrors(cudaEventRecord(stop_event, 0));
  checkCudaErrors(cudaEventSynchronize(stop_event));
  checkCudaErrors(cudaEventElapsedTime(&time_memcpy, start_event, stop_event));
  threads = dim3(512 / (2 * nstreams), 1);
  blocks = dim3(n / (nstreams * threads.x), 1);
  memset(hAligned_a, 255, nbytes);
  checkCudaErrors(cudaMemset(d_a, 0, nbytes));
  checkCudaErrors(cudaEventRecord(start_event, 0));
  for (int k = 0; k < nreps; k++) {
    for (int i = 0; i < nstreams; i++)
      init_array<<<blocks, threads, 0, streams[i]>>>(d_a + i * n / nstreams, d_c, niterations);
    for (int i = 0; i < nstreams; i++)
      checkCudaErrors(cudaMemcpyAsync(hAligned_a + i * n / nstreams, d_a + i * n / nstreams, nbytes / nstreams,
                                      cudaMemcpyDeviceToHost, streams[i]));
  }
  checkCudaErrors(cudaEventRecord(stop_event, 0));
  checkCudaErrors(cudaEventSynchronize(stop_event));
  checkCudaErrors(cudaEventElapsedTime(&elapsed_time, start_event, stop_event));
  bool bResults = correct_data(hAligned_a, n, c * nreps * niterations);
  for (int i = 0; i < nstreams; i++) checkCudaErrors(cudaStreamDestroy(streams[i]));
  checkCudaErrors(cudaEventDestroy(start_event));
  checkCudaErrors(cudaEventDestroy(stop_event));
  if (bPinGenericMemory) {
    checkCudaErrors(cudaHostUnregister(hAligned_a));
    munmap(h_a, nbytes + MEMORY_ALIGNMENT);
  } else {
    cudaFreeHost(h_a);
  }
  checkCudaErrors(cudaFree(d_a));
  checkCudaErrors(cudaFree(d_c));
  puts(bResults && bPinGenericMemory ? "PASS" : "FAIL");
  return bResults ? EXIT_SUCCESS : EXIT_FAILURE;
}
