// arguments: 48 10
// Dynamic programming on anti-diagonals of tiles, with a macro for maxima and a global table of scores.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#define BLOCK_SIZE 16
#define LIMIT -999
#define SCORE(i, j) input_itemsets_l[j + i * (BLOCK_SIZE + 1)]
int blosum[4][4] = {{5, -4, -2, -1}, {-4, 6, 0, -3}, {-2, 0, 7, 1}, {-1, -3, 1, 4}};

__device__ __host__ int maximum(int a, int b, int c) {
  int k;
  if (a <= b) k = b; else k = a;
  if (k <= c) return (c); else return (k);
}
double gettime() {
  struct timeval t;
  gettimeofday(&t, NULL);
  return t.tv_sec + t.tv_usec * 1e-6;
}
__global__ void kernel(const int *reference, int *matrix, int cols, int penalty, int diagonal, int x_first) {
  int bx = x_first + blockIdx.x, by = diagonal - bx, tx = threadIdx.x;
  int base = cols * BLOCK_SIZE * by + BLOCK_SIZE * bx;
  __shared__ int temp[BLOCK_SIZE + 1][BLOCK_SIZE + 1];
  if (tx == 0) temp[0][0] = matrix[base];
  temp[tx + 1][0] = matrix[base + cols * (tx + 1)];
  temp[0][tx + 1] = matrix[base + tx + 1];
  __syncthreads();
  for (int m = 0; m < 2 * BLOCK_SIZE - 1; m++) {
    int x = tx + 1, y = m - tx + 1;
    if (y >= 1 && y <= BLOCK_SIZE)
      temp[y][x] = maximum(temp[y - 1][x - 1] + reference[base + cols * y + x], temp[y][x - 1] - penalty, temp[y - 1][x] - penalty);
    __syncthreads();
  }
  for (int ty = 0; ty < BLOCK_SIZE; ty++) matrix[base + cols * (ty + 1) + tx + 1] = temp[ty + 1][tx + 1];
}
void usage(int argc, char **argv) {
  fprintf(stderr, "Usage: %s <max_rows/max_cols> <penalty>\n", argv[0]);
  exit(1);
}
int main(int argc, char **argv) {
  int n, penalty;
  if (argc == 3) { n = atoi(argv[1]); penalty = atoi(argv[2]); } else usage(argc, argv);
  if (n % BLOCK_SIZE) return 2;
  int size = (n + 1) * (n + 1), cols = n + 1;
  int *reference = (int *)malloc(size * sizeof(int)), *matrix = (int *)calloc(size, sizeof(int)), *want = (int *)calloc(size, sizeof(int)), *dr, *dm;
  srand(7);
  for (int i = 0; i < cols; i++)
    for (int j = 0; j < cols; j++) reference[i * cols + j] = blosum[rand() % 4][rand() % 4];
  for (int i = 1; i < cols; i++) matrix[i * cols] = matrix[i] = want[i * cols] = want[i] = -i * penalty;
  for (int i = 1; i < cols; i++)
    for (int j = 1; j < cols; j++)
      want[i * cols + j] = maximum(want[(i - 1) * cols + j - 1] + reference[i * cols + j], want[i * cols + j - 1] - penalty, want[(i - 1) * cols + j] - penalty);
  cudaMalloc((void **)&dr, size * sizeof(int));
  cudaMalloc((void **)&dm, size * sizeof(int));
  cudaMemcpy(dr, reference, size * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemcpy(dm, matrix, size * sizeof(int), cudaMemcpyHostToDevice);
  double start = gettime();
  int blocks = n / BLOCK_SIZE;
  for (int d = 0; d < 2 * blocks - 1; d++) {
    int first = d < blocks ? 0 : d - blocks + 1, last = d < blocks ? d : blocks - 1;
    kernel<<<last - first + 1, BLOCK_SIZE>>>(dr, dm, cols, penalty, d, first);
  }
  cudaMemcpy(matrix, dm, size * sizeof(int), cudaMemcpyDeviceToHost);
  int bad = memcmp(matrix, want, size * sizeof(int)) != 0 || gettime() < start;
  puts(bad ? "FAIL" : "PASS");
  return bad;
}
