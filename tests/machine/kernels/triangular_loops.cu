extern "C" __global__ void lower_triangular_matmul(const float* A, const float* B, float* C, int N) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= N || col >= N) return;
    if (col > row) { C[row * N + col] = 0.f; return; }
    float s = 0.f;
    int k = col;
    while (true) {
        if (k > row) break;
        s += A[row * N + k] * B[k * N + col];
        k++;
    }
    C[row * N + col] = s;
}
