#include <cstdint>

__device__ __forceinline__ uint32_t lane_id() {
    uint32_t r;
    asm("mov.u32 %0, %%laneid;" : "=r"(r));
    return r;
}

extern "C" __global__ void assembly(const uint32_t* x, uint32_t* out, float* fout, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint32_t v = x[i], logic, field, inserted, permuted, high;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(logic) : "r"(v), "r"(v >> 1), "r"(v << 1));
    asm("bfe.u32 %0, %1, 5, 11;" : "=r"(field) : "r"(v));
    asm("bfi.b32 %0, %1, %2, 8, 4;" : "=r"(inserted) : "r"(v), "r"(0xFFFFFFFFu));
    asm("prmt.b32 %0, %1, %2, 0x3715;" : "=r"(permuted) : "r"(v), "r"(~v));
    asm("{\n\t.reg .u64 wide;\n\tmul.wide.u32 wide, %1, %1;\n\tshr.u64 wide, wide, 32;\n\tcvt.u32.u64 %0, wide;\n}" : "=r"(high) : "r"(v));
    out[i] = logic;
    out[n + i] = field;
    out[2 * n + i] = inserted;
    out[3 * n + i] = permuted;
    out[4 * n + i] = high;
    out[5 * n + i] = lane_id();
    float tanh_fast;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(tanh_fast) : "f"((float)(v & 15) * 0.25f));
    fout[i] = tanh_fast;
}
