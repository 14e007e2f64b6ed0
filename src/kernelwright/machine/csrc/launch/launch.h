// One launch: its memory, its counters, its faults, and the calls that instructions make into them.
#pragma once
#include "launch/device_launch.h"
#include "launch/machine.h"

struct KwDevice;
struct KwShadow;

namespace kw {
// The last accesses to one granule of shared memory.
struct SharedMark {
  u32 write_clock = 0, writer = 0;  // writer: thread, with bit 31 for an atomic
  u32 read_clock = 0, readers = 0;  // readers: warps that read at read_clock
  u32 write_at = 0, read_at = 0;    // instructions
};

struct FreeMemory {  // keeps the memory for the next launch
  u64 bytes = 0;
  void operator()(u64* p) const;
};

// One range of device-visible host memory.
struct Region {
  u64 begin = 0, bytes = 0;
  string name;
  int argument = -1;  // index in the caller's list, or -1 for a variable of the module
  bool writable = true, heap = false;  // heap: accesses are checked against malloc's blocks as well
  u64 written = 0, read = 0;
  std::unique_ptr<u64[], FreeMemory> marks;  // last writer of each granule, made at the first store
  bool unmarked = false;                     // too large for marks
  KwShadow* shadow = nullptr;                // labels of its bytes; null: kernels have stored them all
  bool checked = false;                      // label 0 means that nothing has written the byte
};

struct Counters {
  u64 global_loads = 0, global_stores = 0, global_load_bytes = 0, global_store_bytes = 0;
  u64 shared_loads = 0, shared_stores = 0, atomics = 0, barriers = 0, divergent = 0, mma = 0;
};

struct Warning {
  Fault fault;
  u32 block[3];
};

class Watch;

struct Launch {
  const Program* program = nullptr;
  const Kernel* kernel = nullptr;
  u32 grid[3], block[3];
  u64 budget = 0, total = 0, issued = 0;  // thread instructions; and warp instructions
  u64 sample = 0;  // run only about so many blocks; 0: all
  u64 blocks_run = 0;
  std::vector<Region> regions;  // sorted by address
  bool shadowed = false, checked = false;  // some region has a shadow; and one whose reads are checked
  std::vector<u32> hints;       // per memory site: region last hit
  std::vector<u8> params;
  u8 *shared = nullptr, *local = nullptr;  // of the block that runs now
  u64 shared_bytes = 0;
  std::vector<i64> executed;  // difference array over the code: thread executions
  std::vector<i64> issues;    // the same of warp executions, in a watched launch
  Counters count;
  bool races = false;
  int order = 0;  // 0 forward, 1 reverse, 2 random
  std::mt19937_64 random;
  std::vector<Warning> warnings;
  std::unordered_map<u32, Published> published;  // by 1 + block
  bool interleave = false;                       // blocks and warps are preempted where they may meet others
  bool preempted = false;                        // the warp that ran gave way in the middle of its work
  u32 preemptions = 0;                           // how many more there may be
  std::vector<SharedMark> shared_marks;  // one per granule of shared memory
  u64 shared_checked = 0, blocks_left = 0;
  u32 at_block[3] = {0, 0, 0};  // the block that runs now
  const KwDevice* device = nullptr;
  string printed;  // device printf
  u64 print_limit = 0, unprinted = 0;
  bool cooperative = false, clustered = false;
  u32 cluster[3] = {1, 1, 1};
  u64 changes = 0;    // atomics that changed memory
  u64 workspace = 0;  // address of what cooperative groups keep for the grid, or 0

  std::unique_ptr<Watch> watch;  // null: only what is free is counted
  u8 poison = 0xff;              // what memory holds that nobody wrote
  DeviceLaunches children;       // what its threads launched
  std::vector<u32> stored_region;  // by instruction: 1 + the region that it stored to last

  Launch();
  ~Launch();
};

// residency.cpp
void run_launch(Launch& l);
u64 most_resident(const Launch& l);  // blocks that the card holds at a time

// scheduler.cpp
struct Turn {
  bool done = false, worked = false;  // worked: something else than polling happened
  bool preempted = false;             // it could go on
};
void prepare_warps(Launch& l, Block& b, char* registers, size_t stride);
void start_block(Launch& l, Block& b);
Turn run_turn(Launch& l, Block& b);  // until it is done or only waits
string waiting_text(Launch& l, const Block& b, const Inst** first, int* thread);
void close_segment(Warp& w, const Inst* last);  // [segment, last] ran once for the current mask
void push_split(Warp& w, const Inst* pc, u32 mask, Wait wait, u8 barrier = 0);
const Inst* jump(Warp& w, const Inst* from, const Inst* to);  // after close_segment
// Makes the guarded lanes of a warp-wide instruction the current split; false when there are none.
bool take_guarded(Warp& w, const Inst* in);
// Lets those lanes go on whose live `members` (a mask of each lane, or null for the whole warp) are at `in`, and parks
// the others; false: none may go on, return STOP.
bool arrive(Warp& w, const Inst* in, const u32* members);
void release_syncs(Warp& w);
const Inst* preempt(Warp& w, const Inst* in);  // the next instruction, or STOP when others go first
inline const Inst* go_on(Warp& w, const Inst* in) { return w.launch->interleave ? preempt(w, in) : in + 1; }
void give_way(Warp& w);  // others go first from its next backward jump on
void check_barriers(Launch& l, Block& b);

[[noreturn]] void raise(const Inst* in, int thread, const char* kind, const string& message);
int thread_of(const Warp& w, int lane);

// memory.cpp: fills w.access for lanes m reading or writing `bytes` each, or raises a fault. `update`: a write that also
// reads, as of atomics.
void resolve(Warp& w, const Inst* in, u32 m, u32 bytes, Space space, bool write, bool update = false);
// The same with w.access.address already filled.
void resolve_addresses(Warp& w, const Inst* in, u32 m, u32 bytes, Space space, bool write, bool update = false);
Region* find_region(Launch& l, u64 address);
string describe_address(Launch& l, u64 address, const Region* meant = nullptr);

// races.cpp: call these before the access is made.
enum class Touch : u8 { Read, Write, Atomic };
void begin_race_checks(Launch& l, Block& b, bool last_blocks);
void join_clocks(Block& b, u32 warps);
void atomic_order(Warp& w, bool lock_like);  // an atomic ran: it may order what came before
// `values` holds bytes per lane, or is null.
void note_access(Warp& w, const Inst* in, u32 m, u32 bytes, Touch touch, const u8* values);
// Strong accesses (volatile, relaxed, acquire, release) are no races, but signals to other blocks.
void note_strong(Warp& w, const Inst* in, u32 m, u32 bytes, bool write);
void warn(Warp& w, const Inst* in, int thread, const string& message, const char* kind = "data-race");  // no fault
// async_ops.cpp: an access to shared memory to which a copy is under way.
void check_pending(Warp& w, const Inst* in, u32 m, u32 bytes, bool write);
// cluster_ops.cpp: true when all addresses are of the own block, then as plain shared addresses in w.access.
bool only_own_block(Warp& w, u32 m);
void resolve_cluster(Warp& w, const Inst* in, u32 m, u32 bytes, bool write);
}  // namespace kw
