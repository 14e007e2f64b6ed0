// Schedules blocks. A block runs to its end before the next one starts, unless it waits for other blocks: then it stays
// resident and others take turns, as many at a time as the card holds.
#include <algorithm>
#include <deque>

#include "launch/resident_blocks.h"
#include "decode/specials.h"
#include "checks/watch.h"

namespace kw {
namespace {
// An H200. Registers are not counted: only ptxas knows how many a thread takes.
constexpr u64 MULTIPROCESSORS = 132, MOST_THREADS = 2048, MOST_BLOCKS = 32;
constexpr u64 SHARED_BYTES = 233472, SHARED_RESERVE = 1024;
constexpr u64 RESIDENT_BYTES = 1ull << 30;  // memory of the machine that all resident blocks may take
constexpr u64 STALL_ROUNDS = 16;            // turns of each cluster without any change before it counts as a deadlock
constexpr u64 STALL_TURNS = 256;            // and of all of them
constexpr u32 PREEMPTIONS = 512;            // of a launch whose blocks run interleaved
constexpr size_t INTERLEAVED = 8;           // clusters among which turns change, unless they wait for others

u8* aligned(std::vector<u8>& store, u64 bytes) {
  store.resize(bytes + 1024);
  return reinterpret_cast<u8*>((reinterpret_cast<u64>(store.data()) + 1023) / 1024 * 1024);
}

class Residents {
 public:
  explicit Residents(Launch& l);
  void run();

 private:
  bool wants_another();
  std::unique_ptr<Cluster> take();
  bool can_start() const { return started_ < clusters_ && (!free_.empty() || made_ < limit_); }
  void start();
  void place(ResidentBlock& s, u64 cluster);
  std::unique_ptr<Cluster> make();
  u64 next_cluster();
  std::vector<u64> sampled();
  Turn turn(Cluster& c);
  Turn turn(ResidentBlock& s);
  void check_stall(Cluster& c);
  [[noreturn]] void report(Cluster& c);

