// Accumulators of wgmma belong to the tensor core until wgmma.wait_group. Finds instructions that read one with no wait
// on any path from its wgmma. Copies (mov) are followed, since compilers insert them between products. Any wait_group
// counts for all earlier groups, so a wait that leaves the group in question pending is missed.
#include <algorithm>

#include "tensor_cores/tensor.h"

namespace kw {
namespace {
enum class Role : u8 { Other, Move, Multiply, Wait };

Role role_of(string_view text) {
  if (!text.empty() && text[0] == '@') text.remove_prefix(std::min(text.size(), text.find_first_of(" \t") + 1));
  while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
  auto begins = [&](string_view word) { return text.substr(0, word.size()) == word; };
  if (begins("mov.")) return Role::Move;
  if (begins("wgmma.mma_async")) return Role::Multiply;
  return begins("wgmma.wait_group") ? Role::Wait : Role::Other;
}

constexpr u8 PENDING = 1, WAITED = 2;  // on some way from the wgmma

struct State {
  u32 from;  // the wgmma
  u8 ways;
};
using States = std::map<u32, State>;  // by virtual register

bool join(States& into, const States& other) {
  bool changed = false;
  for (auto& [v, state] : other) {
    auto [it, added] = into.emplace(v, state);
    u8 ways = it->second.ways | state.ways;
    changed |= added || ways != it->second.ways;
    it->second.ways = ways;
  }
  return changed;
}

void wait(States& states, bool guarded) {
  for (auto& [v, state] : states)
    if (state.ways & PENDING) state.ways = guarded ? PENDING | WAITED : WAITED;
}
}  // namespace

void Decoder::find_early_reads() {
  if (std::none_of(kernel_.meta.begin(), kernel_.meta.end(),
                   [](const Meta& m) { return role_of(m.text) == Role::Multiply; }))
    return;
  // One instruction of the text: what it reads besides its own results, and the states behind it.
  auto step = [&](const Group& g, States& states, bool report) {
    Role role = role_of(kernel_.meta[g.code_begin].text);
    if (role == Role::Wait) return wait(states, g.guarded);
    std::vector<u32> defined, read;
    for (u32 r = g.ref_begin; r < g.ref_end; r++) (refs_[r].def ? defined : read).push_back(refs_[r].vreg);
    auto own = [&](u32 v) { return std::find(defined.begin(), defined.end(), v) != defined.end(); };
    const State none{~0u, 0};
    State seen = none;
    for (u32 v : read)
      if (auto it = states.find(v); it != states.end() && !(role == Role::Multiply && own(v))) seen = it->second;
    if (report && seen.ways == PENDING && role != Role::Move) {
      i64& reader = kernel_.tables[(size_t)kernel_.code[seen.from].imm].back();
      if (reader < 0) reader = g.code_begin;
    }
    if (g.guarded) return;
    for (u32 v : defined) {
      states.erase(v);
      if (role == Role::Multiply) states[v] = {g.code_begin, PENDING};
      if (role == Role::Move && seen.ways) states[v] = seen;
    }
  };
  std::vector<BasicBlock> blocks = basic_blocks();
  auto through = [&](const BasicBlock& b, States states, bool report) {
    auto first = std::lower_bound(groups_.begin(), groups_.end(), b.begin,
                                  [](const Group& g, u32 at) { return g.code_begin < at; });
    for (auto g = first; g != groups_.end() && g->code_begin < b.end; ++g) step(*g, states, report);
    return states;
  };
  std::vector<States> before(blocks.size());
  std::vector<u8> reached(blocks.size(), 0);
  std::vector<u32> work{0};
  reached[0] = 1;
  while (!work.empty()) {
    u32 at = work.back();
    work.pop_back();
    States after = through(blocks[at], before[at], false);
    for (u32 next : blocks[at].next) {
      bool changed = join(before[next], after);
      if (changed || !reached[next]) work.push_back(next);
      reached[next] = 1;
    }
  }
  for (u32 i = 0; i < blocks.size(); i++)
    if (reached[i]) through(blocks[i], before[i], true);
}
}  // namespace kw
