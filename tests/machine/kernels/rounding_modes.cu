extern "C" __global__ void rounding(const float* a, const float* b, float* out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    out[i] = __fadd_ru(a[i], b[i]);
    out[n + i] = __fadd_rd(a[i], b[i]);
    out[2 * n + i] = __fmul_rz(a[i], b[i]);
    out[3 * n + i] = __frcp_rn(b[i]);
    out[4 * n + i] = __fmaf_ru(a[i], b[i], a[i]);
    out[5 * n + i] = __fsqrt_rn(fabsf(a[i]));
    out[6 * n + i] = __saturatef(a[i]);
    out[7 * n + i] = __fdiv_rn(a[i], b[i]);
}
