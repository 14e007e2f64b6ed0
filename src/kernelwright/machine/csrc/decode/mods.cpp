#include "decode/decode.h"

namespace kw {
Mods::Mods(string_view opcode) : full_(opcode) {
  size_t at = 0;
  bool first = true;
  while (at <= opcode.size()) {
    size_t dot = opcode.find('.', at);
    string_view p = opcode.substr(at, dot == string_view::npos ? dot : dot - at);
    if (first)
      op = p;
    else if (n_ < 24)
      part_[n_++] = p;
    else
      throw Unsupported(string(op) + ": too many modifiers");
    first = false;
    if (dot == string_view::npos) break;
    at = dot + 1;
  }
}

bool Mods::take(string_view name) {
  for (int i = 0; i < n_; i++)
    if (!(used_ >> i & 1) && part_[i] == name) return used_ |= 1u << i, true;
  return false;
}

string_view Mods::peek() const {
  for (int i = 0; i < n_; i++)
    if (!(used_ >> i & 1)) return part_[i];
  return {};
}

string_view Mods::next() {
  string_view p = peek();
  if (!p.empty()) take(p);
  return p;
}

Ty Mods::maybe_type() {
  for (int i = 0; i < n_; i++) {
    if (used_ >> i & 1) continue;
    if (Ty t = type_named(part_[i]); t != Ty::None) return used_ |= 1u << i, t;
  }
  return Ty::None;
}

Ty Mods::type() {
  Ty t = maybe_type();
  if (t == Ty::None) throw Unsupported(string(full_) + " (no type that the machine knows)");
  return t;
}

Round Mods::round() {
  if (take("rn")) return Round::Near;
  if (take("rz")) return Round::Zero;
  if (take("rm")) return Round::Down;
  if (take("rp")) return Round::Up;
  if (take("rna")) return Round::NearAway;
  return Round::None;
}

void Mods::unsupported(string_view part) const { throw Unsupported(string(op) + "." + string(part)); }

void Mods::finish() const {
  for (int i = 0; i < n_; i++)
    if (!(used_ >> i & 1)) unsupported(part_[i]);
}
}  // namespace kw
