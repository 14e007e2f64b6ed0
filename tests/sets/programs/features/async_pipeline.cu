// Stream-ordered allocation, events between streams, a pool, and copies that overlap in chunks.
#include <cstdio>
#include <vector>
#define CUDA_CALL(x) do { if ((x) != cudaSuccess) { printf("Error at %s:%d\n", __FILE__, __LINE__); return EXIT_FAILURE; } } while (0)

__global__ void square(float *x, size_t n) { size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; if (i < n) x[i] *= x[i]; }
__global__ void sum(const float *x, float *total, size_t n) {
  float s = 0;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
  atomicAdd(total, s);
}

int main() {
  const int chunks = 4, each = 512;
  float *host;
  CUDA_CALL(cudaHostAlloc(&host, chunks * each * sizeof(float), cudaHostAllocDefault));
  for (int i = 0; i < chunks * each; i++) host[i] = i % 5;
  std::vector<cudaStream_t> streams(chunks);
  std::vector<cudaEvent_t> done(chunks);
  cudaStream_t last;
  int least, greatest;
  CUDA_CALL(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA_CALL(cudaStreamCreateWithPriority(&last, cudaStreamNonBlocking, greatest));
  float *total, *buffers[chunks];
  CUDA_CALL(cudaMallocAsync(&total, sizeof(float), last));
  CUDA_CALL(cudaMemsetAsync(total, 0, sizeof(float), last));
  cudaMemPool_t pool;
  CUDA_CALL(cudaDeviceGetDefaultMemPool(&pool, 0));
  for (int c = 0; c < chunks; c++) {
    CUDA_CALL(cudaStreamCreate(&streams[c]));
    CUDA_CALL(cudaEventCreateWithFlags(&done[c], cudaEventDisableTiming));
    CUDA_CALL(cudaMallocAsync(&buffers[c], each * sizeof(float), streams[c]));
    CUDA_CALL(cudaMemcpyAsync(buffers[c], host + c * each, each * sizeof(float), cudaMemcpyHostToDevice, streams[c]));
    square<<<(each + 127) / 128, 128, 0, streams[c]>>>(buffers[c], each);
    CUDA_CALL(cudaEventRecord(done[c], streams[c]));
    CUDA_CALL(cudaStreamWaitEvent(last, done[c], 0));
    sum<<<1, 64, 0, last>>>(buffers[c], total, each);
  }
  float got;
  CUDA_CALL(cudaMemcpyAsync(&got, total, sizeof got, cudaMemcpyDeviceToHost, last));
  CUDA_CALL(cudaStreamSynchronize(last));
  float want = 0;
  for (int i = 0; i < chunks * each; i++) want += (i % 5) * (i % 5);
  for (int c = 0; c < chunks; c++) {
    CUDA_CALL(cudaFreeAsync(buffers[c], streams[c]));
    CUDA_CALL(cudaStreamQuery(streams[c]));
    CUDA_CALL(cudaStreamDestroy(streams[c]));
  }
  puts(got == want ? "PASS" : "FAIL");
  return got != want;
}
