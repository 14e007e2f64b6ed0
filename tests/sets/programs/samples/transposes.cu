// Transposes through pointers to kernels, with cooperative groups' block barrier.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
#include <helper_string.h>
#include <helper_image.h>
#include <helper_cuda.h>
#include <iostream>
using namespace std;

const char *sSDKsample = "Transpose";
#define TILE_DIM 16
#define BLOCK_ROWS 8
int MATRIX_SIZE_X = 96, MATRIX_SIZE_Y = 64;
#define FLOOR(a, b) (a - (a % b))

__global__ void copy(float *odata, float *idata, int width, int height) {
  int xIndex = blockIdx.x * TILE_DIM + threadIdx.x, yIndex = blockIdx.y * TILE_DIM + threadIdx.y;
  int index = xIndex + width * yIndex;
  for (int i = 0; i < TILE_DIM; i += BLOCK_ROWS) odata[index + i * width] = idata[index + i * width];
}

__global__ void transposeNaive(float *odata, float *idata, int width, int height) {
  int xIndex = blockIdx.x * TILE_DIM + threadIdx.x, yIndex = blockIdx.y * TILE_DIM + threadIdx.y;
  int index_in = xIndex + width * yIndex, index_out = yIndex + height * xIndex;
  for (int i = 0; i < TILE_DIM; i += BLOCK_ROWS) odata[index_out + i] = idata[index_in + i * width];
}

__global__ void transposeNoBankConflicts(float *odata, float *idata, int width, int height) {
  cg::thread_block cta = cg::this_thread_block();
  __shared__ float tile[TILE_DIM][TILE_DIM + 1];
  int xIndex = blockIdx.x * TILE_DIM + threadIdx.x, yIndex = blockIdx.y * TILE_DIM + threadIdx.y;
  int index_in = xIndex + (yIndex)*width;
  xIndex = blockIdx.y * TILE_DIM + threadIdx.x;
  yIndex = blockIdx.x * TILE_DIM + threadIdx.y;
  int index_out = xIndex + (yIndex)*height;
  for (int i = 0; i < TILE_DIM; i += BLOCK_ROWS) tile[threadIdx.y + i][threadIdx.x] = idata[index_in + i * width];
  cg::sync(cta);
  for (int i = 0; i < TILE_DIM; i += BLOCK_ROWS) odata[index_out + i * height] = tile[threadIdx.x][threadIdx.y + i];
}

void computeTransposeGold(float *gold, float *idata, const int size_x, const int size_y) {
  for (int y = 0; y < size_y; ++y)
    for (int x = 0; x < size_x; ++x) gold[(x * size_y) + y] = idata[(y * size_x) + x];
}

int main(int argc, char **argv) {
  cout << sSDKsample << " starting" << endl;
  int size_x = FLOOR(MATRIX_SIZE_X, TILE_DIM), size_y = FLOOR(MATRIX_SIZE_Y, TILE_DIM);
  void (*kernel)(float *, float *, int, int);
  const char *kernelName;
  dim3 grid(size_x / TILE_DIM, size_y / TILE_DIM), threads(TILE_DIM, BLOCK_ROWS);
  size_t mem_size = sizeof(float) * size_x * size_y;
  float *h_idata = (float *)malloc(mem_size), *h_odata = (float *)malloc(mem_size);
  float *transposeGold = (float *)malloc(mem_size), *gold;
  float *d_idata, *d_odata;
  checkCudaErrors(cudaMalloc((void **)&d_idata, mem_size));
  checkCudaErrors(cudaMalloc((void **)&d_odata, mem_size));
  for (int i = 0; i < (size_x * size_y); ++i) h_idata[i] = (float)i;
  checkCudaErrors(cudaMemcpy(d_idata, h_idata, mem_size, cudaMemcpyHostToDevice));
  computeTransposeGold(transposeGold, h_idata, size_x, size_y);
  bool success = true;
  for (int k = 0; k < 3; k++) {
    switch (k) {
      case 0: kernel = &copy; kernelName = "simple copy       "; break;
      case 1: kernel = &transposeNaive; kernelName = "naive             "; break;
      default: kernel = &transposeNoBankConflicts; kernelName = "no bank conflicts "; break;
    }
    gold = k == 0 ? h_idata : transposeGold;
    checkCudaErrors(cudaMemset(d_odata, 0, mem_size));
    kernel<<<grid, threads>>>(d_odata, d_idata, size_x, size_y);
    getLastCudaError("launch failed");
    checkCudaErrors(cudaMemcpy(h_odata, d_odata, mem_size, cudaMemcpyDeviceToHost));
    bool res = compareData(gold, h_odata, size_x * size_y, 0.01f, 0.0f);
    cout << kernelName << (res ? "right" : "wrong") << endl;
    success = success && res;
  }
  free(h_idata); free(h_odata); free(transposeGold);
  cudaFree(d_idata); cudaFree(d_odata);
  if (!success) return EXIT_FAILURE;
  cout << "PASS" << endl;
  return EXIT_SUCCESS;
}
