// cuRAND's device interface: the generators XORWOW and Philox4x32-10 with their sequences, and the distributions. Ours,
// from the published algorithms and the interface; uniform numbers have cuRAND's bits.
#pragma once
#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#include <math.h>
#endif

#define KW_RANDOM static __inline__ __device__

typedef enum curandOrdering { CURAND_ORDERING_PSEUDO_BEST = 100, CURAND_ORDERING_PSEUDO_DEFAULT = 101 } curandOrdering_t;

typedef enum curandStatus { CURAND_STATUS_SUCCESS = 0 } curandStatus_t;

struct curandStateXORWOW {
  unsigned int d, v[5];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef struct curandStateXORWOW curandStateXORWOW_t;
typedef struct curandStateXORWOW curandState;
typedef struct curandStateXORWOW curandState_t;

struct curandStatePhilox4_32_10 {
  uint4 ctr, output;
  uint2 key;
  unsigned int STATE;
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef struct curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace kw_random {
// --- XORWOW: a linear map of 160 bits and a Weyl sequence. Skipping n steps is a polynomial in the map, x^n modulo its
// minimal polynomial x^160 + ..., so that no table of matrices is needed.
struct Polynomial { unsigned int w[5]; };

KW_RANDOM void times_x(Polynomial& a) {
  unsigned int over = 0u - (a.w[4] >> 31);
  for (int i = 4; i > 0; i--) a.w[i] = (a.w[i] << 1) | (a.w[i - 1] >> 31);
  a.w[0] <<= 1;
  a.w[0] ^= over & 0x00060001u;
  a.w[1] ^= over & 0x08610030u;
  a.w[2] ^= over & 0x00062121u;
  a.w[3] ^= over & 0x0f3c0035u;
  a.w[4] ^= over & 0x00000f0eu;
}
KW_RANDOM Polynomial product(Polynomial a, const Polynomial& b) {
  Polynomial out = {{0, 0, 0, 0, 0}};
  for (int i = 0; i < 160; i++) {
    unsigned int bit = 0u - ((b.w[i / 32] >> (i % 32)) & 1u);
    for (int k = 0; k < 5; k++) out.w[k] ^= a.w[k] & bit;
    times_x(a);
  }
  return out;
}
KW_RANDOM void multiply_power(Polynomial& out, Polynomial base, unsigned long long n) {
  for (; n; n >>= 1) {
    if (n & 1) out = product(out, base);
    base = product(base, base);
  }
}
KW_RANDOM void step(unsigned int* v) {
  unsigned int t = v[0] ^ (v[0] >> 2);
  v[0] = v[1];
  v[1] = v[2];
  v[2] = v[3];
  v[3] = v[4];
  v[4] = (v[4] ^ (v[4] << 4)) ^ (t ^ (t << 1));
}
KW_RANDOM void apply(const Polynomial& p, unsigned int* v) {
  unsigned int out[5] = {0, 0, 0, 0, 0};
  for (int i = 0; i < 160; i++) {
    unsigned int bit = 0u - ((p.w[i / 32] >> (i % 32)) & 1u);
    for (int k = 0; k < 5; k++) out[k] ^= v[k] & bit;
    step(v);
  }
  for (int k = 0; k < 5; k++) v[k] = out[k];
}

// --- Philox
KW_RANDOM unsigned int high(unsigned int a, unsigned int b) { return (unsigned int)(((unsigned long long)a * b) >> 32); }
KW_RANDOM uint4 philox(uint4 c, uint2 key) {
  for (int round = 0; round < 10; round++) {
    unsigned int hi0 = high(0xD2511F53u, c.x), lo0 = 0xD2511F53u * c.x;
    unsigned int hi1 = high(0xCD9E8D57u, c.z), lo1 = 0xCD9E8D57u * c.z;
    c = make_uint4(hi1 ^ c.y ^ key.x, lo1, hi0 ^ c.w ^ key.y, lo0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return c;
}
KW_RANDOM void advance(uint4& c, unsigned long long n) {
  unsigned long long low = c.x | ((unsigned long long)c.y << 32), sum = low + n;
  c.x = (unsigned int)sum;
  c.y = (unsigned int)(sum >> 32);
  if (sum < low && ++c.z == 0) ++c.w;
}
KW_RANDOM void advance_high(uint4& c, unsigned long long n) {
  unsigned long long sum = (c.z | ((unsigned long long)c.w << 32)) + n;
  c.z = (unsigned int)sum;
  c.w = (unsigned int)(sum >> 32);
}
KW_RANDOM float unit(unsigned int x) { return x * 2.3283064e-10f + (2.3283064e-10f / 2.0f); }
KW_RANDOM double unit_double(unsigned int x, unsigned int y) {
  unsigned long long z = (unsigned long long)x ^ ((unsigned long long)y << 21);
  return z * 1.1102230246251565e-16 + (1.1102230246251565e-16 / 2.0);
}
KW_RANDOM float2 normal_pair(unsigned int x, unsigned int y) {
  float u = unit(x), v = y * (2.3283064e-10f * 6.2831855f) + (2.3283064e-10f * 6.2831855f / 2.0f);
  float s = sqrtf(-2.0f * logf(u));
  return make_float2(s * sinf(v), s * cosf(v));
}
KW_RANDOM double2 normal_pair_double(double u, double v) {
  double s = sqrt(-2.0 * log(u)), angle = 6.283185307179586 * v;
  return make_double2(s * sin(angle), s * cos(angle));
}
}  // namespace kw_random

KW_RANDOM void skipahead(unsigned long long n, curandStateXORWOW_t* state) {
  kw_random::Polynomial p = {{1, 0, 0, 0, 0}}, x = {{2, 0, 0, 0, 0}};
  kw_random::multiply_power(p, x, n);
  kw_random::apply(p, state->v);
  state->d += 362437u * (unsigned int)n;
}
KW_RANDOM void skipahead_sequence(unsigned long long n, curandStateXORWOW_t* state) {
  kw_random::Polynomial p = {{1, 0, 0, 0, 0}};
  kw_random::Polynomial far = {{0x26294934u, 0x77bbc248u, 0x1a87dad0u, 0x930052d4u, 0x947e6dd2u}};  // x^(2^67)
  kw_random::multiply_power(p, far, n);
  kw_random::apply(p, state->v);
}
KW_RANDOM void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                           curandStateXORWOW_t* state) {
  unsigned int s0 = (unsigned int)seed ^ 0xaad26b49u, s1 = (unsigned int)(seed >> 32) ^ 0xf7dcefddu;
  unsigned int t0 = 1099087573u * s0, t1 = 2591861531u * s1;
  state->d = 6615241u + t1 + t0;
  state->v[0] = 123456789u + t0;
  state->v[1] = 362436069u ^ t0;
  state->v[2] = 521288629u + t1;
  state->v[3] = 88675123u ^ t1;
  state->v[4] = 5783321u + t0;
  if (subsequence) skipahead_sequence(subsequence, state);
  if (offset) skipahead(offset, state);
  state->boxmuller_flag = state->boxmuller_flag_double = 0;
  state->boxmuller_extra = 0.0f;
  state->boxmuller_extra_double = 0.0;
}
KW_RANDOM unsigned int curand(curandStateXORWOW_t* state) {
  kw_random::step(state->v);
  state->d += 362437u;
  return state->v[4] + state->d;
}

KW_RANDOM uint4 curand_Philox4x32_10(uint4 c, uint2 key) { return kw_random::philox(c, key); }
KW_RANDOM void Philox_State_Incr(curandStatePhilox4_32_10_t* state, unsigned long long n) {
  kw_random::advance(state->ctr, n);
}
KW_RANDOM void Philox_State_Incr(curandStatePhilox4_32_10_t* state) { kw_random::advance(state->ctr, 1); }
KW_RANDOM void Philox_State_Incr_hi(curandStatePhilox4_32_10_t* state, unsigned long long n) {
  kw_random::advance_high(state->ctr, n);
}
KW_RANDOM void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* state) {
  state->STATE += (unsigned int)(n & 3);
  n /= 4;
  if (state->STATE > 3) {
    n++;
    state->STATE -= 4;
  }
  kw_random::advance(state->ctr, n);
  state->output = kw_random::philox(state->ctr, state->key);
}
KW_RANDOM void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* state) {
  kw_random::advance_high(state->ctr, n);
  state->output = kw_random::philox(state->ctr, state->key);
}
KW_RANDOM void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                           curandStatePhilox4_32_10_t* state) {
  state->ctr = make_uint4(0, 0, 0, 0);
  state->key = make_uint2((unsigned int)seed, (unsigned int)(seed >> 32));
  state->STATE = 0;
  state->boxmuller_flag = state->boxmuller_flag_double = 0;
  state->boxmuller_extra = 0.0f;
  state->boxmuller_extra_double = 0.0;
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}
KW_RANDOM unsigned int curand(curandStatePhilox4_32_10_t* state) {
  unsigned int k = state->STATE++;
  unsigned int out = k == 0 ? state->output.x : k == 1 ? state->output.y : k == 2 ? state->output.z : state->output.w;
  if (state->STATE == 4) {
    kw_random::advance(state->ctr, 1);
    state->output = kw_random::philox(state->ctr, state->key);
    state->STATE = 0;
  }
  return out;
}
KW_RANDOM uint4 curand4(curandStatePhilox4_32_10_t* state) {
  uint4 old = state->output;
  kw_random::advance(state->ctr, 1);
  uint4 next = state->output = kw_random::philox(state->ctr, state->key);
  switch (state->STATE) {
    case 1: return make_uint4(old.y, old.z, old.w, next.x);
    case 2: return make_uint4(old.z, old.w, next.x, next.y);
    case 3: return make_uint4(old.w, next.x, next.y, next.z);
    default: return old;
  }
}

