// Speckle reduction: statistics on the host between two kernels, with index tables and a command line of five numbers.
// arguments: 4 0.5 24 20 1
#include <cmath>
#include <cstdio>
#include <cstdlib>
#define fp float
enum { NUMBER_THREADS = 64 };

__global__ void srad(fp d_lambda, int Nr, int Nc, long Ne, const int *iN, const int *iS, const int *jE, const int *jW,
                     fp *dN, fp *dS, fp *dE, fp *dW, fp q0sqr, fp *c, const fp *I) {
  int ei = blockIdx.x * NUMBER_THREADS + threadIdx.x;
  if (ei >= Ne) return;
  int row = (ei + 1) % Nr - 1, col = (ei + 1) / Nr + 1 - 1;
  if ((ei + 1) % Nr == 0) { row = Nr - 1; col = col - 1; }
  fp Jc = I[ei], n = I[iN[row] + Nr * col] - Jc, s = I[iS[row] + Nr * col] - Jc, w = I[row + Nr * jW[col]] - Jc, e = I[row + Nr * jE[col]] - Jc;
  fp G2 = (n * n + s * s + w * w + e * e) / (Jc * Jc), L = (n + s + w + e) / Jc;
  fp num = (0.5f * G2) - ((1.0f / 16.0f) * (L * L)), den = 1 + (0.25f * L), q = num / (den * den);
  den = (q - q0sqr) / (q0sqr * (1 + q0sqr));
  fp k = 1.0f / (1.0f + den);
  dN[ei] = n; dS[ei] = s; dE[ei] = e; dW[ei] = w;
  c[ei] = k < 0 ? 0 : k > 1 ? 1 : k;
}
__global__ void srad2(fp lambda, int Nr, long Ne, const int *iS, const int *jE, const fp *dN, const fp *dS, const fp *dE, const fp *dW, const fp *c, fp *I) {
  int ei = blockIdx.x * NUMBER_THREADS + threadIdx.x;
  if (ei >= Ne) return;
  int row = ei % Nr, col = ei / Nr;
  I[ei] += 0.25f * lambda * (c[ei] * dN[ei] + c[iS[row] + Nr * col] * dS[ei] + c[ei] * dW[ei] + c[row + Nr * jE[col]] * dE[ei]);
}

int main(int argc, char *argv[]) {
  if (argc != 6) { printf("ERROR: wrong number of arguments\n"); return 1; }
  int niter = atoi(argv[1]), Nr = atoi(argv[3]), Nc = atoi(argv[4]);
  fp lambda = atof(argv[2]);
  long Ne = Nr * Nc;
  int *iN, *iS, *jE, *jW;
  fp *I, *dN, *dS, *dE, *dW, *c, *J = new fp[Ne], *C = new fp[Ne], *D = new fp[4 * Ne];
  cudaMallocManaged(&iN, Nr * 4); cudaMallocManaged(&iS, Nr * 4); cudaMallocManaged(&jE, Nc * 4); cudaMallocManaged(&jW, Nc * 4);
  cudaMallocManaged(&I, Ne * 4); cudaMalloc(&dN, Ne * 4); cudaMalloc(&dS, Ne * 4); cudaMalloc(&dE, Ne * 4); cudaMalloc(&dW, Ne * 4); cudaMalloc(&c, Ne * 4);
  for (int i = 0; i < Nr; i++) { iN[i] = i ? i - 1 : 0; iS[i] = i < Nr - 1 ? i + 1 : i; }
  for (int j = 0; j < Nc; j++) { jW[j] = j ? j - 1 : 0; jE[j] = j < Nc - 1 ? j + 1 : j; }
  for (int i = 0; i < Ne; i++) J[i] = I[i] = exp((i * 31 % 101) / 255.0);
  int blocks = (Ne + NUMBER_THREADS - 1) / NUMBER_THREADS;
  fp worst = 0;
  for (int t = 0; t < niter; t++) {
    fp total = 0, total2 = 0;
    for (int i = 0; i < Ne; i++) { total += I[i]; total2 += I[i] * I[i]; }
    fp mean = total / Ne, q0 = ((total2 / Ne) - mean * mean) / (mean * mean);
    srad<<<blocks, NUMBER_THREADS>>>(lambda, Nr, Nc, Ne, iN, iS, jE, jW, dN, dS, dE, dW, q0, c, I);
    srad2<<<blocks, NUMBER_THREADS>>>(lambda, Nr, Ne, iS, jE, dN, dS, dE, dW, c, I);
    cudaDeviceSynchronize();
    for (int p = 0; p < Ne; p++) {
      int r = p % Nr, k = p / Nr;
      fp v = J[p], n = J[iN[r] + Nr * k] - v, s = J[iS[r] + Nr * k] - v, w = J[r + Nr * jW[k]] - v, e = J[r + Nr * jE[k]] - v;
      fp G2 = (n * n + s * s + w * w + e * e) / (v * v), L = (n + s + w + e) / v, den = 1 + 0.25f * L;
      fp q = (0.5f * G2 - L * L / 16) / (den * den), x = 1 / (1 + (q - q0) / (q0 * (1 + q0)));
      C[p] = fminf(fmaxf(x, 0), 1);
      D[4 * p] = n; D[4 * p + 1] = s; D[4 * p + 2] = w; D[4 * p + 3] = e;
    }
    for (int p = 0; p < Ne; p++) {
      int r = p % Nr, k = p / Nr;
      J[p] += 0.25f * lambda * (C[p] * D[4 * p] + C[iS[r] + Nr * k] * D[4 * p + 1] + C[p] * D[4 * p + 2] + C[r + Nr * jE[k]] * D[4 * p + 3]);
      worst = fmaxf(worst, fabsf(J[p] - I[p]));
    }
  }
  puts(worst < 1e-4f ? "PASS" : "FAIL");
  return worst >= 1e-4f;
}
