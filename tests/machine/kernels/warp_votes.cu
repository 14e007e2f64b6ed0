extern "C" __global__ void votes(const int* x, unsigned int* out, int* counts) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    unsigned odd = __ballot_sync(0xffffffff, x[i] & 1);
    out[i] = odd;
    counts[i] = __popc(odd & ((1u << lane) - 1));          // odd values before this lane
    unsigned same = __match_any_sync(0xffffffff, x[i]);
    out[gridDim.x * blockDim.x + i] = same;
    counts[gridDim.x * blockDim.x + i] = __ffs(same) - 1;    // first lane with the same value
    int all = __all_sync(0xffffffff, x[i] >= 0), any = __any_sync(0xffffffff, x[i] == 3);
    counts[2 * gridDim.x * blockDim.x + i] = all * 2 + any;
    counts[3 * gridDim.x * blockDim.x + i] = __reduce_add_sync(0xffffffff, x[i]);
    int block_total = __syncthreads_count(x[i] > 1);
    counts[4 * gridDim.x * blockDim.x + i] = block_total;
}
