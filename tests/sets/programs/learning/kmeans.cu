// K-means with centres in constant memory, shared accumulation, and assignment until nothing moves.
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdio>
#include <vector>
#define MAX_K 8
#define DIMS 2
struct Point { float c[DIMS]; };
struct Options { int k; int max_iterations; std::vector<Point> *points; };
__constant__ Point centres[MAX_K];

__device__ __host__ float distance2(const Point &a, const Point &b) {
  float s = 0;
  for (int d = 0; d < DIMS; d++) s += (a.c[d] - b.c[d]) * (a.c[d] - b.c[d]);
  return s;
}
__global__ void assign(const Point *points, int n, int k, int *member, float *sums, int *counts, int *moved) {
  __shared__ float s[MAX_K * DIMS];
  __shared__ int c[MAX_K];
  for (int i = threadIdx.x; i < k * DIMS; i += blockDim.x) s[i] = 0;
  for (int i = threadIdx.x; i < k; i += blockDim.x) c[i] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float best = FLT_MAX;
    int at = INT_MAX;
    for (int j = 0; j < k; j++) {
      float d = distance2(points[i], centres[j]);
      if (d < best) { best = d; at = j; }
    }
    if (member[i] != at) { member[i] = at; atomicAdd(moved, 1); }
    atomicAdd(&c[at], 1);
    for (int d = 0; d < DIMS; d++) atomicAdd(&s[at * DIMS + d], points[i].c[d]);
  }
  __syncthreads();
  for (int j = threadIdx.x; j < k; j += blockDim.x) {
    atomicAdd(&counts[j], c[j]);
    for (int d = 0; d < DIMS; d++) atomicAdd(&sums[j * DIMS + d], s[j * DIMS + d]);
  }
}
static int cluster(const Options &o, std::vector<int> &member) {
  auto &points = *o.points;
  int n = points.size(), moved = 1, rounds = 0, *d_member, *d_counts, *d_moved, counts[MAX_K];
  Point *d_points, h[MAX_K];
  float *d_sums, sums[MAX_K * DIMS];
  cudaMalloc(&d_points, n * sizeof(Point)); cudaMalloc(&d_member, n * sizeof(int)); cudaMalloc(&d_counts, sizeof counts);
  cudaMalloc(&d_moved, sizeof(int)); cudaMalloc(&d_sums, sizeof sums);
  cudaMemset(d_member, 0xff, n * sizeof(int));
  cudaMemcpy(d_points, points.data(), n * sizeof(Point), cudaMemcpyHostToDevice);
  for (int j = 0; j < o.k; j++) h[j] = points[j];
  while (moved && rounds++ < o.max_iterations) {
    cudaMemcpyToSymbol(centres, h, o.k * sizeof(Point));
    cudaMemset(d_counts, 0, sizeof counts); cudaMemset(d_sums, 0, sizeof sums); cudaMemset(d_moved, 0, sizeof(int));
    assign<<<(n + 63) / 64, 64>>>(d_points, n, o.k, d_member, d_sums, d_counts, d_moved);
    cudaMemcpy(counts, d_counts, sizeof counts, cudaMemcpyDeviceToHost);
    cudaMemcpy(sums, d_sums, sizeof sums, cudaMemcpyDeviceToHost);
    cudaMemcpy(&moved, d_moved, sizeof moved, cudaMemcpyDeviceToHost);
    for (int j = 0; j < o.k; j++)
      for (int d = 0; d < DIMS; d++) if (counts[j]) h[j].c[d] = sums[j * DIMS + d] / counts[j];
  }
  member.resize(n);
  cudaMemcpy(member.data(), d_member, n * sizeof(int), cudaMemcpyDeviceToHost);
  return rounds;
}
int main() {
  std::vector<Point> points;
  for (int i = 0; i < 300; i++) points.push_back({{(i % 3) * 10.0f + sinf(i), (i % 3 == 1) * 10.0f + cosf(3 * i)}});
  std::vector<int> member;
  Options o{3, 50, &points};
  int rounds = cluster(o, member);
  bool good = rounds < 50;
  for (int i = 3; i < 300; i++) good &= member[i] == member[i % 3];
  good &= member[0] != member[1] && member[1] != member[2] && member[0] != member[2];
  puts(good ? "PASS" : "FAIL");
  return !good;
}
