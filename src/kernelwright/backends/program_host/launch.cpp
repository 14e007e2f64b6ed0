// Kernels: loads the program's PTX into the machine, maps the host's addresses to kernels and variables, launches.
#include "internal.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace kw {
// The device code of one file, or of all where they are linked.
struct Module {
  void* program = nullptr;
  std::map<string, Kernel> kernels;
  std::map<string, std::pair<u64, u64>> variables;  // address, bytes
};

namespace {
struct Machine {
  void* (*load)(const char*, uint64_t);
  int (*status)(void*);
  const char* (*text)(void*);
  void* (*launch)(void*, const void*);
  int (*result_fault)(void*);
  const char* (*result_text)(void*);
  void (*result_free)(void*);
  const char* (*result_printed)(void*, uint64_t*);  // null where the machine prints nothing
  std::map<string, size_t> fields;                  // of a launch request: where each lies
};
struct Total {
  u64 launches = 0, instructions = 0;
};
Machine machine;
std::map<unsigned, Module> modules;                // places that stay: kernels know theirs
std::map<u64, Kernel*> kernel_ids;                 // by the address that a stub calls its own
struct Symbol {
  u64 host, bytes;
  Module* module;
  string name;
  bool managed;
};
std::vector<Symbol> symbols;
std::map<string, Total> totals;
Config pending;
bool configured = false;
const void** asked = nullptr;      // a stub that is called now only tells its name

u64 number(const char* name, u64 otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::vector<string> fields(const string& line) {
  std::vector<string> out;
  std::stringstream in(line);
  for (string one; std::getline(in, one, '\t');) out.push_back(one);
  return out;
}

template <class F>
void resolve(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) broken(string("the machine has no ") + name);
}

void open_machine() {
  const char* path = std::getenv("KERNELWRIGHT_MACHINE");
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) broken(string("the machine cannot be loaded: ") + (path ? dlerror() : "KERNELWRIGHT_MACHINE is not set"));
  resolve(library, "kw_load", machine.load);
  resolve(library, "kw_status", machine.status);
  resolve(library, "kw_text", machine.text);
  resolve(library, "kw_launch", machine.launch);
  resolve(library, "kw_result_fault", machine.result_fault);
  resolve(library, "kw_result_text", machine.result_text);
  resolve(library, "kw_result_free", machine.result_free);
  machine.result_printed = reinterpret_cast<decltype(machine.result_printed)>(dlsym(library, "kw_result_printed"));
  const char* layout = std::getenv("KERNELWRIGHT_REQUEST");
  std::stringstream in(layout ? layout : "");
  for (string one; std::getline(in, one, ';');) {
    size_t equals = one.find('=');
    if (equals != string::npos) machine.fields[one.substr(0, equals)] = std::stoull(one.substr(equals + 1));
  }
  auto texture = machine.fields.find("texture_bytes");
  if (texture != machine.fields.end() && texture->second != sizeof(KwTexture))
    broken("the machine's textures have another layout");
}

// One launch as the machine wants it, filled field by field.
class Request {
 public:
  Request() : bytes_((machine.fields["bytes"] + 7) / 8) {}
  static bool has(const char* field) { return machine.fields.count(field); }
  template <class T>
  void put(const char* field, const T& value) {
    auto found = machine.fields.find(field);
    if (found == machine.fields.end()) broken(string("the machine's launches have no field ") + field);
    if (found->second + sizeof value > bytes_.size() * 8) broken("the machine's launches are too small");
    std::memcpy(reinterpret_cast<char*>(bytes_.data()) + found->second, &value, sizeof value);
  }
  const void* data() const { return bytes_.data(); }

 private:
  std::vector<u64> bytes_;
};

