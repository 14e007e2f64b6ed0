// Options by the closed formula: float2 loads, launch bounds, and L1 norms beside the host's double values.
#include <helper_functions.h>
#include <helper_cuda.h>
#define DIV_UP(a, b) (((a) + (b)-1) / (b))

static double CND(double d) {
  const double A1 = 0.31938153, A2 = -0.356563782, A3 = 1.781477937, A4 = -1.821255978, A5 = 1.330274429;
  const double RSQRT2PI = 0.39894228040143267793994605993438;
  double K = 1.0 / (1.0 + 0.2316419 * fabs(d));
  double cnd = RSQRT2PI * exp(-0.5 * d * d) * (K * (A1 + K * (A2 + K * (A3 + K * (A4 + K * A5)))));
  if (d > 0) cnd = 1.0 - cnd;
  return cnd;
}

__device__ inline float cndGPU(float d) {
  const float A1 = 0.31938153f, A2 = -0.356563782f, A3 = 1.781477937f, A4 = -1.821255978f, A5 = 1.330274429f;
  const float RSQRT2PI = 0.39894228040143267793994605993438f;
  float K = __fdividef(1.0f, (1.0f + 0.2316419f * fabsf(d)));
  float cnd = RSQRT2PI * __expf(-0.5f * d * d) * (K * (A1 + K * (A2 + K * (A3 + K * (A4 + K * A5)))));
  if (d > 0) cnd = 1.0f - cnd;
  return cnd;
}

__device__ inline void BlackScholesBodyGPU(float &CallResult, float &PutResult, float S, float X, float T, float R, float V) {
  float sqrtT = __fdividef(1.0F, rsqrtf(T));
  float d1 = __fdividef(__logf(S / X) + (R + 0.5f * V * V) * T, V * sqrtT), d2 = d1 - V * sqrtT;
  float CNDD1 = cndGPU(d1), CNDD2 = cndGPU(d2), expRT = __expf(-R * T);
  CallResult = S * CNDD1 - X * expRT * CNDD2;
  PutResult = X * expRT * (1.0f - CNDD2) - S * (1.0f - CNDD1);
}

__launch_bounds__(128) __global__
    void BlackScholesGPU(float2 *__restrict d_CallResult, float2 *__restrict d_PutResult, float2 *__restrict d_StockPrice,
                         float2 *__restrict d_OptionStrike, float2 *__restrict d_OptionYears, float R, float V, int optN) {
  const int opt = blockDim.x * blockIdx.x + threadIdx.x;
  if (opt < (optN / 2)) {
    float c1, c2, p1, p2;
    BlackScholesBodyGPU(c1, p1, d_StockPrice[opt].x, d_OptionStrike[opt].x, d_OptionYears[opt].x, R, V);
    BlackScholesBodyGPU(c2, p2, d_StockPrice[opt].y, d_OptionStrike[opt].y, d_OptionYears[opt].y, R, V);
    d_CallResult[opt] = make_float2(c1, c2);
    d_PutResult[opt] = make_float2(p1, p2);
  }
}

float RandFloat(float low, float high) {
  float t = (float)rand() / (float)RAND_MAX;
  return (1.0f - t) * low + t * high;
}

const int OPT_N = 2000;
const int OPT_SZ = OPT_N * sizeof(float);
const float RISKFREE = 0.02f, VOLATILITY = 0.30f;

int main(int argc, char **argv) {
  float *h_Call = (float *)malloc(OPT_SZ), *h_Put = (float *)malloc(OPT_SZ), *S = (float *)malloc(OPT_SZ);
  float *X = (float *)malloc(OPT_SZ), *T = (float *)malloc(OPT_SZ), *d[5];
  StopWatchInterface *hTimer = NULL;
  findCudaDevice(argc, (const char **)argv);
  sdkCreateTimer(&hTimer);
  for (int i = 0; i < 5; i++) checkCudaErrors(cudaMalloc((void **)&d[i], OPT_SZ));
  srand(5347);
  for (int i = 0; i < OPT_N; i++) {
    S[i] = RandFloat(5.0f, 30.0f);
    X[i] = RandFloat(1.0f, 100.0f);
    T[i] = RandFloat(0.25f, 10.0f);
  }
  checkCudaErrors(cudaMemcpy(d[2], S, OPT_SZ, cudaMemcpyHostToDevice));
  checkCudaErrors(cudaMemcpy(d[3], X, OPT_SZ, cudaMemcpyHostToDevice));
  checkCudaErrors(cudaMemcpy(d[4], T, OPT_SZ, cudaMemcpyHostToDevice));
  sdkResetTimer(&hTimer);
  sdkStartTimer(&hTimer);
  BlackScholesGPU<<<DIV_UP((OPT_N / 2), 128), 128>>>((float2 *)d[0], (float2 *)d[1], (float2 *)d[2], (float2 *)d[3],
                                                     (float2 *)d[4], RISKFREE, VOLATILITY, OPT_N);
  getLastCudaError("BlackScholesGPU() execution failed\n");
  checkCudaErrors(cudaDeviceSynchronize());
  sdkStopTimer(&hTimer);
  checkCudaErrors(cudaMemcpy(h_Call, d[0], OPT_SZ, cudaMemcpyDeviceToHost));
  checkCudaErrors(cudaMemcpy(h_Put, d[1], OPT_SZ, cudaMemcpyDeviceToHost));
  double sum_delta = 0, sum_ref = 0, parity = 0;
  for (int i = 0; i < OPT_N; i++) {
    double s = sqrt((double)T[i]), d1 = (log(S[i] / (double)X[i]) + (RISKFREE + 0.5 * VOLATILITY * VOLATILITY) * T[i]) / (VOLATILITY * s);
    double e = exp(-(double)RISKFREE * T[i]), call = S[i] * CND(d1) - X[i] * e * CND(d1 - VOLATILITY * s);
    sum_delta += fabs(call - h_Call[i]);
    sum_ref += fabs(call);
    parity = MAX(parity, fabs(h_Call[i] - h_Put[i] - (S[i] - X[i] * e)));
  }
  double L1norm = sum_delta / sum_ref;
  for (int i = 0; i < 5; i++) checkCudaErrors(cudaFree(d[i]));
  sdkDeleteTimer(&hTimer);
  if (L1norm > 1e-6 || parity > 1e-3) {
    printf("Test failed! %g %g\n", L1norm, parity);
    exit(EXIT_FAILURE);
  }
  printf("PASS\n");
  exit(EXIT_SUCCESS);
}
