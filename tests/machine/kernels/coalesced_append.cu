#include <cooperative_groups.h>
using namespace cooperative_groups;

// Counts with one atomic for each group of active threads.
__device__ int aggregated_inc(int* counter) {
    coalesced_group active = coalesced_threads();
    int base = 0;
    if (active.thread_rank() == 0) base = atomicAdd(counter, active.size());
    return active.shfl(base, 0) + active.thread_rank();
}

extern "C" __global__ void keep_positive(const int* x, int* kept, int* counter, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) kept[aggregated_inc(counter)] = x[i];
}
