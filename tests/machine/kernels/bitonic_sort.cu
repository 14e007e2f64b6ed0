extern "C" __global__ void bitonic_sort(float* data, int n) {
    extern __shared__ float keys[];
    int t = threadIdx.x;
    keys[t] = data[blockIdx.x * n + t];
    __syncthreads();
    for (int k = 2; k <= n; k <<= 1) {
        for (int j = k >> 1; j > 0; j >>= 1) {
            int partner = t ^ j;
            if (partner > t) {
                bool ascending = (t & k) == 0;
                if ((keys[t] > keys[partner]) == ascending) {
                    float swap = keys[t];
                    keys[t] = keys[partner];
                    keys[partner] = swap;
                }
            }
            __syncthreads();
        }
    }
    data[blockIdx.x * n + t] = keys[t];
}
