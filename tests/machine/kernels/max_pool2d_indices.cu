#include <cfloat>
#include <cstdint>

extern "C" __global__ void max_pool2d(const float* x, float* y, int64_t* indices, int planes, int H, int W, int OH, int OW,
                                      int kernel, int stride, int padding) {
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < (int64_t)planes * OH * OW; i += blockDim.x * gridDim.x) {
        int ow = i % OW, oh = i / OW % OH;
        int64_t p = i / ((int64_t)OH * OW);
        float best = -FLT_MAX;
        int64_t where = -1;
        for (int a = 0; a < kernel; a++)
            for (int b = 0; b < kernel; b++) {
                int h = oh * stride - padding + a, w = ow * stride - padding + b;
                if (h < 0 || w < 0 || h >= H || w >= W) continue;
                float v = x[(p * H + h) * W + w];
                if (v > best) { best = v; where = (int64_t)h * W + w; }
            }
        y[i] = best;
        indices[i] = where;
    }
}
