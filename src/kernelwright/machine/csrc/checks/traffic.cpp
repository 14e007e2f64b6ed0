// Measures memory traffic of a watched launch: sectors of 32 bytes against the minimum, wavefronts of shared memory
// against the conflict-free number, and the bytes touched in each allocation.
#include <algorithm>

#include "checks/watch.h"

namespace kw {
namespace {
constexpr u64 MAX_TOUCHED = 512ull << 20;  // larger allocations have no map of their bytes
constexpr size_t TOP_LINES = 4;

void set_bits(std::vector<u64>& bits, u64 from, u64 count) {
  u64 end = from + count;
  for (u64 word = from / 64; word <= (end - 1) / 64; word++) {
    u64 low = std::max(from, word * 64) - word * 64, high = std::min(end, word * 64 + 64) - word * 64;
    bits[word] |= (high == 64 ? ~0ull : (1ull << high) - 1) & ~((1ull << low) - 1);
  }
}
u64 count_bits(const std::vector<u64>& bits) {
  u64 n = 0;
  for (u64 word : bits) n += (u64)__builtin_popcountll(word);
  return n;
}

// Distinct values of f over the lanes in m.
template <class F>
u32 distinct(u32 m, F f) {
  u64 seen[LANES];
  u32 n = 0;
  for (u32 r = m; r; r &= r - 1) {
    u64 v = f(__builtin_ctz(r));
    if (n && seen[n - 1] == v) continue;
    if (std::find(seen, seen + n, v) == seen + n) seen[n++] = v;
  }
  return n;
}

// Wavefronts of the lanes in m, which go together: the fullest bank's different words.
u32 fullest_bank(const u32* offsets, u32 m, u32 words) {
  u32 count[32] = {}, most = 0;
  u32 seen[LANES * 4], n = 0;
  for (u32 r = m; r; r &= r - 1) {
    u32 first = offsets[__builtin_ctz(r)] / 4;
    for (u32 k = 0; k < words; k++) {
      u32 word = first + k;
      if (std::find(seen, seen + n, word) != seen + n) continue;
      seen[n++] = word;
      most = std::max(most, ++count[word % 32]);
    }
  }
  return most;
}

bool same_pattern(const Pattern& p, u32 m, u32 low, const u32* delta) {
  if (p.m != m || p.low != low) return false;
  u32 differ = 0;
#pragma GCC ivdep
  for (int i = 0; i < LANES; i++) differ |= p.delta[i] ^ delta[i];
  return !differ;
}
}  // namespace

void Watch::banks(u32 at, const u32* offsets, u32 m, u32 bytes) {
  SiteTraffic& t = traffic_[at];
  Pattern& p = patterns_[at];
  where_[at] = OfShared;
  t.accesses++;
  alignas(64) u32 delta[LANES];
  u32 first = offsets[__builtin_ctz(m)], low = first & 3;
#pragma GCC ivdep
  for (int i = 0; i < LANES; i++) delta[i] = ((m >> i) & 1) ? offsets[i] - first : 0;
  if (!same_pattern(p, m, low, delta)) {
    p.m = m, p.low = low, p.actual = p.ideal = 0;
    std::copy(delta, delta + LANES, p.delta);
    u32 lanes = bytes <= 4 ? 32 : 128 / bytes, words = std::max(1u, bytes / 4);
    for (u32 group = 0; group < 32; group += lanes) {
      u32 part = m & (lanes == 32 ? FULL : ((1u << lanes) - 1) << group);
      if (part) p.actual += fullest_bank(offsets, part, words), p.ideal++;
    }
    bool uniform = std::all_of(delta, delta + LANES, [](u32 d) { return d == 0; });
    if (uniform) p.actual = p.ideal = 1;
  }
  t.actual += p.actual;
  t.ideal += p.ideal;
}

void Watch::global(Warp& w, const Inst* in, u32 at, u32 m, u32 bytes, bool write, bool update) {
  const Access& x = w.access;
  SiteTraffic& t = traffic_[at];
  t.accesses++;
  t.bytes += (u64)bytes * (u64)__builtin_popcount(m);
  if (x.region) t.argument = x.region->argument;
  // Devices align allocations to sectors; where this process has them does not matter.
  u64 origin = x.region ? x.region->begin : 0, base = (u64)x.base - origin;
  if (x.kind == Access::Contiguous) {
    t.actual += ((base + LANES * bytes - 1) >> 5) - (base >> 5) + 1;
    t.ideal += bytes;
  } else if (x.kind == Access::Uniform) {
    t.actual++;
    t.ideal++;
  } else {
    Pattern& p = patterns_[at];
    alignas(64) u32 delta[LANES];
    u64 first = x.address[__builtin_ctz(m)] - origin;
    u32 low = (u32)first & 31;
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) delta[i] = ((m >> i) & 1) ? (u32)(x.address[i] - origin - first) : 0;
    if (!same_pattern(p, m, low, delta)) {
      p.m = m, p.low = low;
      std::copy(delta, delta + LANES, p.delta);
      p.actual = distinct(m, [&](int i) { return (x.address[i] - origin) >> 5; });
      p.ideal = (distinct(m, [&](int i) { return x.address[i]; }) * bytes + 31) / 32;
    }
    t.actual += p.actual;
    t.ideal += p.ideal;
  }
  touch(w, m, bytes, write, update);
  if (write && !(role_[at] & (Atomic | Strong))) lost_update(w, in, m);
}