void read_module(Module& module, const string& ptx) {
  module.program = machine.load(ptx.data(), ptx.size());
  int status = machine.status(module.program);
  std::stringstream text(machine.text(module.program));
  if (status == 1) unsupported("ptx: " + text.str());
  if (status) {
    string first;
    std::getline(text, first);
    unsupported("ptx: " + first);
  }
  unsigned index = 0;
  for (string line; std::getline(text, line);) {
    std::vector<string> f = fields(line);
    if (f[0] == "variable" && f.size() > 3) {
      module.variables[f[1]] = {std::stoull(f[2]), std::stoull(f[3])};
      add_variable(std::stoull(f[2]), std::stoull(f[3]), f[1]);
    } else if (f[0] == "kernel" && f.size() > 5) {
      Kernel k;
      k.name = f[1];
      k.index = index++;
      k.module = &module;
      k.static_shared = std::stoull(f[2]);
      k.max_threads = (unsigned)std::stoul(f[3]);
      k.local_bytes = std::stoull(f[4]);
      k.register_bytes = std::stoull(f[5]);
      for (size_t i = 6; i < f.size(); i++) {
        size_t colon = f[i].find(':');
        k.params.push_back({(unsigned)std::stoul(f[i]), (unsigned)std::stoul(f[i].substr(colon + 1))});
      }
      module.kernels[k.name] = k;
    }
  }
}

int first_object(dl_phdr_info* info, size_t, void* base) {
  *static_cast<u64*>(base) = info->dlpi_addr;
  return 1;
}

void report_totals() {
  for (auto& [name, t] : totals)
    record("launched\t" + name + "\t" + std::to_string(t.launches) + "\t" + std::to_string(t.instructions));
}
}  // namespace

// The file that the builder wrote: what the host's addresses mean, then the PTX.
void load_program() {
  static bool done = false;
  if (done) return;
  done = true;
  const char* path = std::getenv("KERNELWRIGHT_PROGRAM");
  std::ifstream in(path ? path : "", std::ios::binary);
  if (!in) broken("the program's device code cannot be read");
  u64 base = 0;
  dl_iterate_phdr(first_object, &base);
  std::vector<std::vector<string>> rows;
  string line;
  while (std::getline(in, line) && line != "ptx") rows.push_back(fields(line));
  for (unsigned number = 0; std::getline(in, line); number++) {
    string ptx(std::stoull(line), '\0');
    in.read(ptx.data(), (std::streamsize)ptx.size());
    if (ptx.empty()) continue;
    if (!machine.load) open_machine();
    read_module(modules[number], ptx);
  }
  for (const auto& f : rows) {
    u64 at = base + std::stoull(f[1], nullptr, 16);
    Module& module = modules[(unsigned)std::stoul(f[2])];
    if (f[0] == "kernel") {
      string name = f.size() > 3 ? f[3] : "";
      auto found = module.kernels.find(name);
      if (found == module.kernels.end()) unsupported("a kernel that device code lacks: " + name);
      kernel_ids[at] = &found->second;
    } else {
      symbols.push_back({at, std::stoull(f[4]), &module, f[3], f[0] == "managed"});
    }
  }
  std::atexit(report_totals);
}

Kernel* kernel_of(const void* function) {
  load_program();
  const void* id = nullptr;
  if (!function || find(function)) return nullptr;
  asked = &id;
  reinterpret_cast<void (*)()>(const_cast<void*>(function))();
  asked = nullptr;
  auto found = kernel_ids.find(reinterpret_cast<u64>(id));
  return found == kernel_ids.end() ? nullptr : found->second;
}

cudaError_t symbol_address(const void* symbol, void** address, u64* bytes) {
  u64 at = reinterpret_cast<u64>(symbol);
  for (const Symbol& s : symbols) {
    if (at < s.host || at >= s.host + std::max<u64>(s.bytes, 1)) continue;
    auto found = s.module->variables.find(s.name);
    if (found == s.module->variables.end()) return cudaErrorInvalidSymbol;
    *address = reinterpret_cast<void*>(found->second.first + (at - s.host));
    *bytes = found->second.second - (at - s.host);
    return cudaSuccess;
  }
  return cudaErrorInvalidSymbol;
}

