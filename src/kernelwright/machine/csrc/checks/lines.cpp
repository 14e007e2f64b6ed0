// Sums the work of a watched launch by source line: warp instructions and their active threads by kind, and the
// accesses to each memory with the sectors or wavefronts that they took.
#include <algorithm>
#include <map>
#include <tuple>

#include "checks/watch.h"

namespace kw {
namespace {
constexpr size_t MOST_LINES = 48;  // of each table, those that took most

struct LineSum {
  u64 issued = 0, threads = 0, doubles = 0, special = 0, barriers = 0;
};

bool starts(string_view text, std::initializer_list<const char*> heads) {
  return std::any_of(heads.begin(), heads.end(), [&](string_view h) { return text.substr(0, h.size()) == h; });
}

template <class Rows, class Weight>
void keep_heaviest(Rows& rows, Weight weight) {
  std::sort(rows.begin(), rows.end(), [&](const auto& x, const auto& y) { return weight(x) > weight(y); });
  if (rows.size() > MOST_LINES) rows.resize(MOST_LINES);
}

string joined(std::initializer_list<u64> values) {
  string out;
  for (u64 v : values) out += "\t" + std::to_string(v);
  return out + "\n";
}
}  // namespace

string Watch::line_work() const {
  const auto& meta = l_.kernel->meta;
  std::map<u32, u32> line_of_loc;
  std::map<u32, LineSum> lines;
  std::map<std::tuple<string, u32, i32>, SiteTraffic> sites;
  const char* before = nullptr;
  i64 issued = 0, threads = 0;
  for (size_t i = 0; i < traffic_.size() && i < l_.issues.size(); i++) {
    issued += l_.issues[i], threads += l_.executed[i];
    string_view text = meta[i].text;
    bool first = text.data() != before;  // one PTX instruction may be several of ours
    before = text.data();
    if (issued <= 0) continue;
    auto [found, fresh] = line_of_loc.try_emplace(meta[i].loc, 0);
    if (fresh) found->second = source_line(*l_.program, meta[i].loc);
    u32 line = found->second;
    if (first) {
      LineSum& sum = lines[line];
      string_view op = opcode_of(text);
      sum.issued += (u64)issued, sum.threads += (u64)threads;
      if (meta[i].cls == Class::Double) sum.doubles += (u64)issued;
      if (starts(op, {"ex2.", "lg2.", "sin.", "cos.", "tanh.", "rcp.", "rsqrt.", "sqrt.", "div."}))
        sum.special += (u64)issued;
      if (starts(op, {"bar.", "barrier."})) sum.barriers += (u64)issued;
    }
    const SiteTraffic& t = traffic_[i];
    if (!t.accesses) continue;
    const char* memory = where_[i] == OfShared ? "shared" : where_[i] == OfLocal ? "local" : "global";
    const char* what = role_[i] & Update ? "_atomic" : role_[i] & Store ? "_store" : "_load";
    SiteTraffic& sum = sites[{string(memory) + what, line, t.argument}];
    sum.accesses += t.accesses, sum.actual += t.actual, sum.ideal += t.ideal, sum.bytes += t.bytes;
  }
  std::vector<std::pair<u32, LineSum>> heavy(lines.begin(), lines.end());
  keep_heaviest(heavy, [](const auto& row) { return row.second.issued; });
  std::vector<std::pair<std::tuple<string, u32, i32>, SiteTraffic>> moved(sites.begin(), sites.end());
  keep_heaviest(moved, [](const auto& row) { return std::max(row.second.accesses, row.second.actual); });
  string out;
  for (auto& [line, s] : heavy) out += "line" + joined({line, s.issued, s.threads, s.doubles, s.special, s.barriers});
  for (auto& [key, t] : moved) {
    auto& [kind, line, argument] = key;
    out += "site\t" + kind + "\t" + std::to_string(argument) +
           joined({line, t.accesses, t.actual, t.ideal, t.bytes});
  }
  return out;
}
}  // namespace kw
