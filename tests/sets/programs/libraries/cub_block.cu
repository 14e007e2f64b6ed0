// CUB's block and warp algorithms inside a kernel, with storage in a union.
#include <cstdio>
#include <cub/cub.cuh>
#include <vector>
#include <algorithm>
using namespace cub;

template <int BLOCK, int ITEMS>
__global__ void sort_and_scan(const int *in, int *sorted, int *scanned, int *totals) {
  typedef BlockLoad<int, BLOCK, ITEMS, BLOCK_LOAD_TRANSPOSE> Load;
  typedef BlockRadixSort<int, BLOCK, ITEMS> Sort;
  typedef BlockScan<int, BLOCK> Scan;
  typedef BlockReduce<int, BLOCK> Reduce;
  typedef BlockStore<int, BLOCK, ITEMS, BLOCK_STORE_TRANSPOSE> Store;
  __shared__ union {
    typename Load::TempStorage load;
    typename Sort::TempStorage sort;
    typename Scan::TempStorage scan;
    typename Reduce::TempStorage reduce;
    typename Store::TempStorage store;
  } temp;
  int items[ITEMS], base = blockIdx.x * BLOCK * ITEMS;
  Load(temp.load).Load(in + base, items);
  __syncthreads();
  int total = Reduce(temp.reduce).Sum(items);
  __syncthreads();
  Sort(temp.sort).Sort(items);
  __syncthreads();
  int kept[ITEMS];
  for (int i = 0; i < ITEMS; i++) kept[i] = items[i];
  Store(temp.store).Store(sorted + base, kept);  // which reorders what it stores
  __syncthreads();
  Scan(temp.scan).InclusiveSum(items, items);
  __syncthreads();
  Store(temp.store).Store(scanned + base, items);
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

int main() {
  const int blocks = 3, per = 64 * 4, n = blocks * per;
  std::vector<int> h(n), s(n), c(n), t(blocks);
  for (int i = 0; i < n; i++) h[i] = (i * 131) % 511;
  int *in, *sorted, *scanned, *totals;
  cudaMalloc(&in, n * 4); cudaMalloc(&sorted, n * 4); cudaMalloc(&scanned, n * 4); cudaMalloc(&totals, blocks * 4);
  cudaMemcpy(in, h.data(), n * 4, cudaMemcpyHostToDevice);
  sort_and_scan<64, 4><<<blocks, 64>>>(in, sorted, scanned, totals);
  cudaMemcpy(s.data(), sorted, n * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(c.data(), scanned, n * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(t.data(), totals, blocks * 4, cudaMemcpyDeviceToHost);
  bool good = true;
  for (int b = 0; b < blocks; b++) {
    std::sort(h.begin() + b * per, h.begin() + (b + 1) * per);
    int sum = 0;
    for (int i = b * per; i < (b + 1) * per; i++) {
      sum += h[i];
      good &= s[i] == h[i] && c[i] == sum;
    }
    good &= t[b] == sum;
  }
  puts(good ? "PASS" : "FAIL");
  return !good;
}
