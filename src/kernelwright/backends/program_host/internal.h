// The simulated device of one program: its memory, its kernels, its errors. One process, one device, one lock.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "machine_api.h"

namespace kw {
using std::string;
using u64 = uint64_t;

// --- errors.cpp
extern std::recursive_mutex lock;
#define KW_LOCKED std::lock_guard<std::recursive_mutex> kw_guard(kw::lock)
cudaError_t note(cudaError_t error);  // remembered for cudaGetLastError
cudaError_t begin();                  // first thing in a call: the error that ended the context, if any
cudaError_t synchronize();            // the same in a call that waits for the device: a kernel's fault shows here
void fault(cudaError_t error);        // a kernel ended so: shown by the next call that waits
bool faulted();
void forget_errors();
// One line to the file of findings: fields are separated by tabs.
void record(const string& line);
void misuse(const string& rule, const string& message);
[[noreturn]] void unsupported(const string& what);
[[noreturn]] void broken(const string& what);  // a fault of ours

// --- memory.cpp
enum class Kind { Device, Managed, Pinned, Registered, Variable };
struct Allocation {
  u64 address = 0, bytes = 0;
  Kind kind = Kind::Device;
  unsigned number = 0;
  string name;
  KwShadow* shadow = nullptr;  // null: every byte counts as written
};
const std::map<u64, Allocation>& allocations();
u64 allocations_version();  // changes with every allocation
const Allocation* find(const void* address);
void* allocate(u64 bytes, Kind kind);
bool release(void* address, Kind kind, bool any_kind = false);
void release_all();
void register_host(void* address, u64 bytes);
void add_variable(u64 address, u64 bytes, const string& name);
// shadow.cpp: the written bytes of device memory that was allocated without contents, for the machine's check of reads.
void poison(void* memory, u64 bytes);                  // where such reads are looked for
KwShadow* make_shadow(const void* memory, u64 bytes);  // null where they are not
void drop_shadow(const void* memory);
void note_written(const void* address, u64 bytes);
void note_copied(const void* to, const void* from, u64 bytes);  // what was unwritten there is unwritten here
// Device memory can be touched by this process as long as one of these lives.
struct Open {
  Open();
  ~Open();
};
void hold_open(bool open);
bool in_device_memory(const void* address);
// Checks a copy's two ends and makes it; rows of `width` bytes.
cudaError_t copy_rows(void* to, u64 to_pitch, const void* from, u64 from_pitch, u64 width, u64 height,
                      cudaMemcpyKind kind);
cudaError_t fill_rows(void* to, u64 pitch, const void* value, unsigned value_bytes, u64 width, u64 height);

// --- launch.cpp
struct Module;
struct Kernel {
  string name;
  Module* module = nullptr;
  unsigned index = 0, max_threads = 0;
  u64 static_shared = 0, local_bytes = 0, register_bytes = 0;
  std::vector<std::pair<unsigned, unsigned>> params;  // size, alignment
  int dynamic_limit = 49152;
};
struct Config {
  dim3 grid, block;
  u64 shared = 0;
  cudaStream_t stream = nullptr;
  bool cooperative = false;
  dim3 cluster{0, 0, 0};
};
void load_program();
Kernel* kernel_of(const void* function);  // null: not a kernel
cudaError_t launch_kernel(Kernel& kernel, const Config& config, void** arguments);
cudaError_t symbol_address(const void* symbol, void** address, u64* bytes);
void sync_managed_variables(bool to_device);
int blocks_per_multiprocessor(const Kernel& kernel, int threads, u64 shared);

// --- streams.cpp: runs an operation now, or keeps it where the stream is being captured.
using Operation = std::function<cudaError_t()>;
cudaError_t issue(cudaStream_t stream, Operation operation);
bool valid_stream(cudaStream_t stream);

// --- textures.cpp
std::vector<KwTexture> texture_table();
}  // namespace kw
