// Exclusive prefix sum of one row of a power of two, work efficient.
extern "C" __global__ void blelloch(const int* in, int* out, int n) {
    extern __shared__ int temp[];
    int tid = threadIdx.x, offset = 1;
    const int* row = in + blockIdx.x * n;
    temp[2 * tid] = row[2 * tid];
    temp[2 * tid + 1] = row[2 * tid + 1];
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (tid < d) {
            int ai = offset * (2 * tid + 1) - 1, bi = offset * (2 * tid + 2) - 1;
            temp[bi] += temp[ai];
        }
        offset *= 2;
    }
    if (tid == 0) temp[n - 1] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (tid < d) {
            int ai = offset * (2 * tid + 1) - 1, bi = offset * (2 * tid + 2) - 1;
            int t = temp[ai];
            temp[ai] = temp[bi];
            temp[bi] += t;
        }
    }
    __syncthreads();
    out[blockIdx.x * n + 2 * tid] = temp[2 * tid];
    out[blockIdx.x * n + 2 * tid + 1] = temp[2 * tid + 1];
}
