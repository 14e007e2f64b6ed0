// Turns a dereference of a device address in host code, a segmentation fault on a GPU, into an error of that call.
//
// Nothing is mapped at device addresses, so no access reaches any memory. This only finds the place: without it the
// process would end. On a thread that no call of the runner waits for, the process does end.
#include "guard.h"

#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "device_addresses.h"
#include "impl.h"

namespace kw {

static thread_local sigjmp_buf* way_out = nullptr;
static thread_local int runner_depth = 0;
static thread_local volatile uintptr_t touched = 0;
static bool installed = false;
static struct sigaction before;

InRunner::InRunner() { ++runner_depth; }
InRunner::~InRunner() { --runner_depth; }

static void on_fault(int number, siginfo_t* info, void*) {
  uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (is_device(address)) {
    if (way_out && runner_depth == 0) {
      touched = address;
      siglongjmp(*way_out, 1);
    }
    static const char text[] = "Segmentation fault: host code read or wrote device memory outside of its call's thread\n";
    (void)!write(2, text, sizeof text - 1);
  }
  sigaction(number, &before, nullptr);  // it happens again, with the action from before
}

// Runs host code. Returns the device address that it dereferenced, or 0.
uintptr_t guarded(const std::function<void()>& invoke) {
  if (!installed) {
    invoke();
    return 0;
  }
  struct Restore {  // a call may be made within another's
    sigjmp_buf* way_out = kw::way_out;
    int depth = runner_depth;
    ~Restore() {
      kw::way_out = way_out;
      runner_depth = depth;
    }
  } restore;
  sigjmp_buf here;
  touched = 0;
  if (sigsetjmp(here, 1) == 0) {
    way_out = &here;
    runner_depth = 0;
    invoke();
    touched = 0;
  }
  return touched;
}

}  // namespace kw

extern "C" {
// Watches for device addresses in all later calls.
void kw_guard() {
  if (kw::installed) return;
  struct sigaction action = {};
  action.sa_sigaction = kw::on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  kw::installed = sigaction(SIGSEGV, &action, &kw::before) == 0;
}
}
