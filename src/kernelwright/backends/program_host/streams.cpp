// Streams, events, capture and graphs. Work runs when it is issued, so streams order nothing. During capture a stream's
// operations are stored in the graph instead.
#include "internal.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

struct CUstream_st {
  unsigned flags = 0;
  int priority = 0;
  struct CUgraph_st* capture = nullptr;
  bool origin = false;
};
struct CUevent_st {
  unsigned flags = 0;
  bool recorded = false;
  std::chrono::steady_clock::time_point at;
  struct CUgraph_st* capture = nullptr;
};
struct CUgraph_st {
  std::vector<kw::Operation> operations;
  std::vector<std::unique_ptr<struct CUgraphNode_st>> nodes;
};
struct CUgraphNode_st {
  size_t operation;
  CUgraph_st* graph;
};
struct CUgraphExec_st {
  std::vector<kw::Operation> operations;
};

namespace kw {
static std::set<cudaStream_t> streams;
static std::set<cudaEvent_t> events;
static std::set<CUgraph_st*> graphs;
static std::set<CUgraphExec_st*> executables;

static bool is_default(cudaStream_t s) { return !s || s == cudaStreamLegacy || s == cudaStreamPerThread; }
bool valid_stream(cudaStream_t stream) { return is_default(stream) || streams.count(stream); }

cudaError_t issue(cudaStream_t stream, Operation operation) {
  if (!valid_stream(stream)) return cudaErrorInvalidResourceHandle;
  if (!is_default(stream) && stream->capture) {
    stream->capture->operations.push_back(std::move(operation));
    return cudaSuccess;
  }
  return operation();
}
static cudaError_t add_stream(cudaStream_t* stream, unsigned flags, int priority) {
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  if (!stream) return note(cudaErrorInvalidValue);
  *stream = new CUstream_st{flags, priority};
  streams.insert(*stream);
  return cudaSuccess;
}
static CUgraphNode_st* add_node(cudaGraph_t graph, Operation operation) {
  graph->operations.push_back(std::move(operation));
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(CUgraphNode_st{graph->operations.size() - 1, graph}));
  return graph->nodes.back().get();
}
}  // namespace kw

using namespace kw;

