// Votes, matches, shuffles, bit counts and warp reductions.
#include <cstdio>
#include <bitset>
#define FULL 0xffffffffu

__device__ __forceinline__ unsigned lane_id() { unsigned r; asm("mov.u32 %0, %%laneid;" : "=r"(r)); return r; }

__global__ void votes(const int *in, unsigned *out) {
  int t = threadIdx.x, v = in[t];
  unsigned ballot = __ballot_sync(FULL, v & 1), same = __match_any_sync(FULL, v % 5);
  int all = __all_sync(FULL, v >= 0), any = __any_sync(FULL, v == 7);
  unsigned rank = __popc(same & ((1u << lane_id()) - 1));
  int sum = v;
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(FULL, sum, o);
  int up = __shfl_up_sync(FULL, v, 3), down = __shfl_down_sync(FULL, v, 2, 8), from = __shfl_sync(FULL, v, 5);
  unsigned most = __reduce_max_sync(FULL, (unsigned)v), both = __reduce_and_sync(FULL, (unsigned)v | 1u);
  out[t * 10] = ballot; out[t * 10 + 1] = same; out[t * 10 + 2] = all * 2 + any; out[t * 10 + 3] = rank;
  out[t * 10 + 4] = sum; out[t * 10 + 5] = up; out[t * 10 + 6] = down; out[t * 10 + 7] = from;
  out[t * 10 + 8] = most; out[t * 10 + 9] = both + __ffs(ballot) + __clz(v + 1) + __brev(1u << (v & 3));
}

int main() {
  int in[32], *d;
  unsigned out[320], *o;
  for (int i = 0; i < 32; i++) in[i] = (i * 7) % 23;
  cudaMalloc(&d, sizeof in);
  cudaMalloc(&o, sizeof out);
  cudaMemcpy(d, in, sizeof in, cudaMemcpyHostToDevice);
  votes<<<1, 32>>>(d, o);
  cudaMemcpy(out, o, sizeof out, cudaMemcpyDeviceToHost);
  unsigned ballot = 0, most = 0, both = ~0u, sum = 0;
  for (int i = 0; i < 32; i++) {
    ballot |= (unsigned)(in[i] & 1) << i;
    most = in[i] > (int)most ? in[i] : most;
    both &= in[i] | 1;
    sum += in[i];
  }
  int bad = 0;
  for (int i = 0; i < 32; i++) {
    unsigned same = 0;
    for (int j = 0; j < 32; j++) same |= (unsigned)(in[j] % 5 == in[i] % 5) << j;
    unsigned low = same & ((1u << i) - 1);
    bad += out[i * 10] != ballot || out[i * 10 + 1] != same || out[i * 10 + 2] != 3;
    bad += out[i * 10 + 3] != std::bitset<32>(low).count() || out[i * 10 + 4] != sum;
    bad += out[i * 10 + 5] != (unsigned)in[i < 3 ? i : i - 3] || out[i * 10 + 6] != (unsigned)in[i % 8 < 6 ? i + 2 : i];
    bad += out[i * 10 + 7] != (unsigned)in[5] || out[i * 10 + 8] != most;
    bad += out[i * 10 + 9] != both + __builtin_ffs(ballot) + __builtin_clz(in[i] + 1) + (0x80000000u >> (in[i] & 3));
  }
  puts(bad ? "FAIL" : "PASS");
  return bad;
}
