#pragma once
// Matrix products of a warpgroup (wgmma, sm_90a): D[64 x N] += A[64 x 16] B[16 x N], float32 sums, both operands in
// shared memory by descriptor.
//
//   Wgmma<128>::f16(d, descriptor(a), descriptor(b), add);
//
// d: N / 2 floats of a thread. Thread t of the warpgroup (warp w = t / 32, lane l = t % 32) holds the results of row
// 16 w + l / 4 (+ 8 for d[4 j + 2], d[4 j + 3]) and column 8 j + 2 (l % 4) (+ 1 for odd indices).
// add: 0 starts new sums. WgmmaRegisters is the same with the left operand in registers.

namespace kw {

// Returns the descriptor of a tile in shared memory whose rows are 128 bytes in the 128-byte swizzle: 16-byte piece p
// of row r lies at piece p ^ (r & 7). The tile's address is a multiple of 1024; `+ 32 bytes` is the next 16 of k.
__device__ inline unsigned long long descriptor(unsigned address) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// The same for an operand whose neighbouring rows are adjacent (TRANSPOSE_A, TRANSPOSE_B): a line of 128 bytes holds 64
// rows at one k; the next 64 rows are `step` bytes on. `+ 2048 bytes` is the next 16 of k.
__device__ inline unsigned long long descriptor_across(unsigned address, unsigned step = 8192) {
    unsigned long long wide = step >> 4;
    return (unsigned long long)((address & 0x3ffff) >> 4) | wide << 16 | 64ull << 32 | 1ull << 62;
}

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int LEFT>
__device__ inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// The operands %0 to %(n - 1) of an asm statement as text, and n results as its outputs.
#define KW_FIRST_TEN "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9"
#define KW_TEN(t)                                                                                                      \
    ", %" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define KW_TEXT32 KW_FIRST_TEN KW_TEN(1) KW_TEN(2) ", %30, %31"
#define KW_TEXT60 KW_FIRST_TEN KW_TEN(1) KW_TEN(2) KW_TEN(3) KW_TEN(4) KW_TEN(5)
#define KW_TEXT64 KW_TEXT60 ", %60, %61, %62, %63"
#define KW_TEXT90 KW_TEXT60 KW_TEN(6) KW_TEN(7) KW_TEN(8)
#define KW_TEXT96 KW_TEXT90 ", %90, %91, %92, %93, %94, %95"
#define KW_TEXT128                                                                                                     \
    KW_TEXT90 KW_TEN(9) KW_TEN(10) KW_TEN(11) ", %120, %121, %122, %123, %124, %125, %126, %127"
#define KW_OUT4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KW_OUT16(i) KW_OUT4(i), KW_OUT4(i + 4), KW_OUT4(i + 8), KW_OUT4(i + 12)
#define KW_OUT32(i) KW_OUT16(i), KW_OUT16(i + 16)
#define KW_OUT64(i) KW_OUT32(i), KW_OUT32(i + 32)
#define KW_OUT96(i) KW_OUT64(i), KW_OUT32(i + 64)
#define KW_OUT128(i) KW_OUT64(i), KW_OUT64(i + 64)

// R: N / 2, the results of a thread. The last arguments are the numbers of the operands after the results.
#define KW_WGMMA(TYPE, N, R, A, B, ADD, TB, TA)                                                                        \
    template <int TRANSPOSE_B = 0, int TRANSPOSE_A = 0>                                                                \
    __device__ static void TYPE(float (&d)[R], unsigned long long a, unsigned long long b, int add) {                  \
        asm volatile(                                                                                                  \
            "{.reg .pred p; setp.ne.b32 p, %" #ADD ", 0; "                                                             \
            "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" KW_TEXT##R "}, "                    \
            "%" #A ", %" #B ", p, 1, 1, %" #TA ", %" #TB ";}"                                                          \
            : KW_OUT##R(0)                                                                                             \
            : "l"(a), "l"(b), "r"(add), "n"(TRANSPOSE_B), "n"(TRANSPOSE_A));                                           \
    }
#define KW_WGMMA_REGISTERS(TYPE, N, R, A0, A1, A2, A3, B, ADD, TB)                                                     \
    template <int TRANSPOSE_B>                                                                                         \
    __device__ static void TYPE(float (&d)[R], const unsigned (&a)[4], unsigned long long b, int add) {                \
        asm volatile(                                                                                                  \
            "{.reg .pred p; setp.ne.b32 p, %" #ADD ", 0; "                                                             \
            "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" KW_TEXT##R "}, "                    \
            "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, %" #TB ";}"                                   \
            : KW_OUT##R(0)                                                                                             \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANSPOSE_B));                         \
    }
#define KW_BOTH_TYPES(STRUCT, FUNCTION, N, ...)                                                                        \
    template <>                                                                                                        \
    struct STRUCT<N> {                                                                                                 \
        FUNCTION(f16, N, __VA_ARGS__)                                                                                  \
        FUNCTION(bf16, N, __VA_ARGS__)                                                                                 \
    };

template <int N>
struct Wgmma;

KW_BOTH_TYPES(Wgmma, KW_WGMMA, 64, 32, 32, 33, 34, 35, 36)
KW_BOTH_TYPES(Wgmma, KW_WGMMA, 128, 64, 64, 65, 66, 67, 68)
KW_BOTH_TYPES(Wgmma, KW_WGMMA, 192, 96, 96, 97, 98, 99, 100)
KW_BOTH_TYPES(Wgmma, KW_WGMMA, 256, 128, 128, 129, 130, 131, 132)

// a: the 16 k of a thread's two rows as four pairs: (row, 2 (l % 4)), (row + 8, the same), and both at k + 8. So results
// of a product, made into pairs, are the left operand of the next.
template <int N>
struct WgmmaRegisters;

KW_BOTH_TYPES(WgmmaRegisters, KW_WGMMA_REGISTERS, 64, 32, 32, 33, 34, 35, 36, 37, 38)
KW_BOTH_TYPES(WgmmaRegisters, KW_WGMMA_REGISTERS, 128, 64, 64, 65, 66, 67, 68, 69, 70)

#undef KW_BOTH_TYPES
#undef KW_WGMMA_REGISTERS
#undef KW_WGMMA
#undef KW_OUT128
#undef KW_OUT96
#undef KW_OUT64
#undef KW_OUT32
#undef KW_OUT16
#undef KW_OUT4
#undef KW_TEXT128
#undef KW_TEXT96
#undef KW_TEXT90
#undef KW_TEXT64
#undef KW_TEXT60
#undef KW_TEXT32
#undef KW_TEN
#undef KW_FIRST_TEN

}  // namespace kw
