#include <cub/cub.cuh>

template <int THREADS>
__global__ void block_statistics(const float* x, float* sums, float* inclusive, int n) {
    using Reduce = cub::BlockReduce<float, THREADS>;
    using Scan = cub::BlockScan<float, THREADS>;
    __shared__ typename Reduce::TempStorage reduce_storage;
    __shared__ typename Scan::TempStorage scan_storage;
    int i = blockIdx.x * THREADS + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    float total = Reduce(reduce_storage).Sum(v);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
    float running;
    Scan(scan_storage).InclusiveSum(v, running);
    if (i < n) inclusive[i] = running;
}
