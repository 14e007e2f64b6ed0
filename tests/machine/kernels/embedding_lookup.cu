template <typename index_t>
__global__ void embedding(const float* __restrict__ table, const index_t* __restrict__ ids, float* __restrict__ out,
                          int tokens, int dim) {
    int token = blockIdx.x * blockDim.y + threadIdx.y;
    if (token >= tokens) return;
    const index_t id = ids[token];
    for (int d = threadIdx.x; d < dim; d += blockDim.x)
        out[token * dim + d] = id < 0 ? 0.f : table[id * dim + d];
}