void sync_managed_variables(bool to_device) {
  for (const Symbol& s : symbols) {
    if (!s.managed) continue;
    auto found = s.module->variables.find(s.name);
    if (found == s.module->variables.end()) continue;
    void *host = reinterpret_cast<void*>(s.host), *device = reinterpret_cast<void*>(found->second.first);
    std::memcpy(to_device ? device : host, to_device ? host : device, std::min(s.bytes, found->second.second));
  }
}

static cudaError_t check_launch(const Kernel& k, const Config& c) {
  u64 threads = u64(c.block.x) * c.block.y * c.block.z;
  string why;
  cudaError_t error = cudaErrorInvalidConfiguration;
  if (!threads || !c.grid.x || !c.grid.y || !c.grid.z) why = "a dimension of grid or block is 0";
  else if (threads > 1024 || c.block.x > 1024 || c.block.y > 1024 || c.block.z > 64)
    why = std::to_string(threads) + " threads in a block";
  else if (c.grid.x > 2147483647u || c.grid.y > 65535 || c.grid.z > 65535)
    why = "a grid of " + std::to_string(c.grid.x) + " x " + std::to_string(c.grid.y) + " x " + std::to_string(c.grid.z);
  else if (c.shared + k.static_shared > (u64)std::max(k.dynamic_limit, 49152)) {
    why = std::to_string(c.shared + k.static_shared) + " bytes of shared memory, the limit is " +
          std::to_string(std::max(k.dynamic_limit, 49152));
    error = cudaErrorInvalidValue;
  } else if (k.max_threads && threads > k.max_threads) {
    why = std::to_string(threads) + " threads in a block, its launch bounds allow " + std::to_string(k.max_threads);
    error = cudaErrorLaunchOutOfResources;
  }
  if (why.empty()) return cudaSuccess;
  misuse("invalid-launch", "kernel " + k.name + ": " + why);
  return error;
}

static cudaError_t error_of(const string& kind) {
  if (kind.find("misaligned") != string::npos) return cudaErrorMisalignedAddress;
  if (kind == "trap") return cudaErrorLaunchFailure;
  if (kind == "assert") return cudaErrorAssert;
  if (kind == "barrier-deadlock" || kind == "instruction-budget") return cudaErrorLaunchTimeout;
  if (kind == "invalid-launch") return cudaErrorInvalidConfiguration;
  return cudaErrorIllegalAddress;
}

// A grid that a kernel launched. `tail`: it runs when everything else of its parent is done.
struct Child {
  Kernel* kernel = nullptr;
  Config config;
  std::vector<uint8_t> params;
  string line;
  bool tail = false;
};

static Child child_of(Module& module, const std::vector<string>& f) {
  if (f.size() < 11) broken("the machine tells of a child in another form");
  Child child;
  auto found = module.kernels.find(f[1]);
  if (found == module.kernels.end()) broken("the machine tells of the unknown child " + f[1]);
  auto value = [&](size_t i) { return (unsigned)std::stoul(f[i]); };
  child.kernel = &found->second;
  child.config.grid = dim3(value(2), value(3), value(4));
  child.config.block = dim3(value(5), value(6), value(7));
  child.config.shared = std::stoull(f[8]);
  child.tail = f[9] == "1";
  child.line = f[10];
  const string hex = f.size() > 11 ? f[11] : "";
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    child.params.push_back((uint8_t)std::stoul(hex.substr(i, 2), nullptr, 16));
  return child;
}