void Watch::touch(Warp& w, u32 m, u32 bytes, bool write, bool both) {
  const Access& x = w.access;
  auto mark = [&](Region& r, u64 address, u64 count) {
    if (r.bytes > MAX_TOUCHED) return;
    Touched& t = touched_[(size_t)(&r - l_.regions.data())];
    for (bool writing : {false, true}) {
      if (writing != write && !both) continue;
      auto& bits = writing ? t.written : t.read;
      if (bits.empty()) bits.resize(r.bytes / 64 + 2);
      set_bits(bits, address - r.begin, count);
    }
  };
  if (x.kind == Access::Contiguous && x.region) return mark(*x.region, (u64)x.base, (u64)bytes * LANES);
  if (x.kind == Access::Uniform) m &= 0u - m;
  for (u32 r = m; r; r &= r - 1) {
    u64 address = x.address[__builtin_ctz(r)];
    if (Region* g = x.region ? x.region : find_region(l_, address)) mark(*g, address, bytes);
  }
}

// `y[k] += v` by several lanes with one k: all but one of the updates are lost.
void Watch::lost_update(Warp& w, const Inst* in, u32 m) {
  const Access& x = w.access;
  if (x.kind == Access::Contiguous || !(m & (m - 1))) return;
  const auto& meta = l_.kernel->meta;
  size_t at = (size_t)(in - l_.kernel->code.data());
  string_view text = meta[at].text;
  size_t open = text.find('['), close = text.find(']');
  if (open == string_view::npos || close == string_view::npos) return;
  string_view place = text.substr(open, close - open + 1);
  bool update = false;
  for (size_t i = at; i-- > 0 && at - i < 24 && !update;) {
    string_view t = meta[i].text;
    update = meta[i].loc && line_of(l_, (u32)i) == line_of(l_, (u32)at) && t.find("ld.") != string_view::npos &&
             t.find(place) != string_view::npos;
  }
  if (!update) return;
  if (x.kind == Access::Gather && distinct(m, [&](int i) { return x.address[i]; }) == (u32)__builtin_popcount(m)) return;
  warn(w, in, thread_of(w, __builtin_ctz(m)),
       "race: several threads of a warp read, change and write back one place in " +
           (x.region ? x.region->name : string("global memory")) +
           " with plain loads and stores, so updates are lost: an atomic is needed");
}

string Watch::top_lines(bool of_shared) const {
  struct Line {
    u32 at = 0;
    SiteTraffic sum;
  };
  std::map<std::pair<u32, bool>, Line> lines;
  for (size_t i = 0; i < traffic_.size(); i++) {
    if (!traffic_[i].accesses || where_[i] != (of_shared ? OfShared : OfGlobal)) continue;
    bool store = role_[i] & Store;
    Line& line = lines[{line_of(l_, (u32)i), store}];
    line.at = (u32)i;
    line.sum.accesses += traffic_[i].accesses, line.sum.actual += traffic_[i].actual;
    line.sum.ideal += traffic_[i].ideal;
  }
  std::vector<std::pair<std::pair<u32, bool>, Line>> worst(lines.begin(), lines.end());
  std::sort(worst.begin(), worst.end(), [](const auto& x, const auto& y) {
    return x.second.sum.actual - x.second.sum.ideal > y.second.sum.actual - y.second.sum.ideal;
  });
  string out;
  for (size_t i = 0; i < worst.size() && i < TOP_LINES; i++) {
    auto& [key, line] = worst[i];
    if (line.sum.actual <= line.sum.ideal) break;
    out += string("hotspot\t") + (of_shared ? "shared" : "global") + (key.second ? "_store" : "_load") + "\t" +
           std::to_string(line.at) + "\t" + std::to_string(line.sum.accesses) + "\t" + std::to_string(line.sum.actual) +
           "\t" + std::to_string(line.sum.ideal) + "\n";
  }
  return out;
}

string Watch::report(size_t arguments) const {
  u64 sums[2][2][2] = {};  // shared, store, {actual, ideal}
  for (size_t i = 0; i < traffic_.size(); i++) {
    if (where_[i] == OfLocal) continue;
    bool store = role_[i] & Store;
    sums[where_[i]][store][0] += traffic_[i].actual;
    sums[where_[i]][store][1] += traffic_[i].ideal;
  }
  string out;
  auto add = [&](const char* name, u64 v) { out += string("counter\t") + name + "\t" + std::to_string(v) + "\n"; };
  add("global_load_sectors", sums[0][0][0]), add("global_load_sectors_ideal", sums[0][0][1]);
  add("global_store_sectors", sums[0][1][0]), add("global_store_sectors_ideal", sums[0][1][1]);
  add("shared_load_wavefronts", sums[1][0][0]), add("shared_load_wavefronts_ideal", sums[1][0][1]);
  add("shared_store_wavefronts", sums[1][1][0]), add("shared_store_wavefronts_ideal", sums[1][1][1]);
  out += top_lines(false) + top_lines(true);
  std::vector<u64> read(arguments), written(arguments);
  for (size_t i = 0; i < l_.regions.size(); i++) {
    const Region& r = l_.regions[i];
    if (r.argument < 0) continue;
    bool mapped = r.bytes <= MAX_TOUCHED;
    read[(size_t)r.argument] = mapped ? count_bits(touched_[i].read) : std::min(r.read, r.bytes);
    written[(size_t)r.argument] = mapped ? count_bits(touched_[i].written) : std::min(r.written, r.bytes);
  }
  out += "touched_read";
  for (u64 v : read) out += "\t" + std::to_string(v);
  out += "\ntouched_written";
  for (u64 v : written) out += "\t" + std::to_string(v);
  return out + "\n";
}
}  // namespace kw
