extern __shared__ float smem[];

// One buffer for two arrays of different type: sorted order by counting how many are smaller.
extern "C" __global__ void rank_sort(const float* x, float* sorted, int* ranks, int n) {
    float* values = smem;
    int* positions = (int*)&values[n];
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = x[blockIdx.x * n + i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int r = 0;
        for (int j = 0; j < n; ++j) r += values[j] < values[i] || (values[j] == values[i] && j < i);
        positions[r] = i;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        sorted[blockIdx.x * n + i] = values[positions[i]];
        ranks[blockIdx.x * n + i] = positions[i];
    }
}
