// The slow checks of a watched launch: traffic, the state of memory, hazards inside a warp, overflowing indices. They
// are off the hot paths: an unwatched launch never calls them.
#pragma once
#include <array>

#include "launch/resident_blocks.h"

namespace kw {
// The last scattered access of one instruction: most come again with the same distances between lanes.
struct Pattern {
  u32 m = 0, low = 0, actual = 0, ideal = 0;
  alignas(64) u32 delta[LANES] = {};
};

struct SiteTraffic {
  u64 accesses = 0, actual = 0, ideal = 0;  // sectors of global memory, or wavefronts of shared memory
  u64 bytes = 0;                            // of all lanes, in global and local memory
  i32 argument = -1;                        // the caller's allocation that was touched last
};

// Who of one warp touched a granule of shared memory last, by the count of warp-wide meetings.
struct LaneMark {
  struct Reads {
    u32 met = 0, at = 0, lanes = 0, step = 0;  // step: backward jumps of the warp until then
  };
  u32 written = 0, write_at = 0;
  u16 writer = 0, reader_warp = 0;  // thread + 1, warp + 1
  Reads last, before;               // before: by another instruction than the last
};

struct Exact {  // what 32-bit arithmetic would have given with more bits
  alignas(64) std::array<i64, LANES> value;
  std::array<i32, LANES> actual;  // what the register got: while it holds that, `value` is about it
  u32 origin = 0;  // the instruction that overflowed
};

struct WarpIndices {
  bool dirty = false;
  std::unordered_map<u32, Exact> exact;  // by slot
  struct Widened {
    u32 over = 0, origin = 0;  // lanes whose index overflowed, and where
    i64 value = 0;             // what it should have been, of the first such lane
  };
  std::vector<Widened> widened;
};

// What is known of one block. It stays with the block while others run.
struct BlockWatch {
  std::vector<u8> shared, local;  // a byte a byte: 0 nobody's, 1 not written, 2 written
  std::vector<LaneMark> marks;
  std::vector<std::array<u32, LANES>> met;  // by warp and lane
  std::vector<WarpIndices> indices;
  bool sane = false, overflowed = false;
};

class Watch {
 public:
  explicit Watch(Launch& l);
  void enter(ResidentBlock& s);  // this block runs from now on
  void begin_block(Block& b, bool last_blocks);
  void access(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, bool update);
  void meet(Warp& w, u32 lanes);  // these lanes of a warp came together: what they did before is ordered
  const Inst* index_op(Warp& w, const Inst* in);
  void check_index(Warp& w, const Inst* in, u32 m);  // raises when an address comes from an index that overflowed
  void banks(u32 at, const u32* offsets, u32 m, u32 bytes);
  void filled(const char* at, u64 bytes);   // the machine itself has written to the memory of the block that runs
  void emptied(const char* at, u64 bytes);  // a frame of the stack begins here
  void filled(ResidentBlock& s, u64 offset, u64 bytes);  // a copy has written to the shared memory of any block
  // Lanes m of a warp have written to shared memory without an access: a copy that arrives, an initialised mbarrier.
  void wrote(Warp& w, const Inst* in, u32 m, const u32* offsets, u32 bytes);
  // An asynchronous copy reads shared memory.
  void source(Warp& w, const Inst* in, int lane, ResidentBlock& s, u64 offset, u64 bytes);
  // The same for a whole warp, quick when the pattern is the one of the last time.
  [[gnu::always_inline]] void banks_of_all(u32 at, const u32* offsets, u32 bytes) {
    const Pattern& p = patterns_[at];
    u32 first = offsets[0], differ = 0;
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) differ |= (offsets[i] - first) ^ p.delta[i];
    if (differ || p.m != FULL || p.low != (first & 3)) return banks(at, offsets, FULL, bytes);
    SiteTraffic& t = traffic_[at];
    t.accesses++;
    t.actual += p.actual;
    t.ideal += p.ideal;
  }
  string report(size_t arguments) const;
  string line_work() const;  // lines.cpp: what each source line has issued and moved
  bool overflowed = false;
  bool sane = false;  // the accesses to shared and local memory of the block that runs are checked

 private:
  enum Role : u8 { Plain = 0, Atomic = 1, Strong = 2, Store = 4, Update = 8, Copy = 16 };  // Copy: tells by itself what it writes
  enum Where : u8 { OfGlobal = 0, OfShared = 1, OfLocal = 2 };
  struct Touched {
    std::vector<u64> read, written;  // a bit a byte
  };
  void global(Warp& w, const Inst* in, u32 at, u32 m, u32 bytes, bool write, bool update);
  void touch(Warp& w, u32 m, u32 bytes, bool write, bool both);
  void shared(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, bool update, const u64* offsets);
  void cluster(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, bool update);
  void mixed(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, bool update);
  void local(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, const u64* offsets);
  void check(Warp& w, const Inst* in, int lane, const u8* state, u64 offset, u32 bytes, bool write, bool reads);
  void hazards(Warp& w, const Inst* in, u32 at, int lane, u64 offset, u32 bytes, bool write);
  void after_store(Warp& w, const Inst* in, const LaneMark& k, int lane, u64 offset);
  bool ordered(const Warp& w, u32 then, u32 other, int lane) const;
  void tell_hazard(Warp& w, const Inst* in, int lane, u64 offset, const char* story, u32 other, u32 where);
  void lost_update(Warp& w, const Inst* in, u32 m);
  void swap_index_ops();
  string top_lines(bool of_shared) const;

  Launch& l_;
  std::vector<u8> role_;
  std::vector<Pattern> patterns_;
  std::vector<SiteTraffic> traffic_;
  std::vector<u8> where_;
  std::vector<u8> stores_;
  std::vector<Touched> touched_;
  std::vector<u8> shared_fresh_;  // as BlockWatch::shared, when a block begins
  BlockWatch* now_ = nullptr;     // of the block that runs; null: nothing is known of it
  u64 held_ = 0;                  // bytes of all of them
  u32 meetings_ = 1;
  u64 checked_ = 0;
  std::unique_ptr<Kernel> kernel_;
  std::vector<Fn> original_;
  std::vector<u8> index_kind_;
  std::vector<u16> widening_;
};

// counts.cpp: what the opcodes say, times how often they ran. Lines of "counter\tname\tvalue".
string operation_counts(const Launch& l);
// indices.cpp: "add.s32" of an instruction's text
string_view opcode_of(string_view text);
// watch.cpp
string describe_shared(const Launch& l, u64 offset);
u32 line_of(const Launch& l, u32 at);
// capi.cpp: the line in the user's own file.
u32 source_line(const Program& p, u32 loc);
}  // namespace kw
