// Cooperative groups: inclusive scans, labelled partitions, memcpy_async, and a block's barrier by arrive and wait.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cstdio>
namespace cg = cooperative_groups;

__global__ void kernel(const int *in, int *out, int *sums, int n) {
  extern __shared__ int tile[];
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  int base = blockIdx.x * blockDim.x;
  cg::memcpy_async(block, tile, in + base, sizeof(int) * block.size());
  cg::wait(block);
  int v = tile[block.thread_rank()];
  out[base + block.thread_rank()] = cg::inclusive_scan(warp, v);
  int most = cg::reduce(warp, v, cg::greater<int>());
  auto same = cg::labeled_partition(warp, v % 3);
  int members = cg::reduce(same, 1, cg::plus<int>());
  if (warp.thread_rank() == 0) atomicAdd(&sums[0], most);
  if (same.thread_rank() == 0) atomicAdd(&sums[1], members);
  if (block.thread_index().x == 0 && block.group_index().x == 0) sums[2] = block.num_threads() + cg::this_grid().num_blocks();
}

int main() {
  const int n = 256;
  int *in, *out, *sums;
  cudaMallocManaged(&in, n * 4); cudaMallocManaged(&out, n * 4); cudaMallocManaged(&sums, 12);
  for (int i = 0; i < n; i++) in[i] = (i * 13) % 29;
  sums[0] = sums[1] = sums[2] = 0;
  kernel<<<2, 128, 128 * sizeof(int)>>>(in, out, sums, n);
  if (cudaDeviceSynchronize() != cudaSuccess) return 2;
  int wrong = 0, total = 0;
  for (int w = 0; w < n / 32; w++) {
    int run = 0, most = 0;
    for (int i = w * 32; i < w * 32 + 32; i++) {
      run += in[i];
      most = in[i] > most ? in[i] : most;
      wrong += out[i] != run;
    }
    total += most;
  }
  wrong += sums[0] != total || sums[1] != n || sums[2] != 130;
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