static cudaError_t take_result(const Kernel& k, const char* text, std::vector<Child>& children) {
  cudaError_t error = cudaSuccess;
  std::stringstream lines(text);
  for (string line; std::getline(lines, line);) {
    std::vector<string> f = fields(line);
    if (f[0] == "total") totals[k.name].instructions += std::stoull(f[1]);
    else if (f[0] == "child") children.push_back(child_of(*k.module, f));
    else if (f[0] == "fault" || f[0] == "warning") {
      static std::map<string, int> seen;
      if (seen[k.name + f[1] + (f.size() > 5 ? f[5] : "")]++ < 2)
        record(f[0] + "\t" + k.name + line.substr(f[0].size()));
      if (f[0] == "fault") error = error_of(f[1]);
    } else if (f[0] == "error") {
      broken("the machine failed in " + k.name + ": " + f[1]);
    }
  }
  return error;
}

// Memory that a kernel may touch, in the machine's form; made again only when something was allocated or freed.
struct Table {
  std::vector<KwAllocation> rows;
  string names;
  u64 version = 0;
};
static const Table& table_now(Module* module) {
  static std::map<Module*, Table> tables;
  Table& t = tables[module];
  if (t.version == allocations_version()) return t;
  t = Table{};
  t.version = allocations_version();
  for (auto& [at, a] : allocations()) {
    bool own = false;  // the machine knows the variables of the module that it runs
    for (auto& [name, place] : module->variables) own = own || place.first == a.address;
    if (a.kind == Kind::Variable && own) continue;
    t.rows.push_back({a.address, a.bytes, 1, a.shadow});
    t.names += a.name + "\n";
  }
  return t;
}

static void fill(Request& request, const Kernel& k, const Config& c, const std::vector<uint8_t>& params) {
  const Table& table = table_now(k.module);
  const uint32_t grid[3] = {c.grid.x, c.grid.y, c.grid.z}, block[3] = {c.block.x, c.block.y, c.block.z};
  const uint32_t cluster[3] = {c.cluster.x, c.cluster.y, c.cluster.z};
  request.put("grid", grid);
  request.put("block", block);
  request.put("shared_bytes", c.shared);
  request.put("budget", number("KERNELWRIGHT_BUDGET", u64(1) << 62));
  request.put("seed", number("KERNELWRIGHT_SEED", 0) + totals[k.name].launches);
  request.put("races", (uint32_t)(number("KERNELWRIGHT_RACES", 0) != 0));
  request.put("order", (uint32_t)number("KERNELWRIGHT_ORDER", 0));
  request.put("kernel", (uint32_t)k.index);
  request.put("allocations", (uint32_t)table.rows.size());
  request.put("allocation", table.rows.data());
  request.put("names", table.names.c_str());
  request.put("params", params.data());
  request.put("param_bytes", (u64)params.size());
  if (Request::has("watch")) request.put("watch", (uint32_t)(number("KERNELWRIGHT_RACES", 0) != 0));
  if (Request::has("poison")) request.put("poison", (uint32_t)0xff);
  if (c.cooperative && !Request::has("cooperative")) unsupported("cooperative launches");
  if (c.cooperative) request.put("cooperative", (uint32_t)1);
  bool clustered = c.cluster.x && c.cluster.y && c.cluster.z;
  if (clustered && !Request::has("cluster")) unsupported("launches of clusters");
  if (clustered) request.put("cluster", cluster);
}

// One grid, without those that it launches.
static cudaError_t run_grid(Kernel& k, const Config& c, const std::vector<uint8_t>& params,
                            std::vector<Child>& children) {
  if (faulted()) return cudaSuccess;  // the context is lost, and the next call that waits says so
  Request request;
  fill(request, k, c, params);
  std::vector<KwTexture> textures = texture_table();
  KwDevice device{textures.data(), textures.size(), 16 << 20};
  if (Request::has("device")) request.put("device", (const KwDevice*)&device);
  totals[k.name].launches++;
  sync_managed_variables(true);
  Open open;
  void* result = machine.launch(k.module->program, request.data());
  uint64_t printed = 0;
  const char* text = machine.result_printed ? machine.result_printed(result, &printed) : nullptr;
  if (printed) std::fwrite(text, 1, printed, stdout);
  cudaError_t error = take_result(k, machine.result_text(result), children);
  machine.result_free(result);
  sync_managed_variables(false);
  if (error == cudaErrorInvalidConfiguration) return error;
  if (error != cudaSuccess) fault(error);
  return cudaSuccess;
}

