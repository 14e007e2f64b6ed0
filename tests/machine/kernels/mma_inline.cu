#include <cuda_bf16.h>
#include <cstdint>

// C[16x8] = A[16x16] * B[16x8] by one mma instruction; A row major, B column major.
extern "C" __global__ void mma_bf16(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C) {
    int lane = threadIdx.x, group = lane >> 2, pair = (lane & 3) * 2;
    uint32_t a[4], b[2];
    a[0] = *reinterpret_cast<const uint32_t*>(&A[group * 16 + pair]);
    a[1] = *reinterpret_cast<const uint32_t*>(&A[(group + 8) * 16 + pair]);
    a[2] = *reinterpret_cast<const uint32_t*>(&A[group * 16 + pair + 8]);
    a[3] = *reinterpret_cast<const uint32_t*>(&A[(group + 8) * 16 + pair + 8]);
    b[0] = *reinterpret_cast<const uint32_t*>(&B[group * 16 + pair]);
    b[1] = *reinterpret_cast<const uint32_t*>(&B[group * 16 + pair + 8]);
    float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    C[group * 8 + pair] = d0;
    C[group * 8 + pair + 1] = d1;
    C[(group + 8) * 8 + pair] = d2;
    C[(group + 8) * 8 + pair + 1] = d3;
}
