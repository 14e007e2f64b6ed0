// cuRAND's Philox generator for device code (curand_kernel.h): the counter-based generator that torch uses. Other
// generators are missing.
#pragma once

typedef enum { CURAND_STATUS_SUCCESS = 0 } curandStatus_t;

struct curandStatePhilox4_32_10 {
  uint4 ctr;
  uint4 output;
  uint2 key;
  unsigned STATE;
  int boxmuller_flag;
  int boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

__device__ inline uint4 curand_Philox4x32_10(uint4 c, uint2 k) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    if (round) k.x += 0x9E3779B9u, k.y += 0xBB67AE85u;
    const unsigned high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    const unsigned high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    c = make_uint4(high1 ^ c.y ^ k.x, low1, high0 ^ c.w ^ k.y, low0);
  }
  return c;
}
__device__ inline void Philox_State_Incr(curandStatePhilox4_32_10_t* s, unsigned long long n) {
  unsigned low = (unsigned)n, high = (unsigned)(n >> 32);
  s->ctr.x += low;
  if (s->ctr.x < low) ++high;
  s->ctr.y += high;
  if (high <= s->ctr.y) return;
  if (++s->ctr.z) return;
  ++s->ctr.w;
}
__device__ inline void Philox_State_Incr_hi(curandStatePhilox4_32_10_t* s, unsigned long long n) {
  unsigned low = (unsigned)n, high = (unsigned)(n >> 32);
  s->ctr.z += low;
  if (s->ctr.z < low) ++high;
  s->ctr.w += high;
}
__device__ inline void Philox_State_Incr(curandStatePhilox4_32_10_t* s) {
  if (++s->ctr.x) return;
  if (++s->ctr.y) return;
  if (++s->ctr.z) return;
  ++s->ctr.w;
}
__device__ inline void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* s) {
  s->STATE += (unsigned)(n & 3);
  n /= 4;
  if (s->STATE > 3) {
    n += 1;
    s->STATE -= 4;
  }
  Philox_State_Incr(s, n);
  s->output = curand_Philox4x32_10(s->ctr, s->key);
}
__device__ inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* s) {
  Philox_State_Incr_hi(s, n);
  s->output = curand_Philox4x32_10(s->ctr, s->key);
}
__device__ inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                                   curandStatePhilox4_32_10_t* s) {
  s->ctr = make_uint4(0, 0, 0, 0);
  s->key = make_uint2((unsigned)seed, (unsigned)(seed >> 32));
  s->STATE = 0;
  s->boxmuller_flag = s->boxmuller_flag_double = 0;
  s->boxmuller_extra = 0.f;
  s->boxmuller_extra_double = 0.;
  skipahead_sequence(subsequence, s);
  skipahead(offset, s);
}
__device__ inline unsigned curand(curandStatePhilox4_32_10_t* s) {
  unsigned found = s->STATE == 0 ? s->output.x : s->STATE == 1 ? s->output.y : s->STATE == 2 ? s->output.z : s->output.w;
  if (++s->STATE == 4) {
    Philox_State_Incr(s);
    s->output = curand_Philox4x32_10(s->ctr, s->key);
    s->STATE = 0;
  }
  return found;
}
__device__ inline uint4 curand4(curandStatePhilox4_32_10_t* s) {
  const uint4 before = s->output;
  Philox_State_Incr(s);
  s->output = curand_Philox4x32_10(s->ctr, s->key);
  const uint4 after = s->output;
  switch (s->STATE) {
    case 1: return make_uint4(before.y, before.z, before.w, after.x);
    case 2: return make_uint4(before.z, before.w, after.x, after.y);
    case 3: return make_uint4(before.w, after.x, after.y, after.z);
    default: return before;
  }
}
__device__ inline float kw_curand_unit(unsigned x) { return x * 2.3283064e-10f + (2.3283064e-10f / 2.0f); }
__device__ inline double kw_curand_unit(unsigned x, unsigned y) {
  const unsigned long long z = (unsigned long long)x ^ ((unsigned long long)y << (53 - 32));
  return z * 1.1102230246251565e-16 + (1.1102230246251565e-16 / 2.0);
}
__device__ inline float2 kw_curand_pair(unsigned x, unsigned y) {
  const float u = x * 2.3283064e-10f + (2.3283064e-10f / 2), v = y * (2.3283064e-10f * 6.2831855f) + (2.3283064e-10f * 3.1415927f);
  const float s = sqrtf(-2.0f * logf(u));
  return make_float2(__sinf(v) * s, __cosf(v) * s);
}
__device__ inline double2 kw_curand_pair_double(uint4 v) {
  const double u = kw_curand_unit(v.x, v.y), w = kw_curand_unit(v.z, v.w) * 2.0;
  const double s = sqrt(-2.0 * log(u));
  return make_double2(sinpi(w) * s, cospi(w) * s);
}
__device__ inline float curand_uniform(curandStatePhilox4_32_10_t* s) { return kw_curand_unit(curand(s)); }
__device__ inline float4 curand_uniform4(curandStatePhilox4_32_10_t* s) {
  const uint4 v = curand4(s);
  return make_float4(kw_curand_unit(v.x), kw_curand_unit(v.y), kw_curand_unit(v.z), kw_curand_unit(v.w));
}
__device__ inline double curand_uniform_double(curandStatePhilox4_32_10_t* s) {
  const unsigned x = curand(s);
  return kw_curand_unit(x, curand(s));
}
__device__ inline double2 curand_uniform2_double(curandStatePhilox4_32_10_t* s) {
  const uint4 v = curand4(s);
  return make_double2(kw_curand_unit(v.x, v.y), kw_curand_unit(v.z, v.w));
}
__device__ inline float curand_normal(curandStatePhilox4_32_10_t* s) {
  if (s->boxmuller_flag) {
    s->boxmuller_flag = 0;
    return s->boxmuller_extra;
  }
  const unsigned x = curand(s);
  const float2 v = kw_curand_pair(x, curand(s));
  s->boxmuller_extra = v.y;
  s->boxmuller_flag = 1;
  return v.x;
}
__device__ inline float2 curand_normal2(curandStatePhilox4_32_10_t* s) {
  const unsigned x = curand(s);
  return kw_curand_pair(x, curand(s));
}
__device__ inline float4 curand_normal4(curandStatePhilox4_32_10_t* s) {
  const uint4 v = curand4(s);
  const float2 a = kw_curand_pair(v.x, v.y), b = kw_curand_pair(v.z, v.w);
  return make_float4(a.x, a.y, b.x, b.y);
}
__device__ inline double2 curand_normal2_double(curandStatePhilox4_32_10_t* s) {
  return kw_curand_pair_double(curand4(s));
}
