// The C interface that Python calls. Nothing thrown leaves this file; texts are lines of tab-separated fields.
#include <algorithm>
#include <cstdio>

#include <sys/mman.h>

#include "copies/async.h"
#include "memory/heap.h"
#include "memory/shadow.h"
#include "memory/texture.h"
#include "checks/watch.h"

namespace kw {
Launch::Launch() = default;
Launch::~Launch() = default;

namespace {
struct Loaded {
  Program program;
  int status = 0;  // 0 ok, 1 malformed, 2 unsupported
  string text;
  ~Loaded() {
    if (program.memory) munmap(program.memory, program.memory_bytes);
  }
};

struct Result {
  int fault = 0;
  string text, printed;
};

// Takes memory from `first` on, or anywhere for 0.
void map_variables(Program& p, u64 first) {
  if (!p.memory_bytes) return;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (first ? MAP_FIXED_NOREPLACE : 0);
  void* wanted = reinterpret_cast<void*>(first);
  void* found = mmap(wanted, p.memory_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (found == MAP_FAILED) throw PtxError("the variables take more memory than there is");
  p.memory = found;
  if (first && found != wanted) throw PtxError("the memory of the variables is not free");
}

void place_variables(Program& p, u64 first) {
  constexpr u64 guard = 256;  // nothing valid lies right behind a variable
  for (const Variable& v : p.module.vars) {
    if (v.space == Space::Shared || v.is_extern) continue;
    if (v.bytes > (1ull << 32)) throw PtxError("variable '" + string(v.name) + "' is too large");
    u64 bytes = std::max<u64>(v.bytes, 1), at = (p.memory_bytes + guard + v.align - 1) / v.align * v.align;
    p.memory_bytes = at + bytes + guard;
    p.variables.push_back({string(v.name), at, bytes, v.space == Space::Const});
  }
  map_variables(p, first);
  size_t k = 0;
  for (const Variable& v : p.module.vars) {
    if (v.space == Space::Shared || v.is_extern) continue;
    u64 at = p.variables[k++].address += reinterpret_cast<u64>(p.memory);
    std::copy(v.init.begin(), v.init.end(), reinterpret_cast<u8*>(at));
  }
  for (const Variable& v : p.module.vars) {
    if (v.pointers.empty()) continue;
    auto address = [&](string_view name) -> u64 {
      for (const ModuleVariable& m : p.variables)
        if (m.name == name) return m.address;
      auto f = p.module.function_index.find(name);
      if (f != p.module.function_index.end()) return function_address(f->second);
      throw PtxError("initialiser names the unknown variable '" + string(name) + "'");
    };
    for (const Variable::Pointer& q : v.pointers) {
      u64 value = address(q.symbol) + (u64)q.offset;
      std::memcpy(reinterpret_cast<u8*>(address(v.name)) + q.at, &value, 8);
    }
  }
}

void load(Loaded& l, const char* text, size_t n, u64 first) {
  Program& p = l.program;
  p.module.source.assign(text, n);
  try {
    parse(p.module);
    place_variables(p, first);
    for (const Function& f : p.module.functions)
      if (f.is_entry && f.has_body) p.kernels.push_back(Decoder(p, all_handlers()).decode(f));
  } catch (const Unsupported& e) {
    p.unsupported.push_back(e.what());
  }
  if (!p.unsupported.empty()) {
    l.status = 2;
    for (const string& s : p.unsupported) l.text += s + "\n";
    return;
  }
  for (const Kernel& k : p.kernels) {
    l.text += "kernel\t" + k.name + "\t" + std::to_string(k.static_shared) + "\t" + std::to_string(k.max_threads) +
              "\t" + std::to_string(k.local_bytes) + "\t" + std::to_string(k.register_bytes);
    for (const ParamInfo& q : k.params) l.text += "\t" + std::to_string(q.size) + ":" + std::to_string(q.align);
    l.text += "\n";
  }
  for (const ModuleVariable& v : p.variables)
    l.text += "variable\t" + v.name + "\t" + std::to_string(v.address) + "\t" + std::to_string(v.bytes) + "\t" +
              std::to_string((int)v.constant) + "\n";
}

bool is_header(const string& file) {
  if (file.find("/triton/language/") != string::npos) return true;  // Triton's own functions, in Python
  for (const char* end : {".h", ".hpp", ".cuh", ".inl"}) {
    string_view e(end);
    if (file.size() > e.size() && string_view(file).substr(file.size() - e.size()) == e) return true;
  }
  return false;
}

string file_name(const Module& m, u32 file) {
  auto it = m.files.find(file);
  return it == m.files.end() ? string() : it->second;
}

// A header of the tile library as an include names it, `kernelwright/NAME.cuh`; empty for the user's own files. NVRTC
// puts the current folder before the name.
string library_header(const string& file) {
  size_t name = file.rfind('/');
  if (name == string::npos || file.size() < 4 || file.compare(file.size() - 4, 4, ".cuh")) return {};
  size_t folder = name ? file.rfind('/', name - 1) : string::npos;
  string shown = file.substr(folder == string::npos ? 0 : folder + 1);
  return shown.rfind("kernelwright/", 0) == 0 ? shown : string();
}

// The place of an instruction in a header of the tile library, as `kernelwright/NAME.cuh:LINE`; empty elsewhere.
string header_place(const Program& p, u32 index) {
  const Loc& l = p.module.locs[index];
  string file = library_header(file_name(p.module, l.file));
  return file.empty() ? file : file + ":" + std::to_string(l.line);
}

// The innermost place in the user's own file, following inlined calls outwards. Line 0 for a function of the tile
// library that is called and not inlined: its caller is unknown.
std::pair<string, u32> source_of(const Program& p, u32 index) {
  const Module& m = p.module;
  auto name = [&](u32 file) { return file_name(m, file); };
  Loc l = m.locs[index];
  for (int depth = 0; depth < 32 && l.at_line && is_header(name(l.file)); depth++) {
    Loc outer{l.at_file, l.at_line, l.at_column, 0, 0, 0};
    for (u32 i = index; i-- > 0;) {  // the nearest before it: another call of the same function has the same place
      const Loc& o = m.locs[i];
      if (o.file != outer.file || o.line != outer.line || o.column != outer.column || !o.at_line) continue;
      outer = o;
      break;
    }
    l = outer;
  }
  string file = name(l.file);
  if (!library_header(file).empty()) return {string(), 0};
  return {file.substr(file.rfind('/') + 1), l.line};
}

}  // namespace

u32 source_line(const Program& p, u32 loc) { return source_of(p, loc).second; }

namespace {
string clean(string s) {
  for (char& c : s)
    if ((unsigned char)c < ' ') c = ' ';
  return s;
}

string fault_line(const Launch& l, const Fault& f, const u32* block) {
  string t = f.kind + "\t" + clean(f.message) + "\t";
  if (f.in) t += std::to_string(block[0]) + "," + std::to_string(block[1]) + "," + std::to_string(block[2]);
  t += "\t";
  if (f.thread >= 0) {
    u32 i = (u32)f.thread;
    t += std::to_string(i % l.block[0]) + "," + std::to_string(i / l.block[0] % l.block[1]) + "," +
         std::to_string(i / l.block[0] / l.block[1]);
  }
  t += "\t";
  if (!f.in) return t + "\t\t\t";
  const Meta& m = l.kernel->meta[(size_t)(f.in - l.kernel->code.data())];
  auto [file, line] = source_of(*l.program, m.loc);
  string header = clean(header_place(*l.program, m.loc));
  return t + (line ? std::to_string(line) : "") + "\t" + clean(file) + "\t" + clean(string(m.text)) + "\t" + header;
}

void invalid(const string& message) { raise(nullptr, -1, "invalid-launch", message); }

void check_shape(const Launch& l, u64 shared_bytes) {
  const Kernel& k = *l.kernel;
  u64 threads = 1;
  const u64 most_block[] = {1024, 1024, 64}, most_grid[] = {0x7fffffff, 65535, 65535};
  const char* axis[] = {"x", "y", "z"};
  for (int i = 0; i < 3; i++) {
    if (l.grid[i] == 0 || l.grid[i] > most_grid[i])
      invalid(string("grid.") + axis[i] + " is " + std::to_string(l.grid[i]) + ", allowed are 1 to " +
              std::to_string(most_grid[i]));
    if (l.block[i] == 0 || l.block[i] > most_block[i])
      invalid(string("block.") + axis[i] + " is " + std::to_string(l.block[i]) + ", allowed are 1 to " +
              std::to_string(most_block[i]));
    threads *= l.block[i];
  }
  if (threads > 1024) invalid(std::to_string(threads) + " threads per block, allowed are 1024");
  if (k.max_threads && threads > k.max_threads)
    invalid(std::to_string(threads) + " threads per block, the kernel's launch bounds allow " +
            std::to_string(k.max_threads));
  if (k.static_shared > 48 * 1024)
    invalid(std::to_string(k.static_shared) + " bytes of static shared memory, allowed are 49152");
  u64 shared = k.dynamic_offset - k.shared_gaps + shared_bytes;
  if (shared > 227 * 1024)
    invalid(std::to_string(shared) + " bytes of shared memory per block, allowed are 232448");
  if ((u64)k.local_bytes * threads > (1ull << 30)) invalid("more than 1 GiB of local memory for one block");
}

void add_region(Launch& l, u64 begin, u64 bytes, string name, int argument, bool writable) {
  if (bytes == 0) return;
  Region r;
  r.begin = begin;
  r.bytes = bytes;
  r.name = std::move(name);
  r.argument = argument;
  r.writable = writable;
  l.regions.push_back(std::move(r));
}

void add_shadow(Launch& l, Region& r, KwShadow* shadow, bool checked) {
  if (!shadow || shadow->whole >= r.bytes) return;
  if (shadow->bytes != r.bytes) invalid("the shadow of '" + r.name + "' has another size than its memory");
  r.shadow = shadow;
  r.checked = checked;
  l.shadowed = true;
  l.checked |= checked;
}

// The variables of the kernel's module, but for those that are among the caller's allocations.
void add_variables(Launch& l) {
  std::vector<u64> known;
  for (const Region& r : l.regions) known.push_back(r.begin);
  std::sort(known.begin(), known.end());
  for (const ModuleVariable& v : l.program->variables)
    if (!std::binary_search(known.begin(), known.end(), v.address))
      add_region(l, v.address, v.bytes, v.name, -1, !v.constant);
}

// The kernel's own cluster size, or the launch's; they must agree.
void check_cluster(Launch& l, const u32* asked) {
  const Kernel& k = *l.kernel;
  bool fixed = k.cluster[0], given = asked[0] | asked[1] | asked[2];
  u64 size = 1;
  for (int i = 0; i < 3; i++) {
    u32 wanted = fixed ? k.cluster[i] : given ? asked[i] : 1;
    if (fixed && given && asked[i] != wanted)
      invalid("the launch asks for another cluster size than the kernel's __cluster_dims__");
    if (wanted == 0 || l.grid[i] % wanted)
      invalid("a grid of " + std::to_string(l.grid[i]) + " blocks along axis " + std::to_string(i) +
              " is no multiple of its cluster size " + std::to_string(wanted));
    l.cluster[i] = wanted;
    size *= wanted;
  }
  if (size > 16) invalid("clusters of " + std::to_string(size) + " blocks, allowed are 8 (16 if asked for)");
  l.clustered = fixed || given;
}

void check_cooperative(Launch& l, std::vector<u64>& workspace) {
  if (!l.cooperative) return;
  u64 blocks = (u64)l.grid[0] * l.grid[1] * l.grid[2], most = most_resident(l);
  if (blocks > most)
    invalid("a cooperative launch of " + std::to_string(blocks) + " blocks: at most " + std::to_string(most) +
            " of this size are resident at a time");
  workspace.assign(512, 0);
  reinterpret_cast<u32*>(workspace.data())[0] = 4096;  // its first word is its size
  l.workspace = reinterpret_cast<u64>(workspace.data());
  add_region(l, l.workspace, 4096, "the grid's workspace", -1, true);
}

// Hot spots come as instructions; here they get their lines.
string watched_lines(const Launch& l, size_t arguments) {
  string text = l.watch->report(arguments), out;
  for (size_t from = 0; from < text.size();) {
    size_t end = text.find('\n', from);
    string line = text.substr(from, end - from);
    from = end + 1;
    if (line.substr(0, 8) == "hotspot\t") {
      size_t at = line.find('\t', 8) + 1, stop = line.find('\t', at);
      u32 inst = (u32)std::stoul(line.substr(at, stop - at));
      line = line.substr(0, at) + std::to_string(source_of(*l.program, l.kernel->meta[inst].loc).second) +
             line.substr(stop);
    }
    out += line + "\n";
  }
  return out;
}

void report(const Launch& l, size_t arguments, string& out) {
  out += "total\t" + std::to_string(l.total) + "\n";
  const Counters& c = l.count;
  const std::pair<const char*, u64> named[] = {{"global_loads", c.global_loads},
                                               {"global_stores", c.global_stores},
                                               {"global_load_bytes", c.global_load_bytes},
                                               {"global_store_bytes", c.global_store_bytes},
                                               {"shared_loads", c.shared_loads},
                                               {"shared_stores", c.shared_stores},
                                               {"atomics", c.atomics},
                                               {"barriers", c.barriers},
                                               {"divergent_branches", c.divergent},
                                               {"mma", c.mma},
                                               {"warp_instructions", l.issued},
                                               {"blocks_run", l.blocks_run},
                                               {"heap_blocks", DeviceHeap::instance().live_blocks()},
                                               {"heap_bytes", DeviceHeap::instance().live_bytes()}};
  for (auto [name, value] : named) out += string("counter\t") + name + "\t" + std::to_string(value) + "\n";
  u64 classes[(size_t)Class::Count] = {};
  i64 running = 0;
  for (size_t i = 0; i < l.kernel->code.size() && i < l.executed.size(); i++) {
    running += l.executed[i];
    classes[(size_t)l.kernel->meta[i].cls] += (u64)running;
  }
  const char* class_names[] = {"int", "float", "half", "double", "memory", "control", "sync", "tensor"};
  for (size_t i = 0; i < (size_t)Class::Count; i++)
    out += string("counter\tinstructions_") + class_names[i] + "\t" + std::to_string(classes[i]) + "\n";
  out += operation_counts(l);
  if (l.watch) out += watched_lines(l, arguments) + l.watch->line_work();
  std::vector<u64> written(arguments), read(arguments);
  for (const Region& r : l.regions)
    if (r.argument >= 0) written[(size_t)r.argument] = r.written, read[(size_t)r.argument] = r.read;
  out += "written";
  for (u64 v : written) out += "\t" + std::to_string(v);
  out += "\nread";
  for (u64 v : read) out += "\t" + std::to_string(v);
  out += "\n";
  out += child_lines(l);
  for (const Warning& w : l.warnings) out += "warning\t" + fault_line(l, w.fault, w.block) + "\n";
}
}  // namespace
}  // namespace kw

using namespace kw;

#pragma GCC visibility push(default)
extern "C" {
struct KwAllocation {
  uint64_t address, bytes;
  uint64_t flags;  // 1: may be written; 2: all of it was written before its shadow began
  KwShadow* shadow;  // labels of its bytes; null: kernels have stored them all
};

struct KwLaunch {
  uint32_t grid[3], block[3];
  uint64_t shared_bytes, budget, seed;
  uint32_t races, order, kernel, allocations;
  const KwAllocation* allocation;
  const char* names;  // one line each
  const uint8_t* params;
  uint64_t param_bytes;
  const KwDevice* device;  // null: no textures, and nothing is printed
  uint32_t cluster[3], cooperative;
  uint64_t sample;          // run about so many blocks; 0: all
  uint32_t watch, poison;   // whether to watch; the byte that unwritten memory holds
};

// `first`: where the variables' memory is to begin; 0: anywhere.
void* kw_load_at(const char* text, uint64_t n, uint64_t first) {
  auto* l = new Loaded;
  try {
    load(*l, text, n, first);
  } catch (const std::exception& e) {
    l->status = 1;
    l->text = e.what();
  }
  return l;
}
void* kw_load(const char* text, uint64_t n) { return kw_load_at(text, n, 0); }

int kw_status(void* p) { return static_cast<Loaded*>(p)->status; }
const char* kw_text(void* p) { return static_cast<Loaded*>(p)->text.c_str(); }
void kw_unload(void* p) { delete static_cast<Loaded*>(p); }

void* kw_launch(void* p, const KwLaunch* a) {
  auto* result = new Result;
  Launch l;
  std::vector<u64> workspace;
  const Program& program = static_cast<Loaded*>(p)->program;
  try {
    l.program = &program;
    l.kernel = &program.kernels.at(a->kernel);
    std::copy(a->grid, a->grid + 3, l.grid);
    std::copy(a->block, a->block + 3, l.block);
    l.budget = a->budget;
    l.races = a->races;
    l.order = (int)a->order;
    l.random.seed(a->seed);
    l.poison = (u8)a->poison;
    l.sample = a->sample;
    check_shape(l, a->shared_bytes);
    if (a->param_bytes != l.kernel->param_bytes) invalid("the arguments do not fill the kernel's parameters");
    if (a->device) {
      l.device = a->device;
      l.print_limit = a->device->print_limit;
    }
    l.params.assign(a->params, a->params + a->param_bytes);
    const char* name = a->names;
    for (u32 i = 0; i < a->allocations; i++) {
      const char* end = std::strchr(name, '\n');
      size_t before = l.regions.size();
      add_region(l, a->allocation[i].address, a->allocation[i].bytes, string(name, end), (int)i,
                 a->allocation[i].flags & 1);
      if (l.regions.size() > before) add_shadow(l, l.regions.back(), a->allocation[i].shadow, !(a->allocation[i].flags & 2));
      name = end + 1;
    }
    check_cluster(l, a->cluster);
    l.shared_bytes = l.kernel->dynamic_offset + a->shared_bytes;
    l.cooperative = a->cooperative;
    check_cooperative(l, workspace);
    add_variables(l);
    if (l.kernel->launches) add_region(l, error_texts().first, error_texts().second, "error texts", -1, false);
    DeviceHeap& heap = DeviceHeap::instance();
    if (l.kernel->uses_heap) heap.open();
    if (heap.is_open()) {
      add_region(l, heap.begin(), heap.bytes(), "device heap", -1, true);
      l.regions.back().heap = true;
      add_shadow(l, l.regions.back(), heap.shadow(), true);
    }
    std::sort(l.regions.begin(), l.regions.end(), [](const Region& x, const Region& y) { return x.begin < y.begin; });
    for (size_t i = 1; i < l.regions.size(); i++)
      if (l.regions[i].begin < l.regions[i - 1].begin + l.regions[i - 1].bytes)
        invalid("allocations '" + l.regions[i - 1].name + "' and '" + l.regions[i].name + "' overlap");
    if (a->watch) l.watch = std::make_unique<Watch>(l);
    run_launch(l);
  } catch (const Fault& f) {
    result->fault = 1;
    result->text = "fault\t" + fault_line(l, f, l.at_block) + "\n";
  } catch (const std::exception& e) {
    result->fault = 2;
    result->text = string("error\t") + clean(e.what()) + "\n";
  }
  for (Region& r : l.regions)
    if (r.shadow && r.written && !r.heap) advance(*r.shadow);
  if (result->fault < 2 && l.kernel) report(l, a->allocations, result->text);
  result->printed = std::move(l.printed);
  if (l.unprinted) result->printed += "\n[" + std::to_string(l.unprinted) + " more bytes of printf were dropped]\n";
  return result;
}

int kw_result_fault(void* r) { return static_cast<Result*>(r)->fault; }
const char* kw_result_text(void* r) { return static_cast<Result*>(r)->text.c_str(); }
void kw_heap_limit(uint64_t bytes) { DeviceHeap::instance().set_limit(bytes); }
const char* kw_result_printed(void* r, uint64_t* bytes) {
  const string& s = static_cast<Result*>(r)->printed;
  *bytes = s.size();
  return s.data();
}
void kw_result_free(void* r) { delete static_cast<Result*>(r); }
}
