// __device__ and __constant__ globals: copies to and from symbols, their addresses, function pointers in tables.
#include <cstdio>
typedef float (*op_t)(float, float);
enum { OPS = 3, N = 64 };

__device__ float add(float a, float b) { return a + b; }
__device__ float mul(float a, float b) { return a * b; }
__device__ float sub(float a, float b) { return a - b; }
__device__ op_t table[OPS] = {add, mul, sub};
__constant__ float coefficients[N];
__device__ float results[OPS][N];
static __device__ int counter = 5;
struct Settings { int shift; float scale; char name[8]; };
__constant__ Settings settings;

__global__ void apply() {
  int op = blockIdx.x, i = threadIdx.x;
  results[op][i] = table[op](coefficients[i], settings.scale) + settings.shift;
  if (i == 0) atomicAdd(&counter, settings.name[0] == 'x');
}

int main() {
  float c[N], r[OPS][N];
  for (int i = 0; i < N; i++) c[i] = 0.5f * i;
  Settings s = {3, 4.0f, "xyz"};
  cudaMemcpyToSymbol(coefficients, c, sizeof(c) / 2);
  cudaMemcpyToSymbol(coefficients, c + N / 2, sizeof(c) / 2, sizeof(c) / 2);
  cudaMemcpyToSymbol(settings, &s, sizeof s);
  apply<<<OPS, N>>>();
  cudaMemcpyFromSymbol(r, results, sizeof r);
  int *address, n = 0;
  size_t bytes;
  cudaGetSymbolAddress((void **)&address, counter);
  cudaGetSymbolSize(&bytes, coefficients);
  cudaMemcpy(&n, address, sizeof n, cudaMemcpyDeviceToHost);
  bool good = n == 8 && bytes == sizeof c;
  for (int i = 0; i < N; i++)
    good &= r[0][i] == c[i] + 7 && r[1][i] == c[i] * 4 + 3 && r[2][i] == c[i] - 4 + 3;
  puts(good ? "PASS" : "FAIL");
  return !good;
}