// --- distributions, of any generator's state
template <class State> KW_RANDOM float curand_uniform(State* state) { return kw_random::unit(curand(state)); }
template <class State> KW_RANDOM double curand_uniform_double(State* state) {
  unsigned int x = curand(state);
  return kw_random::unit_double(x, curand(state));
}
template <class State> KW_RANDOM float2 curand_normal2(State* state) {
  unsigned int x = curand(state);
  return kw_random::normal_pair(x, curand(state));
}
template <class State> KW_RANDOM float curand_normal(State* state) {
  if (state->boxmuller_flag) {
    state->boxmuller_flag = 0;
    return state->boxmuller_extra;
  }
  float2 pair = curand_normal2(state);
  state->boxmuller_extra = pair.y;
  state->boxmuller_flag = 1;
  return pair.x;
}
template <class State> KW_RANDOM double2 curand_normal2_double(State* state) {
  double u = curand_uniform_double(state);
  return kw_random::normal_pair_double(u, curand_uniform_double(state));
}
template <class State> KW_RANDOM double curand_normal_double(State* state) {
  if (state->boxmuller_flag_double) {
    state->boxmuller_flag_double = 0;
    return state->boxmuller_extra_double;
  }
  double2 pair = curand_normal2_double(state);
  state->boxmuller_extra_double = pair.y;
  state->boxmuller_flag_double = 1;
  return pair.x;
}
template <class State> KW_RANDOM float curand_log_normal(State* state, float mean, float stddev) {
  return expf(mean + stddev * curand_normal(state));
}
template <class State> KW_RANDOM double curand_log_normal_double(State* state, double mean, double stddev) {
  return exp(mean + stddev * curand_normal_double(state));
}
template <class State> KW_RANDOM unsigned int curand_poisson(State* state, double lambda) {
  if (lambda > 64) {
    double value = floor(lambda + sqrt(lambda) * curand_normal_double(state) + 0.5);
    return value < 0 ? 0u : (unsigned int)value;
  }
  double limit = exp(-lambda), product = curand_uniform_double(state);
  unsigned int count = 0;
  while (product > limit) {
    product *= curand_uniform_double(state);
    count++;
  }
  return count;
}
KW_RANDOM float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
  uint4 x = curand4(state);
  return make_float4(kw_random::unit(x.x), kw_random::unit(x.y), kw_random::unit(x.z), kw_random::unit(x.w));
}
KW_RANDOM double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
  uint4 x = curand4(state);
  return make_double2(kw_random::unit_double(x.x, x.y), kw_random::unit_double(x.z, x.w));
}
KW_RANDOM float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
  uint4 x = curand4(state);
  float2 a = kw_random::normal_pair(x.x, x.y), b = kw_random::normal_pair(x.z, x.w);
  return make_float4(a.x, a.y, b.x, b.y);
}
KW_RANDOM float4 curand_log_normal4(curandStatePhilox4_32_10_t* state, float mean, float stddev) {
  float4 n = curand_normal4(state);
  return make_float4(expf(mean + stddev * n.x), expf(mean + stddev * n.y), expf(mean + stddev * n.z), expf(mean + stddev * n.w));
}
#undef KW_RANDOM
