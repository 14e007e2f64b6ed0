extern "C" __global__ void conv2d(const float* __restrict__ input, const float* __restrict__ weight,
                                  const float* __restrict__ bias, float* __restrict__ output, int N, int C_in, int H,
                                  int W, int C_out, int KH, int KW, int stride, int padding, int dilation, int groups,
                                  int H_out, int W_out) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    int total = N * C_out * H_out * W_out;
    if (index >= total) return;
    int ow = index % W_out;
    int oh = (index / W_out) % H_out;
    int oc = (index / (W_out * H_out)) % C_out;
    int n = index / (W_out * H_out * C_out);
    int group_in = C_in / groups, group_out = C_out / groups;
    int g = oc / group_out;
    float value = bias != nullptr ? bias[oc] : 0.0f;
    for (int ic = 0; ic < group_in; ++ic) {
        for (int kh = 0; kh < KH; ++kh) {
            int ih = oh * stride - padding + kh * dilation;
            if (ih < 0 || ih >= H) continue;
            for (int kw = 0; kw < KW; ++kw) {
                int iw = ow * stride - padding + kw * dilation;
                if (iw >= 0 && iw < W) {
                    value += input[((n * C_in + g * group_in + ic) * H + ih) * W + iw] *
                             weight[((oc * group_in + ic) * KH + kh) * KW + kw];
                }
            }
        }
    }
    output[index] = value;
}
