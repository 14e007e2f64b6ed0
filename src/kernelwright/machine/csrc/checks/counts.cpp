// Counts a launch's operations from its opcodes and their execution counts: floating-point operations by type (a fused
// multiply-add counts two, a pair of halves twice as many) and multiply-adds of tensor cores.
#include <algorithm>
#include <map>

#include "checks/watch.h"

namespace kw {
namespace {
struct Parts {
  string_view part[24];
  int n = 0;
  explicit Parts(string_view text) {
    if (!text.empty() && text[0] == '@') text.remove_prefix(std::min(text.find(' '), text.size()));
    while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
    text = text.substr(0, text.find_first_of(" \t;"));
    while (n < 24 && !text.empty()) {
      size_t dot = text.find('.');
      part[n++] = text.substr(0, dot);
      text = dot == string_view::npos ? string_view() : text.substr(dot + 1);
    }
  }
  bool has(string_view name) const { return std::find(part, part + n, name) != part + n; }
};

const char* float_type(const Parts& p) {
  for (int i = p.n - 1; i > 0; i--)
    for (const char* t : {"f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2"})
      if (p.part[i] == t) return t;
  return nullptr;
}

// m, n, k of "m16n8k16".
bool shape_of(string_view s, u64* mnk) {
  const char letter[] = "mnk";
  for (int i = 0; i < 3; i++) {
    if (s.empty() || s[0] != letter[i]) return false;
    s.remove_prefix(1);
    u64 v = 0;
    while (!s.empty() && s[0] >= '0' && s[0] <= '9') v = v * 10 + (u64)(s[0] - '0'), s.remove_prefix(1);
    mnk[i] = v;
  }
  return s.empty() && mnk[0] && mnk[1] && mnk[2];
}

void add_tensor(const Parts& p, u64 threads, std::map<string, u64>& out) {
  bool group = p.part[0] == "wgmma";
  u64 mnk[3], per = group ? 128 : 32;
  string type;
  int shape = -1;
  for (int i = 1; i < p.n; i++)
    if (shape_of(p.part[i], mnk)) shape = i;
  if (shape < 0) return;
  // The factors' type is the second of d.a.b.c; wmma of halves names only d and c.
  std::vector<string_view> types;
  for (int i = shape + 1; i < p.n; i++) {
    string_view t = p.part[i];
    bool is_type = t.size() > 1 && (t[0] == 'f' || t[0] == 'b' || t[0] == 's' || t[0] == 'u' || t[0] == 't' ||
                                    t[0] == 'e') && t.find_first_of("0123456789") != string_view::npos;
    if (is_type) types.push_back(t);
  }
  type = types.size() > 2 ? string(types[1]) : "f16";
  u64 flops = 2 * mnk[0] * mnk[1] * mnk[2] * threads / per;
  if (p.has("sp") || p.has("sp::ordered_metadata")) flops /= 2;
  out["tensor_ops_" + type] += flops;
}

void add_operation(const Parts& p, u64 threads, std::map<string, u64>& out) {
  string_view op = p.part[0];
  if (op == "mma" || op == "wgmma" || (op == "wmma" && p.has("mma"))) return add_tensor(p, threads, out);
  const char* type = float_type(p);
  if (!type) return;
  bool atomic = (op == "atom" || op == "red") && p.has("add");
  bool special = op == "div" || op == "rcp" || op == "sqrt" || op == "rsqrt" || op == "ex2" || op == "lg2" ||
                 op == "sin" || op == "cos" || op == "tanh";
  u64 each = op == "fma" || op == "mad" ? 2 : op == "add" || op == "sub" || op == "mul" || atomic || special ? 1 : 0;
  string_view name(type);
  bool pair = name.size() > 2 && name.substr(name.size() - 2) == "x2";
  if (pair) each *= 2, name.remove_suffix(2);
  if (each) out[(special ? "special_" : "flops_") + string(name)] += each * threads;
}
}  // namespace

string operation_counts(const Launch& l) {
  std::map<string, u64> sums{{"flops_f32", 0}};
  const char* before = nullptr;
  i64 running = 0;
  for (size_t i = 0; i < l.kernel->code.size() && i < l.executed.size(); i++) {
    running += l.executed[i];
    string_view text = l.kernel->meta[i].text;
    bool first = text.data() != before;  // one PTX instruction may be several of ours
    before = text.data();
    if (first && running > 0) add_operation(Parts(text), (u64)running, sums);
  }
  string out;
  for (auto& [name, value] : sums) out += "counter\t" + name + "\t" + std::to_string(value) + "\n";
  return out;
}
}  // namespace kw
