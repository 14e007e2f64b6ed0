// Errors as the runtime reports them, and the file of findings.
#include "internal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace kw {
std::recursive_mutex lock;
static cudaError_t last_error = cudaSuccess;  // forgotten when it is asked for
static cudaError_t context_error = cudaSuccess;  // stays: the context is lost
static cudaError_t pending_fault = cudaSuccess;  // a kernel's fault that no call has shown yet

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t begin() {
  load_program();
  return context_error == cudaSuccess ? cudaSuccess : note(context_error);
}

cudaError_t synchronize() {
  load_program();
  if (pending_fault != cudaSuccess && context_error == cudaSuccess) context_error = pending_fault;
  return context_error == cudaSuccess ? cudaSuccess : note(context_error);
}

void fault(cudaError_t error) {
  if (pending_fault == cudaSuccess) pending_fault = error;
}

bool faulted() { return pending_fault != cudaSuccess; }
void forget_errors() { last_error = context_error = pending_fault = cudaSuccess; }

void record(const string& line) {
  static int file = [] {
    const char* path = std::getenv("KERNELWRIGHT_FINDINGS");
    return path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  }();
  static u64 written = 0;
  if (file < 0 || written > (4u << 20)) return;
  string text = line + "\n";
  written += text.size();
  if (write(file, text.data(), text.size()) < 0) return;
}

void misuse(const string& rule, const string& message) {
  static std::map<string, int> seen;
  if (seen[rule]++ < 8) record("misuse\t" + rule + "\t" + message);
}

static void stop(const char* word, const string& what, int status) {
  record(string(word) + "\t" + what);
  std::fflush(nullptr);
  std::fprintf(stderr, "kernelwright: %s: %s\n", word, what.c_str());
  _exit(status);
}
void unsupported(const string& what) {
  stop("unsupported", what, 78);
  _exit(78);
}
void broken(const string& what) {
  stop("broken", what, 79);
  _exit(79);
}

struct ErrorText {
  cudaError_t code;
  const char *name, *text;
};
#define KW_E(code, text) {code, #code, text}
static const ErrorText texts[] = {
    KW_E(cudaSuccess, "no error"),
    KW_E(cudaErrorInvalidValue, "invalid argument"),
    KW_E(cudaErrorMemoryAllocation, "out of memory"),
    KW_E(cudaErrorInitializationError, "initialization error"),
    KW_E(cudaErrorCudartUnloading, "driver shutting down"),
    KW_E(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    KW_E(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    KW_E(cudaErrorInvalidSymbol, "invalid device symbol"),
    KW_E(cudaErrorInvalidHostPointer, "invalid host pointer"),
    KW_E(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    KW_E(cudaErrorInvalidTexture, "invalid texture reference"),
    KW_E(cudaErrorInvalidTextureBinding, "texture is not bound to a pointer"),
    KW_E(cudaErrorInvalidChannelDescriptor, "invalid channel descriptor"),
    KW_E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    KW_E(cudaErrorInvalidDeviceFunction, "invalid device function"),
    KW_E(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    KW_E(cudaErrorInvalidDevice, "invalid device ordinal"),
    KW_E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    KW_E(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    KW_E(cudaErrorNotReady, "device not ready"),
    KW_E(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    KW_E(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    KW_E(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    KW_E(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    KW_E(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    KW_E(cudaErrorAssert, "device-side assert triggered"),
    KW_E(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    KW_E(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    KW_E(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    KW_E(cudaErrorMisalignedAddress, "misaligned address"),
    KW_E(cudaErrorLaunchFailure, "unspecified launch failure"),
    KW_E(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    KW_E(cudaErrorNotPermitted, "operation not permitted"),
    KW_E(cudaErrorNotSupported, "operation not supported"),
    KW_E(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    KW_E(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    KW_E(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    KW_E(cudaErrorUnknown, "unknown error"),
};
static const ErrorText* text_of(cudaError_t error) {
  for (const ErrorText& t : texts)
    if (t.code == error) return &t;
  return nullptr;
}
}  // namespace kw

using namespace kw;

extern "C" {
cudaError_t cudaGetLastError() {
  KW_LOCKED;
  cudaError_t error = context_error != cudaSuccess ? context_error : last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  KW_LOCKED;
  return context_error != cudaSuccess ? context_error : last_error;
}
const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* t = text_of(error);
  return t ? t->text : "unrecognized error code";
}
const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* t = text_of(error);
  return t ? t->name : "unrecognized error code";
}
}
