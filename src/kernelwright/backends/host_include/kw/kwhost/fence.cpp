// Protects simulated device memory from host code, as on a GPU.
//
// torch's tensors here live in this process. libc10 allocates them by posix_memalign. With the fence active, that call
// (in libc10's own table of imported functions only) returns whole pages. They are PROT_NONE while a candidate's host
// function runs and accessible again inside every call that it makes to the runner. A host function that dereferences a
// device pointer then faults, and the fault becomes an error of that call.
//
// Python code has a fence of its own (`kw_watch`), around memory marked as the device's (`kw_device_memory`). An access
// is recorded and then allowed, since a signal handler cannot jump out of an interpreter. Torch and this library may
// access it.
#include "fence.h"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "impl.h"

namespace kw {

struct Pages {
  size_t bytes, asked;
  bool host = false;    // of a tensor on the host: no fence around it
  bool device = false;  // of a tensor that is certainly the device's: Python has no business in it
  bool let = false;     // a fault has opened it since it was shut
};
static std::map<uintptr_t, Pages>& blocks() {
  static auto* table = new std::map<uintptr_t, Pages>;  // tensors may outlive static objects
  return *table;
}
static std::mutex& lock() {
  static auto* one = new std::mutex;
  return *one;
}
static bool standing = false;  // pages are given out
static bool wanted = true;    // by the extension that is called now
static bool shut = false;      // and they cannot be read now
static thread_local bool plain = false;
static pthread_t guarded_thread;
static sigjmp_buf way_out;
static bool have_way_out = false;
static struct sigaction before;
static uintptr_t touched = 0;
static bool watching = false;      // Python code runs that may not reach device memory
static size_t reached_bytes = 0;  // of blocks that it has reached all the same

static bool wholly = false;  // everything that was to be shut is

static void protect(int how) {
  std::lock_guard<std::mutex> hold(lock());
  wholly = true;
  for (auto& [address, pages] : blocks())
    if (!pages.host && mprotect(reinterpret_cast<void*>(address), pages.bytes, how)) wholly = false;
}

// Whether a page can be read: the kernel copies a mask from there before it finds that it is not told what to do with it.
static bool readable(uintptr_t address) {
  return syscall(SYS_rt_sigprocmask, -1, address, nullptr, 8) < 0 && errno != EFAULT;
}
// A page of what is shut that can be read all the same, since somebody has opened it by hand; or 0.
static uintptr_t opened_by_hand(uintptr_t address, const Pages& pages, size_t probes) {
  size_t page = size_t(sysconf(_SC_PAGESIZE)), step = std::max<size_t>(1, pages.bytes / page / probes) * page;
  for (size_t at = 0; at < pages.bytes; at += step)
    if (readable(address + at)) return address + at;
  return 0;
}
void fence_shut() {
  if (!standing || shut) return;
  protect(PROT_NONE);
  shut = true;
}
void fence_open() {
  if (!shut) return;
  protect(PROT_READ | PROT_WRITE);
  shut = false;
}
static void watch(bool on) {
  std::lock_guard<std::mutex> hold(lock());
  for (auto& [address, pages] : blocks()) {
    if (!pages.device) continue;
    if (watching && !pages.let && opened_by_hand(address, pages, 4)) reached_bytes += pages.asked;
    pages.let = mprotect(reinterpret_cast<void*>(address), pages.bytes, on ? PROT_NONE : PROT_READ | PROT_WRITE) != 0;
  }
  watching = on;
}
Opened::Opened() : was_shut(shut) { fence_open(); }
Opened::~Opened() {
  if (was_shut) fence_shut();
}
Plain::Plain() : before(plain) { plain = true; }
Plain::~Plain() { plain = before; }

static int give_pages(void** out, size_t alignment, size_t bytes) {
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  size_t rounded = (bytes + page - 1) / page * page;
  if (standing && !plain && bytes && alignment <= page) {
    void* fresh = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh != MAP_FAILED) {
      std::memset(fresh, 0xff, bytes);  // torch promises no contents
      std::lock_guard<std::mutex> hold(lock());
      blocks()[reinterpret_cast<uintptr_t>(fresh)] = Pages{rounded, bytes};
      *out = fresh;
      return 0;
    }
  }
  return posix_memalign(out, alignment, bytes);
}
static void take_back(void* address) {
  {
    std::lock_guard<std::mutex> hold(lock());
    auto found = blocks().find(reinterpret_cast<uintptr_t>(address));
    if (found != blocks().end()) {
      munmap(address, found->second.bytes);
      blocks().erase(found);
      return;
    }
  }
  free(address);
}

