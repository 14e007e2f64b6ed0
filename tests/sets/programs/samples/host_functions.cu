// Workloads by host threads: a class with a pthread, stream callbacks, and a monitor of remaining work.
#include <stdio.h>
#include <pthread.h>
#include <helper_cuda.h>
#include <helper_functions.h>
const int N_workloads = 4, N_elements_per_workload = 1000;

typedef pthread_t CUTThread;
typedef void *(*CUT_THREADROUTINE)(void *);
#define CUT_THREADPROC void *
#define CUT_THREADEND return 0
struct CUTBarrier {
  pthread_mutex_t mutex;
  pthread_cond_t conditionVariable;
  int releaseCount, count;
};
CUTBarrier thread_barrier;

CUTBarrier cutCreateBarrier(int releaseCount) {
  CUTBarrier barrier;
  barrier.count = 0;
  barrier.releaseCount = releaseCount;
  pthread_mutex_init(&barrier.mutex, 0);
  pthread_cond_init(&barrier.conditionVariable, 0);
  return barrier;
}
void cutIncrementBarrier(CUTBarrier *barrier) {
  pthread_mutex_lock(&barrier->mutex);
  int myBarrierCount = ++barrier->count;
  pthread_mutex_unlock(&barrier->mutex);
  if (myBarrierCount >= barrier->releaseCount) pthread_cond_signal(&barrier->conditionVariable);
}
void cutWaitForBarrier(CUTBarrier *barrier) {
  pthread_mutex_lock(&barrier->mutex);
  while (barrier->count < barrier->releaseCount) pthread_cond_wait(&barrier->conditionVariable, &barrier->mutex);
  pthread_mutex_unlock(&barrier->mutex);
}

struct heterogeneous_workload {
  int id, cudaDeviceID;
  int *h_data, *d_data;
  cudaStream_t stream;
  bool success;
};

__global__ void incKernel(int *data, int N) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) data[i]++;
}

CUT_THREADPROC postprocess(void *void_arg) {
  heterogeneous_workload *workload = (heterogeneous_workload *)void_arg;
  workload->success = true;
  for (int i = 0; i < N_workloads; ++i) workload->success &= workload->h_data[i] == i + workload->id + 1;
  cutIncrementBarrier(&thread_barrier);
  CUT_THREADEND;
}

void CUDART_CB myStreamCallback(cudaStream_t stream, cudaError_t status, void *data) {
  checkCudaErrors(status);
  CUTThread t;
  pthread_create(&t, NULL, postprocess, data);
  pthread_detach(t);
}

CUT_THREADPROC launch(void *void_arg) {
  heterogeneous_workload *workload = (heterogeneous_workload *)void_arg;
  checkCudaErrors(cudaSetDevice(workload->cudaDeviceID));
  checkCudaErrors(cudaStreamCreate(&workload->stream));
  checkCudaErrors(cudaMalloc(&workload->d_data, N_elements_per_workload * sizeof(int)));
  checkCudaErrors(cudaHostAlloc(&workload->h_data, N_elements_per_workload * sizeof(int), cudaHostAllocPortable));
  for (int i = 0; i < N_elements_per_workload; ++i) workload->h_data[i] = workload->id + i;
  checkCudaErrors(cudaMemcpyAsync(workload->d_data, workload->h_data, N_elements_per_workload * sizeof(int),
                                  cudaMemcpyHostToDevice, workload->stream));
  dim3 block(64), grid((N_elements_per_workload + block.x - 1) / block.x);
  incKernel<<<grid, block, 0, workload->stream>>>(workload->d_data, N_elements_per_workload);
  checkCudaErrors(cudaMemcpyAsync(workload->h_data, workload->d_data, N_elements_per_workload * sizeof(int),
                                  cudaMemcpyDeviceToHost, workload->stream));
  checkCudaErrors(cudaStreamAddCallback(workload->stream, myStreamCallback, workload, 0));
  CUT_THREADEND;
}

int main(int argc, char **argv) {
  heterogeneous_workload *workloads = (heterogeneous_workload *)malloc(N_workloads * sizeof(heterogeneous_workload));
  thread_barrier = cutCreateBarrier(N_workloads);
  CUTThread threads[N_workloads];
  for (int i = 0; i < N_workloads; ++i) {
    workloads[i].id = i;
    workloads[i].cudaDeviceID = 0;
    pthread_create(&threads[i], NULL, launch, &workloads[i]);
  }
  for (int i = 0; i < N_workloads; ++i) pthread_join(threads[i], NULL);
  cutWaitForBarrier(&thread_barrier);
  bool success = true;
  for (int i = 0; i < N_workloads; ++i) {
    success &= workloads[i].success;
    checkCudaErrors(cudaFreeHost(workloads[i].h_data));
    checkCudaErrors(cudaFree(workloads[i].d_data));
    checkCudaErrors(cudaStreamDestroy(workloads[i].stream));
  }
  free(workloads);
  printf("%s\n", success ? "PASS" : "FAIL");
  exit(success ? EXIT_SUCCESS : EXIT_FAILURE);
}
