// One step of n-body by tiles, with helper_math's operators and a template for the vector type.
#include <helper_cuda.h>
#include <helper_math.h>
#include <math.h>
#include <cstdio>
#include <vector>

template <typename T> struct vec3 { typedef float Type; };
template <> struct vec3<float> { typedef float3 Type; };
template <> struct vec3<double> { typedef double3 Type; };

__constant__ float softeningSquared;

__device__ float3 bodyBodyInteraction(float3 ai, float4 bi, float4 bj) {
  float3 r = make_float3(bj) - make_float3(bi);
  float distSqr = dot(r, r) + softeningSquared;
  float invDist = rsqrtf(distSqr);
  float s = bj.w * invDist * invDist * invDist;
  ai += r * s;
  return ai;
}

template <typename T>
__global__ void integrateBodies(float4 *newPos, const float4 *oldPos, float4 *vel, T deltaTime, int numBodies) {
  extern __shared__ float4 sharedPos[];
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  float4 position = oldPos[index];
  typename vec3<T>::Type accel = {0.0f, 0.0f, 0.0f};
  for (int tile = 0; tile < numBodies / blockDim.x; tile++) {
    sharedPos[threadIdx.x] = oldPos[tile * blockDim.x + threadIdx.x];
    __syncthreads();
#pragma unroll 32
    for (unsigned int counter = 0; counter < blockDim.x; counter++)
      accel = bodyBodyInteraction(accel, position, sharedPos[counter]);
    __syncthreads();
  }
  float4 velocity = vel[index];
  velocity += make_float4(accel * deltaTime, 0.0f);
  position += velocity * deltaTime;
  position.w = oldPos[index].w;
  newPos[index] = position;
  vel[index] = velocity;
}

int main() {
  const int n = 256;
  const float dt = 0.016f, soft = 0.01f;
  std::vector<float4> pos(n), vel(n, make_float4(0.0f)), out(n);
  for (int i = 0; i < n; i++) pos[i] = make_float4(sinf(i), cosf(1.7f * i), sinf(0.3f * i), 1.0f / n);
  float4 *a, *b, *v;
  checkCudaErrors(cudaMalloc(&a, n * sizeof(float4)));
  checkCudaErrors(cudaMalloc(&b, n * sizeof(float4)));
  checkCudaErrors(cudaMalloc(&v, n * sizeof(float4)));
  checkCudaErrors(cudaMemcpyToSymbol(softeningSquared, &soft, sizeof(float)));
  checkCudaErrors(cudaMemcpy(a, pos.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
  checkCudaErrors(cudaMemcpy(v, vel.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
  integrateBodies<float><<<n / 64, 64, 64 * sizeof(float4)>>>(b, a, v, dt, n);
  getLastCudaError("integrate");
  checkCudaErrors(cudaMemcpy(out.data(), b, n * sizeof(float4), cudaMemcpyDeviceToHost));
  float worst = 0;
  for (int i = 0; i < n; i++) {
    float3 acc = make_float3(0.0f);
    for (int j = 0; j < n; j++) {
      float3 r = make_float3(pos[j]) - make_float3(pos[i]);
      float d = dot(r, r) + soft;
      acc += r * (pos[j].w / (sqrtf(d) * d));
    }
    float3 want = make_float3(pos[i]) + acc * dt * dt;
    worst = fmaxf(worst, length(want - make_float3(out[i])));
  }
  if (worst > 1e-5f) { printf("FAIL %g\n", worst); return 1; }
  puts("PASS");
}