static std::pair<const uintptr_t, Pages>* block_at(uintptr_t address) {
  auto after = blocks().upper_bound(address);
  if (after == blocks().begin()) return nullptr;
  --after;
  return address < after->first + after->second.bytes ? &*after : nullptr;
}
static bool fenced(uintptr_t address) {
  auto* found = block_at(address);
  return found && !found->second.host;
}

#if defined(__x86_64__)
static uintptr_t instruction(void* context) {
  return uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
}
#elif defined(__aarch64__)
static uintptr_t instruction(void* context) { return static_cast<ucontext_t*>(context)->uc_mcontext.pc; }
#else
static uintptr_t instruction(void*) { return 0; }
#endif

// Whether code at an address is of those who may reach the device's memory; `neutral`: of those who do it for others.
static bool allowed(const void* code, bool* neutral) {
  static const char* const ours[] = {"libtorch", "libc10", "libgomp", "libmkl", "libdnnl", "kwhost", "machine-", "step-"};
  Dl_info found;
  const char* name = dladdr(code, &found) && found.dli_fname ? found.dli_fname : "";
  const char* slash = std::strrchr(name, '/');
  name = slash ? slash + 1 : name;
  *neutral = !std::strncmp(name, "libc.so", 7) || !std::strncmp(name, "libc-", 5) || !std::strncmp(name, "libm.so", 7) ||
             !std::strncmp(name, "libstdc++", 9);
  for (const char* prefix : ours)
    if (!std::strncmp(name, prefix, std::strlen(prefix))) return true;
  return false;
}
// Who reads or writes: the innermost code that is not the C library's.
static bool by_those_who_may(void* context) {
  void* frames[32];
  int count = backtrace(frames, 32), first = 0;
  uintptr_t here = instruction(context);
  while (first < count && uintptr_t(frames[first]) != here) ++first;
  bool neutral = true;
  if (first == count) return allowed(reinterpret_cast<void*>(here), &neutral);
  for (int k = first; k < count && neutral; ++k)
    if (allowed(frames[k], &neutral)) return true;
  return false;
}

static void on_fault(int number, siginfo_t* info, void* context) {
  uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (shut && have_way_out && pthread_equal(pthread_self(), guarded_thread) && fenced(address)) {
    touched = address;
    siglongjmp(way_out, 1);
  }
  if (!shut) {
    std::lock_guard<std::mutex> hold(lock());
    auto* block = block_at(address);
    if (block && block->second.device) {  // another thread may have opened it since
      if (watching && !by_those_who_may(context)) reached_bytes += block->second.asked;
      block->second.let = true;
      if (!mprotect(reinterpret_cast<void*>(block->first), block->second.bytes, PROT_READ | PROT_WRITE)) return;
    }
  }
  sigaction(number, &before, nullptr);  // not ours: it happens again, with whoever handled it before
}

// Runs `invoke` behind the fence. Returns the address that it touched, or 0.
uintptr_t fence_around(const std::function<void()>& invoke) {
  if (!standing || !wanted || shut || have_way_out) {
    invoke();
    return 0;
  }
  struct Reset {
    ~Reset() {
      have_way_out = false;
      fence_open();
    }
  } reset;
  guarded_thread = pthread_self();
  touched = 0;
  if (sigsetjmp(way_out, 1) == 0) {
    have_way_out = true;
    fence_shut();
    invoke();
    std::lock_guard<std::mutex> hold(lock());
    for (auto& [address, pages] : blocks())
      if (!pages.host && shut && wholly && !touched) touched = opened_by_hand(address, pages, 64);
  }
  return touched;
}

#if defined(__x86_64__)
static bool imports(uint64_t info) { return ELF64_R_TYPE(info) == R_X86_64_JUMP_SLOT || ELF64_R_TYPE(info) == R_X86_64_GLOB_DAT; }
#elif defined(__aarch64__)
static bool imports(uint64_t info) { return ELF64_R_TYPE(info) == R_AARCH64_JUMP_SLOT || ELF64_R_TYPE(info) == R_AARCH64_GLOB_DAT; }
#else
static bool imports(uint64_t) { return false; }
#endif

