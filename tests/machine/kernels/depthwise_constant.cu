#define RADIUS 1
#define TILE 14

__constant__ float filter_weights[64][3][3];

// Tile with halo in shared memory; filters in constant memory.
extern "C" __global__ void depthwise3x3(const float* in, float* out, int C, int H, int W) {
    __shared__ float tile[TILE + 2 * RADIUS][TILE + 2 * RADIUS + 1];
    int c = blockIdx.z % C;
    const float* plane = in + (size_t)blockIdx.z * H * W;
    int x = blockIdx.x * TILE + threadIdx.x - RADIUS;
    int y = blockIdx.y * TILE + threadIdx.y - RADIUS;
    tile[threadIdx.y][threadIdx.x] = (x >= 0 && x < W && y >= 0 && y < H) ? plane[y * W + x] : 0.0f;
    __syncthreads();
    if (threadIdx.x >= RADIUS && threadIdx.x < TILE + RADIUS && threadIdx.y >= RADIUS && threadIdx.y < TILE + RADIUS &&
        x < W && y < H) {
        float s = 0.0f;
        for (int dy = -RADIUS; dy <= RADIUS; ++dy)
            for (int dx = -RADIUS; dx <= RADIUS; ++dx)
                s += tile[threadIdx.y + dy][threadIdx.x + dx] * filter_weights[c][dy + RADIUS][dx + RADIUS];
        out[(size_t)blockIdx.z * H * W + y * W + x] = s;
    }
}