extern "C" {
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  KW_LOCKED;
  return add_stream(stream, 0, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  KW_LOCKED;
  return add_stream(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  KW_LOCKED;
  return add_stream(stream, flags, std::max(-5, std::min(0, priority)));
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  *flags = is_default(stream) ? 0 : stream->flags;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = is_default(stream) ? 0 : stream->priority;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  KW_LOCKED;
  if (is_default(stream) || !streams.erase(stream)) return note(cudaErrorInvalidResourceHandle);
  delete stream;
  return synchronize();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  KW_LOCKED;
  if (!valid_stream(stream)) return note(cudaErrorInvalidResourceHandle);
  if (!is_default(stream) && stream->capture) return note(cudaErrorStreamCaptureUnsupported);
  return synchronize();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  KW_LOCKED;
  if (!valid_stream(stream) || !events.count(event)) return note(cudaErrorInvalidResourceHandle);
  if (!is_default(stream) && event->capture && !stream->capture) stream->capture = event->capture;  // it joins the capture
  return begin();
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  KW_LOCKED;
  cudaError_t error = synchronize();
  return note(issue(stream, [=] {
    callback(stream, error, data);
    return cudaSuccess;
  }));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  return note(issue(stream, [=] {
    function(data);
    return cudaSuccess;
  }));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  if (!event) return note(cudaErrorInvalidValue);
  *event = new CUevent_st{flags};
  events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  KW_LOCKED;
  if (!events.erase(event)) return note(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  if (!events.count(event) || !valid_stream(stream)) return note(cudaErrorInvalidResourceHandle);
  event->capture = is_default(stream) ? nullptr : stream->capture;
  event->recorded = !event->capture;
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  KW_LOCKED;
  if (!events.count(event)) return note(cudaErrorInvalidResourceHandle);
  return synchronize();
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  KW_LOCKED;
  if (!milliseconds) return note(cudaErrorInvalidValue);
  bool known = events.count(from) && events.count(to);
  if (!known || !from->recorded || !to->recorded || (from->flags | to->flags) & cudaEventDisableTiming)
    return note(cudaErrorInvalidResourceHandle);
  cudaError_t error = synchronize();
  if (error != cudaSuccess) return error;
  // The machine's own time, which says nothing about a GPU's; never zero, since programs divide by it.
  float passed = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  *milliseconds = from == to ? 0.0f : passed < 0 ? std::min(passed, -0.001f) : std::max(passed, 0.001f);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  if (!valid_stream(stream)) return note(cudaErrorInvalidResourceHandle);
  if (is_default(stream)) return note(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return note(cudaErrorIllegalState);
  stream->capture = new CUgraph_st;
  stream->origin = true;
  graphs.insert(stream->capture);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  KW_LOCKED;
  if (!valid_stream(stream) || is_default(stream) || !stream->capture) return note(cudaErrorIllegalState);
  if (!stream->origin) return note(cudaErrorStreamCaptureUnmatched);
  CUgraph_st* made = stream->capture;
  for (cudaStream_t s : streams)
    if (s->capture == made) s->capture = nullptr, s->origin = false;
  for (cudaEvent_t e : events)
    if (e->capture == made) e->capture = nullptr;
  *graph = made;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  KW_LOCKED;
  bool on = !is_default(stream) && streams.count(stream) && stream->capture;
  *status = on ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  KW_LOCKED;
  *graph = new CUgraph_st;
  graphs.insert(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  KW_LOCKED;
  if (!made || !graphs.count(graph)) return note(cudaErrorInvalidValue);
  *made = new CUgraphExec_st{graph->operations};
  executables.insert(*made);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(made, graph, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  KW_LOCKED;
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  if (!executables.count(graph)) return note(cudaErrorInvalidValue);
  return note(issue(stream, [operations = graph->operations] {
    for (const Operation& one : operations) {
      cudaError_t failed = one();
      if (failed != cudaSuccess) return failed;
    }
    return cudaSuccess;
  }));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  KW_LOCKED;
  if (!graphs.erase(graph)) return note(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  KW_LOCKED;
  if (!executables.erase(graph)) return note(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  KW_LOCKED;
  if (!graphs.count(graph)) return note(cudaErrorInvalidValue);
  *count = graph->operations.size();
  return cudaSuccess;
}

// Nodes may depend only on nodes that are there already, so the order in which they are added is an order to run them in.
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                                   const cudaKernelNodeParams* p) {
  KW_LOCKED;
  Kernel* k = p ? kernel_of(p->func) : nullptr;
  if (!graphs.count(graph) || !k) return note(cudaErrorInvalidValue);
  std::vector<std::vector<char>> values;
  for (size_t i = 0; i < k->params.size(); i++) {
    const char* from = static_cast<const char*>(p->kernelParams[i]);
    values.emplace_back(from, from + k->params[i].first);
  }
  Config c{p->gridDim, p->blockDim, p->sharedMemBytes};
  *node = add_node(graph, [=]() mutable {
    std::vector<void*> arguments;
    for (auto& v : values) arguments.push_back(v.data());
    return launch_kernel(*k, c, arguments.data());
  });
  return cudaSuccess;
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t, void* to,
                                     const void* from, size_t bytes, cudaMemcpyKind kind) {
  KW_LOCKED;
  if (!graphs.count(graph)) return note(cudaErrorInvalidValue);
  *node = add_node(graph, [=] { return copy_rows(to, bytes, from, bytes, bytes, 1, kind); });
  return cudaSuccess;
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                                   const cudaMemsetParams* given) {
  KW_LOCKED;
  if (!graphs.count(graph) || !given) return note(cudaErrorInvalidValue);
  cudaMemsetParams p = *given;
  *node = add_node(graph, [p] {
    return fill_rows(p.dst, p.pitch, &p.value, p.elementSize, p.width * p.elementSize, std::max<size_t>(p.height, 1));
  });
  return cudaSuccess;
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                                 const cudaHostNodeParams* given) {
  KW_LOCKED;
  if (!graphs.count(graph) || !given) return note(cudaErrorInvalidValue);
  cudaHostNodeParams p = *given;
  *node = add_node(graph, [p] {
    p.fn(p.userData);
    return cudaSuccess;
  });
  return cudaSuccess;
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t) {
  KW_LOCKED;
  if (!graphs.count(graph)) return note(cudaErrorInvalidValue);
  *node = add_node(graph, [] { return cudaSuccess; });
  return cudaSuccess;
}
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                                   const cudaMemcpy3DParms* given) {
  KW_LOCKED;
  if (!graphs.count(graph) || !given) return note(cudaErrorInvalidValue);
  cudaMemcpy3DParms p = *given;
  *node = add_node(graph, [p] { return cudaMemcpy3D(&p); });
  return cudaSuccess;
}
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                                       cudaGraph_t child) {
  KW_LOCKED;
  if (!graphs.count(graph) || !graphs.count(child)) return note(cudaErrorInvalidValue);
  *node = add_node(graph, [operations = child->operations] {
    for (const Operation& one : operations) {
      cudaError_t failed = one();
      if (failed != cudaSuccess) return failed;
    }
    return cudaSuccess;
  });
  return cudaSuccess;
}
cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  KW_LOCKED;
  if (!graphs.count(graph)) return note(cudaErrorInvalidValue);
  *clone = new CUgraph_st;
  graphs.insert(*clone);
  for (const Operation& one : graph->operations) add_node(*clone, one);
  return cudaSuccess;
}
}
