// Sums within groups of every size by one function over cooperative_groups::thread_group.
#include <stdio.h>
#include <cooperative_groups.h>
using namespace cooperative_groups;

__device__ int sumReduction(thread_group g, int *x, int val) {
  int lane = g.thread_rank();
  for (int i = g.size() / 2; i > 0; i /= 2) {
    x[lane] = val;
    g.sync();
    if (lane < i) val += x[lane + i];
    g.sync();
  }
  if (g.thread_rank() == 0) return val;
  return -1;
}

__global__ void cgkernel(int *results) {
  thread_block threadBlockGroup = this_thread_block();
  int threadBlockGroupSize = threadBlockGroup.size();
  extern __shared__ int workspace[];
  int input = threadBlockGroup.thread_rank();
  int output = sumReduction(threadBlockGroup, workspace, input);
  if (threadBlockGroup.thread_rank() == 0) {
    printf(" Sum of all ranks 0..%d in threadBlockGroup is %d\n", threadBlockGroupSize - 1, output);
    results[0] = output;
  }
  threadBlockGroup.sync();
  thread_block_tile<16> tiledPartition16 = tiled_partition<16>(threadBlockGroup);
  int workspaceOffset = threadBlockGroup.thread_rank() - tiledPartition16.thread_rank();
  input = tiledPartition16.thread_rank();
  output = sumReduction(tiledPartition16, workspace + workspaceOffset, input);
  if (tiledPartition16.thread_rank() == 0) results[1 + threadBlockGroup.thread_rank() / 16] = output;
  coalesced_group active = coalesced_threads();
  if (threadBlockGroup.thread_rank() == 5) results[8] = active.size();
}

int main() {
  cudaError_t err;
  int blocksPerGrid = 1, threadsPerBlock = 64, *results;
  cudaMallocManaged(&results, 16 * sizeof(int));
  for (int i = 0; i < 16; i++) results[i] = 0;
  cgkernel<<<blocksPerGrid, threadsPerBlock, threadsPerBlock * sizeof(int)>>>(results);
  err = cudaDeviceSynchronize();
  if (err != cudaSuccess) {
    fprintf(stderr, "%s\n", cudaGetErrorString(err));
    return 1;
  }
  bool good = results[0] == 63 * 64 / 2 && results[8] == 32;
  for (int i = 1; i <= 4; i++) good = good && results[i] == 120;
  cudaFree(results);
  puts(good ? "PASS" : "FAIL");
  return !good;
}
