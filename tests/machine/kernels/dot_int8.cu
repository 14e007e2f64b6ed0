extern "C" __global__ void int8_dot(const int* a, const int* b, int* out, float scale, float* real, int words) {
    int acc = 0;
    for (int i = threadIdx.x; i < words; i += blockDim.x)
        acc = __dp4a(a[blockIdx.x * words + i], b[blockIdx.x * words + i], acc);
    for (int o = 16; o; o >>= 1) acc += __shfl_down_sync(0xffffffff, acc, o);
    if (threadIdx.x == 0) {
        out[blockIdx.x] = acc;
        real[blockIdx.x] = acc * scale;
    }
}
