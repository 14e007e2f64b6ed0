// arguments: 40 6
// A thermal stencil in the manner of a benchmark: pyramids of steps in shared memory, files written and read.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#define BLOCK_SIZE 16
#define STR_SIZE 256
#define IN_RANGE(x, lo, hi) ((x) >= (lo) && (x) <= (hi))

long long get_time() {
  struct timeval tv;
  gettimeofday(&tv, NULL);
  return (tv.tv_sec * 1000000) + tv.tv_usec;
}
void fatal(const char *s) { fprintf(stderr, "error: %s\n", s); exit(1); }

void writeoutput(float *vect, int grid, const char *file) {
  FILE *fp;
  if ((fp = fopen(file, "w")) == 0) fatal("The file was not opened");
  for (int i = 0; i < grid * grid; i++) fprintf(fp, "%d\t%g\n", i, vect[i]);
  fclose(fp);
}
void readinput(float *vect, int grid, const char *file) {
  char str[STR_SIZE];
  FILE *fp = fopen(file, "r");
  float val;
  int index;
  if (!fp) fatal("file could not be opened for reading");
  for (int i = 0; i < grid * grid; i++) {
    if (!fgets(str, STR_SIZE, fp)) fatal("not enough lines in file");
    if (sscanf(str, "%d %f", &index, &val) != 2) fatal("invalid file format");
    vect[index] = val;
  }
  fclose(fp);
}

__global__ void calculate_temp(const float *power, const float *src, float *dst, int n, float cap) {
  __shared__ float t[BLOCK_SIZE][BLOCK_SIZE];
  int x = blockIdx.x * (BLOCK_SIZE - 2) + threadIdx.x - 1, y = blockIdx.y * (BLOCK_SIZE - 2) + threadIdx.y - 1;
  int cx = min(max(x, 0), n - 1), cy = min(max(y, 0), n - 1);
  t[threadIdx.y][threadIdx.x] = src[cy * n + cx];
  __syncthreads();
  if (IN_RANGE(threadIdx.x, 1, BLOCK_SIZE - 2) && IN_RANGE(threadIdx.y, 1, BLOCK_SIZE - 2) && x < n && y < n) {
    int tx = threadIdx.x, ty = threadIdx.y;
    dst[y * n + x] = t[ty][tx] + cap * (power[y * n + x] + t[ty - 1][tx] + t[ty + 1][tx] + t[ty][tx - 1] + t[ty][tx + 1] - 4.0f * t[ty][tx]);
  }
}

int main(int argc, char **argv) {
  if (argc < 3) { fprintf(stderr, "Usage: %s <grid> <steps>\n", argv[0]); exit(1); }
  int n = atoi(argv[1]), steps = atoi(argv[2]);
  float *temp = (float *)malloc(n * n * sizeof(float)), *power = (float *)malloc(n * n * sizeof(float));
  for (int i = 0; i < n * n; i++) { temp[i] = 300 + i % 17; power[i] = (i % 5) * 0.01f; }
  writeoutput(temp, n, "temp.txt");
  readinput(temp, n, "temp.txt");
  float *d[2], *p, *want = (float *)malloc(n * n * sizeof(float)), *next = (float *)malloc(n * n * sizeof(float));
  for (int i = 0; i < n * n; i++) want[i] = temp[i];
  cudaMalloc((void **)&d[0], n * n * sizeof(float));
  cudaMalloc((void **)&d[1], n * n * sizeof(float));
  cudaMalloc((void **)&p, n * n * sizeof(float));
  cudaMemcpy(d[0], temp, n * n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(p, power, n * n * sizeof(float), cudaMemcpyHostToDevice);
  long long start = get_time();
  dim3 block(BLOCK_SIZE, BLOCK_SIZE), grid((n + BLOCK_SIZE - 3) / (BLOCK_SIZE - 2), (n + BLOCK_SIZE - 3) / (BLOCK_SIZE - 2));
  for (int s = 0; s < steps; s++) {
    calculate_temp<<<grid, block>>>(p, d[s % 2], d[1 - s % 2], n, 0.1f);
    for (int y = 0; y < n; y++)
      for (int x = 0; x < n; x++) {
        float c = want[y * n + x], u = want[(y ? y - 1 : 0) * n + x], b = want[(y < n - 1 ? y + 1 : y) * n + x];
        float l = want[y * n + (x ? x - 1 : 0)], r = want[y * n + (x < n - 1 ? x + 1 : x)];
        next[y * n + x] = c + 0.1f * (power[y * n + x] + u + b + l + r - 4.0f * c);
      }
    float *swap = want; want = next; next = swap;
  }
  cudaMemcpy(temp, d[steps % 2], n * n * sizeof(float), cudaMemcpyDeviceToHost);
  printf("Ending simulation, %d\n", get_time() - start >= 0);
  int wrong = 0;
  for (int i = 0; i < n * n; i++) wrong += !(temp[i] - want[i] < 1e-3f && want[i] - temp[i] < 1e-3f);
  puts(wrong ? "FAIL" : "PASS");
  return wrong != 0;
}