// A grid and all below it: it counts as done when they are. A child begins when its parent's threads have ended, which is
// one of the orders that a GPU may take; grids of one parent run in the order of their launches, each with its own
// children, and tail launches behind them.
static cudaError_t run(Kernel& k, const Config& c, const std::vector<uint8_t>& params, int depth = 0) {
  constexpr int MOST = 24;
  std::vector<Child> children;
  cudaError_t error = run_grid(k, c, params, children);
  for (bool tail : {false, true}) {
    for (const Child& child : children) {
      if (error != cudaSuccess || faulted()) return error;
      if (child.tail != tail) continue;
      if (depth >= MOST) {
        misuse("launch-depth", "kernel " + child.kernel->name + ", launched from a kernel on line " + child.line +
                                   ": more than 24 levels of launches, it does not run");
        continue;
      }
      error = run(*child.kernel, child.config, child.params, depth + 1);
    }
  }
  return error;
}

cudaError_t launch_kernel(Kernel& k, const Config& c, void** arguments) {
  cudaError_t error = begin();
  if (error != cudaSuccess) return error;
  error = check_launch(k, c);
  if (error != cudaSuccess) return note(error);
  std::vector<uint8_t> params;
  for (size_t i = 0; i < k.params.size(); i++) {
    auto [size, align] = k.params[i];
    params.resize((params.size() + align - 1) / align * align);
    const uint8_t* from = static_cast<const uint8_t*>(arguments[i]);
    params.insert(params.end(), from, from + size);
  }
  Kernel* kernel = &k;
  return note(issue(c.stream, [=] { return run(*kernel, c, params); }));
}

void configure(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  pending = Config{grid, block, shared, stream};
  configured = true;
}

void launch(const void* id, const void* const* arguments, const unsigned* sizes, int count) {
  if (asked) {
    *asked = id;
    return;
  }
  KW_LOCKED;
  load_program();
  auto found = kernel_ids.find(reinterpret_cast<u64>(id));
  if (found == kernel_ids.end()) unsupported("a kernel that the builder did not see");
  if (!configured) unsupported("a kernel that is called without a launch");
  configured = false;
  Kernel& k = *found->second;
  if ((size_t)count != k.params.size()) broken("kernel " + k.name + " has other parameters on the host");
  for (int i = 0; i < count; i++)
    if (sizes[i] != k.params[(size_t)i].first) broken("kernel " + k.name + ": a parameter's size differs on the host");
  launch_kernel(k, pending, const_cast<void**>(arguments));
}

int blocks_per_multiprocessor(const Kernel& k, int threads, u64 shared) {
  int warps = (threads + 31) / 32, most = std::min(32, 64 / std::max(warps, 1));
  u64 bytes = shared + k.static_shared;
  if (bytes) most = std::min<u64>((u64)most, 233472 / (bytes + 1024));
  return most;
}
}  // namespace kw

// For algorithms that the host half computes on device memory.
extern "C" cudaError_t kw_open_memory(cudaStream_t stream) {
  KW_LOCKED;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (!kw::valid_stream(stream)) return kw::note(cudaErrorInvalidResourceHandle);
  cudaStreamIsCapturing(stream, &status);
  if (status != cudaStreamCaptureStatusNone) kw::unsupported("cub algorithms in a stream that is captured");
  cudaError_t error = kw::synchronize();
  if (error == cudaSuccess) kw::hold_open(true);
  return error;
}
extern "C" void kw_close_memory() {
  KW_LOCKED;
  kw::hold_open(false);
}
extern "C" void kw_unsupported(const char* what) { kw::unsupported(what); }
