// Shared by the sources of the host library (kwhost.so); candidates never include it.
#pragma once

#include <set>

#include "../all.h"
#include "guard.h"

namespace kw {

struct TensorImpl {
  long references = 1;
  int64_t handle = 0;
  void* data = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  int flags = 0;
  int element_size = 0;
  int64_t numel = 0;
  int64_t storage_offset = 0;
  std::vector<int64_t> sizes, strides;
};

// Forwarded operators by the kind of what they return; `updates` is for those that write one of their arguments.
at::Tensor returns_tensor(const char* name, std::initializer_list<Arg> args);
std::vector<at::Tensor> returns_list(const char* name, std::initializer_list<Arg> args);
int64_t returns_integer(const char* name, std::initializer_list<Arg> args);
bool returns_bool(const char* name, std::initializer_list<Arg> args);
at::Tensor& updates(const char* name, at::Tensor& target, std::initializer_list<Arg> args);
void updates_all(const char* name, std::initializer_list<at::Tensor*> targets, std::initializer_list<Arg> args);

// Work on a stream, as a graph keeps it. `captured` keeps it if the stream captures, and tells so.
using Work = std::function<cudaError_t(cudaStream_t)>;
bool captured(cudaStream_t stream, const Work& work);
bool capturing();

extern Callbacks callbacks;
// Drops a launch that was being prepared when host code was left by a jump.
void forget_launch();
const std::string& error_text();

}  // namespace kw