  Launch& l_;
  u64 clusters_ = 0, started_ = 0, made_ = 0, limit_ = 0, card_limit_ = 0, stalled_ = 0, changes_ = 0, idle_ = 0;
  u32 size_ = 1;  // blocks of a cluster
  size_t stride_ = 0;
  std::vector<u64> order_;
  u64 from_start_ = 0, from_end_ = 0;  // clusters started in the direction of indices, and against it
  std::vector<bool> taken_;            // once indices and the shuffled order are mixed
  bool waits_ = false;                 // a block has waited for others
  bool chosen_ = false;                // only the clusters in order_ run
  std::deque<std::unique_ptr<Cluster>> ready_;
  std::vector<std::unique_ptr<Cluster>> free_;
};

Residents::Residents(Launch& l) : l_(l) {
  const Kernel& k = *l.kernel;
  size_ = l.cluster[0] * l.cluster[1] * l.cluster[2];
  clusters_ = (u64)l.grid[0] * l.grid[1] * l.grid[2] / size_;
  stride_ = (k.register_bytes + 63) / 64 * 64 + 64;
  u64 threads = (u64)l.block[0] * l.block[1] * l.block[2], marks = l.races ? 6 * l.shared_bytes : 0;
  u64 resident = stride_ * ((threads + 31) / 32) + l.shared_bytes + marks + k.local_bytes * threads + 8192;
  card_limit_ = std::max<u64>(1, most_resident(l) / size_);
  limit_ = std::max<u64>(1, std::min(card_limit_, RESIDENT_BYTES / (resident * size_)));
  l.executed.assign(k.code.size() + 1, 0);
  if (l.watch) l.issues.assign(k.code.size() + 1, 0);
  l.hints.assign(k.sites + 1, 0);
  if (l.sample && clusters_ > l.sample) {
    order_ = sampled();
    clusters_ = order_.size();
    chosen_ = true;
  } else if (l.order == 2 && clusters_ <= (1u << 22)) {
    order_.resize(clusters_);
    for (u64 i = 0; i < clusters_; i++) order_[i] = i;
    std::shuffle(order_.begin(), order_.end(), l.random);
  }
  l.interleave = l.order && k.may_wait && clusters_ > 1 && !l.sample;
  l.preemptions = PREEMPTIONS;
}

// The first four, the last four and others at random, where only a sample is to run.
std::vector<u64> Residents::sampled() {
  std::vector<u64> some;
  for (u64 i = 0; i < l_.sample; i++)
    some.push_back(i >= 16 || i % 4 > 1 ? l_.random() % clusters_ : i % 4 ? clusters_ - 1 - i / 4 : i / 4);
  std::sort(some.begin(), some.end());
  some.erase(std::unique(some.begin(), some.end()), some.end());
  return some;
}

std::unique_ptr<Cluster> Residents::make() {
  auto c = std::make_unique<Cluster>();
  made_++;
  for (u32 i = 0; i < size_; i++) {
    auto s = std::make_unique<ResidentBlock>();
    s->cluster = c.get();
    s->rank = i;
    s->shared = aligned(s->shared_store, l_.shared_bytes);
    s->local = aligned(s->local_store, (u64)l_.kernel->local_bytes * l_.block[0] * l_.block[1] * l_.block[2]);
    u64 warps = ((u64)l_.block[0] * l_.block[1] * l_.block[2] + 31) / 32;
    char* registers = reinterpret_cast<char*>(aligned(s->register_store, stride_ * warps));
    s->block.resident = s.get();
    prepare_warps(l_, s->block, registers, stride_);
    c->blocks.push_back(std::move(s));
  }
  return c;
}

// A GPU starts blocks in the order of their indices; kernels whose blocks wait for earlier ones rely on it. So the
// other orders end as soon as a block waits.
u64 Residents::next_cluster() {
  if (chosen_) return order_[from_end_++];
  if (l_.order == 0 || (order_.empty() && l_.order == 2)) return from_start_++;
  if (l_.order == 1) return waits_ ? from_start_++ : clusters_ - 1 - from_end_++;
  if (!waits_) return order_[from_end_++];
  if (taken_.empty()) {
    taken_.resize(clusters_);
    for (u64 i = 0; i < from_end_; i++) taken_[order_[i]] = true;
  }
  while (taken_[from_start_]) from_start_++;
  return from_start_++;
}

void Residents::place(ResidentBlock& s, u64 cluster) {
  Block& b = s.block;
  const u32 *n = l_.cluster, *g = l_.grid;
  u32 inside[3] = {s.rank % n[0], s.rank / n[0] % n[1], s.rank / n[0] / n[1]};
  u64 across[2] = {g[0] / n[0], g[1] / n[1]};
  u32 outside[3] = {(u32)(cluster % across[0]), (u32)(cluster / across[0] % across[1]),
                    (u32)(cluster / across[0] / across[1])};
  for (int i = 0; i < 3; i++) b.index[i] = outside[i] * n[i] + inside[i];
  b.linear = b.index[0] + (u64)g[0] * (b.index[1] + (u64)g[1] * b.index[2]);
}

void Residents::start() {
  std::unique_ptr<Cluster> c;
  if (free_.empty()) {
    c = make();
  } else {
    c = std::move(free_.back());
    free_.pop_back();
  }
  u64 index = next_cluster();
  started_++;
  c->arrived = 0;
  for (auto& s : c->blocks) {
    s->done = false;
    place(*s, index);
    l_.blocks_left = (clusters_ - started_) * size_ + (size_ - 1 - s->rank);
    l_.shared = s->shared, l_.local = s->local;
    if (l_.watch) l_.watch->enter(*s);
    l_.shared_marks.swap(s->marks);
    start_block(l_, s->block);
    l_.shared_marks.swap(s->marks);
  }
  ready_.push_front(std::move(c));
}

Turn Residents::turn(ResidentBlock& s) {
  l_.shared = s.shared, l_.local = s.local;
  if (l_.watch) l_.watch->enter(s);
  std::copy(s.block.index, s.block.index + 3, l_.at_block);
  l_.shared_marks.swap(s.marks);
  Turn t = run_turn(l_, s.block);
  l_.shared_marks.swap(s.marks);
  s.done = t.done;
  return t;
}

// Runs its blocks in turns for as long as one of them gets on.
Turn Residents::turn(Cluster& c) {
  Turn all;
  for (int round = 0; round < 64; round++) {
    Turn now{true, false};
    for (auto& s : c.blocks) {
      if (s->done) continue;
      Turn t = turn(*s);
      now.done &= t.done;
      now.worked |= t.worked;
      now.preempted |= t.preempted;
    }
    all.worked |= now.worked;
    all.done = now.done;
    all.preempted = now.preempted;
    if (all.done || now.preempted || !now.worked) break;
  }
  return all;
}

void Residents::report(Cluster& c) {
  ResidentBlock* stuck = nullptr;
  for (auto& s : c.blocks)
    if (!s->done && !stuck) stuck = s.get();
  std::copy(stuck->block.index, stuck->block.index + 3, l_.at_block);
  const Inst* first = nullptr;
  int thread = -1;
  string text = "deadlock: " + waiting_text(l_, stuck->block, &first, &thread);
  u64 alive = (ready_.size() + 1) * size_, blocks = clusters_ * size_;
  if (started_ == clusters_)
    raise(first, thread, "barrier-deadlock",
          text + "; every block that is left waits for something that nobody will do (" + std::to_string(alive) +
              " of " + std::to_string(blocks) + " blocks)");
  if (limit_ < card_limit_)
    raise(first, thread, "instruction-budget",
          text + "; the machine has memory for " + std::to_string(alive) + " waiting blocks of this kernel only");
  raise(first, thread, "grid-deadlock",
        text + "; all " + std::to_string(alive) + " blocks that can be resident at a time wait, and the other " +
            std::to_string((clusters_ - started_) * size_) + " of the grid's " + std::to_string(blocks) +
            " cannot start before one of them ends: a barrier over the grid needs a grid that fits the GPU");
}

void Residents::check_stall(Cluster& c) {
  u64 now = l_.changes + l_.count.global_stores + l_.count.shared_stores;
  if (now != changes_) stalled_ = 0, changes_ = now;
  if (++stalled_ >= std::max<u64>(STALL_TURNS, STALL_ROUNDS * (ready_.size() + 1))) report(c);
}

// Interleaved blocks change turns in a small group, which grows while all of them wait.
bool Residents::wants_another() {
  if (!l_.interleave || ready_.empty() || idle_ >= ready_.size()) return true;
  return ready_.size() < INTERLEAVED && l_.random() % 2;
}

std::unique_ptr<Cluster> Residents::take() {
  size_t i = l_.interleave ? l_.random() % ready_.size() : 0;
  std::unique_ptr<Cluster> c = std::move(ready_[i]);
  ready_.erase(ready_.begin() + (long)i);
  return c;
}

void Residents::run() {
  while (can_start() || !ready_.empty()) {
    if (can_start() && wants_another()) start();
    std::unique_ptr<Cluster> c = take();
    Turn t = turn(*c);
    if (t.worked) stalled_ = 0;
    idle_ = t.worked ? 0 : idle_ + 1;
    if (t.done) {
      free_.push_back(std::move(c));
      continue;
    }
    waits_ |= !t.preempted;
    if (!t.worked && !can_start()) check_stall(*c);
    ready_.push_back(std::move(c));
  }
}
}  // namespace

u64 most_resident(const Launch& l) {
  u64 threads = ((u64)l.block[0] * l.block[1] * l.block[2] + 31) / 32 * 32;
  u64 shared = (l.shared_bytes + 127) / 128 * 128 + SHARED_RESERVE;
  return MULTIPROCESSORS * std::min({MOST_BLOCKS, MOST_THREADS / threads, SHARED_BYTES / shared});
}

void run_launch(Launch& l) { Residents(l).run(); }
}  // namespace kw
