// Turns g++ into a compiler that waits for sources after reading its headers. Loaded into cc1plus by LD_PRELOAD, it
// takes over when cc1plus opens the file named by KW_UNIT, and forks a child for every source sent to it (see
// warm_compiler.py).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2ul << 20)
#define REQUESTS_BEFORE 8
#define CONTROL 0  // its standard input is a socket to the builder

static int (*real_open)(const char*, int, ...);
static void* header;  // where the precompiled header is mapped
static size_t header_size;

static void limit(int what, rlim_t value) {
  struct rlimit l = {value, value};
  setrlimit(what, &l);
}

static int place(const char* path, int target) {
  int fd = real_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0) return -1;
  dup2(fd, target);
  close(fd);
  return 0;
}

// False where the kernel says that it gives none: small pages would only make each fork dearer.
static int huge_pages(void) {
  char text[128] = "";
  FILE* file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  if (file && !fgets(text, sizeof text, file)) text[0] = 0;
  if (file) fclose(file);
  return !strstr(text, "[never]");
}

// Takes the precompiled header, mapped from its file, into memory of huge pages. A child of a mapped file faults in a
// thousand pages one by one, which is half of what an error costs; of huge pages it has all with the fork. It costs 90 MB,
// so that only a compiler does it that has had REQUESTS_BEFORE sources. Where any of it cannot be had, nothing changes.
static void take_header(void) {
  if (!header_size || (unsigned long)header % HUGE || !huge_pages()) return;
  char* all = mmap(NULL, header_size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return;
  char* copy = (char*)(((unsigned long)all + HUGE - 1) / HUGE * HUGE);
  if (madvise(copy, header_size, MADV_HUGEPAGE)) {
    munmap(all, header_size + HUGE);
    return;
  }
  memcpy(copy, header, header_size);
  if (mremap(copy, header_size, header_size, MREMAP_MAYMOVE | MREMAP_FIXED, header) == MAP_FAILED)
    munmap(copy, header_size);
}

// One request: three lines, the paths of source, assembly and log. One answer: the child's wait status.
static int serve(void) {
  static char text[3 * 4096];
  for (int served = 0;; ++served) {
    if (served == REQUESTS_BEFORE) take_header();
    size_t have = 0;
    int lines = 0;
    while (lines < 3 && have < sizeof text - 1) {
      ssize_t got = read(CONTROL, text + have, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) _exit(0);
      if (text[have] == '\n') text[have] = 0, ++lines;
      ++have;
    }
    const char* source = text;
    const char* assembly = source + strlen(source) + 1;
    const char* log = assembly + strlen(assembly) + 1;
    pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      limit(RLIMIT_CPU, 60);
      limit(RLIMIT_AS, (rlim_t)3 << 30);
      limit(RLIMIT_FSIZE, (rlim_t)512 << 20);
      limit(RLIMIT_CORE, 0);
      close(CONTROL);
      real_open("/dev/null", O_RDONLY);
      if (place(log, 2) || place(assembly, 1)) _exit(120);
      return real_open(source, O_RDONLY);
    }
    int status = 120 << 8;
    if (child > 0)
      while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    char answer[32];
    int size = snprintf(answer, sizeof answer, "%d\n", status);
    if (write(CONTROL, answer, size) != size) _exit(0);
  }
}

int open(const char* path, int flags, ...) {
  if (!real_open) real_open = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open");
  static int served;
  const char* magic = getenv("KW_UNIT");
  if (!served && magic && !strcmp(path, magic)) {
    served = 1;
    unsetenv("LD_PRELOAD");
    return serve();
  }
  va_list rest;
  va_start(rest, flags);
  int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, int) : 0;
  va_end(rest);
  return real_open(path, flags, mode);
}

// The precompiled header is the one large file that the compiler maps.
void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  static void* (*real)(void*, size_t, int, int, int, off_t);
  if (!real) real = (void* (*)(void*, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
  void* got = real(address, size, protection, flags, fd, offset);
  if (got == address && fd >= 0 && size > header_size && (protection & PROT_WRITE)) header = got, header_size = size;
  return got;
}

void* mmap64(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  return mmap(address, size, protection, flags, fd, offset);
}
