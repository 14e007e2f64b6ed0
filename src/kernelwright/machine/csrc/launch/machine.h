// The machine's state: decoded instructions, warps, blocks, a launch. Lane arrays are 32 wide and 64-byte aligned.
#pragma once
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>

#include "parse/ptx.h"

namespace kw {
struct Inst;
struct Warp;
struct Block;
struct Launch;
// Executes one instruction for the warp's current split and returns the next one, or STOP with `warp.event` set.
using Fn = const Inst* (*)(Warp&, const Inst*);

constexpr u32 FULL = 0xffffffffu;
constexpr int LANES = 32;
// Generic addresses of the windows: no host pointer has these top bits.
constexpr u64 SHARED_WINDOW = 1ull << 60, LOCAL_WINDOW = 2ull << 60, PARAM_WINDOW = 3ull << 60;
inline const Inst* const STOP = reinterpret_cast<const Inst*>(~0ull);

enum class Class : u8 { Int, Float, Half, Double, Memory, Control, Sync, Tensor, Count };

struct Inst {
  Fn fn = nullptr;
  u32 d = 0, a = 0, b = 0, c = 0;  // byte offsets of slots in the warp's register file
  u32 guard = 0, flip = 0;         // predicate slot, and FULL when it is negated
  u32 ext = 0;                     // more slots: index into Kernel::ext
  u32 site = 0;                    // number of this memory access, for its allocation hint
  i64 imm = 0;                     // address offset, branch distance, or what the operation wants
  u16 n = 0;
  u8 x = 0, y = 0;  // small parameters of the operation
};

struct Meta {
  u32 loc = 0;
  Class cls = Class::Int;
  string_view text;
};

struct ParamInfo {
  string_view name;
  u32 offset, size, align;
};

// A slot whose 32 lanes are known before the first instruction runs.
struct FixedSlot {
  enum Kind : u8 { Constant, Special, Param } kind;
  u32 offset = 0;     // in the register file
  u8 bytes = 4;       // of one lane; 0 for a predicate
  u8 mem_bytes = 4;   // Param: bytes read
  bool sign = false;  // Param: sign-extend
  u64 bits = 0;       // Constant: value; Special: which; Param: byte offset
};

// One place that makes a real call. Offsets are in the frames of caller and callee.
struct CallSite {
  struct Copy {
    u32 from, to, bytes;
  };
  i64 callee = -1;  // function of the module; -1: the address is in a register
  std::vector<Copy> in, out;
  u32 param_bytes = 0, return_bytes = 0;
  int owner = -1;  // the routine it is in, or the kernel itself
};

// A function that is not inlined. Its registers are its own; a call saves those that an outer activation still needs.
struct Routine {
  u32 function = 0, code = 0, end = 0, frame = 0, record = 16;
  u32 param_bytes = 0, return_bytes = 0;
  std::vector<std::pair<u32, u32>> saved;  // slot, bytes of a lane (0: predicate)
};
struct SharedVariable {
  string_view name;
  u32 offset, bytes;  // as the machine lays them out; 0 bytes: all dynamic shared memory
};

// 32-bit arithmetic whose result becomes part of an address, and where it is made 64 bits wide.
struct IndexOp {
  enum Kind : u8 {
    None,
    Add,
    Sub,
    Mul,
    Mad,
    Shift,
    Divide,
    Remainder,
    ShiftDown,
    And,
    Or,
    Xor,
    Logic,   // lop3
    Insert,  // bfi
    Least,
    Most,
    Select,
    Narrow,  // 64 bits to 32
    Move,
    WidenSigned,
    WidenUnsigned
  } kind;
  u32 inst = 0;
};
constexpr u32 MAX_WIDENED = 256;

struct Kernel {
  string name;
  std::vector<ParamInfo> params;
  u32 param_bytes = 0;
  std::vector<Inst> code;
  std::vector<Meta> meta;
  std::vector<u32> ext;
  std::vector<std::vector<i64>> tables;  // branch tables and other per-instruction lists
  std::vector<FixedSlot> fixed;
  std::vector<std::pair<u32, u32>> poison;  // slots read before they are written: offset, bytes of all lanes
  u32 register_bytes = 0, static_shared = 0, dynamic_offset = 0, local_bytes = 0, max_threads = 0, sites = 1;
  u32 shared_granule = 4, global_granule = 4;  // smallest access, for race shadows
  bool has_atomics = false;
  std::vector<CallSite> call_sites;
  std::vector<Routine> routines;
  std::vector<i64> routine_of;  // by function, -1: none
  u32 stack_begin = 0, frame_slot = 0, top_slot = 0;
  bool uses_heap = false, launches = false;  // launches: calls of the runtime by which kernels launch kernels
  bool has_copies = false;  // cp.async
  bool may_wait = false;  // reads, atomics or fences by which blocks wait for one another
  u32 cluster[3] = {0, 0, 0};  // .reqnctapercluster, or zeros
  std::vector<SharedVariable> shared_variables;
  u32 shared_gaps = 0;                                   // bytes between shared variables that are nobody's
  std::vector<IndexOp> index_ops;                        // by instruction
  std::vector<std::vector<u16>> index_origins;           // of addresses: widenings they may come from, by instruction
};

struct ModuleVariable {
  string name;
  u64 address = 0, bytes = 0;
  bool constant = false;
};

struct Program {
  Module module;
  std::vector<Kernel> kernels;
  std::vector<ModuleVariable> variables;
  void* memory = nullptr;  // of the variables
  u64 memory_bytes = 0;
  std::vector<string> unsupported;
  std::shared_ptr<struct CallGraph> calls;
};

struct Fault {
  string kind, message;
  const Inst* in = nullptr;
  int thread = -1;  // linear index in the block
};

enum class Wait : u8 { Run, Sync, Barrier, Cluster };
enum class Event : u8 { None, Exit, Blocked, Yield };

struct Split {
  const Inst* pc = nullptr;
  u32 mask = 0;
  Wait wait = Wait::Run;
  u8 barrier = 0;
  u32 turn = 0;  // when it last gave way
};

struct Region;
struct ResidentBlock;
struct AsyncQueue;

// Where the lanes of one memory instruction really point.
struct Access {
  enum Kind : u8 { Contiguous, Uniform, Gather } kind = Gather;
  Space space = Space::Global;  // of all lanes; Generic when they differ
  char* base = nullptr;         // lane 0's address (Contiguous), or everybody's (Uniform)
  Region* region = nullptr;     // the one allocation all lanes hit, or null
  alignas(64) char* at[LANES];  // Gather
  alignas(64) u64 address[LANES];
};

struct Warp {
  char* regs = nullptr;
  u32 mask = 0, live = 0;
  const Inst* limit = nullptr;
  const Inst* segment = nullptr;
  const u32* ext = nullptr;
  Launch* launch = nullptr;
  Block* block = nullptr;
  u32 id = 0, ticks = 0, turn = 0;
  u32 jumps = 0;  // backward ones so far
  u32 choices = 0;  // of paths, in this block
  Event event = Event::None;
  int nsplits = 0;
  Split splits[LANES];
  Access access;
  u32 known = 0;        // every other warp's work up to this clock happened before
  bool polls = false;   // it read what others may write: its loops may be waits
  const Inst* polled = nullptr;  // the last instruction that set it
  bool fenced = false;  // a memory fence ran: atomics now order other accesses
  bool synced = false;  // it has seen signals of other blocks
  u32 cluster_open = 0, cluster_owed = 0;  // arrived at barrier.cluster: in the open phase, and not waited yet
  AsyncQueue* copies = nullptr;  // asynchronous copies on their way, once there are any
};

// Clocks of a block's warps, since it began, that other blocks may rely on.
struct Published {
  u32 fenced[32] = {};     // stores up to here are visible to who has seen a signal
  u32 signalled[32] = {};  // a signal came after these, fenced or not
};

struct Barrier {
  u32 arrived = 0, expected = 0;
  bool counted = false;
  u32 votes = 0, voters = 0, warps = 0;
};

struct Block {
  u32 index[3] = {0, 0, 0};
  u64 linear = 0;
  u32 threads = 0, live = 0;
  std::vector<Warp> warps;
  Barrier barriers[16];
  u32 clock[32][32] = {};   // vector clocks of warps, for races
  u32 sync_clock[32] = {};  // joined by lock-like atomics
  u32 fenced[32][32] = {};  // of those clocks, what a device-wide fence covers, by warp that knows it
  Published* mine = nullptr;  // null: alone, or its kernel sends no signals
  std::unordered_map<u32, std::array<u32, 32>> polled_from;  // by 1 + block and warp: clock of the signal waited for
  u32 clock_base = 0;       // clocks of this block start above it, so older stamps are stale
  bool check_shared = false;
  ResidentBlock* resident = nullptr;  // its registers and memories while it is alive
};

inline u32 lanes_below(u32 n) { return n >= 32 ? FULL : (1u << n) - 1; }
template <class T>
inline T* slot(const Warp& w, u32 offset) {
  return reinterpret_cast<T*>(__builtin_assume_aligned(w.regs + offset, 64));
}
inline u32& pred(const Warp& w, u32 offset) { return *reinterpret_cast<u32*>(w.regs + offset); }
inline u32 active(const Warp& w, const Inst* in) { return w.mask & (pred(w, in->guard) ^ in->flip); }
inline void set_pred(Warp& w, u32 offset, u32 m, u32 value) {
  u32& p = pred(w, offset);
  p = (p & ~m) | (value & m);
}

template <class T>
inline void blend(T* __restrict d, const T* __restrict t, u32 m) {
  if constexpr (sizeof(T) == 8) {
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) d[i] = ((u64)m >> i) & 1 ? t[i] : d[i];
  } else {
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) d[i] = (m >> i) & 1 ? t[i] : d[i];
  }
}

