// A graph captured from streams and instantiated, with a host node by function.
#include <cstdio>
#include <vector>
#include <helper_cuda.h>

typedef struct callBackData {
  const char *fn_name;
  double *data;
} callBackData_t;

__global__ void reduce(float *inputVec, double *outputVec, size_t inputSize, size_t outputSize) {
  __shared__ double tmp[64];
  size_t globaltid = blockIdx.x * blockDim.x + threadIdx.x;
  double temp_sum = 0.0;
  for (size_t i = globaltid; i < inputSize; i += gridDim.x * blockDim.x) temp_sum += (double)inputVec[i];
  tmp[threadIdx.x] = temp_sum;
  __syncthreads();
  for (int s = 32; s > 0; s >>= 1) {
    if (threadIdx.x < s) tmp[threadIdx.x] += tmp[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0 && blockIdx.x < outputSize) outputVec[blockIdx.x] = tmp[0];
}

__global__ void reduceFinal(double *inputVec, double *result, size_t inputSize) {
  double temp_sum = 0.0;
  for (size_t i = threadIdx.x; i < inputSize; i += 32) temp_sum += inputVec[i];
  for (int offset = 16; offset > 0; offset /= 2) temp_sum += __shfl_down_sync(0xffffffffu, temp_sum, offset);
  if (threadIdx.x == 0) *result = temp_sum;
}

static int calls = 0;
void CUDART_CB myHostNodeCallback(void *data) {
  callBackData_t *tmp = (callBackData_t *)(data);
  double *result = (double *)(tmp->data);
  printf("Host callback in %s sum %.1f\n", tmp->fn_name, *result);
  calls++;
  *result = 0.0;
}

int main() {
  size_t size = 5000, maxBlocks = 8;
  float *inputVec_h, *inputVec_d;
  double *outputVec_d, *result_d, *result_h;
  checkCudaErrors(cudaMallocHost(&inputVec_h, sizeof(float) * size));
  checkCudaErrors(cudaMallocHost(&result_h, sizeof(double)));
  checkCudaErrors(cudaMalloc(&inputVec_d, sizeof(float) * size));
  checkCudaErrors(cudaMalloc(&outputVec_d, sizeof(double) * maxBlocks));
  checkCudaErrors(cudaMalloc(&result_d, sizeof(double)));
  double want = 0;
  for (size_t i = 0; i < size; i++) want += inputVec_h[i] = (float)(i % 13);
  cudaStream_t stream1, stream2, streamForGraph;
  cudaEvent_t forkStreamEvent, memsetEvent1;
  cudaGraph_t graph;
  checkCudaErrors(cudaStreamCreate(&stream1));
  checkCudaErrors(cudaStreamCreate(&stream2));
  checkCudaErrors(cudaStreamCreate(&streamForGraph));
  checkCudaErrors(cudaEventCreate(&forkStreamEvent));
  checkCudaErrors(cudaEventCreate(&memsetEvent1));
  checkCudaErrors(cudaStreamBeginCapture(stream1, cudaStreamCaptureModeGlobal));
  checkCudaErrors(cudaEventRecord(forkStreamEvent, stream1));
  checkCudaErrors(cudaStreamWaitEvent(stream2, forkStreamEvent, 0));
  checkCudaErrors(cudaMemcpyAsync(inputVec_d, inputVec_h, sizeof(float) * size, cudaMemcpyDefault, stream1));
  checkCudaErrors(cudaMemsetAsync(outputVec_d, 0, sizeof(double) * maxBlocks, stream2));
  checkCudaErrors(cudaEventRecord(memsetEvent1, stream2));
  checkCudaErrors(cudaStreamWaitEvent(stream1, memsetEvent1, 0));
  reduce<<<maxBlocks, 64, 0, stream1>>>(inputVec_d, outputVec_d, size, maxBlocks);
  reduceFinal<<<1, 32, 0, stream1>>>(outputVec_d, result_d, maxBlocks);
  checkCudaErrors(cudaMemcpyAsync(result_h, result_d, sizeof(double), cudaMemcpyDefault, stream1));
  callBackData_t hostFnData = {0};
  hostFnData.data = result_h;
  hostFnData.fn_name = "cudaGraphsUsingStreamCapture";
  checkCudaErrors(cudaLaunchHostFunc(stream1, myHostNodeCallback, &hostFnData));
  checkCudaErrors(cudaStreamEndCapture(stream1, &graph));
  cudaGraphNode_t *nodes = NULL;
  size_t numNodes = 0;
  checkCudaErrors(cudaGraphGetNodes(graph, nodes, &numNodes));
  cudaGraphExec_t graphExec;
  checkCudaErrors(cudaGraphInstantiate(&graphExec, graph, NULL, NULL, 0));
  for (int i = 0; i < 3; i++) checkCudaErrors(cudaGraphLaunch(graphExec, streamForGraph));
  checkCudaErrors(cudaStreamSynchronize(streamForGraph));
  double got = 0;
  checkCudaErrors(cudaMemcpy(&got, result_d, sizeof got, cudaMemcpyDeviceToHost));
  checkCudaErrors(cudaGraphExecDestroy(graphExec));
  checkCudaErrors(cudaGraphDestroy(graph));
  bool good = got == want && calls == 3 && numNodes >= 5 && *result_h == 0.0;
  puts(good ? "PASS" : "FAIL");
  return !good;
}
