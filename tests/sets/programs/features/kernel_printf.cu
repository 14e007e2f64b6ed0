// printf from kernels with the formats that programs use, and clock().
#include <cstdio>
#include <ctime>

__global__ void hello(clock_t *ticks, float f) {
  clock_t start = clock();
  if (threadIdx.x == 0)
    printf("block (%d,%d) of %u: %s %5.2f %c 0x%08x %lld %e %%\n", blockIdx.x, blockIdx.y, gridDim.x * gridDim.y, "text", f, 'z',
           0xbeefu, 1234567890123LL, 0.5);
  long long wide = clock64();
  ticks[(blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] = wide >= 0 ? clock() - start : -1;
}

int main() {
  clock_t *d, h[2 * 2 * 32], began = clock();
  size_t fifo;
  cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 20);
  cudaDeviceGetLimit(&fifo, cudaLimitPrintfFifoSize);
  cudaMalloc(&d, sizeof h);
  hello<<<dim3(2, 2), 32>>>(d, 3.14159f);
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
  int bad = 0;
  for (int i = 0; i < 128; i++) bad += h[i] < 0;
  printf("%f s\n", (double)(clock() - began) / CLOCKS_PER_SEC);
  puts(bad ? "FAIL" : "PASS");
  return bad;
}