// Writes f(lane) to the slot for the lanes in m; f must be safe for every lane.
template <class D, class F>
[[gnu::always_inline]] inline void put(Warp& w, u32 m, u32 offset, F f) {
  D* d = slot<D>(w, offset);
  if (m == FULL) {
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) d[i] = f(i);
  } else {
    alignas(64) D t[LANES];
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) t[i] = f(i);
    blend(d, t, m);
  }
}

// Writes f(lane) only for the lanes in m: for slow functions.
template <class D, class F>
[[gnu::always_inline]] inline void put_each(Warp& w, u32 m, u32 offset, F f) {
  D* d = slot<D>(w, offset);
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    d[i] = f(i);
  }
}

// One bit per lane of a condition.
template <class F>
[[gnu::always_inline]] inline u32 bits_of(F f) {
  u32 r = 0;
#pragma GCC ivdep
  for (int i = 0; i < LANES; i++) r |= f(i) ? 1u << i : 0u;
  return r;
}
template <class F>
[[gnu::always_inline]] inline u32 bits_of_wide(F f) {
  u64 r = 0;
#pragma GCC ivdep
  for (int i = 0; i < LANES; i++) r |= f(i) ? 1ull << i : 0ull;
  return (u32)r;
}

template <class To, class From>
inline To bit_cast(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}
}  // namespace kw
