extern "C" __global__ void int64_mix(const long long* a, const long long* b, long long* out, unsigned long long* uout, int n) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i >= n) return;
  long long x = a[i], y = b[i];
  out[i] = x / y;
  out[n + i] = x % y;
  out[2 * n + i] = x * y + (x >> 3) - (y << 2);
  out[3 * n + i] = __mul64hi(x, y);
  uout[i] = (unsigned long long)x / ((unsigned long long)y | 1ull);
  uout[n + i] = __umul64hi((unsigned long long)x, (unsigned long long)y);
  uout[2 * n + i] = __popcll(x) * 1000000ull + __clzll(x) * 1000ull + __ffsll(x);
  uout[3 * n + i] = __brevll((unsigned long long)x) ^ (x < y ? 1ull : 0ull);
}
