// SHA-256 of many messages, with known digests as the check.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>
typedef unsigned char BYTE;
typedef uint32_t WORD;
#define ROTR(a, b) (((a) >> (b)) | ((a) << (32 - (b))))
#define CH(x, y, z) (((x) & (y)) ^ (~(x) & (z)))
#define MAJ(x, y, z) (((x) & (y)) ^ ((x) & (z)) ^ ((y) & (z)))
#define EP0(x) (ROTR(x, 2) ^ ROTR(x, 13) ^ ROTR(x, 22))
#define EP1(x) (ROTR(x, 6) ^ ROTR(x, 11) ^ ROTR(x, 25))
#define SIG0(x) (ROTR(x, 7) ^ ROTR(x, 18) ^ ((x) >> 3))
#define SIG1(x) (ROTR(x, 17) ^ ROTR(x, 19) ^ ((x) >> 10))
typedef struct JOB {
  BYTE data[64];
  int size;
  WORD digest[8];
} JOB;
__constant__ WORD dev_k[64];
static WORD host_k[64];

static void make_constants() {  // the first 32 bits of the fractions of cube roots of primes
  int found = 0;
  for (int p = 2; found < 64; p++) {
    bool prime = true;
    for (int q = 2; q * q <= p; q++) prime &= p % q != 0;
    if (!prime) continue;
    unsigned __int128 lo = 0, hi = (unsigned __int128)8 << 32;  // the root times 2^32, below 8 * 2^32
    while (hi - lo > 1) {
      unsigned __int128 mid = (lo + hi) / 2;
      if (mid * mid * mid <= ((unsigned __int128)p << 96)) lo = mid; else hi = mid;
    }
    host_k[found++] = (WORD)lo;
  }
}
__device__ void transform(WORD *state, const BYTE *data) {
  WORD a, b, c, d, e, f, g, h, t1, t2, m[64];
  int i, j;
  for (i = 0, j = 0; i < 16; ++i, j += 4) m[i] = (data[j] << 24) | (data[j + 1] << 16) | (data[j + 2] << 8) | (data[j + 3]);
  for (; i < 64; ++i) m[i] = SIG1(m[i - 2]) + m[i - 7] + SIG0(m[i - 15]) + m[i - 16];
  a = state[0]; b = state[1]; c = state[2]; d = state[3]; e = state[4]; f = state[5]; g = state[6]; h = state[7];
  for (i = 0; i < 64; ++i) {
    t1 = h + EP1(e) + CH(e, f, g) + dev_k[i] + m[i];
    t2 = EP0(a) + MAJ(a, b, c);
    h = g; g = f; f = e; e = d + t1; d = c; c = b; b = a; a = t1 + t2;
  }
  state[0] += a; state[1] += b; state[2] += c; state[3] += d; state[4] += e; state[5] += f; state[6] += g; state[7] += h;
}
__global__ void sha256_cuda(JOB **jobs, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  JOB *job = jobs[i];
  WORD s[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  BYTE block[64];
  for (int k = 0; k < 64; k++) block[k] = k < job->size ? job->data[k] : 0;
  block[job->size] = 0x80;
  block[62] = (job->size * 8) >> 8;
  block[63] = job->size * 8;
  transform(s, block);
  for (int k = 0; k < 8; k++) job->digest[k] = s[k];
}
static std::string hex(const WORD *d) {
  std::stringstream s;
  for (int k = 0; k < 8; k++) s << std::hex << std::setw(8) << std::setfill('0') << d[k];
  return s.str();
}
int main() {
  std::vector<std::string> texts = {"", "abc", "The quick brown fox jumps over the lazy dog"};
  const char *known[] = {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                         "d7a8fbb307d7809469ca9abcb0082e4f8d5651e46d3cdb762d02d0bf37c9e592"};
  make_constants();
  cudaMemcpyToSymbol(dev_k, host_k, sizeof(host_k), 0, cudaMemcpyHostToDevice);
  JOB **jobs;
  cudaMallocManaged(&jobs, texts.size() * sizeof(JOB *));
  for (size_t i = 0; i < texts.size(); i++) {
    cudaMallocManaged(&jobs[i], sizeof(JOB));
    memcpy(jobs[i]->data, texts[i].data(), jobs[i]->size = texts[i].size());
  }
  sha256_cuda<<<1, 32>>>(jobs, texts.size());
  cudaDeviceSynchronize();
  int wrong = 0;
  for (size_t i = 0; i < texts.size(); i++) wrong += hex(jobs[i]->digest) != known[i];
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
