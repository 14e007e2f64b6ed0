extern "C" __global__ void laplace(const float* u, float* v, dim3 size, float h) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
             z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= size.x || y >= size.y || z >= size.z) return;
    auto at = [&](int a, int b, int c) {
        a = min(max(a, 0), (int)size.x - 1);
        b = min(max(b, 0), (int)size.y - 1);
        c = min(max(c, 0), (int)size.z - 1);
        return u[(c * size.y + b) * size.x + a];
    };
    float sum = at(x - 1, y, z) + at(x + 1, y, z) + at(x, y - 1, z) + at(x, y + 1, z) + at(x, y, z - 1) + at(x, y, z + 1);
    v[(z * size.y + y) * size.x + x] = (sum - 6.0f * at(x, y, z)) / (h * h);
}
