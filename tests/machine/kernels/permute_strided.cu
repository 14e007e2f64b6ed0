// Sizes and strides travel by value in a struct.
struct Layout {
    int dims;
    long long sizes[4];
    long long strides[4];
};

extern "C" __global__ void gather_strided(const double* src, double* dst, Layout layout, long long total) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= total) return;
    long long rest = i, offset = 0;
    for (int d = layout.dims - 1; d >= 0; --d) {
        offset += (rest % layout.sizes[d]) * layout.strides[d];
        rest /= layout.sizes[d];
    }
    dst[i] = src[offset];
}
