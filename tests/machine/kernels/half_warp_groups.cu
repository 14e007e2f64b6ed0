// Two halves of a warp use the same warp-wide instructions side by side, each with its own mask.
extern "C" __global__ void half_warps(const int* x, unsigned* out, int* sums) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, n = gridDim.x * blockDim.x;
    unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    int v = x[t];
    if (lane < 16)
        for (int i = 0; i < 3; ++i) v = v * 5 % 7;  // one half arrives later
    out[t] = __ballot_sync(mask, v > 2);
    out[n + t] = __match_any_sync(mask, v);
    out[2 * n + t] = __any_sync(mask, v == 6) * 2 + __all_sync(mask, v >= 0 && v < 6);
    sums[t] = __reduce_add_sync(mask, v);
    sums[n + t] = __reduce_max_sync(mask, v);
    for (int o = 8; o; o >>= 1) v += __shfl_xor_sync(mask, v, o);
    sums[2 * n + t] = v;
}