static void replace(uintptr_t slot, void* function) {
  uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  if (mprotect(reinterpret_cast<void*>(slot / page * page), page, PROT_READ | PROT_WRITE)) return;
  *reinterpret_cast<void**>(slot) = function;
}

static int patch(const dl_phdr_info& object) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (int k = 0; k < object.dlpi_phnum; ++k)
    if (object.dlpi_phdr[k].p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[k].p_vaddr);
  std::map<int64_t, uintptr_t> at;
  for (; dynamic && dynamic->d_tag != DT_NULL; ++dynamic) at[dynamic->d_tag] = dynamic->d_un.d_ptr;
  auto symbols = reinterpret_cast<const ElfW(Sym)*>(at[DT_SYMTAB]);
  auto names = reinterpret_cast<const char*>(at[DT_STRTAB]);
  if (!symbols || !names) return 0;
  int found = 0;
  const std::pair<uintptr_t, size_t> tables[] = {{at[DT_JMPREL], at[DT_PLTRELSZ]}, {at[DT_RELA], at[DT_RELASZ]}};
  for (auto [start, bytes] : tables) {
    auto entry = reinterpret_cast<const ElfW(Rela)*>(start);
    for (size_t k = 0; start && k < bytes / sizeof *entry; ++k) {
      if (!imports(entry[k].r_info)) continue;
      const char* name = names + symbols[ELF64_R_SYM(entry[k].r_info)].st_name;
      uintptr_t slot = object.dlpi_addr + entry[k].r_offset;
      if (!std::strcmp(name, "posix_memalign") && ++found) replace(slot, reinterpret_cast<void*>(&give_pages));
      if (!std::strcmp(name, "free")) replace(slot, reinterpret_cast<void*>(&take_back));
    }
  }
  return found;
}

}  // namespace kw

extern "C" {

// Puts the fence up for all memory that torch asks for from now on; 0 where libc10 cannot be found or patched.
int kw_fence() {
  static int found = dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void*) {
        const char* name = object->dlpi_name ? std::strstr(object->dlpi_name, "libc10.so") : nullptr;
        return name ? kw::patch(*object) : 0;
      },
      nullptr);
  if (!found) return 0;
  void* frame[1];
  backtrace(frame, 1);  // loads what it needs now, and not in a handler
  struct sigaction action = {};
  action.sa_sigaction = kw::on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  if (!kw::standing && sigaction(SIGSEGV, &action, &kw::before)) return 0;
  kw::standing = true;
  return 1;
}

// Whether the next calls are of an extension for the pretended GPU; host code of one for the processor reads what it likes.
void kw_fence_wanted(int on) { kw::wanted = on != 0; }

int kw_is_fenced(uint64_t address) {
  std::lock_guard<std::mutex> hold(kw::lock());
  return kw::fenced(address);
}

// Says whose a tensor's memory is that is there already.
void kw_host_memory(uint64_t address, int on) {
  std::lock_guard<std::mutex> hold(kw::lock());
  auto found = kw::blocks().find(address);
  if (found != kw::blocks().end()) found->second.host = on != 0;
}

// Says that memory is the device's for certain, or is not.
void kw_device_memory(uint64_t address, int on) {
  std::lock_guard<std::mutex> hold(kw::lock());
  auto found = kw::blocks().find(address);
  if (found == kw::blocks().end()) return;
  found->second.device = on != 0;
  found->second.let = true;  // until it is shut next
  if (!on && kw::watching) mprotect(reinterpret_cast<void*>(address), found->second.bytes, PROT_READ | PROT_WRITE);
}

// Shuts the device's memory for Python code, or opens it.
void kw_watch(int on) { kw::watch(on != 0); }

// Bytes of the blocks that Python code has reached since this was last asked.
uint64_t kw_reached() {
  size_t found = kw::reached_bytes;
  kw::reached_bytes = 0;
  return found;
}

// Whether memory that torch asks for now stays readable for host code.
void kw_plain_memory(int on) { kw::plain = on != 0; }
}
