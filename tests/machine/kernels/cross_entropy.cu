extern "C" __global__ void cross_entropy(const float* logits, const long long* target, float* loss, int N, int classes,
                                         long long ignore_index) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    long long label = target[row];
    if (label == ignore_index) { loss[row] = 0.f; return; }
    const float* z = logits + row * classes;
    float top = z[0];
    for (int c = 1; c < classes; c++) top = max(top, z[c]);
    float sum = 0;
    for (int c = 0; c < classes; c++) sum += __expf(z[c] - top);
    loss[row] = __logf(sum) + top - z[label];
}
