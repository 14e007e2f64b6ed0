// The part of NVIDIA's driver that a `LiveCard` calls, on memory of the host. Refuses what the real one refuses.
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
typedef unsigned long long u64;
typedef struct { int type, id; } Location;
typedef struct {
  int type, handles;
  Location location;
  void* windows;
  struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} Properties;
typedef struct { Location location; int flags; } Access;
static const size_t grain = 1u << 21, limit = 64u << 21;
size_t used = 0, handles = 0, maps = 0;
int elsewhere = 0;
int cuGetErrorString(int status, const char** text) {
  *text = status == 2 ? "out of memory" : "invalid argument";
  return 0;
}
int cuCtxGetDevice(int* device) { *device = 3; return 0; }
int cuCtxSynchronize(void) { return 0; }
static int sound(const Properties* p) {
  return p->type == 1 && p->location.type == 1 && p->location.id == 3 && !p->windows;
}
int cuMemGetAllocationGranularity(size_t* size, const Properties* p, int option) {
  *size = grain;
  return sound(p) && option == 0 ? 0 : 1;
}
int cuMemAddressReserve(u64* got, size_t size, size_t alignment, u64 hint, u64 flags) {
  if (size > (1ull << 38) || alignment || flags) return 2;
  void* found = mmap((void*)(elsewhere ? 0 : hint), size, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (elsewhere ? 0 : MAP_FIXED_NOREPLACE), -1, 0);
  *got = (u64)found;
  return found == MAP_FAILED ? 2 : 0;
}
int cuMemCreate(u64* handle, size_t size, const Properties* p, u64 flags) {
  if (!sound(p) || size % grain || flags) return 1;
  if (used + size > limit) return 2;
  used += size, handles++;
  *handle = size;
  return 0;
}
int cuMemRelease(u64 handle) { handles--; return handle ? 0 : 1; }
int cuMemMap(u64 at, size_t size, size_t offset, u64 handle, u64 flags) {
  maps++;
  return offset || flags || handle != size ? 1 : 0;
}
int cuMemSetAccess(u64 at, size_t size, const Access* access, size_t count) {
  if (count != 1 || access->location.type != 1 || access->location.id != 3 || access->flags != 3) return 1;
  return mprotect((void*)at, size, PROT_READ | PROT_WRITE) ? 1 : 0;
}
int cuMemUnmap(u64 at, size_t size) {
  used -= size, maps--;
  return mmap((void*)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED;
}
int cuMemcpyDtoH_v2(void* to, u64 from, size_t size) { memcpy(to, (void*)from, size); return 0; }
int cuMemcpyHtoD_v2(u64 to, const void* from, size_t size) { memcpy((void*)to, from, size); return 0; }
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t size, void* stream) {
  memmove((void*)to, (void*)from, size);
  return 0;
}
int cuMemsetD8Async(u64 to, unsigned char value, size_t size, void* stream) {
  memset((void*)to, value, size);
  return 0;
}
static double events[8];
static u64 count = 0;
int cuEventCreate(void** event, unsigned flags) { *event = (void*)++count; return flags ? 1 : 0; }
int cuEventRecord(void* event, void* stream) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  events[(u64)event % 8] = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
  return 0;
}
int cuEventSynchronize(void* event) { return 0; }
int cuEventElapsedTime(float* ms, void* a, void* b) {
  *ms = (float)(events[(u64)b % 8] - events[(u64)a % 8]);
  return 0;
}
int cuEventDestroy_v2(void* event) { return 0; }
