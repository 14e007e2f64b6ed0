// A whole CUDA program: sums 1..n in blocks of 256 threads. `kernelwright machine run examples/sum.cu -- 1000`
#include <cstdio>
#include <cstdlib>

__global__ void sum(int n, unsigned long long *total) {
    __shared__ unsigned long long part[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? i + 1 : 0;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(total, part[0]);
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    unsigned long long result = 0, *total;
    cudaMalloc(&total, sizeof(result));
    cudaMemset(total, 0, sizeof(result));
    sum<<<(n + 255) / 256, 256>>>(n, total);
    cudaMemcpy(&result, total, sizeof(result), cudaMemcpyDeviceToHost);
    printf("sum of 1..%d: %llu\n", n, result);
    cudaFree(total);
    return 0;
}
