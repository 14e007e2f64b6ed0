// A conjugate gradient solver as one cooperative launch with grid barriers.
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>
#include <helper_cuda.h>
#include <helper_functions.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

void genTridiag(int *I, int *J, float *val, int N, int nz) {
  I[0] = 0;
  int k = 0;
  for (int i = 0; i < N; i++) {
    if (i > 0) { J[k] = i - 1; val[k++] = 1.0f; }
    J[k] = i; val[k++] = 4.0f + i % 3;
    if (i < N - 1) { J[k] = i + 1; val[k++] = 1.0f; }
    I[i + 1] = k;
  }
}

__device__ void gpuSpMV(int *I, int *J, float *val, int num_rows, float alpha, float *x, float *y, const cg::grid_group &grid) {
  for (int i = grid.thread_rank(); i < num_rows; i += grid.size()) {
    float output = 0.0f;
    for (int j = I[i]; j < I[i + 1]; j++) output += alpha * val[j] * x[J[j]];
    y[i] = output;
  }
}

__device__ void gpuDot(float *a, float *b, double *result, int size, const cg::thread_block &cta, const cg::grid_group &grid) {
  extern __shared__ double tmp[];
  double temp_sum = 0.0;
  for (int i = grid.thread_rank(); i < size; i += grid.size()) temp_sum += static_cast<double>(a[i] * b[i]);
  cg::thread_block_tile<32> tile32 = cg::tiled_partition<32>(cta);
  temp_sum = cg::reduce(tile32, temp_sum, cg::plus<double>());
  if (tile32.thread_rank() == 0) tmp[tile32.meta_group_rank()] = temp_sum;
  cg::sync(cta);
  if (tile32.meta_group_rank() == 0) {
    temp_sum = tile32.thread_rank() < tile32.meta_group_size() ? tmp[tile32.thread_rank()] : 0.0;
    temp_sum = cg::reduce(tile32, temp_sum, cg::plus<double>());
    if (tile32.thread_rank() == 0) atomicAdd(result, temp_sum);
  }
}

extern "C" __global__ void gpuConjugateGradient(int *I, int *J, float *val, float *x, float *Ax, float *p, float *r,
                                                double *dot_result, int N, float tol) {
  cg::thread_block cta = cg::this_thread_block();
  cg::grid_group grid = cg::this_grid();
  float r1;
  gpuSpMV(I, J, val, N, 1.0f, x, Ax, grid);
  cg::sync(grid);
  for (int i = grid.thread_rank(); i < N; i += grid.size()) { r[i] -= Ax[i]; p[i] = r[i]; }
  cg::sync(grid);
  gpuDot(r, r, dot_result, N, cta, grid);
  cg::sync(grid);
  r1 = *dot_result;
  int k = 1;
  while (r1 > tol * tol && k <= 100) {
    cg::sync(grid);
    gpuSpMV(I, J, val, N, 1.0f, p, Ax, grid);
    if (threadIdx.x == 0 && blockIdx.x == 0) *dot_result = 0.0;
    cg::sync(grid);
    gpuDot(p, Ax, dot_result, N, cta, grid);
    cg::sync(grid);
    float a = r1 / *dot_result, r0 = r1;
    for (int i = grid.thread_rank(); i < N; i += grid.size()) { x[i] += a * p[i]; r[i] -= a * Ax[i]; }
    cg::sync(grid);
    if (threadIdx.x == 0 && blockIdx.x == 0) *dot_result = 0.0;
    cg::sync(grid);
    gpuDot(r, r, dot_result, N, cta, grid);
    cg::sync(grid);
    r1 = *dot_result;
    float b = r1 / r0;
    for (int i = grid.thread_rank(); i < N; i += grid.size()) p[i] = r[i] + b * p[i];
    k++;
  }
}

int main(int argc, char **argv) {
  int N = 500, nz = (N - 2) * 3 + 4, *I, *J, devID = findCudaDevice(argc, (const char **)argv);
  float *val, *x, *rhs, *r, *p, *Ax, tol = 1e-4f;
  double *dot_result;
  int supportsCoop = 0;
  checkCudaErrors(cudaDeviceGetAttribute(&supportsCoop, cudaDevAttrCooperativeLaunch, devID));
  if (!supportsCoop) exit(EXIT_WAIVED);
  cudaMallocManaged((void **)&I, sizeof(int) * (N + 1));
  cudaMallocManaged((void **)&J, sizeof(int) * nz);
  cudaMallocManaged((void **)&val, sizeof(float) * nz);
  cudaMallocManaged((void **)&x, sizeof(float) * N);
  cudaMallocManaged((void **)&rhs, sizeof(float) * N);
  cudaMallocManaged((void **)&dot_result, sizeof(double));
  cudaMallocManaged((void **)&r, N * sizeof(float));
  cudaMallocManaged((void **)&p, N * sizeof(float));
  cudaMallocManaged((void **)&Ax, N * sizeof(float));
  genTridiag(I, J, val, N, nz);
  *dot_result = 0.0;
  for (int i = 0; i < N; i++) { r[i] = rhs[i] = 1.0f; x[i] = 0.0f; }
  void *kernelArgs[] = {(void *)&I, (void *)&J, (void *)&val, (void *)&x, (void *)&Ax, (void *)&p, (void *)&r,
                        (void *)&dot_result, (void *)&N, (void *)&tol};
  int sMemSize = sizeof(double) * (64 / 32 + 1), numBlocksPerSm = 0;
  checkCudaErrors(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&numBlocksPerSm, gpuConjugateGradient, 64, sMemSize));
  dim3 dimGrid(4, 1, 1), dimBlock(64, 1, 1);
  checkCudaErrors(cudaLaunchCooperativeKernel((void *)gpuConjugateGradient, dimGrid, dimBlock, kernelArgs, sMemSize, NULL));
  checkCudaErrors(cudaDeviceSynchronize());
  float err = 0.0f;
  for (int i = 0; i < N; i++) {
    float rsum = 0.0f;
    for (int j = I[i]; j < I[i + 1]; j++) rsum += val[j] * x[J[j]];
    err = fmaxf(err, fabsf(rsum - rhs[i]));
  }
  printf("error %s\n", err < tol * 10 ? "small" : "large");
  if (err >= tol * 10 || numBlocksPerSm < 1) return EXIT_FAILURE;
  puts("PASS");
  return EXIT_SUCCESS;
}
