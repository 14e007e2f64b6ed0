// CUDA graphs as lists of work, on the functional machine and on a GPU alike: a launch of a graph does its work again.
#include "../graphs.h"

#include "impl.h"

struct CUgraph_st {
  std::vector<kw::Work> work;
};
struct CUgraphExec_st {
  std::vector<kw::Work> work;
};

namespace kw {

// Streams that capture, with their graphs. Without a GPU all streams are one.
static std::map<cudaStream_t, CUgraph_st*> captures;
static std::set<CUgraph_st*> graphs;
static std::set<CUgraphExec_st*> executables;

bool capturing() { return !captures.empty(); }
bool captured(cudaStream_t stream, const Work& work) {
  auto found = captures.find(stream);
  if (found == captures.end()) return false;
  found->second->work.push_back(work);
  return true;
}

}  // namespace kw

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (kw::captures.count(stream)) return cudaErrorInvalidValue;
  kw::captures[stream] = *kw::graphs.insert(new CUgraph_st).first;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  auto found = kw::captures.find(stream);
  if (found == kw::captures.end()) return cudaErrorInvalidValue;
  *graph = found->second;
  kw::captures.erase(found);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = kw::captures.count(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (!kw::graphs.count(graph)) return cudaErrorInvalidValue;
  if (nodes) kw::fail_unsupported("the nodes of a CUDA graph");
  *count = graph->work.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  if (!made || !kw::graphs.count(graph)) return cudaErrorInvalidValue;
  *made = *kw::executables.insert(new CUgraphExec_st{graph->work}).first;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (!kw::executables.count(graph)) return cudaErrorInvalidValue;
  for (const kw::Work& one : graph->work) {
    if (kw::captured(stream, one)) continue;
    cudaError_t status = one(stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!kw::graphs.erase(graph)) return cudaErrorInvalidValue;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  if (!kw::executables.erase(graph)) return cudaErrorInvalidValue;
  delete graph;
  return cudaSuccess;
}
