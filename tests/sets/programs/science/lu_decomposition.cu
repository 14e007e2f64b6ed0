// arguments: -s 48 -v
// Blocked LU with three kernels, and options by getopt.
#include <cuda.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#define BLOCK_SIZE 16
typedef enum _FUNC_RETURN_CODE { RET_SUCCESS, RET_FAILURE } func_ret_t;
typedef struct __stopwatch_t { struct timeval begin; struct timeval end; } stopwatch;

void stopwatch_start(stopwatch *sw) { gettimeofday(&sw->begin, NULL); }
void stopwatch_stop(stopwatch *sw) { gettimeofday(&sw->end, NULL); }
double get_interval_by_sec(stopwatch *sw) {
  return ((double)(sw->end.tv_sec - sw->begin.tv_sec) + (double)(sw->end.tv_usec - sw->begin.tv_usec) / 1000000);
}
func_ret_t create_matrix(float **mp, int size) {
  float *m = (float *)malloc(sizeof(float) * size * size);
  if (m == NULL) return RET_FAILURE;
  for (int i = 0; i < size; i++)
    for (int j = 0; j < size; j++) m[i * size + j] = expf(-0.1f * abs(i - j)) + (i == j ? 4.0f : 0.0f);
  *mp = m;
  return RET_SUCCESS;
}

__global__ void lud_diagonal(float *m, int dim, int offset) {
  __shared__ float s[BLOCK_SIZE][BLOCK_SIZE];
  for (int i = 0; i < BLOCK_SIZE; i++) s[i][threadIdx.x] = m[(offset + i) * dim + offset + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < BLOCK_SIZE - 1; i++) {
    if (threadIdx.x > i) {
      for (int j = 0; j < i; j++) s[threadIdx.x][i] -= s[threadIdx.x][j] * s[j][i];
      s[threadIdx.x][i] /= s[i][i];
    }
    __syncthreads();
    if (threadIdx.x > i)
      for (int j = 0; j < i + 1; j++) s[i + 1][threadIdx.x] -= s[i + 1][j] * s[j][threadIdx.x];
    __syncthreads();
  }
  for (int i = 0; i < BLOCK_SIZE; i++) m[(offset + i) * dim + offset + threadIdx.x] = s[i][threadIdx.x];
}
__global__ void lud_perimeter(float *m, int dim, int offset) {
  int at = offset + (blockIdx.x + 1) * BLOCK_SIZE, t = threadIdx.x % BLOCK_SIZE;
  if (threadIdx.x < BLOCK_SIZE) {
    for (int i = 1; i < BLOCK_SIZE; i++)
      for (int j = 0; j < i; j++) m[(offset + i) * dim + at + t] -= m[(offset + i) * dim + offset + j] * m[(offset + j) * dim + at + t];
  } else {
    for (int i = 0; i < BLOCK_SIZE; i++) {
      for (int j = 0; j < i; j++) m[(at + t) * dim + offset + i] -= m[(at + t) * dim + offset + j] * m[(offset + j) * dim + offset + i];
      m[(at + t) * dim + offset + i] /= m[(offset + i) * dim + offset + i];
    }
  }
}
__global__ void lud_internal(float *m, int dim, int offset) {
  int row = offset + (blockIdx.y + 1) * BLOCK_SIZE + threadIdx.y, col = offset + (blockIdx.x + 1) * BLOCK_SIZE + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < BLOCK_SIZE; i++) sum += m[row * dim + offset + i] * m[(offset + i) * dim + col];
  m[row * dim + col] -= sum;
}

static struct option long_options[] = {{"size", 1, NULL, 's'}, {"verify", 0, NULL, 'v'}, {0, 0, 0, 0}};

int main(int argc, char *argv[]) {
  int dim = 32, opt, option_index = 0, verify = 0;
  while ((opt = getopt_long(argc, argv, "::vs:", long_options, &option_index)) != -1) {
    switch (opt) {
      case 'v': verify = 1; break;
      case 's': dim = atoi(optarg); break;
      default: fprintf(stderr, "invalid option\n"); exit(EXIT_FAILURE);
    }
  }
  float *m, *original, *d;
  stopwatch sw;
  if (create_matrix(&m, dim) != RET_SUCCESS || create_matrix(&original, dim) != RET_SUCCESS || !verify || dim != 48) return 2;
  cudaMalloc((void **)&d, dim * dim * sizeof(float));
  stopwatch_start(&sw);
  cudaMemcpy(d, m, dim * dim * sizeof(float), cudaMemcpyHostToDevice);
  int i;
  for (i = 0; i < dim - BLOCK_SIZE; i += BLOCK_SIZE) {
    lud_diagonal<<<1, BLOCK_SIZE>>>(d, dim, i);
    lud_perimeter<<<(dim - i) / BLOCK_SIZE - 1, BLOCK_SIZE * 2>>>(d, dim, i);
    dim3 grid((dim - i) / BLOCK_SIZE - 1, (dim - i) / BLOCK_SIZE - 1), block(BLOCK_SIZE, BLOCK_SIZE);
    lud_internal<<<grid, block>>>(d, dim, i);
  }
  lud_diagonal<<<1, BLOCK_SIZE>>>(d, dim, i);
  cudaMemcpy(m, d, dim * dim * sizeof(float), cudaMemcpyDeviceToHost);
  stopwatch_stop(&sw);
  float worst = get_interval_by_sec(&sw) < 0;
  for (int r = 0; r < dim; r++)
    for (int c = 0; c < dim; c++) {
      float sum = 0;
      for (int k = 0; k <= (r < c ? r : c); k++) sum += (k == r ? 1.0f : m[r * dim + k]) * m[k * dim + c];
      worst = fmaxf(worst, fabsf(sum - original[r * dim + c]));
    }
  printf("%s\n", worst < 1e-4f ? "PASS" : "FAIL");
  return worst >= 1e-4f;
}
